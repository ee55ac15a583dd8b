#include "base/memory_pool.h"

#include "base/assert.h"
#include "base/memory.h"
#include "base/poison.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define NONE (-1)

enum {
    PARTS_LOG = 3, // eight classes between powers of two
    PARTS = 1 << PARTS_LOG,
    CLASSES = (64 - PARTS_LOG) * PARTS,
    WORDS = CLASSES / 64 + 1,
};

// A range of the pool, taken or free, or an entry of the table that is not in use.
typedef struct range {
    size_t first, bytes;
    int below, above;   // neighbours by address
    int earlier, later; // in a list of free ranges; `later` also in the list of unused entries
    enum { UNUSED, TAKEN, FREE } kind;
} range;

struct cy_memory_pool {
    pthread_mutex_t lock;
    char *base; // borrowed
    cy_memory_policy policy;
    range *ranges; // owned
    int unused;    // first of the entries that are not in use
    int lowest;    // range at the beginning of the pool
    int most_pieces;
    int heads[CLASSES];   // of lists of free ranges; only the first without classes
    uint64_t some[WORDS]; // a bit for each list that is not empty
    cy_memory_pool_stats stats;
};

// ---- lists of free ranges

// The class of a size: sizes of class c are at least the least of c and below that of c + 1.
static int class_of(size_t bytes)
{
    const uint64_t units = bytes / CY_MEMORY_POOL_ALIGN;
    if (units < PARTS) return (int)units;
    const int high = 63 - __builtin_clzll(units);
    return (high - PARTS_LOG) * PARTS + (int)(units >> (high - PARTS_LOG));
}

// The first class all of whose sizes are at least `bytes`.
static int class_above(size_t bytes)
{
    const uint64_t units = bytes / CY_MEMORY_POOL_ALIGN;
    if (units < PARTS) return (int)units;
    const int shift = 63 - __builtin_clzll(units) - PARTS_LOG;
    return class_of((units + (1ULL << shift) - 1) * CY_MEMORY_POOL_ALIGN);
}

static int list_of(const cy_memory_pool *pool, size_t bytes)
{
    return pool->policy == CY_MEMORY_CLASSES ? class_of(bytes) : 0;
}

// The free range before this one in order of addresses, for the policies that have one list.
static int free_below(const cy_memory_pool *pool, int at)
{
    const range *ranges = pool->ranges;
    int below = ranges[at].below;
    while (below != NONE && ranges[below].kind != FREE)
        below = ranges[below].below;
    return below;
}

static void link_free(cy_memory_pool *pool, int at)
{
    range *r = &pool->ranges[at];
    const int list = list_of(pool, r->bytes);
    r->kind = FREE;
    r->earlier = pool->policy == CY_MEMORY_CLASSES ? NONE : free_below(pool, at);
    r->later = r->earlier == NONE ? pool->heads[list] : pool->ranges[r->earlier].later;
    if (r->earlier == NONE) {
        pool->heads[list] = at;
    } else {
        pool->ranges[r->earlier].later = at;
    }
    if (r->later != NONE) pool->ranges[r->later].earlier = at;
    pool->some[list / 64] |= 1ULL << list % 64;
}

static void unlink_free(cy_memory_pool *pool, int at)
{
    const range *r = &pool->ranges[at];
    const int list = list_of(pool, r->bytes);
    if (r->earlier == NONE) {
        pool->heads[list] = r->later;
    } else {
        pool->ranges[r->earlier].later = r->later;
    }
    if (r->later != NONE) pool->ranges[r->later].earlier = r->earlier;
    if (pool->heads[list] == NONE) pool->some[list / 64] &= ~(1ULL << list % 64);
}

// ---- choosing

static int first_of_list(const cy_memory_pool *pool, int list, size_t bytes)
{
    int at = pool->heads[list];
    while (at != NONE && pool->ranges[at].bytes < bytes)
        at = pool->ranges[at].later;
    return at;
}

static int best_of_list(const cy_memory_pool *pool, size_t bytes)
{
    const range *ranges = pool->ranges;
    int best = NONE;
    for (int at = pool->heads[0]; at != NONE; at = ranges[at].later) {
        if (ranges[at].bytes < bytes) continue;
        if (best == NONE || ranges[at].bytes < ranges[best].bytes) best = at;
    }
    return best;
}

// The first list from `list` on that is not empty, or NONE.
static int list_from(const cy_memory_pool *pool, int list)
{
    uint64_t word = pool->some[list / 64] & (~0ULL << list % 64);
    for (int i = list / 64;; word = pool->some[i]) {
        if (word != 0) return i * 64 + __builtin_ctzll(word);
        if (++i == WORDS) return NONE;
    }
}

// The class of the size itself is searched last: some of its ranges may be large enough.
static int some_of_classes(const cy_memory_pool *pool, size_t bytes)
{
    const int list = list_from(pool, class_above(bytes));
    return list != NONE ? pool->heads[list] : first_of_list(pool, class_of(bytes), bytes);
}

static int choose(const cy_memory_pool *pool, size_t bytes)
{
    if (pool->policy == CY_MEMORY_CLASSES) return some_of_classes(pool, bytes);
    if (pool->policy == CY_MEMORY_BEST_FIT) return best_of_list(pool, bytes);
    return first_of_list(pool, 0, bytes);
}

// ---- the table

static int take_entry(cy_memory_pool *pool)
{
    const int at = pool->unused;
    CY_ASSERT(at != NONE); // there are two for each piece and one more
    pool->unused = pool->ranges[at].later;
    return at;
}

static void give_entry(cy_memory_pool *pool, int at)
{
    pool->ranges[at].kind = UNUSED;
    pool->ranges[at].later = pool->unused;
    pool->unused = at;
}

// What lies beyond the first `bytes` of a range becomes a free range of its own.
static void cut(cy_memory_pool *pool, int at, size_t bytes)
{
    range *r = &pool->ranges[at];
    if (r->bytes == bytes) return;
    const int rest = take_entry(pool);
    pool->ranges[rest] = (range){
        .first = r->first + bytes, .bytes = r->bytes - bytes, .below = at, .above = r->above};
    if (r->above != NONE) pool->ranges[r->above].below = rest;
    r->above = rest;
    r->bytes = bytes;
    link_free(pool, rest);
}

// Adds the range above to this one, which is in no list.
static void join_above(cy_memory_pool *pool, int at)
{
    range *r = &pool->ranges[at];
    const int gone = r->above;
    r->bytes += pool->ranges[gone].bytes;
    r->above = pool->ranges[gone].above;
    if (r->above != NONE) pool->ranges[r->above].below = at;
    give_entry(pool, gone);
}

static bool is_free(const cy_memory_pool *pool, int at)
{
    return at != NONE && pool->ranges[at].kind == FREE;
}

// ---- what others call

cy_status cy_memory_pool_open(
    cy_memory_pool **pool, void *base, size_t bytes, int most_pieces, cy_memory_policy policy)
{
    void *memory = NULL, *table = NULL;
    CY_ASSERT((uintptr_t)base % CY_MEMORY_POOL_ALIGN == 0 && most_pieces > 0);
    CY_TRY(cy_memory_take(&memory, 1, sizeof(cy_memory_pool)));
    const size_t entries = 2 * (size_t)most_pieces + 1;
    const cy_status status = cy_memory_take(&table, entries, sizeof(range));
    if (status != CY_OK) {
        cy_memory_free(memory);
        return status;
    }
    cy_memory_pool *made = memory;
    *made = (cy_memory_pool){.base = base,
        .policy = policy,
        .ranges = table,
        .unused = NONE,
        .lowest = NONE,
        .most_pieces = most_pieces,
        .stats = {.capacity = bytes / CY_MEMORY_POOL_ALIGN * CY_MEMORY_POOL_ALIGN}};
    pthread_mutex_init(&made->lock, NULL);
    for (int i = 0; i < CLASSES; i++)
        made->heads[i] = NONE;
    for (size_t i = entries; i > 0; i--)
        give_entry(made, (int)i - 1);
    if (made->stats.capacity > 0) {
        made->lowest = take_entry(made);
        made->ranges[made->lowest] =
            (range){.bytes = made->stats.capacity, .below = NONE, .above = NONE};
        link_free(made, made->lowest);
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

// The handle, or NONE.
static int take_locked(cy_memory_pool *pool, size_t bytes)
{
    cy_memory_pool_stats *stats = &pool->stats;
    const int at = stats->pieces < pool->most_pieces ? choose(pool, bytes) : NONE;
    stats->takes += at != NONE;
    stats->failures += at == NONE;
    if (at == NONE) return NONE;
    range *r = &pool->ranges[at];
    unlink_free(pool, at);
    r->kind = TAKEN;
    cut(pool, at, bytes);
    stats->pieces++;
    stats->used += bytes;
    if (stats->used > stats->peak) stats->peak = stats->used;
    if (r->first + bytes > stats->reach) stats->reach = r->first + bytes;
    return at;
}

cy_status cy_memory_pool_take(cy_memory_pool *pool, int *piece, size_t bytes)
{
    // A size that rounding would overflow is larger than any pool.
    size_t size = bytes > SIZE_MAX / 2 ? SIZE_MAX / 2 : bytes;
    size = (size + CY_MEMORY_POOL_ALIGN - (size > 0)) / CY_MEMORY_POOL_ALIGN * CY_MEMORY_POOL_ALIGN;
    pthread_mutex_lock(&pool->lock);
    *piece = take_locked(pool, size);
    pthread_mutex_unlock(&pool->lock);
    if (*piece == NONE) {
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
    CY_ASSERT(piece >= 0 && piece <= 2 * pool->most_pieces && pool->ranges[piece].kind == TAKEN);
    range *r = &pool->ranges[piece];
    CY_POISON(pool->base + r->first, r->bytes);
    pool->stats.gives++;
    pool->stats.pieces--;
    pool->stats.used -= r->bytes;
    if (is_free(pool, r->above)) {
        unlink_free(pool, r->above);
        join_above(pool, piece);
    }
    int at = piece;
    if (is_free(pool, r->below)) {
        at = r->below;
        unlink_free(pool, at);
        join_above(pool, at);
    }
    link_free(pool, at);
    pthread_mutex_unlock(&pool->lock);
}

// Puts a range at the end of what was moved so far.
static void settle(cy_memory_pool *pool, int at, int last, size_t first)
{
    range *r = &pool->ranges[at];
    if (r->kind == TAKEN && r->first != first) {
        memmove(pool->base + first, pool->base + r->first, r->bytes);
        pool->stats.moved += (int64_t)r->bytes;
    }
    r->first = first;
    r->below = last;
    r->above = NONE;
    if (last == NONE) {
        pool->lowest = at;
    } else {
        pool->ranges[last].above = at;
    }
}

void cy_memory_pool_compact(cy_memory_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    size_t end = 0;
    int last = NONE;
    CY_UNPOISON(pool->base, pool->stats.capacity);
    for (int at = pool->lowest, up; at != NONE; at = up) {
        up = pool->ranges[at].above;
        if (pool->ranges[at].kind == FREE) {
            unlink_free(pool, at);
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
        link_free(pool, at);
        CY_POISON(pool->base + end, rest);
    }
    pthread_mutex_unlock(&pool->lock);
}

cy_memory_pool_stats cy_memory_pool_look(cy_memory_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    cy_memory_pool_stats stats = pool->stats;
    for (int at = pool->lowest; at != NONE; at = pool->ranges[at].above) {
        const range *r = &pool->ranges[at];
        if (r->kind == FREE && r->bytes > stats.largest_free) stats.largest_free = r->bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    return stats;
}

double cy_memory_pool_fragmentation(const cy_memory_pool_stats *stats)
{
    const size_t left = stats->capacity - stats->used;
    return left == 0 ? 0 : 1 - (double)stats->largest_free / (double)left;
}
