// support/ranks.h: ranks as threads that only agree, for tests of what needs no more.

#ifndef CY_TESTS_RANKS_H
#define CY_TESTS_RANKS_H

#include "checkpoint/checkpoint.h"

// Runs body(context, ranks) on `size` threads and returns when all are back.
void cy_test_ranks(int size, void (*body)(void *context, cy_checkpoint_comm ranks), void *context);

#endif
