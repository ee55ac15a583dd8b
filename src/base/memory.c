// Allocates blocks of host memory, maps large ranges, and allocates from arenas.
#define _GNU_SOURCE
#include "base/memory.h"

#include "base/status.h"
#include "base/thread_pool.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

void *cy_memory_zeroed(size_t count, size_t size)
{
    void *block = calloc(count > 0 ? count : 1, size > 0 ? size : 1);
    if (block == NULL) cy_error_set("no memory for %zu elements of %zu bytes", count, size);
    return block;
}

cy_status cy_memory_alloc(void **pointer, size_t count, size_t size)
{
    void *block = cy_memory_zeroed(count, size);
    if (block != NULL) *pointer = block;
    return cy_memory_status(block);
}

cy_status cy_memory_grow(void **pointer, size_t *capacity, size_t count, size_t size)
{
    if (*pointer != NULL && *capacity >= count) return CY_OK;
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < count) {
        if (wanted > SIZE_MAX / 2 / size) {
            return CY_FAIL(CY_ERR_MEMORY, "no memory for %zu elements of %zu bytes", count, size);
        }
        wanted *= 2;
    }
    void *block = realloc(*pointer, wanted * size);
    if (block == NULL) {
        return CY_FAIL(CY_ERR_MEMORY, "no memory for %zu elements of %zu bytes", wanted, size);
    }
    *pointer = block;
    *capacity = wanted;
    return CY_OK;
}

cy_status cy_memory_copy_text(char **copy, const char *text)
{
    char *block = strdup(text);
    if (block == NULL)
        return CY_FAIL(CY_ERR_MEMORY, "no memory for a text of %zu bytes", strlen(text));
    *copy = block;
    return CY_OK;
}

void cy_memory_free(void *pointer)
{
    free(pointer);
}

static size_t map_size(size_t bytes)
{
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

cy_status cy_memory_map(void **base, size_t bytes)
{
    // Map one huge page more than asked and trim both ends, so that the range starts on one.
    const size_t size = map_size(bytes);
    char *wide = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (wide == MAP_FAILED) return CY_FAIL_ERRNO(CY_ERR_MEMORY, "map %zu bytes", size);
    const size_t head = (HUGE_PAGE - (uintptr_t)wide % HUGE_PAGE) % HUGE_PAGE;
    if (head > 0) munmap(wide, head);
    if (head < HUGE_PAGE) munmap(wide + head + size, HUGE_PAGE - head);
    if (size > 0) madvise(wide + head, size, MADV_HUGEPAGE); // a hint: a refusal changes no result
    *base = wide + head;
    return CY_OK;
}

void cy_memory_unmap(void *base, size_t bytes)
{
    if (base == NULL) return;
    // Poison that arenas left would stay for the next mapping at these addresses.
    CY_UNPOISON(base, map_size(bytes));
    munmap(base, map_size(bytes));
}

bool cy_memory_may_map(size_t bytes)
{
    void *place = mmap(
        NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return false;
    munmap(place, bytes);
    return true;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 // Linux 5.14
#endif

static void fill_page(void *context, int64_t page, int worker)
{
    (void)worker;
    (void)madvise((char *)context + (size_t)page * HUGE_PAGE, HUGE_PAGE, MADV_POPULATE_WRITE);
}

void cy_memory_populate(cy_thread_pool *pool, void *base, size_t bytes)
{
    cy_thread_pool_run(pool, fill_page, base, (int64_t)(map_size(bytes) / HUGE_PAGE));
}

// ---- arenas

void cy_arena_measure(cy_arena *arena, const char *name)
{
    // An address that no process has mapped: an access faults and corrupts nothing.
    *arena = (cy_arena){
        .name = name,
        .base = (char *)(uintptr_t)CY_ARENA_ALIGN, // NOLINT(performance-no-int-to-ptr): no memory
        .capacity = SIZE_MAX / 2,
        .measuring = true,
    };
}

void cy_arena_init_remote(cy_arena *arena, const char *name, void *base, size_t bytes)
{
    CY_ASSERT(base != NULL || bytes == 0);
    CY_ASSERT((uintptr_t)base % CY_ARENA_ALIGN == 0);
    *arena = (cy_arena){.name = name, .base = base, .capacity = bytes, .remote = true};
}

void cy_arena_init(cy_arena *arena, const char *name, void *base, size_t bytes)
{
    cy_arena_init_remote(arena, name, base, bytes);
    arena->remote = false;
    CY_POISON(base, bytes);
}

// Whether the bytes of the arena are the host's, to be marked as used and unused.
static bool is_marked(const cy_arena *arena)
{
    return !arena->measuring && !arena->remote;
}

void *cy_arena_alloc(cy_arena *arena, size_t bytes)
{
    CY_ASSERT(bytes <= SIZE_MAX / 2); // rounding up a negative size would give a small one
    const size_t size = cy_arena_bytes(bytes);
    if (size > arena->capacity - arena->used) {
        fprintf(stderr, "cyclotron: error: arena %s: %zu bytes asked, %zu of %zu left\n",
            arena->name, size, arena->capacity - arena->used, arena->capacity);
        CY_ASSERT(!"the arena is as large as its plan");
    }
    char *piece = arena->base + arena->used;
    arena->used += size;
    if (arena->used > arena->peak) arena->peak = arena->used;
    if (is_marked(arena)) CY_UNPOISON(piece, bytes);
    return piece;
}

size_t cy_arena_mark(const cy_arena *arena)
{
    return arena->used;
}

void cy_arena_rewind(cy_arena *arena, size_t mark)
{
    CY_ASSERT(mark <= arena->used);
    if (is_marked(arena)) CY_POISON(arena->base + mark, arena->used - mark);
    arena->used = mark;
}
