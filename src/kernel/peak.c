// Measures the matrix peak and the memory bandwidths of this machine with the kernels of a run.

#include "kernel/peak.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "kernel/dispatch.h"

#include <string.h>

// Products of one size are repeated for this long. A size at which one product takes longer is the
// last: without tuned kernels the first size is enough.
#define SIZE_NS ((int64_t)250000000)

// Each variant of a product is tried this long at one size. The variants that come near the best
// are measured at all sizes.
#define TRIAL_NS        ((int64_t)20000000)
#define TRIAL_SIZE      768
#define SLOW_TRIAL_SIZE 256 // of portable products
#define TRIAL_NEAR      0.85
#define FULL_VARIANTS   2

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

// Fills x with numbers from 1 to 2 of either sign with random mantissas: simple numbers take less
// power, and a processor at its power limit multiplies them faster.
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

static int64_t time_products(
    cy_queue *queue, const cy_peak_variant *by, const cy_view x[3], int64_t ns_in_all)
{
    int64_t best = INT64_MAX;
    const int64_t until = cy_clock_ns() + ns_in_all;
    do {
        const int64_t start = cy_clock_ns();
        by->multiply(queue, x[0], x[1], x[2], by->spec);
        const int64_t ns = cy_clock_ns() - start;
        if (ns < best) best = ns;
    } while (cy_clock_ns() < until);
    return best;
}

// The rate of square products of one size, in operations a second; *best_ns is the shortest time.
static cy_status measure_size(double *flops_per_s, int64_t *best_ns, const cy_queue *queue,
    const cy_peak_variant *by, int64_t size, int64_t ns_in_all)
{
    cy_arena scratch;
    cy_arena_measure(&scratch, "peak");
    cy_queue dry = private_queue(queue, &scratch, true);
    cy_view x[3];
    for (int i = 0; i < 3; i++)
        x[i] = cy_view_alloc(&scratch, by->dtype, size, size);
    by->multiply(&dry, x[0], x[1], x[2], by->spec);

    void *base = NULL;
    const size_t bytes = scratch.peak;
    CY_TRY(cy_memory_map(&base, bytes));
    cy_arena_init(&scratch, "peak", base, bytes);
    for (int i = 0; i < 3; i++) {
        x[i] = cy_view_alloc(&scratch, by->dtype, size, size);
        fill(x[i]);
    }
    cy_queue real = private_queue(queue, &scratch, false);
    *best_ns = time_products(&real, by, x, ns_in_all);
    const double n = (double)size;
    *flops_per_s = 2.0 * n * n * n / (double)*best_ns * 1e9;
    cy_memory_unmap(base, bytes);
    return CY_OK;
}

// The best rate of one variant over all sizes.
static cy_status measure_variant(
    double *flops_per_s, const cy_queue *queue, const cy_peak_variant *by)
{
    static const int64_t sizes[] = {256, 1024, 1536, 2048, 3072};
    double best = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        double measured = 0;
        int64_t ns = 0;
        CY_TRY(measure_size(&measured, &ns, queue, by, sizes[i], SIZE_NS));
        if (measured > best) best = measured;
        if (ns > SIZE_NS / 8) break; // a larger size would take long and add little
    }
    *flops_per_s = best;
    return CY_OK;
}

int cy_peak_variants(cy_peak_variant ways[CY_PEAK_VARIANTS], const cy_queue *queue, cy_dtype dtype)
{
    static const cy_matmul_spec specs[] = {{.transpose_b = true}, {0}, {.transpose_a = true}};
    const cy_dtype dtypes[] = {dtype, CY_F32};
    const int dtype_count = cy_kernels_has_native_matmul(queue, dtype) ? 1 : 2;
    int count = 0;
    for (int d = 0; d < dtype_count; d++) {
        cy_matmul_fn *products[CY_MATMUL_FUNCTIONS];
        const int product_count = cy_kernels_matmuls(products, queue, dtypes[d]);
        // The portable product is slow in every order, so it has one variant.
        const int spec_count = product_count > 1 || products[0] != cy_kernels_ref()->matmul ? 3 : 1;
        for (int p = 0; p < product_count; p++) {
            for (int s = 0; s < spec_count; s++)
                ways[count++] = (cy_peak_variant){products[p], dtypes[d], specs[s]};
        }
    }
    return count;
}

static int largest(const double *values, int count)
{
    int found = 0;
    for (int i = 1; i < count; i++)
        if (values[i] > values[found]) found = i;
    return found;
}

cy_status cy_peak_measure(double *flops_per_s, const cy_queue *queue, cy_dtype dtype)
{
    cy_peak_variant ways[CY_PEAK_VARIANTS];
    double trials[CY_PEAK_VARIANTS] = {0};
    const int count = cy_peak_variants(ways, queue, dtype);
    const bool portable = ways[0].multiply == cy_kernels_ref()->matmul;
    for (int i = 0; i < count && count > 1; i++) {
        int64_t ns = 0;
        CY_TRY(measure_size(
            &trials[i], &ns, queue, &ways[i], portable ? SLOW_TRIAL_SIZE : TRIAL_SIZE, TRIAL_NS));
    }
    double best = trials[largest(trials, count)];
    const double near = TRIAL_NEAR * best;
    for (int i = 0; i < FULL_VARIANTS; i++) { // the best at one size may not be the best of all
        const int next = largest(trials, count);
        if (i > 0 && trials[next] < near) break;
        if (i >= count) break;
        double measured = 0;
        CY_TRY(measure_variant(&measured, queue, &ways[next]));
        if (measured > best) best = measured;
        trials[next] = 0;
    }
    *flops_per_s = best;
    return CY_OK;
}

cy_status cy_peak_measure_chosen(double *flops_per_s, const cy_queue *queue, cy_dtype dtype)
{
    const cy_peak_variant forward = {queue->kernels->matmul, dtype, {.transpose_b = true}};
    return measure_variant(flops_per_s, queue, &forward);
}

// ---- memory

#define CHUNK_BYTES ((size_t)1 << 20)
#define PASSES      8

typedef struct stream {
    char *to;
    const char *from;
    uint64_t *sums; // [chunks]: of what was read, so that no read can be left out
    size_t chunk;   // bytes of one, a multiple of 256
} stream;

// 32 sums fill 16 registers.
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
static double pass_rate(cy_thread_pool *pool, cy_task task, stream *self, int64_t chunks)
{
    const int64_t start = cy_clock_ns();
    cy_thread_pool_run(pool, task, self, chunks);
    return (double)((size_t)chunks * self->chunk) / (double)(cy_clock_ns() - start) * 1e9;
}

static double best_rate(cy_thread_pool *pool, cy_task task, stream *self, int64_t chunks)
{
    double best = 0;
    for (int i = 0; i < PASSES; i++) {
        const double rate = pass_rate(pool, task, self, chunks);
        if (rate > best) best = rate;
    }
    return best;
}

cy_status cy_read_bandwidth_measure(
    double *bytes_s, const cy_queue *queue, const void *data, size_t bytes, int passes)
{
    CY_ASSERT(bytes >= 256 && passes > 0);
    const size_t chunk = bytes < CHUNK_BYTES ? bytes / 256 * 256 : CHUNK_BYTES;
    uint64_t *sums = NULL;
    double *rates = NULL;
    CY_TRY(CY_ALLOC(&sums, bytes / chunk));
    const cy_status status = CY_ALLOC(&rates, (size_t)passes);
    if (status == CY_OK) {
        stream self = {.from = data, .sums = sums, .chunk = chunk};
        for (int i = 0; i < passes; i++)
            rates[i] = pass_rate(queue->pool, read_chunk, &self, (int64_t)(bytes / chunk));
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
    void *base = NULL;
    uint64_t *sums = NULL;
    CY_TRY(CY_ALLOC(&sums, chunks));
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
