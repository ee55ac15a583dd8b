// Allocates pieces of one range of memory by one of three policies, and compacts them.

#include "base/memory_pool.h"

#include "base/memory.h"
#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

// ---- the free ranges, in lists

#define RANGE_NONE (-1)

enum {
    FREE_LISTS = 488, // eight classes between two powers of two
    FREE_WORDS = FREE_LISTS / 64 + 1,
};

typedef enum range_kind {
    RANGE_UNUSED, // an entry of the table without a range
    RANGE_TAKEN,
    RANGE_FREE,
} range_kind;

// A range of the pool's bytes. Ranges refer to each other by their indices in the table.
typedef struct range {
    size_t first, bytes;
    int below, above;   // neighbours by address
    int earlier, later; // in a list of free ranges; `later` also in the list of unused entries
    range_kind kind;
} range;

typedef struct free_ranges {
    range *ranges; // borrowed: the table
    cy_memory_policy policy;
    int heads[FREE_LISTS];     // one list, the first, for the policies without classes
    uint64_t some[FREE_WORDS]; // a set bit for each list that is not empty
} free_ranges;

enum {
    PARTS_LOG = 3, // eight classes between two powers of two
    PARTS = 1 << PARTS_LOG,
};
_Static_assert(FREE_LISTS == (64 - PARTS_LOG) * PARTS, "a list for each class of a size");

static void free_ranges_open(free_ranges *lists, range *ranges, cy_memory_policy policy)
{
    *lists = (free_ranges){.ranges = ranges, .policy = policy};
    for (int i = 0; i < FREE_LISTS; i++)
        lists->heads[i] = RANGE_NONE;
}

// The class of a size. Sizes of class c lie between the smallest of c and the smallest of c + 1.
static int class_of(size_t bytes)
{
    const uint64_t units = bytes / CY_ARENA_ALIGN;
    if (units < PARTS) return (int)units;
    const int high = 63 - __builtin_clzll(units);
    return (high - PARTS_LOG) * PARTS + (int)(units >> (high - PARTS_LOG));
}

// The first class whose sizes are all at least `bytes`.
static int class_above(size_t bytes)
{
    const uint64_t units = bytes / CY_ARENA_ALIGN;
    if (units < PARTS) return (int)units;
    const int shift = 63 - __builtin_clzll(units) - PARTS_LOG;
    return class_of((units + (1ULL << shift) - 1) * CY_ARENA_ALIGN);
}

static int list_of(const free_ranges *lists, size_t bytes)
{
    return lists->policy == CY_MEMORY_CLASSES ? class_of(bytes) : 0;
}

// The free range before this one in order of addresses, for the policies with one list.
static int free_below(const free_ranges *lists, int at)
{
    const range *ranges = lists->ranges;
    int below = ranges[at].below;
    while (below != RANGE_NONE && ranges[below].kind != RANGE_FREE)
        below = ranges[below].below;
    return below;
}

// Puts a range into its list and marks it free. Its neighbours must be known; its size must not
// change while it is in a list.
static void free_ranges_add(free_ranges *lists, int at)
{
    range *r = &lists->ranges[at];
    const int list = list_of(lists, r->bytes);
    r->kind = RANGE_FREE;
    r->earlier = lists->policy == CY_MEMORY_CLASSES ? RANGE_NONE : free_below(lists, at);
    r->later = r->earlier == RANGE_NONE ? lists->heads[list] : lists->ranges[r->earlier].later;
    if (r->earlier == RANGE_NONE) {
        lists->heads[list] = at;
    } else {
        lists->ranges[r->earlier].later = at;
    }
    if (r->later != RANGE_NONE) lists->ranges[r->later].earlier = at;
    lists->some[list / 64] |= 1ULL << list % 64;
}

// Takes a free range out of its list.
static void free_ranges_remove(free_ranges *lists, int at)
{
    const range *r = &lists->ranges[at];
    const int list = list_of(lists, r->bytes);
    if (r->earlier == RANGE_NONE) {
        lists->heads[list] = r->later;
    } else {
        lists->ranges[r->earlier].later = r->later;
    }
    if (r->later != RANGE_NONE) lists->ranges[r->later].earlier = r->earlier;
    if (lists->heads[list] == RANGE_NONE) lists->some[list / 64] &= ~(1ULL << list % 64);
}

static int first_of_list(const free_ranges *lists, int list, size_t bytes)
{
    int at = lists->heads[list];
    while (at != RANGE_NONE && lists->ranges[at].bytes < bytes)
        at = lists->ranges[at].later;
    return at;
}

static int best_of_list(const free_ranges *lists, size_t bytes)
{
    const range *ranges = lists->ranges;
    int best = RANGE_NONE;
    for (int at = lists->heads[0]; at != RANGE_NONE; at = ranges[at].later) {
        if (ranges[at].bytes < bytes) continue;
        if (best == RANGE_NONE || ranges[at].bytes < ranges[best].bytes) best = at;
    }
    return best;
}

// The first list at or after `list` that is not empty, or RANGE_NONE.
static int list_from(const free_ranges *lists, int list)
{
    uint64_t word = lists->some[list / 64] & (~0ULL << list % 64);
    for (int i = list / 64;; word = lists->some[i]) {
        if (word != 0) return i * 64 + __builtin_ctzll(word);
        if (++i == FREE_WORDS) return RANGE_NONE;
    }
}

// The class of the size itself is searched last: only some of its ranges are large enough.
static int some_of_classes(const free_ranges *lists, size_t bytes)
{
    const int list = list_from(lists, class_above(bytes));
    return list != RANGE_NONE ? lists->heads[list] : first_of_list(lists, class_of(bytes), bytes);
}

// Returns a free range of at least `bytes` bytes by the policy, or RANGE_NONE.
static int free_ranges_find(const free_ranges *lists, size_t bytes)
{
    if (lists->policy == CY_MEMORY_CLASSES) return some_of_classes(lists, bytes);
    if (lists->policy == CY_MEMORY_BEST_FIT) return best_of_list(lists, bytes);
    return first_of_list(lists, 0, bytes);
}

// ---- the pool

struct cy_memory_pool {
    pthread_mutex_t lock;
    char *base;    // borrowed
    range *ranges; // owned
    int unused;    // first entry of the table that is not in use
    int lowest;    // range at the beginning of the pool
    int most_pieces;
    free_ranges free;
    cy_memory_pool_stats stats;
};

// ---- the table

static int take_entry(cy_memory_pool *pool)
{
    const int at = pool->unused;
    CY_ASSERT(at != RANGE_NONE); // the table has two entries for each piece and one more
    pool->unused = pool->ranges[at].later;
    return at;
}

static void give_entry(cy_memory_pool *pool, int at)
{
    pool->ranges[at].kind = RANGE_UNUSED;
    pool->ranges[at].later = pool->unused;
    pool->unused = at;
}

// Cuts a range after its first `bytes` bytes; the rest becomes a free range.
static void cut(cy_memory_pool *pool, int at, size_t bytes)
{
    range *r = &pool->ranges[at];
    if (r->bytes == bytes) return;
    const int rest = take_entry(pool);
    pool->ranges[rest] = (range){
        .first = r->first + bytes, .bytes = r->bytes - bytes, .below = at, .above = r->above};
    if (r->above != RANGE_NONE) pool->ranges[r->above].below = rest;
    r->above = rest;
    r->bytes = bytes;
    free_ranges_add(&pool->free, rest);
}

// Joins the range above to this one, which is in no list.
static void join_above(cy_memory_pool *pool, int at)
{
    range *r = &pool->ranges[at];
    const int gone = r->above;
    r->bytes += pool->ranges[gone].bytes;
    r->above = pool->ranges[gone].above;
    if (r->above != RANGE_NONE) pool->ranges[r->above].below = at;
    give_entry(pool, gone);
}

static bool is_free(const cy_memory_pool *pool, int at)
{
    return at != RANGE_NONE && pool->ranges[at].kind == RANGE_FREE;
}

// ---- what others call

cy_status cy_memory_pool_open(
    cy_memory_pool **pool, void *base, size_t bytes, int most_pieces, cy_memory_policy policy)
{
    cy_memory_pool *made = NULL;
    range *table = NULL;
    CY_ASSERT((uintptr_t)base % CY_ARENA_ALIGN == 0 && most_pieces > 0);
    CY_TRY(CY_ALLOC(&made, 1));
    const size_t entries = 2 * (size_t)most_pieces + 1;
    const cy_status status = CY_ALLOC(&table, entries);
    if (status != CY_OK) {
        cy_memory_free(made);
        return status;
    }
    *made = (cy_memory_pool){.base = base,
        .ranges = table,
        .unused = RANGE_NONE,
        .lowest = RANGE_NONE,
        .most_pieces = most_pieces,
        .stats = {.capacity = bytes / CY_ARENA_ALIGN * CY_ARENA_ALIGN}};
    pthread_mutex_init(&made->lock, NULL);
    free_ranges_open(&made->free, table, policy);
    for (size_t i = entries; i > 0; i--)
        give_entry(made, (int)i - 1);
    if (made->stats.capacity > 0) {
        made->lowest = take_entry(made);
        made->ranges[made->lowest] =
            (range){.bytes = made->stats.capacity, .below = RANGE_NONE, .above = RANGE_NONE};
        free_ranges_add(&made->free, made->lowest);
    }
    CY_POISON(base, bytes);
    *pool = made;
    return CY_OK;
}

void cy_memory_pool_close(cy_memory_pool *pool)
{
    if (pool == NULL) return;
    CY_UNPOISON(pool->base, pool->stats.capacity);
    pthread_mutex_destroy(&pool->lock);
    cy_memory_free(pool->ranges);
    cy_memory_free(pool);
}

// Returns the handle, or RANGE_NONE.
static int take_locked(cy_memory_pool *pool, size_t bytes)
{
    cy_memory_pool_stats *stats = &pool->stats;
    const int at =
        stats->pieces < pool->most_pieces ? free_ranges_find(&pool->free, bytes) : RANGE_NONE;
    stats->takes += at != RANGE_NONE;
    stats->failures += at == RANGE_NONE;
    if (at == RANGE_NONE) return RANGE_NONE;
    range *r = &pool->ranges[at];
    free_ranges_remove(&pool->free, at);
    r->kind = RANGE_TAKEN;
    cut(pool, at, bytes);
    stats->pieces++;
    stats->used += bytes;
    if (stats->used > stats->peak) stats->peak = stats->used;
    if (r->first + bytes > stats->reach) stats->reach = r->first + bytes;
    return at;
}

cy_status cy_memory_pool_take(cy_memory_pool *pool, int *piece, size_t bytes)
{
    // A size whose rounding would overflow is larger than any pool.
    const size_t least = bytes > SIZE_MAX / 2 ? SIZE_MAX / 2 : bytes;
    const size_t size = cy_arena_bytes(least > 0 ? least : 1);
    pthread_mutex_lock(&pool->lock);
    *piece = take_locked(pool, size);
    pthread_mutex_unlock(&pool->lock);
    if (*piece == RANGE_NONE) {
        const cy_memory_pool_stats stats = cy_memory_pool_look(pool);
        return CY_FAIL(CY_ERR_MEMORY,
            "memory pool: %zu bytes asked, %zu of %zu in use by %d pieces of at most %d, the "
            "largest "
            "free piece has %zu",
            bytes, stats.used, stats.capacity, stats.pieces, pool->most_pieces, stats.largest_free);
    }
    CY_UNPOISON(cy_memory_pool_at(pool, *piece), bytes);
    return CY_OK;
}

void *cy_memory_pool_at(const cy_memory_pool *pool, int piece)
{
    return pool->base + pool->ranges[piece].first;
}

void cy_memory_pool_give(cy_memory_pool *pool, int piece)
{
    pthread_mutex_lock(&pool->lock);
    CY_ASSERT(
        piece >= 0 && piece <= 2 * pool->most_pieces && pool->ranges[piece].kind == RANGE_TAKEN);
    range *r = &pool->ranges[piece];
    CY_POISON(pool->base + r->first, r->bytes);
    pool->stats.gives++;
    pool->stats.pieces--;
    pool->stats.used -= r->bytes;
    if (is_free(pool, r->above)) {
        free_ranges_remove(&pool->free, r->above);
        join_above(pool, piece);
    }
    int at = piece;
    if (is_free(pool, r->below)) {
        at = r->below;
        free_ranges_remove(&pool->free, at);
        join_above(pool, at);
    }
    free_ranges_add(&pool->free, at);
    pthread_mutex_unlock(&pool->lock);
}

// Puts a range behind the last one that was moved.
static void settle(cy_memory_pool *pool, int at, int last, size_t first)
{
    range *r = &pool->ranges[at];
    if (r->kind == RANGE_TAKEN && r->first != first) {
        memmove(pool->base + first, pool->base + r->first, r->bytes);
        pool->stats.moved += (int64_t)r->bytes;
    }
    r->first = first;
    r->below = last;
    r->above = RANGE_NONE;
    if (last == RANGE_NONE) {
        pool->lowest = at;
    } else {
        pool->ranges[last].above = at;
    }
}

void cy_memory_pool_compact(cy_memory_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    size_t end = 0;
    int last = RANGE_NONE;
    CY_UNPOISON(pool->base, pool->stats.capacity);
    for (int at = pool->lowest, up; at != RANGE_NONE; at = up) {
        up = pool->ranges[at].above;
        if (pool->ranges[at].kind == RANGE_FREE) {
            free_ranges_remove(&pool->free, at);
            give_entry(pool, at);
            continue;
        }
        settle(pool, at, last, end);
        end += pool->ranges[at].bytes;
        last = at;
    }
    const size_t rest = pool->stats.capacity - end;
    if (rest > 0) {
        const int at = take_entry(pool);
        pool->ranges[at] = (range){.bytes = rest};
        settle(pool, at, last, end);
        free_ranges_add(&pool->free, at);
        CY_POISON(pool->base + end, rest);
    }
    pthread_mutex_unlock(&pool->lock);
}

cy_memory_pool_stats cy_memory_pool_look(cy_memory_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    cy_memory_pool_stats stats = pool->stats;
    for (int at = pool->lowest; at != RANGE_NONE; at = pool->ranges[at].above) {
        const range *r = &pool->ranges[at];
        if (r->kind == RANGE_FREE && r->bytes > stats.largest_free) stats.largest_free = r->bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    return stats;
}

double cy_memory_pool_fragmentation(const cy_memory_pool_stats *stats)
{
    const size_t left = stats->capacity - stats->used;
    return left == 0 ? 0 : 1 - (double)stats->largest_free / (double)left;
}
