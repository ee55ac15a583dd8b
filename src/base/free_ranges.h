// base/free_ranges.h: the ranges of a memory pool that are free, in lists, and the choice of one.
//
// A part of base/memory_pool.h, which says what its policies are.

#ifndef CY_BASE_FREE_RANGES_H
#define CY_BASE_FREE_RANGES_H

#include "base/memory_pool.h"

#define CY_RANGE_NONE (-1)

enum {
    CY_FREE_LISTS = 488, // eight between powers of two
    CY_FREE_WORDS = CY_FREE_LISTS / 64 + 1,
};

typedef enum cy_range_kind {
    CY_RANGE_UNUSED, // an entry of the table without a range
    CY_RANGE_TAKEN,
    CY_RANGE_FREE,
} cy_range_kind;

// A range of the pool's bytes. Others are named by their places in the table.
typedef struct cy_range {
    size_t first, bytes;
    int below, above;   // neighbours by address
    int earlier, later; // in a list of free ranges; `later` also in the list of unused entries
    cy_range_kind kind;
} cy_range;

typedef struct cy_free_ranges {
    cy_range *ranges; // borrowed: the table
    cy_memory_policy policy;
    int heads[CY_FREE_LISTS];     // only the first is in use without classes
    uint64_t some[CY_FREE_WORDS]; // a bit for each list that is not empty
} cy_free_ranges;

void cy_free_ranges_open(cy_free_ranges *lists, cy_range *ranges, cy_memory_policy policy);

// Puts a range into its list and calls it free; takes a free one out of its list. The neighbours of
// a range that is added must be known; its size must not change while it is in a list.
void cy_free_ranges_add(cy_free_ranges *lists, int at);
void cy_free_ranges_remove(cy_free_ranges *lists, int at);

// A free range of at least `bytes` bytes by the policy, or CY_RANGE_NONE.
int cy_free_ranges_find(const cy_free_ranges *lists, size_t bytes);

#endif
