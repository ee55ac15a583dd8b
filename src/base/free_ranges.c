#include "base/free_ranges.h"

enum {
    PARTS_LOG = 3, // eight classes between powers of two
    PARTS = 1 << PARTS_LOG,
};
_Static_assert(CY_FREE_LISTS == (64 - PARTS_LOG) * PARTS, "a list for each class of a size");

void cy_free_ranges_open(cy_free_ranges *lists, cy_range *ranges, cy_memory_policy policy)
{
    *lists = (cy_free_ranges){.ranges = ranges, .policy = policy};
    for (int i = 0; i < CY_FREE_LISTS; i++)
        lists->heads[i] = CY_RANGE_NONE;
}

// The class of a size: sizes of class c are at least the least of c and below that of c + 1.
static int class_of(size_t bytes)
{
    const uint64_t units = bytes / CY_ARENA_ALIGN;
    if (units < PARTS) return (int)units;
    const int high = 63 - __builtin_clzll(units);
    return (high - PARTS_LOG) * PARTS + (int)(units >> (high - PARTS_LOG));
}

// The first class all of whose sizes are at least `bytes`.
static int class_above(size_t bytes)
{
    const uint64_t units = bytes / CY_ARENA_ALIGN;
    if (units < PARTS) return (int)units;
    const int shift = 63 - __builtin_clzll(units) - PARTS_LOG;
    return class_of((units + (1ULL << shift) - 1) * CY_ARENA_ALIGN);
}

static int list_of(const cy_free_ranges *lists, size_t bytes)
{
    return lists->policy == CY_MEMORY_CLASSES ? class_of(bytes) : 0;
}

// The free range before this one in order of addresses, for the policies that have one list.
static int free_below(const cy_free_ranges *lists, int at)
{
    const cy_range *ranges = lists->ranges;
    int below = ranges[at].below;
    while (below != CY_RANGE_NONE && ranges[below].kind != CY_RANGE_FREE)
        below = ranges[below].below;
    return below;
}

void cy_free_ranges_add(cy_free_ranges *lists, int at)
{
    cy_range *r = &lists->ranges[at];
    const int list = list_of(lists, r->bytes);
    r->kind = CY_RANGE_FREE;
    r->earlier = lists->policy == CY_MEMORY_CLASSES ? CY_RANGE_NONE : free_below(lists, at);
    r->later = r->earlier == CY_RANGE_NONE ? lists->heads[list] : lists->ranges[r->earlier].later;
    if (r->earlier == CY_RANGE_NONE) {
        lists->heads[list] = at;
    } else {
        lists->ranges[r->earlier].later = at;
    }
    if (r->later != CY_RANGE_NONE) lists->ranges[r->later].earlier = at;
    lists->some[list / 64] |= 1ULL << list % 64;
}

void cy_free_ranges_remove(cy_free_ranges *lists, int at)
{
    const cy_range *r = &lists->ranges[at];
    const int list = list_of(lists, r->bytes);
    if (r->earlier == CY_RANGE_NONE) {
        lists->heads[list] = r->later;
    } else {
        lists->ranges[r->earlier].later = r->later;
    }
    if (r->later != CY_RANGE_NONE) lists->ranges[r->later].earlier = r->earlier;
    if (lists->heads[list] == CY_RANGE_NONE) lists->some[list / 64] &= ~(1ULL << list % 64);
}

static int first_of_list(const cy_free_ranges *lists, int list, size_t bytes)
{
    int at = lists->heads[list];
    while (at != CY_RANGE_NONE && lists->ranges[at].bytes < bytes)
        at = lists->ranges[at].later;
    return at;
}

static int best_of_list(const cy_free_ranges *lists, size_t bytes)
{
    const cy_range *ranges = lists->ranges;
    int best = CY_RANGE_NONE;
    for (int at = lists->heads[0]; at != CY_RANGE_NONE; at = ranges[at].later) {
        if (ranges[at].bytes < bytes) continue;
        if (best == CY_RANGE_NONE || ranges[at].bytes < ranges[best].bytes) best = at;
    }
    return best;
}

// The first list from `list` on that is not empty, or CY_RANGE_NONE.
static int list_from(const cy_free_ranges *lists, int list)
{
    uint64_t word = lists->some[list / 64] & (~0ULL << list % 64);
    for (int i = list / 64;; word = lists->some[i]) {
        if (word != 0) return i * 64 + __builtin_ctzll(word);
        if (++i == CY_FREE_WORDS) return CY_RANGE_NONE;
    }
}

// The class of the size itself is searched last: some of its ranges may be large enough.
static int some_of_classes(const cy_free_ranges *lists, size_t bytes)
{
    const int list = list_from(lists, class_above(bytes));
    return list != CY_RANGE_NONE ? lists->heads[list]
                                 : first_of_list(lists, class_of(bytes), bytes);
}

int cy_free_ranges_find(const cy_free_ranges *lists, size_t bytes)
{
    if (lists->policy == CY_MEMORY_CLASSES) return some_of_classes(lists, bytes);
    if (lists->policy == CY_MEMORY_BEST_FIT) return best_of_list(lists, bytes);
    return first_of_list(lists, 0, bytes);
}
