#include "support/support.h"

#include "base/memory.h"

#include <string.h>

// One layout, as the program has it: run twice, once to measure and once to place.
static void lay_out(cy_arena *arena)
{
    (void)cy_arena_alloc(arena, 100);
    const size_t mark = cy_arena_mark(arena);
    (void)cy_arena_alloc(arena, 1000);
    (void)cy_arena_alloc(arena, 1);
    cy_arena_rewind(arena, mark);
    (void)cy_arena_alloc(arena, 64);
}

static void measures_what_it_places(void **state)
{
    (void)state;
    cy_arena dry, real;
    void *base = NULL;
    cy_arena_measure(&dry, "test");
    lay_out(&dry);
    assert_int_equal(dry.peak, 128 + 1024 + 64);
    assert_int_equal(dry.used, 128 + 64);

    CY_CHECK_OK(cy_memory_map(&base, dry.peak));
    cy_arena_init(&real, "test", base, dry.peak); // exactly as much as was measured
    lay_out(&real);
    assert_int_equal(real.peak, dry.peak);
    assert_int_equal(real.used, dry.used);
    cy_memory_unmap(base, dry.peak);
}

static void pieces_are_apart_and_aligned(void **state)
{
    (void)state;
    cy_arena arena;
    void *base = NULL;
    CY_CHECK_OK(cy_memory_map(&base, 1 << 16));
    cy_arena_init(&arena, "test", base, 1 << 16);
    char *last_end = base;
    for (size_t bytes = 0; bytes < 200; bytes++) {
        char *piece = cy_arena_alloc(&arena, bytes);
        assert_non_null(piece);
        assert_int_equal((uintptr_t)piece % CY_ARENA_ALIGN, 0);
        assert_true(piece >= last_end);
        memset(piece, 1, bytes);
        last_end = piece + bytes;
    }
    const size_t mark = cy_arena_mark(&arena);
    void *first = cy_arena_alloc(&arena, 10);
    cy_arena_rewind(&arena, mark);
    assert_ptr_equal(cy_arena_alloc(&arena, 10), first);
    cy_memory_unmap(base, 1 << 16);
}

static _Alignas(CY_ARENA_ALIGN) char block[256];

static void take_too_much(void)
{
    cy_arena arena;
    cy_arena_init(&arena, "test", block, sizeof(block));
    (void)cy_arena_alloc(&arena, 192);
    (void)cy_arena_alloc(&arena, 65);
}

static void take_less_than_nothing(void)
{
    cy_arena arena;
    cy_arena_init(&arena, "test", block, sizeof(block));
    (void)cy_arena_alloc(&arena, (size_t)-8);
}

static void measure_less_than_nothing(void)
{
    cy_arena arena;
    cy_arena_measure(&arena, "test");
    (void)cy_arena_alloc(&arena, (size_t)-8);
}

static void rewind_forwards(void)
{
    cy_arena arena;
    cy_arena_init(&arena, "test", block, sizeof(block));
    cy_arena_rewind(&arena, 64);
}

static void take_all(void)
{
    cy_arena arena;
    cy_arena_init(&arena, "test", block, sizeof(block));
    (void)cy_arena_alloc(&arena, 256);
    (void)cy_arena_alloc(&arena, 0);
}

static void a_wrong_plan_is_an_assertion(void **state)
{
    (void)state;
    assert_true(cy_test_aborts(take_too_much));
    assert_true(cy_test_aborts(take_less_than_nothing));
    assert_true(cy_test_aborts(measure_less_than_nothing));
    assert_true(cy_test_aborts(rewind_forwards));
    assert_false(cy_test_aborts(take_all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_what_it_places),
        cmocka_unit_test(pieces_are_apart_and_aligned),
        cmocka_unit_test(a_wrong_plan_is_an_assertion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
