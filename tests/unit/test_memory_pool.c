// The memory pool: a ledger beside it agrees through a million random operations, whichever way
// pieces are chosen; neighbours join; compaction moves pieces with their contents; threads share
// it.

#include "support/support.h"

#include "base/memory.h"
#include "base/memory_pool.h"
#include "base/random.h"
#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define UNIT         ((size_t)CY_ARENA_ALIGN)
#define UNITS        4096
#define OPERATIONS   (CY_TEST_SANITIZED ? 100000 : 1000000)
#define MOST_PIECES  512
#define SHARED_TASKS 16
#define SHARED_TURNS 100000

// What the pool should say, kept by other means: an owner for each unit of the range.
typedef struct ledger {
    char *base;
    uint16_t owner[UNITS]; // 0: free; otherwise a piece's place in the list plus one
    struct {
        int handle;
        size_t first, units, asked;
        unsigned char content;
    } piece[MOST_PIECES];
    int pieces;
    cy_memory_pool_stats stats;
} ledger;

static size_t longest_free(const ledger *l)
{
    size_t longest = 0, run = 0;
    for (int i = 0; i < UNITS; i++) {
        run = l->owner[i] == 0 ? run + 1 : 0;
        if (run > longest) longest = run;
    }
    return longest;
}

static void take(ledger *l, cy_memory_pool *pool, size_t bytes, unsigned char content)
{
    int handle;
    const size_t units = bytes == 0 ? 1 : (bytes + UNIT - 1) / UNIT;
    const cy_status status = cy_memory_pool_take(pool, &handle, bytes);
    if (status != CY_OK) {
        assert_int_equal(status, CY_ERR_MEMORY);
        assert_true(l->pieces == MOST_PIECES || longest_free(l) < units);
        l->stats.failures++;
        return;
    }
    assert_true(l->pieces < MOST_PIECES);
    char *at = cy_memory_pool_at(pool, handle);
    assert_int_equal((uintptr_t)at % UNIT, 0);
    assert_true(at >= l->base);
    const size_t first = (size_t)(at - l->base) / UNIT;
    assert_true(first + units <= UNITS);
    for (size_t i = first; i < first + units; i++) {
        assert_int_equal(l->owner[i], 0);
        l->owner[i] = (uint16_t)(l->pieces + 1);
    }
    memset(at, content, bytes);
    l->piece[l->pieces].handle = handle;
    l->piece[l->pieces].first = first;
    l->piece[l->pieces].units = units;
    l->piece[l->pieces].asked = bytes;
    l->piece[l->pieces].content = content;
    l->pieces++;
    l->stats.takes++;
    l->stats.used += units * UNIT;
    if (l->stats.used > l->stats.peak) l->stats.peak = l->stats.used;
    if ((first + units) * UNIT > l->stats.reach) l->stats.reach = (first + units) * UNIT;
}

static void expect_content(const char *at, size_t bytes, unsigned char content)
{
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal((unsigned char)at[i], content);
}

static void give(ledger *l, cy_memory_pool *pool, int which)
{
    const int last = l->pieces - 1;
    const size_t first = l->piece[which].first, units = l->piece[which].units;
    expect_content(cy_memory_pool_at(pool, l->piece[which].handle), l->piece[which].asked,
        l->piece[which].content);
    cy_memory_pool_give(pool, l->piece[which].handle);
    memset(&l->owner[first], 0, units * sizeof(l->owner[0]));
    l->stats.gives++;
    l->stats.used -= units * UNIT;
    l->piece[which] = l->piece[last];
    for (size_t i = 0; which < last && i < l->piece[which].units; i++)
        l->owner[l->piece[which].first + i] = (uint16_t)(which + 1);
    l->pieces = last;
}

// Everything is where it was, one after the other.
static void compact(ledger *l, cy_memory_pool *pool)
{
    cy_memory_pool_compact(pool);
    memset(l->owner, 0, sizeof(l->owner));
    for (int i = 0; i < l->pieces; i++) {
        const char *at = cy_memory_pool_at(pool, l->piece[i].handle);
        expect_content(at, l->piece[i].asked, l->piece[i].content);
        l->piece[i].first = (size_t)(at - l->base) / UNIT;
        for (size_t k = 0; k < l->piece[i].units; k++) {
            assert_int_equal(l->owner[l->piece[i].first + k], 0);
            l->owner[l->piece[i].first + k] = (uint16_t)(i + 1);
        }
    }
    assert_int_equal(longest_free(l) * UNIT, UNITS * UNIT - l->stats.used);
}

static void expect_ledger(const ledger *l, cy_memory_pool *pool, bool all)
{
    const cy_memory_pool_stats stats = cy_memory_pool_look(pool);
    assert_int_equal(stats.capacity, UNITS * UNIT);
    assert_int_equal(stats.used, l->stats.used);
    assert_int_equal(stats.peak, l->stats.peak);
    assert_int_equal(stats.reach, l->stats.reach);
    assert_int_equal(stats.pieces, l->pieces);
    assert_int_equal(stats.takes, l->stats.takes);
    assert_int_equal(stats.gives, l->stats.gives);
    assert_int_equal(stats.failures, l->stats.failures);
    if (all) assert_int_equal(stats.largest_free, longest_free(l) * UNIT);
}

static char *map_range(void)
{
    void *base = NULL;
    CY_CHECK_OK(cy_memory_map(&base, UNITS * UNIT));
    return base;
}

static void check_policy(cy_memory_policy policy)
{
    static ledger l;
    cy_memory_pool *pool = NULL;
    l = (ledger){.base = map_range()};
    CY_CHECK_OK(cy_memory_pool_open(&pool, l.base, UNITS * UNIT, MOST_PIECES, policy));
    const uint64_t key = cy_random_key(policy, "memory pool");
    for (uint64_t i = 0; i < OPERATIONS; i++) {
        const uint64_t bits = cy_random_bits(key, i);
        // Waves: more takes than gives, then fewer, so that the pool runs full and empty again.
        const uint64_t takes = i / 2000 % 2 == 0 ? 140 : 116;
        if (l.pieces == 0 || (bits & 255) < takes) {
            const size_t most = (bits >> 8 & 15) == 0 ? 300 * UNIT : 20 * UNIT;
            take(&l, pool, (size_t)((bits >> 16) % most), (unsigned char)(bits >> 48));
        } else {
            give(&l, pool, (int)((bits >> 8) % (uint64_t)l.pieces));
        }
        if (i % 50021 == 50020) compact(&l, pool);
        if (i % 8 == 0) expect_ledger(&l, pool, i % 64 == 0);
    }
    assert_true(l.stats.failures > 100 && l.stats.peak > UNITS * UNIT * 9 / 10);
    while (l.pieces > 0)
        give(&l, pool, l.pieces - 1);
    expect_ledger(&l, pool, true);
    assert_int_equal(cy_memory_pool_look(pool).largest_free, UNITS * UNIT);
    cy_memory_pool_close(pool);
    cy_memory_unmap(l.base, UNITS * UNIT);
}

static void a_ledger_agrees_with_first_fit(void **state)
{
    (void)state;
    check_policy(CY_MEMORY_FIRST_FIT);
}

static void a_ledger_agrees_with_best_fit(void **state)
{
    (void)state;
    check_policy(CY_MEMORY_BEST_FIT);
}

static void a_ledger_agrees_with_classes(void **state)
{
    (void)state;
    check_policy(CY_MEMORY_CLASSES);
}

// Two holes, the lower one larger: first fit takes that, the others the one that fits.
static void policies_choose_by_their_names(void **state)
{
    (void)state;
    static const size_t chosen[CY_MEMORY_POLICIES] = {0, 41, 41};
    char *base = map_range();
    for (int policy = 0; policy < CY_MEMORY_POLICIES; policy++) {
        cy_memory_pool *pool = NULL;
        int hole[2], between, above, piece;
        CY_CHECK_OK(cy_memory_pool_open(&pool, base, UNITS * UNIT, 8, (cy_memory_policy)policy));
        CY_CHECK_OK(cy_memory_pool_take(pool, &hole[0], 40 * UNIT));
        CY_CHECK_OK(cy_memory_pool_take(pool, &between, 1));
        CY_CHECK_OK(cy_memory_pool_take(pool, &hole[1], 10 * UNIT));
        CY_CHECK_OK(cy_memory_pool_take(pool, &above, 1));
        cy_memory_pool_give(pool, hole[0]);
        cy_memory_pool_give(pool, hole[1]);
        CY_CHECK_OK(cy_memory_pool_take(pool, &piece, 10 * UNIT - 3));
        assert_ptr_equal(cy_memory_pool_at(pool, piece), base + chosen[policy] * UNIT);
        cy_memory_pool_close(pool);
    }
    cy_memory_unmap(base, UNITS * UNIT);
}

// Every second piece is given back: half of the range is free, and no two units of it together.
static void compaction_mends_a_torn_range(void **state)
{
    (void)state;
    static int piece[UNITS];
    char *base = map_range();
    cy_memory_pool *pool = NULL;
    int large;
    CY_CHECK_OK(cy_memory_pool_open(&pool, base, UNITS * UNIT, UNITS, CY_MEMORY_CLASSES));
    for (int i = 0; i < UNITS; i++) {
        CY_CHECK_OK(cy_memory_pool_take(pool, &piece[i], UNIT));
        memset(cy_memory_pool_at(pool, piece[i]), i % 251, UNIT);
    }
    CY_CHECK_FAILS(cy_memory_pool_take(pool, &large, 1), CY_ERR_MEMORY, "at most 4096");
    for (int i = 0; i < UNITS; i += 2)
        cy_memory_pool_give(pool, piece[i]);
    cy_memory_pool_stats stats = cy_memory_pool_look(pool);
    assert_true(cy_memory_pool_fragmentation(&stats) > 0.999);
    CY_CHECK_FAILS(cy_memory_pool_take(pool, &large, 2 * UNIT), CY_ERR_MEMORY,
        "128 bytes asked, 131072 of 262144 in use by 2048 pieces of at most 4096, the largest free "
        "piece has 64");
    cy_memory_pool_compact(pool);
    stats = cy_memory_pool_look(pool);
    assert_true(cy_memory_pool_fragmentation(&stats) == 0);
    assert_int_equal(stats.moved, UNITS / 2 * UNIT);
    for (int i = 1; i < UNITS; i += 2)
        expect_content(cy_memory_pool_at(pool, piece[i]), UNIT, (unsigned char)(i % 251));
    CY_CHECK_OK(cy_memory_pool_take(pool, &large, UNITS / 2 * UNIT));
    stats = cy_memory_pool_look(pool);
    assert_true(cy_memory_pool_fragmentation(&stats) == 0);
    cy_memory_pool_close(pool);
    cy_memory_unmap(base, UNITS * UNIT);
}

static void nothing_is_a_pool_too(void **state)
{
    (void)state;
    static _Alignas(CY_ARENA_ALIGN) char block[100];
    cy_memory_pool *pool = NULL;
    int piece;
    CY_CHECK_OK(cy_memory_pool_open(&pool, block, 63, 1, CY_MEMORY_BEST_FIT));
    CY_CHECK_FAILS(cy_memory_pool_take(pool, &piece, 0), CY_ERR_MEMORY, "0 of 0 in use");
    cy_memory_pool_compact(pool);
    cy_memory_pool_close(pool);
    CY_CHECK_OK(cy_memory_pool_open(&pool, block, sizeof(block), 1, CY_MEMORY_CLASSES));
    CY_CHECK_FAILS(cy_memory_pool_take(pool, &piece, SIZE_MAX), CY_ERR_MEMORY, "0 of 64 in use");
    CY_CHECK_OK(cy_memory_pool_take(pool, &piece, 0));
    cy_memory_pool_close(pool);
    cy_memory_pool_close(NULL);
}

// ---- many threads

typedef struct sharer {
    cy_memory_pool *pool;
    int number;
    atomic_int *wrong;
} sharer;

static void *share(void *context)
{
    const sharer *s = context;
    int held[8], count = 0;
    const uint64_t key = cy_random_key((uint64_t)s->number, "sharing a memory pool");
    for (uint64_t i = 0; i < SHARED_TURNS; i++) {
        const uint64_t bits = cy_random_bits(key, i);
        if (count < 8 && (bits & 1) != 0) {
            int piece;
            if (cy_memory_pool_take(s->pool, &piece, sizeof(int) + bits % 2000) != CY_OK) continue;
            *(int *)cy_memory_pool_at(s->pool, piece) = s->number;
            held[count++] = piece;
        } else if (count > 0) {
            const int piece = held[--count];
            if (*(int *)cy_memory_pool_at(s->pool, piece) != s->number) {
                atomic_fetch_add(s->wrong, 1);
            }
            cy_memory_pool_give(s->pool, piece);
        }
    }
    while (count > 0)
        cy_memory_pool_give(s->pool, held[--count]);
    return NULL;
}

static void threads_share_it(void **state)
{
    (void)state;
    char *base = map_range();
    cy_memory_pool *pool = NULL;
    pthread_t thread[SHARED_TASKS];
    sharer sharers[SHARED_TASKS];
    atomic_int wrong = 0;
    CY_CHECK_OK(
        cy_memory_pool_open(&pool, base, UNITS * UNIT, 8 * SHARED_TASKS, CY_MEMORY_CLASSES));
    for (int i = 0; i < SHARED_TASKS; i++) {
        sharers[i] = (sharer){.pool = pool, .number = i, .wrong = &wrong};
        assert_int_equal(pthread_create(&thread[i], NULL, share, &sharers[i]), 0);
    }
    for (int i = 0; i < SHARED_TASKS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    const cy_memory_pool_stats stats = cy_memory_pool_look(pool);
    assert_int_equal(wrong, 0);
    assert_int_equal(stats.used, 0);
    assert_int_equal(stats.takes, stats.gives);
    assert_int_equal(stats.largest_free, UNITS * UNIT);
    cy_memory_pool_close(pool);
    cy_memory_unmap(base, UNITS * UNIT);
}

// ---- wrong use

static _Alignas(CY_ARENA_ALIGN) char small[256];

static void give_twice(void)
{
    cy_memory_pool *pool = NULL;
    int piece;
    CY_ASSERT(cy_memory_pool_open(&pool, small, sizeof(small), 2, CY_MEMORY_FIRST_FIT) == CY_OK);
    CY_ASSERT(cy_memory_pool_take(pool, &piece, 1) == CY_OK);
    cy_memory_pool_give(pool, piece);
    cy_memory_pool_give(pool, piece);
}

static void give_what_is_none(void)
{
    cy_memory_pool *pool = NULL;
    CY_ASSERT(cy_memory_pool_open(&pool, small, sizeof(small), 2, CY_MEMORY_FIRST_FIT) == CY_OK);
    cy_memory_pool_give(pool, -1);
}

static void begin_between(void)
{
    cy_memory_pool *pool = NULL;
    (void)!cy_memory_pool_open(&pool, small + 8, 128, 2, CY_MEMORY_FIRST_FIT);
}

static void give_once(void)
{
    cy_memory_pool *pool = NULL;
    int piece;
    CY_ASSERT(cy_memory_pool_open(&pool, small, sizeof(small), 2, CY_MEMORY_FIRST_FIT) == CY_OK);
    CY_ASSERT(cy_memory_pool_take(pool, &piece, 1) == CY_OK);
    cy_memory_pool_give(pool, piece);
    cy_memory_pool_close(pool);
}

static void wrong_use_is_an_assertion(void **state)
{
    (void)state;
    assert_true(cy_test_aborts(give_twice));
    assert_true(cy_test_aborts(give_what_is_none));
    assert_true(cy_test_aborts(begin_between));
    assert_false(cy_test_aborts(give_once));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ledger_agrees_with_first_fit),
        cmocka_unit_test(a_ledger_agrees_with_best_fit),
        cmocka_unit_test(a_ledger_agrees_with_classes),
        cmocka_unit_test(policies_choose_by_their_names),
        cmocka_unit_test(compaction_mends_a_torn_range),
        cmocka_unit_test(nothing_is_a_pool_too),
        cmocka_unit_test(threads_share_it),
        cmocka_unit_test(wrong_use_is_an_assertion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
