// base/memory.h: host memory for what is built once (tables, lists, texts), with a status.
//
// Tensors do not come from here: they live in arenas. Nothing here may be called inside a
// training step. Every block is freed with cy_memory_free by whoever owns the pointer.

#ifndef CY_BASE_MEMORY_H
#define CY_BASE_MEMORY_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct cy_thread_pool; // base/thread_pool.h

// Zeroed room for `count` elements of `size` bytes. *pointer is set only on success.
CY_MUST_CHECK cy_status cy_memory_alloc(void **pointer, size_t count, size_t size);

// Grows (or makes, when *pointer is NULL) a block to at least `count` elements, doubling, so that
// appending is linear in all. *capacity is in elements. New elements are undefined.
CY_MUST_CHECK cy_status cy_memory_grow(void **pointer, size_t *capacity, size_t count, size_t size);

// A copy of a text, with its terminating zero.
CY_MUST_CHECK cy_status cy_memory_copy_text(char **copy, const char *text);

void cy_memory_free(void *pointer);

// The same pointer without its const, the one place that drops it: for who owns the memory and
// keeps it under a pointer to const, and for libraries that take as writable what they only read.
static inline void *cy_memory_writable(const void *pointer)
{
    const union {
        const void *as_read;
        void *as_written;
    } same = {.as_read = pointer};
    return same.as_written;
}

// A large range of zeroed pages for an arena, 2 MiB aligned, on huge pages where the system has
// them. Released with the same size.
CY_MUST_CHECK cy_status cy_memory_map(void **base, size_t bytes);
void cy_memory_unmap(void *base, size_t bytes);

// Has the system give and clear all pages of a mapped range now, each by one thread of the pool.
// Left to first touch, two threads that meet in one huge page both clear one, and one of the two is
// thrown away. A hint: what the range holds stays, and a system that does not know it (Linux before
// 5.14) gives pages at first touch.
void cy_memory_populate(struct cy_thread_pool *pool, void *base, size_t bytes);

// ---- arenas
//
// memory by lifetime, measured before it is placed.
//
// An arena hands out 64-byte aligned pieces of one range and takes them back all at once (rewind).
// An arena without memory only measures: the same layout code runs on it first, and its peak says
// how large the real one must be. What a measuring arena returns must not be touched.
//
// Three lifetimes: run (weights, gradients, optimizer), step (stashed activations), scratch (inside
// a layer or a kernel: mark, take, rewind). One thread uses an arena at a time. Taking from a full
// arena is a programmer error: the plan was wrong.

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

// ---- poison
//
// in sanitizer builds, memory that nobody may touch although it is mapped.

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define CY_POISON(p, n)   __asan_poison_memory_region((p), (n))
#define CY_UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define CY_POISON(p, n)   ((void)(p), (void)(n))
#define CY_UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#endif
