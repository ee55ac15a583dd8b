// base/memory.h: host memory for what is built once (tables, lists, texts), with a status.
//
// Tensors do not come from here: they live in arenas. Nothing here may be called inside a
// training step. Every block is freed with cy_memory_free by whoever owns the pointer.

#ifndef CY_BASE_MEMORY_H
#define CY_BASE_MEMORY_H

#include "base/thread_pool.h"
#include "base/status.h"

#include <stddef.h>

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

// Whether the process may map that many bytes more now. For libraries that do not look whether
// their own mappings succeed.
bool cy_memory_may_map(size_t bytes);

// Has the system give and clear all pages of a mapped range now, each by one thread of the pool.
// Left to first touch, two threads that meet in one huge page both clear one, and one of the two is
// thrown away. A hint: what the range holds stays, and a system that does not know it (Linux before
// 5.14) gives pages at first touch.
void cy_memory_populate(cy_thread_pool *pool, void *base, size_t bytes);

#endif
