#include "kernel/peak.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"

#include <string.h>

// Products of one size go on for this long, and a size that takes longer than that for one product
// is the last: without tuned kernels the first one is enough.
#define SIZE_NS ((int64_t)250000000)

// A queue with the caller's pool and kernels and with scratch memory of our own.
static cy_queue private_queue(const cy_queue *queue, cy_arena *scratch, bool dry)
{
    return (cy_queue){
        .kernels = queue->kernels,
        .kernel_state = queue->kernel_state,
        .pool = queue->pool,
        .scratch = scratch,
        .dry = dry,
    };
}

// Numbers from 1 to 2 of either sign with all their bits: simple ones take less current, and a
// processor that is limited by it multiplies them faster than any others.
static void fill(cy_view x)
{
    uint16_t *words = x.data;
    const int64_t count = (int64_t)(cy_view_bytes(x) / sizeof(uint16_t));
    const int64_t size = (int64_t)(cy_dtype_size(x.dtype) / sizeof(uint16_t)); // of an element
    CY_ASSERT(size > 0);
    const uint32_t one = x.dtype == CY_F16 ? 0x3c00 : x.dtype == CY_F64 ? 0x3ff0 : 0x3f80;
    const uint32_t kept = x.dtype == CY_F16 ? 0x83ff : x.dtype == CY_F64 ? 0x800f : 0x807f;
    uint32_t bits = 1;
    for (int64_t i = 0; i < count; i++) {
        bits = bits * 1664525 + 1013904223;
        // The last word of a little-endian element holds sign and exponent.
        const bool last = i % size == size - 1;
        words[i] = (uint16_t)(last ? (bits >> 16 & kept) | one : bits >> 16);
    }
}

static int64_t time_products(cy_queue *queue, cy_view c, cy_view a, cy_view b)
{
    int64_t best = INT64_MAX;
    const int64_t until = cy_clock_ns() + SIZE_NS;
    do {
        const int64_t start = cy_clock_ns();
        queue->kernels->matmul(queue, c, a, b, (cy_matmul_spec){.transpose_b = true});
        const int64_t ns = cy_clock_ns() - start;
        if (ns < best) best = ns;
    } while (cy_clock_ns() < until);
    return best;
}

static cy_status measure_size(
    double *flops_per_s, int64_t *best_ns, const cy_queue *queue, cy_dtype dtype, int64_t size)
{
    cy_arena scratch;
    cy_arena_measure(&scratch, "peak");
    cy_queue dry = private_queue(queue, &scratch, true);
    cy_view x[3];
    for (int i = 0; i < 3; i++)
        x[i] = cy_view_take(&scratch, dtype, size, size);
    dry.kernels->matmul(&dry, x[0], x[1], x[2], (cy_matmul_spec){.transpose_b = true});

    void *base = NULL;
    const size_t bytes = scratch.peak;
    CY_TRY(cy_memory_map(&base, bytes));
    cy_arena_place(&scratch, "peak", base, bytes);
    for (int i = 0; i < 3; i++) {
        x[i] = cy_view_take(&scratch, dtype, size, size);
        fill(x[i]);
    }
    cy_queue real = private_queue(queue, &scratch, false);
    *best_ns = time_products(&real, x[0], x[1], x[2]);
    const double n = (double)size;
    *flops_per_s = 2.0 * n * n * n / (double)*best_ns * 1e9;
    cy_memory_unmap(base, bytes);
    return CY_OK;
}

cy_status cy_peak_measure(double *flops_per_s, const cy_queue *queue, cy_dtype dtype)
{
    static const int64_t sizes[] = {256, 1024, 1536, 2048, 3072};
    double best = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        double measured = 0;
        int64_t ns = 0;
        CY_TRY(measure_size(&measured, &ns, queue, dtype, sizes[i]));
        if (measured > best) best = measured;
        if (ns > SIZE_NS / 8) break; // the next size would tell little more and take its time
    }
    *flops_per_s = best;
    return CY_OK;
}

// ---- memory

#define CHUNK_BYTES ((size_t)1 << 20)
#define PASSES      8

typedef struct stream {
    char *to;
    const char *from;
    uint64_t *sums; // [chunks]: what was read, so that it has to be
    size_t chunk;   // bytes of one, a multiple of 256
} stream;

// 32 sums: what 16 registers hold.
static inline uint64_t sum_words(const uint64_t *words, size_t bytes)
{
    uint64_t sums[32] = {0};
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i += 32) {
        for (size_t j = 0; j < 32; j++)
            sums[j] += words[i + j];
    }
    uint64_t sum = 0;
    for (size_t j = 0; j < 32; j++)
        sum += sums[j];
    return sum;
}

static void read_chunk(void *context, int64_t chunk, int worker)
{
    (void)worker;
    const stream *self = context;
    const uint64_t *words =
        (const uint64_t *)(const void *)(self->from + (size_t)chunk * self->chunk);
    self->sums[chunk] = sum_words(words, self->chunk);
}

static void copy_chunk(void *context, int64_t chunk, int worker)
{
    (void)worker;
    const stream *self = context;
    memcpy(self->to + (size_t)chunk * self->chunk, self->from + (size_t)chunk * self->chunk,
        self->chunk);
}

// Bytes a second of one pass.
static double pass_rate(cy_pool *pool, cy_pool_task task, stream *self, int64_t chunks)
{
    const int64_t start = cy_clock_ns();
    cy_pool_run(pool, task, self, chunks);
    return (double)((size_t)chunks * self->chunk) / (double)(cy_clock_ns() - start) * 1e9;
}

static double best_rate(cy_pool *pool, cy_pool_task task, stream *self, int64_t chunks)
{
    double best = 0;
    for (int i = 0; i < PASSES; i++) {
        const double rate = pass_rate(pool, task, self, chunks);
        if (rate > best) best = rate;
    }
    return best;
}

cy_status cy_reading_measure(
    double *bytes_s, const cy_queue *queue, const void *data, size_t bytes, int passes)
{
    CY_ASSERT(bytes >= 256 && passes > 0);
    const size_t chunk = bytes < CHUNK_BYTES ? bytes / 256 * 256 : CHUNK_BYTES;
    void *sums = NULL, *rates = NULL;
    CY_TRY(cy_memory_take(&sums, bytes / chunk, sizeof(uint64_t)));
    const cy_status status = cy_memory_take(&rates, (size_t)passes, sizeof(double));
    if (status == CY_OK) {
        stream self = {.from = data, .sums = sums, .chunk = chunk};
        for (int i = 0; i < passes; i++)
            ((double *)rates)[i] =
                pass_rate(queue->pool, read_chunk, &self, (int64_t)(bytes / chunk));
        *bytes_s = cy_median(rates, passes);
        cy_memory_free(rates);
    }
    cy_memory_free(sums);
    return status;
}

cy_status cy_bandwidth_measure(cy_bandwidth *bandwidth, const cy_queue *queue, size_t bytes)
{
    const size_t chunks = bytes < CHUNK_BYTES ? 1 : bytes / CHUNK_BYTES;
    const size_t range = chunks * CHUNK_BYTES;
    void *base = NULL, *sums = NULL;
    CY_TRY(cy_memory_take(&sums, chunks, sizeof(uint64_t)));
    const cy_status status = cy_memory_map(&base, 2 * range);
    if (status != CY_OK) {
        cy_memory_free(sums);
        return status;
    }
    memset(base, 1, 2 * range); // pages that were never written are all one page of zeros
    stream self = {.to = (char *)base + range, .from = base, .sums = sums, .chunk = CHUNK_BYTES};
    bandwidth->read = best_rate(queue->pool, read_chunk, &self, (int64_t)chunks);
    bandwidth->copy = 2.0 * best_rate(queue->pool, copy_chunk, &self, (int64_t)chunks);
    cy_memory_unmap(base, 2 * range);
    cy_memory_free(sums);
    return CY_OK;
}
