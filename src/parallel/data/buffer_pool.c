#include "parallel/data/buffer_pool.h"

#include "base/assert.h"
#include "base/memory.h"

cy_status cy_buffer_pool_open(cy_buffer_pool *pool, cy_dtype dtype, int most)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)most, sizeof(cy_pool_buffer)));
    *pool = (cy_buffer_pool){.dtype = dtype, .buffers = block, .most = most};
    return CY_OK;
}

void cy_buffer_pool_close(cy_buffer_pool *pool)
{
    cy_memory_free(pool->buffers);
    *pool = (cy_buffer_pool){0};
}

void cy_buffer_pool_alloc(cy_buffer_pool *pool, cy_arena *run)
{
    for (int i = 0; i < pool->buffer_count; i++)
        CY_ASSERT(!pool->buffers[i].in_use);
    if (run->measuring) {
        pool->measuring = run;
        pool->buffer_count = 0;
        return;
    }
    pool->measuring = NULL;
    for (int i = 0; i < pool->buffer_count; i++) {
        cy_view *data = &pool->buffers[i].data;
        *data = cy_view_alloc(run, pool->dtype, 1, data->cols);
    }
}

static int digits(int64_t count)
{
    int digit_count = 0;
    for (; count > 0; count >>= 1)
        digit_count++;
    return digit_count;
}

static int first_free(const cy_buffer_pool *pool, int64_t count)
{
    for (int i = 0; i < pool->buffer_count; i++) {
        const cy_pool_buffer *buffer = &pool->buffers[i];
        if (!buffer->in_use && digits(buffer->data.cols) == digits(count)) return i;
    }
    return -1;
}

int cy_buffer_pool_acquire(cy_buffer_pool *pool, int64_t count)
{
    int index = first_free(pool, count);
    if (index < 0) {
        CY_ASSERT(pool->measuring != NULL && pool->buffer_count < pool->most);
        index = pool->buffer_count++;
        pool->buffers[index] =
            (cy_pool_buffer){.data = cy_view_alloc(pool->measuring, pool->dtype, 1, count)};
    }
    cy_pool_buffer *buffer = &pool->buffers[index];
    if (buffer->data.cols < count) {
        CY_ASSERT(pool->measuring != NULL);
        cy_view_alloc(pool->measuring, pool->dtype, 1, count - buffer->data.cols);
        buffer->data.cols = count;
    }
    buffer->in_use = true;
    return index;
}

cy_view cy_buffer_pool_view(const cy_buffer_pool *pool, int buffer, int64_t count)
{
    CY_ASSERT(pool->buffers[buffer].in_use);
    return cy_view_cols(pool->buffers[buffer].data, 0, count);
}

void cy_buffer_pool_release(cy_buffer_pool *pool, int buffer)
{
    CY_ASSERT(pool->buffers[buffer].in_use);
    pool->buffers[buffer].in_use = false;
}

size_t cy_buffer_pool_bytes(const cy_buffer_pool *pool)
{
    size_t bytes = 0;
    for (int i = 0; i < pool->buffer_count; i++)
        bytes += cy_view_bytes(pool->buffers[i].data);
    return bytes;
}
