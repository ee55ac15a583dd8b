#include "base/arena.h"

#include "base/assert.h"
#include "base/poison.h"

#include <stdint.h>
#include <stdio.h>

void cy_arena_measure(cy_arena *arena, const char *name)
{
    // A base that no process has mapped: a touch faults at once instead of corrupting something.
    *arena = (cy_arena){
        .name = name,
        .base = (char *)(uintptr_t)CY_ARENA_ALIGN, // NOLINT(performance-no-int-to-ptr): no memory
        .capacity = SIZE_MAX / 2,
        .measuring = true,
    };
}

void cy_arena_init(cy_arena *arena, const char *name, void *base, size_t bytes)
{
    CY_ASSERT(base != NULL || bytes == 0);
    CY_ASSERT((uintptr_t)base % CY_ARENA_ALIGN == 0);
    *arena = (cy_arena){.name = name, .base = base, .capacity = bytes};
    CY_POISON(base, bytes);
}

void *cy_arena_alloc(cy_arena *arena, size_t bytes)
{
    CY_ASSERT(bytes <= SIZE_MAX / 2); // a negative size, which would round up to nothing
    const size_t size = cy_arena_bytes(bytes);
    if (size > arena->capacity - arena->used) {
        fprintf(stderr, "cyclotron: error: arena %s: %zu bytes asked, %zu of %zu left\n",
            arena->name, size, arena->capacity - arena->used, arena->capacity);
        CY_ASSERT(!"the arena is as large as its plan");
    }
    char *piece = arena->base + arena->used;
    arena->used += size;
    if (arena->used > arena->peak) arena->peak = arena->used;
    if (!arena->measuring) CY_UNPOISON(piece, bytes);
    return piece;
}

size_t cy_arena_mark(const cy_arena *arena)
{
    return arena->used;
}

void cy_arena_rewind(cy_arena *arena, size_t mark)
{
    CY_ASSERT(mark <= arena->used);
    if (!arena->measuring) CY_POISON(arena->base + mark, arena->used - mark);
    arena->used = mark;
}
