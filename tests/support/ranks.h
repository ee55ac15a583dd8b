// support/ranks.h: ranks as threads with one group of all, for tests of what needs no more.

#ifndef CY_TESTS_RANKS_H
#define CY_TESTS_RANKS_H

#include "comm/group.h"

// Runs body(context, ranks) on `size` threads, at most 64, and returns when all are back. `ranks`
// is the group of them all.
void cy_test_ranks(int size, void (*body)(void *context, cy_group *ranks), void *context);

#endif
