// checkpoint/place.h: a folder that is made beside its place and renamed when it is whole.
//
// Used inside src/checkpoint only, for folders that one process makes once.

#ifndef CY_CHECKPOINT_PLACE_H
#define CY_CHECKPOINT_PLACE_H

#include "base/status.h"

typedef struct cy_place {
    char *place;  // owned: where the folder will stand
    char *parent; // owned
    char *making; // owned: PARENT/.NAME.tmp; not made yet
} cy_place;

// A path that is taken, unless by an empty folder, is refused. Changes nothing there.
CY_MUST_CHECK cy_status cy_place_open(cy_place *place, const char *path);

// To be called before something is written: makes the folders above the place and removes what an
// earlier attempt left beside it.
CY_MUST_CHECK cy_status cy_place_make(const cy_place *place);

// With CY_OK gives the folder `making` its name; otherwise removes it. Returns `status`, or what
// went wrong in naming it. Frees the place.
CY_MUST_CHECK cy_status cy_place_close(cy_place *place, cy_status status);

#endif
