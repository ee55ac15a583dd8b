// What backends share: the wait for threads that use callers' memory, and buffers for data that
// arrive.

#include "comm/backend.h"

#include "base/memory.h"

#include <sched.h>

// Buffers of so many bytes lie on huge pages: a system that copies between processes looks every
// page up, and is done in half the time where there are few.
#define HUGE_BYTES ((size_t)256 << 10)

void cy_guard_await(const cy_guard *guard)
{
    while (atomic_load(&guard->inside) > 0)
        sched_yield();
}

void cy_buffer_free(cy_buffer *buffer)
{
    if (buffer->mapped)
        cy_memory_unmap(buffer->block, buffer->bytes);
    else
        cy_memory_free(buffer->block);
    *buffer = (cy_buffer){0};
}

cy_status cy_buffer_reserve(cy_buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->bytes && buffer->block != NULL) return CY_OK;
    cy_buffer made = {.bytes = bytes, .mapped = bytes >= HUGE_BYTES};
    if (made.mapped) {
        CY_TRY(cy_memory_map(&made.block, bytes));
        made.data = made.block;
    } else {
        CY_TRY(cy_memory_alloc(&made.block, bytes + CY_LINE_BYTES, 1));
        made.data = (char *)made.block + CY_LINE_BYTES - (uintptr_t)made.block % CY_LINE_BYTES;
    }
    cy_buffer_free(buffer);
    *buffer = made;
    return CY_OK;
}
