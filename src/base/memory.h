// base/memory.h: host memory: blocks, mapped ranges, and arenas.
//
// Blocks are for what is built once: tables, lists, texts. No block is allocated inside a training
// step. The owner of a pointer frees the block with cy_memory_free. Tensors live in arenas, which
// lie in one mapped range.

#ifndef CY_BASE_MEMORY_H
#define CY_BASE_MEMORY_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct cy_thread_pool; // base/thread_pool.h

// Allocates `count` zeroed elements of the type T for a `T **pointer`: CY_ALLOC(&list, 12). On
// failure *pointer is NULL. Returns a status, which must be checked.
#define CY_ALLOC(pointer, count)                                                                   \
    cy_memory_status(*(pointer) = cy_memory_zeroed((count), sizeof(**(pointer))))

// What CY_ALLOC is made of: a zeroed block, or NULL and the text of the failure.
void *cy_memory_zeroed(size_t count, size_t size);
CY_MUST_CHECK static inline cy_status cy_memory_status(const void *block)
{
    return block != NULL ? CY_OK : CY_ERR_MEMORY;
}

// Allocates `count` zeroed elements of `size` bytes. *pointer is set only on success.
CY_MUST_CHECK cy_status cy_memory_alloc(void **pointer, size_t count, size_t size);

// Grows a block to at least `count` elements; allocates it where *pointer is NULL. The capacity, in
// elements, doubles, so appending n elements costs O(n) in total. New elements are undefined.
CY_MUST_CHECK cy_status cy_memory_grow(void **pointer, size_t *capacity, size_t count, size_t size);

// Copies a text with its terminating zero.
CY_MUST_CHECK cy_status cy_memory_copy_text(char **copy, const char *text);

void cy_memory_free(void *pointer);

// Returns the pointer without its const. No other code drops a const. It serves owners that keep
// memory under a pointer to const, and libraries that take a writable pointer and only read.
static inline void *cy_memory_writable(const void *pointer)
{
    const union {
        const void *as_read;
        void *as_written;
    } same = {.as_read = pointer};
    return same.as_written;
}

// ---- mapped ranges

// Maps a large range of zeroed pages for arenas, 2 MiB aligned, on huge pages where the system has
// them. cy_memory_unmap takes the same size.
CY_MUST_CHECK cy_status cy_memory_map(void **base, size_t bytes);
void cy_memory_unmap(void *base, size_t bytes);

// Whether the process may map that many bytes more now. For libraries that do not look whether
// their own mappings succeed.
bool cy_memory_may_map(size_t bytes);

// Lets the system allocate and clear all pages of a mapped range now, each by one thread of the
// pool. Without it pages are cleared at first touch, and where two threads touch one huge page at
// once, both clear a page and one of the two is thrown away. Contents stay. It is a hint: Linux
// before 5.14 ignores it.
void cy_memory_populate(struct cy_thread_pool *pool, void *base, size_t bytes);

// ---- arenas
//
// An arena allocates 64-byte aligned pieces of one range from front to back. Rewinding it to a mark
// frees everything that was allocated after the mark. An arena without memory only measures: the
// same layout code runs on it first, and its peak is the size of the real one. Pointers from a
// measuring arena must not be dereferenced.
//
// There are three lifetimes: run (weights, gradients, optimizer), step (stashed activations) and
// scratch (inside a layer or a kernel). One thread uses an arena at a time. Allocating from a full
// arena is a programmer error: the plan was wrong.

#define CY_ARENA_ALIGN 64

// The bytes that a piece of `bytes` bytes occupies in an arena.
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
    bool remote; // the memory of a device: nothing here touches it
} cy_arena;

// Makes an arena that only measures.
void cy_arena_measure(cy_arena *arena, const char *name);

// Makes an arena over `bytes` bytes at `base`, aligned to CY_ARENA_ALIGN. The caller owns them.
void cy_arena_init(cy_arena *arena, const char *name, void *base, size_t bytes);

// The same over memory that the host must not touch, such as a device's: it is not poisoned.
void cy_arena_init_remote(cy_arena *arena, const char *name, void *base, size_t bytes);

// Allocates `bytes` bytes; their content is undefined. The result is never NULL, not even for 0
// bytes.
void *cy_arena_alloc(cy_arena *arena, size_t bytes);

// Rewinding to a mark frees everything that was allocated after it.
size_t cy_arena_mark(const cy_arena *arena);
void cy_arena_rewind(cy_arena *arena, size_t mark);

// ---- poison: marks mapped memory that no code may touch; in sanitizer builds only

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define CY_POISON(p, n)   __asan_poison_memory_region((p), (n))
#define CY_UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define CY_POISON(p, n)   ((void)(p), (void)(n))
#define CY_UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#endif
