// parallel/data/buffer_pool.h: buffers for whole units that are kept as shards, acquired while they
// are in use.
//
// How many buffers there are and how large they are is learned, not configured: on a measuring
// arena a buffer is made or enlarged whenever none is free, so the dry run of a step leaves exactly
// what a step needs; then the same buffers are placed. Units whose sizes have as many binary digits
// share buffers: layers do not sit in the embedding's. The first free one is acquired, so the real
// run makes the choices of the dry one. A pool belongs to one reducer.

#ifndef CY_PARALLEL_DATA_BUFFER_POOL_H
#define CY_PARALLEL_DATA_BUFFER_POOL_H

#include "device/view.h"

#include "base/status.h"

typedef struct cy_pool_buffer {
    cy_view data; // [1, capacity]; while measuring, only its size is meant
    bool in_use;
} cy_pool_buffer;

typedef struct cy_buffer_pool {
    cy_dtype dtype;
    cy_pool_buffer *buffers; // owned, [most]
    int buffer_count;
    int most;
    cy_arena *measuring; // borrowed; NULL once the buffers are placed
} cy_buffer_pool;

CY_MUST_CHECK cy_status cy_buffer_pool_open(cy_buffer_pool *pool, cy_dtype dtype, int most);
void cy_buffer_pool_close(cy_buffer_pool *pool);

// From a measuring arena: forgets all buffers. From another: places those that were learned.
void cy_buffer_pool_alloc(cy_buffer_pool *pool, cy_arena *run);

// Acquires a buffer for `count` elements; its number is what gives it back.
int cy_buffer_pool_acquire(cy_buffer_pool *pool, int64_t count);
cy_view cy_buffer_pool_view(const cy_buffer_pool *pool, int buffer, int64_t count); // [1, count]
void cy_buffer_pool_release(cy_buffer_pool *pool, int buffer);

size_t cy_buffer_pool_bytes(const cy_buffer_pool *pool);

#endif
