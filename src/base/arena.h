// base/arena.h: memory by lifetime, measured before it is placed.
//
// An arena hands out 64-byte aligned pieces of one range and takes them back all at once (rewind).
// An arena without memory only measures: the same layout code runs on it first, and its peak says
// how large the real one must be. What a measuring arena returns must not be touched.
//
// Three lifetimes: run (weights, gradients, optimizer), step (stashed activations), scratch (inside
// a layer or a kernel: mark, take, rewind). One thread uses an arena at a time. Taking from a full
// arena is a programmer error: the plan was wrong.

#ifndef CY_BASE_ARENA_H
#define CY_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#define CY_ARENA_ALIGN 64

// What a piece of so many bytes takes of an arena.
static inline size_t cy_arena_bytes(size_t bytes)
{
    return (bytes + CY_ARENA_ALIGN - 1) / CY_ARENA_ALIGN * CY_ARENA_ALIGN;
}

typedef struct cy_arena {
    const char *name; // borrowed
    char *base;       // borrowed; not to be touched while measuring
    size_t capacity;  // SIZE_MAX while measuring
    size_t used;
    size_t peak; // largest `used` so far
    bool measuring;
} cy_arena;

// An arena that only measures.
void cy_arena_measure(cy_arena *arena, const char *name);

// An arena over `bytes` bytes at `base`, aligned to CY_ARENA_ALIGN, which the caller owns.
void cy_arena_init(cy_arena *arena, const char *name, void *base, size_t bytes);

// A piece of `bytes` bytes; its content is undefined. Never NULL, also for 0 bytes.
void *cy_arena_alloc(cy_arena *arena, size_t bytes);

// Everything taken after the mark is given back by rewinding to it.
size_t cy_arena_mark(const cy_arena *arena);
void cy_arena_rewind(cy_arena *arena, size_t mark);

#endif
