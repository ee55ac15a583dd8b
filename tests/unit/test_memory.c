#define _GNU_SOURCE
#include "support/support.h"

#include "base/memory.h"
#include "base/thread_pool.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// The address sanitizer would end the program where the C library refuses; it asks this by name.
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void take_is_zeroed(void **state)
{
    (void)state;
    void *block = NULL;
    CY_CHECK_OK(cy_memory_alloc(&block, 1000, 3));
    for (int i = 0; i < 3000; i++)
        assert_int_equal(((char *)block)[i], 0);
    cy_memory_free(block);
    block = NULL;
    CY_CHECK_OK(cy_memory_alloc(&block, 0, 8)); // nothing is something to free
    assert_non_null(block);
    cy_memory_free(block);
}

static void refused_memory_is_a_status(void **state)
{
    (void)state;
    void *block = NULL;
    const char *const words = "no memory for 4611686018427387903 elements of 8 bytes";
    assert_int_equal(cy_memory_alloc(&block, SIZE_MAX / 4, 8), CY_ERR_MEMORY);
    assert_string_equal(cy_error_text(), words);
    assert_null(block);
    size_t capacity = 0;
    assert_int_equal(cy_memory_grow(&block, &capacity, SIZE_MAX / 4, 8), CY_ERR_MEMORY);
    assert_string_equal(cy_error_text(), words);
    assert_null(block);
    assert_int_equal(capacity, 0);
    assert_int_equal(cy_memory_map(&block, (size_t)1 << 60), CY_ERR_MEMORY);
    assert_string_equal(cy_error_text(), "map 1152921504606846976 bytes: Cannot allocate memory");
    assert_null(block);
}

static void growing_keeps_and_doubles(void **state)
{
    (void)state;
    void *block = NULL;
    size_t capacity = 0;
    int moves = 0;
    for (size_t i = 0; i < 10000; i++) {
        const size_t before = capacity;
        CY_CHECK_OK(cy_memory_grow(&block, &capacity, i + 1, sizeof(size_t)));
        assert_true(capacity >= i + 1);
        moves += capacity != before;
        ((size_t *)block)[i] = i;
    }
    for (size_t i = 0; i < 10000; i++)
        assert_int_equal(((size_t *)block)[i], i);
    assert_true(moves <= 12); // linear in all
    cy_memory_free(block);
}

static void rooms_are_powers_of_two(void **state)
{
    (void)state;
    static const size_t counts[][2] = {
        {0, 8}, {1, 8}, {8, 8}, {9, 16}, {16, 16}, {17, 32}, {1000, 1024}};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        void *block = NULL;
        size_t capacity = 0;
        CY_CHECK_OK(cy_memory_grow(&block, &capacity, counts[i][0], 3));
        assert_int_equal(capacity, counts[i][1]);
        void *same = block;
        CY_CHECK_OK(cy_memory_grow(&block, &capacity, capacity, 3)); // there is room enough
        assert_ptr_equal(block, same);
        assert_int_equal(capacity, counts[i][1]);
        CY_CHECK_OK(cy_memory_grow(&block, &capacity, capacity + 1, 3));
        assert_int_equal(capacity, 2 * counts[i][1]);
        cy_memory_free(block);
    }
}

static void map_is_zeroed_and_aligned(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 4096, 2 << 20, (2 << 20) + 1, 5 << 20};
    for (int i = 0; i < 5; i++) {
        void *base = NULL;
        CY_CHECK_OK(cy_memory_map(&base, sizes[i]));
        assert_int_equal((uintptr_t)base % (2 << 20), 0);
        char *bytes = base;
        assert_int_equal(bytes[0], 0);
        assert_int_equal(bytes[sizes[i] - 1], 0);
        bytes[0] = 1;
        bytes[sizes[i] - 1] = 1;
        cy_memory_unmap(base, sizes[i]);
    }
    cy_memory_unmap(NULL, 5);
}

// How many of the first `bytes` from base on the system has given memory for.
static size_t present(const void *base, size_t bytes)
{
    static unsigned char pages[4096];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t count = 0;
    assert_true(bytes / page <= sizeof(pages));
    assert_int_equal(mincore(cy_memory_writable(base), bytes, pages), 0);
    for (size_t i = 0; i < bytes / page; i++)
        count += pages[i] & 1;
    return count * page;
}

static void pages_are_filled_ahead(void **state)
{
    (void)state;
    const size_t bytes = 7 << 20; // not a multiple of a huge page
    void *base = NULL;
    cy_thread_pool *pool = NULL;
    CY_CHECK_OK(cy_thread_pool_open(&pool, 2, -1, false));
    CY_CHECK_OK(cy_memory_map(&base, bytes));
    assert_int_equal(present(base, bytes), 0);
    ((char *)base)[5] = 7;
    cy_memory_populate(pool, base, bytes);
    assert_int_equal(present(base, bytes), bytes);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(((char *)base)[i], i == 5 ? 7 : 0);
    cy_memory_unmap(base, bytes);
    cy_thread_pool_close(pool);
}

static void text_is_copied(void **state)
{
    (void)state;
    char *copy = NULL;
    CY_CHECK_OK(cy_memory_copy_text(&copy, ""));
    assert_string_equal(copy, "");
    cy_memory_free(copy);
    CY_CHECK_OK(cy_memory_copy_text(&copy, "a text"));
    assert_string_equal(copy, "a text");
    cy_memory_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(take_is_zeroed),
        cmocka_unit_test(refused_memory_is_a_status),
        cmocka_unit_test(growing_keeps_and_doubles),
        cmocka_unit_test(rooms_are_powers_of_two),
        cmocka_unit_test(map_is_zeroed_and_aligned),
        cmocka_unit_test(pages_are_filled_ahead),
        cmocka_unit_test(text_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
