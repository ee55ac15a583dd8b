// base/nearest.h: "did you mean": the known name that is closest to one that is not known.
//
// Pure; any thread. Letters' case and the difference between `-` and `_` do not count.

#ifndef CY_BASE_NEAREST_H
#define CY_BASE_NEAREST_H

#include <stddef.h>

// How many letters must be put in, taken out, replaced or swapped with the next to make one of the
// other. Names longer than 63 letters are far from everything but themselves.
int cy_edit_distance(const char *a, const char *b);

// Of the `count` names, the closest to `name`, or NULL when even that shares too little with it to
// be what was meant. The first of several that are equally close.
const char *cy_nearest(const char *name, const char *const *names, size_t count);

#endif
