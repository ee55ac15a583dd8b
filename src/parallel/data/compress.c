// Compresses buckets of gradients: the messages, and how they become a sum again.
//
//   topk   buffer [P, k values | k indices]      all-gather: every rank reads every rank's part
//   int8   buffer [P, scales | codes] twice      all-to-all: part r of the bucket goes to rank r,
//   which
//                                                sums it; all-gather of the sums
//
// A bucket has a buffer from when it is sent until its sum is in place, and a few may be in flight
// at once. When a rank waits for a bucket follows from the order of buckets alone, never from what
// has arrived, so all ranks start the same collectives in the same order.

#include "parallel/data/compress.h"

#include "base/memory.h"
#include "base/status.h"
#include "parallel/data/reducer_parts.h"

#include <math.h>
#include <string.h>

// ---- opening and memory

cy_status cy_compressor_open(cy_reducer *reducer)
{
    const cy_compression_spec *spec = &reducer->spec.compression;
    cy_compressor *at = &reducer->compressor;
    at->ratio = spec->ratio;
    if (!cy_reducer_compresses(reducer) || spec->dense_count == 0) return CY_OK;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)spec->dense_count, sizeof(cy_flat_range)));
    memcpy(block, spec->dense, (size_t)spec->dense_count * sizeof(cy_flat_range));
    at->dense = block;
    at->dense_count = spec->dense_count;
    for (int i = 0; i < at->dense_count; i++)
        at->dense_total += at->dense[i].count;
    return CY_OK;
}

void cy_compressor_close(cy_compressor *compressor)
{
    cy_memory_free(compressor->dense);
    *compressor = (cy_compressor){0};
}

static size_t row_bytes(const cy_reducer *reducer, double ratio, int64_t n)
{
    cy_compression_spec spec = reducer->spec.compression;
    spec.ratio = ratio;
    return cy_compressed_bytes(&spec, reducer->spec.grad_dtype, n, reducer->size);
}

void cy_compressor_alloc(cy_reducer *reducer, cy_arena *run)
{
    if (!cy_reducer_compresses(reducer)) return;
    cy_compressor *at = &reducer->compressor;
    const cy_dtype dtype = reducer->spec.grad_dtype;
    int64_t most = 0;
    for (int i = 0; i < reducer->buckets.count; i++) {
        const int64_t count = reducer->buckets.buckets[i].count;
        if (count > most) most = count;
    }
    const double ratio = reducer->spec.compression.most_ratio;
    const int64_t bytes = (int64_t)row_bytes(reducer, ratio, most) * reducer->size;
    const int buffers = reducer->buckets.count < CY_COMPRESSED_IN_FLIGHT ? reducer->buckets.count
                                                                         : CY_COMPRESSED_IN_FLIGHT;
    at->residual = cy_view_none();
    if (cy_compressor_is_topk(reducer)) at->residual = cy_view_alloc(run, dtype, 1, reducer->count);
    for (int i = 0; i < buffers; i++)
        at->buffers[i] = cy_view_alloc(run, CY_U8, cy_compressor_is_topk(reducer) ? 1 : 2, bytes);
    at->buffer_bytes =
        (size_t)(cy_compressor_is_topk(reducer) ? bytes : 2 * bytes) * (size_t)buffers;
    at->dense_grads = cy_view_none();
    if (at->dense_total > 0) at->dense_grads = cy_view_alloc(run, dtype, 1, at->dense_total);
    at->squares = cy_view_alloc(run, CY_F64, 1, 1);
}

size_t cy_compressor_bytes(const cy_compressor *compressor)
{
    return cy_view_bytes(compressor->residual) + cy_view_bytes(compressor->dense_grads) +
        compressor->buffer_bytes;
}

// ---- buffers

// The buffer of the n-th bucket that was started in this step, a row a rank; int8 receives into
// `half` 1.
static cy_view buffer_of(const cy_reducer *reducer, int started, int half)
{
    const int64_t count = reducer->buckets.buckets[reducer->sent[started]].count;
    const cy_view buffer = reducer->compressor.buffers[started % CY_COMPRESSED_IN_FLIGHT];
    const size_t bytes = row_bytes(reducer, reducer->compressor.ratio, count);
    return cy_view_of(cy_view_at(buffer, half, 0), CY_U8, reducer->size, (int64_t)bytes);
}

typedef struct sparse {
    cy_view values, indices;
} sparse;

static sparse sparse_of(const cy_reducer *reducer, cy_view buffer, int rank, int64_t n)
{
    const cy_dtype dtype = reducer->spec.grad_dtype;
    const int64_t k = cy_topk_count(reducer->compressor.ratio, n);
    char *row = cy_view_at(buffer, rank, 0);
    return (sparse){
        .values = cy_view_of(row, dtype, 1, k),
        .indices = cy_view_of(row + (size_t)k * cy_dtype_size(dtype), CY_I32, 1, k),
    };
}

typedef struct quantized {
    cy_view scales, codes;
} quantized;

static quantized quantized_of(cy_view buffer, int rank, int64_t part)
{
    char *row = cy_view_at(buffer, rank, 0);
    const int64_t blocks = cy_quantize_blocks(part);
    return (quantized){
        .scales = cy_view_of(row, CY_F32, 1, blocks),
        .codes = cy_view_of(row + (size_t)blocks * sizeof(float), CY_U8, 1, part),
    };
}

// ---- ranges that are sent uncompressed

// Moves the uncompressed ranges of this bucket out of it: zeros compress to nothing.
static void take_dense(cy_reducer *reducer, cy_flat_range bucket, bool back)
{
    const cy_compressor *at = &reducer->compressor;
    cy_queue *queue = reducer->spec.queue;
    int64_t place = 0;
    for (int i = 0; i < at->dense_count; place += at->dense[i++].count) {
        const cy_flat_range range = at->dense[i];
        const int64_t from = range.first > bucket.first ? range.first : bucket.first;
        const int64_t end = range.first + range.count, piece_end = bucket.first + bucket.count;
        const int64_t to = end < piece_end ? end : piece_end;
        if (from >= to) continue;
        const cy_view here = cy_view_cols(reducer->grads, from, to - from);
        const cy_view there = cy_view_cols(at->dense_grads, place + from - range.first, to - from);
        cy_copy(queue, back ? here : there, back ? there : here);
        if (!back) cy_fill(queue, here, 0.0);
    }
}

// ---- one bucket

static cy_status send_topk(cy_reducer *reducer, int started, cy_flat_range bucket)
{
    const cy_reducer_spec *spec = &reducer->spec;
    const cy_view buffer = buffer_of(reducer, started, 0);
    const sparse mine = sparse_of(reducer, buffer, reducer->rank, bucket.count);
    const bool clips = cy_compressor_clips(reducer);
    reducer->compressor.sent += mine.values.cols;
    cy_topk(spec->queue, mine.values, mine.indices,
        cy_view_cols(reducer->compressor.residual, bucket.first, bucket.count),
        cy_view_cols(reducer->grads, bucket.first, bucket.count),
        clips ? reducer->compressor.squares : cy_view_none(), spec->compression.most_norm);
    return cy_group_start_all_gather(spec->group, spec->queue,
        &reducer->requests[reducer->sent[started]], buffer, cy_view_rows(buffer, reducer->rank, 1));
}

static cy_status send_int8(cy_reducer *reducer, int started, cy_flat_range bucket)
{
    const cy_reducer_spec *spec = &reducer->spec;
    const cy_view buffer = buffer_of(reducer, started, 0);
    for (int rank = 0; rank < reducer->size; rank++) {
        const cy_flat_range part = cy_bucket_shard(bucket, rank, reducer->size);
        const quantized q = quantized_of(buffer, rank, part.count);
        cy_quantize(
            spec->queue, q.codes, q.scales, cy_view_cols(reducer->grads, part.first, part.count));
    }
    return cy_group_start_all_to_all(spec->group, spec->queue,
        &reducer->requests[reducer->sent[started]], buffer_of(reducer, started, 1), buffer);
}

// The second half of int8: this rank's part is summed, and the sum goes out as codes.
static cy_status share_int8(cy_reducer *reducer, int started)
{
    const cy_reducer_spec *spec = &reducer->spec;
    const int number = reducer->sent[started];
    const cy_flat_range part =
        cy_bucket_shard(reducer->buckets.buckets[number], reducer->rank, reducer->size);
    const cy_view sum = cy_view_cols(reducer->grads, part.first, part.count);
    CY_TRY(cy_group_wait(spec->group, spec->queue, &reducer->requests[number]));
    for (int rank = 0; rank < reducer->size; rank++) {
        const quantized q = quantized_of(buffer_of(reducer, started, 1), rank, part.count);
        cy_dequantize(spec->queue, sum, q.codes, q.scales, rank > 0);
    }
    const cy_view buffer = buffer_of(reducer, started, 0);
    const quantized mine = quantized_of(buffer, reducer->rank, part.count);
    cy_quantize(spec->queue, mine.codes, mine.scales, sum);
    return cy_group_start_all_gather(spec->group, spec->queue, &reducer->requests[number], buffer,
        cy_view_rows(buffer, reducer->rank, 1));
}

// Waits for a bucket and puts its sum where its gradients were.
static cy_status settle(cy_reducer *reducer, int started)
{
    const cy_reducer_spec *spec = &reducer->spec;
    const int number = reducer->sent[started];
    const cy_flat_range bucket = reducer->buckets.buckets[number];
    const cy_view buffer = buffer_of(reducer, started, 0);
    CY_TRY(cy_group_wait(spec->group, spec->queue, &reducer->requests[number]));
    const cy_view sum = cy_view_cols(reducer->grads, bucket.first, bucket.count);
    if (cy_compressor_is_topk(reducer)) cy_fill(spec->queue, sum, 0.0);
    for (int rank = 0; rank < reducer->size; rank++) {
        if (cy_compressor_is_topk(reducer)) {
            const sparse s = sparse_of(reducer, buffer, rank, bucket.count);
            cy_scatter_add(spec->queue, sum, s.indices, s.values);
            continue;
        }
        const cy_flat_range part = cy_bucket_shard(bucket, rank, reducer->size);
        const quantized q = quantized_of(buffer, rank, part.count);
        cy_dequantize(spec->queue, cy_view_cols(reducer->grads, part.first, part.count), q.codes,
            q.scales, false);
    }
    return CY_OK;
}

cy_status cy_compressor_send(cy_reducer *reducer, int bucket)
{
    const cy_flat_range range = reducer->buckets.buckets[bucket];
    const int started = reducer->started++;
    reducer->waiting[bucket] = -1;
    reducer->sent[started] = bucket;
    if (started >= CY_COMPRESSED_IN_FLIGHT) {
        CY_TRY(settle(reducer, started - CY_COMPRESSED_IN_FLIGHT));
    }
    take_dense(reducer, range, false);
    if (cy_compressor_is_topk(reducer)) return send_topk(reducer, started, range);
    CY_TRY(send_int8(reducer, started, range));
    // The bucket before has travelled during the computation of this one.
    return started > 0 ? share_int8(reducer, started - 1) : CY_OK;
}

// A rank's gradient is clipped before it is added to the residual: the residual would otherwise
// carry a diverging step into the following ones. The norm covers the compressed part on all ranks
// of the model. It stays on the device: the kernel that adds to the residual clips.
cy_status cy_compressor_clip(cy_reducer *reducer)
{
    const cy_reducer_spec *spec = &reducer->spec;
    const cy_compressor *at = &reducer->compressor;
    if (!cy_compressor_clips(reducer)) return CY_OK;
    const cy_flat_range all = {.first = 0, .count = reducer->count};
    take_dense(reducer, all, false);
    cy_fill(spec->queue, at->squares, 0.0);
    cy_sum_squares(spec->queue, at->squares, reducer->grads);
    take_dense(reducer, all, true); // each bucket takes its own again
    return cy_group_all_reduce(spec->compression.model, spec->queue, at->squares, CY_SUM);
}

cy_status cy_compressor_finish(cy_reducer *reducer)
{
    const cy_reducer_spec *spec = &reducer->spec;
    const cy_compressor *at = &reducer->compressor;
    const int last = reducer->started - 1;
    cy_request dense = {0};
    if (at->dense_total > 0) {
        CY_TRY(
            cy_group_start_all_reduce(spec->group, spec->queue, &dense, at->dense_grads, CY_SUM));
    }
    if (!cy_compressor_is_topk(reducer)) CY_TRY(share_int8(reducer, last));
    const int behind = reducer->started - CY_COMPRESSED_IN_FLIGHT;
    for (int i = behind > 0 ? behind : 0; i <= last; i++)
        CY_TRY(settle(reducer, i));
    CY_TRY(cy_group_wait(spec->group, spec->queue, &dense));
    take_dense(reducer, (cy_flat_range){.first = 0, .count = reducer->count}, true);
    return CY_OK;
}

// ---- topk: step-ahead weights, statistics

void cy_reducer_step_ahead(cy_reducer *reducer, const cy_step_ahead_spec *spec)
{
    if (!cy_reducer_compresses(reducer) || !cy_compressor_is_topk(reducer)) return;
    cy_step_ahead(reducer->spec.queue, reducer->weights, reducer->master,
        reducer->compressor.residual, reducer->v, spec);
}

cy_topk_sent cy_reducer_topk_sent(const cy_reducer *reducer)
{
    if (!cy_reducer_compresses(reducer) || !cy_compressor_is_topk(reducer)) {
        return (cy_topk_sent){0};
    }
    const cy_compressor *at = &reducer->compressor;
    return (cy_topk_sent){at->ratio, at->sent, reducer->count};
}

// ---- sizes: pure functions of counts and steps

int64_t cy_topk_count(double ratio, int64_t n)
{
    const int64_t count = ((int64_t)ceil(ratio * (double)n) + 1) / 2 * 2;
    return count < n ? count : n;
}

int cy_topk_stages(double ratio, int64_t warmup_steps)
{
    int stages = 0;
    while (
        stages < CY_TOPK_STAGES && stages < warmup_steps && ldexp(1.0, -2 * (stages + 1)) > ratio)
        stages++;
    return stages;
}

int64_t cy_topk_stage_first(double ratio, int64_t warmup_steps, int stage)
{
    const int64_t stages = cy_topk_stages(ratio, warmup_steps);
    if (stages == 0) return 1;
    // The first stages have the steps that do not divide.
    const int64_t longer = warmup_steps % stages;
    return 1 + stage * (warmup_steps / stages) + (stage < longer ? stage : longer);
}

double cy_topk_stage_ratio(double ratio, int64_t warmup_steps, int stage)
{
    return stage < cy_topk_stages(ratio, warmup_steps) ? ldexp(1.0, -2 * (stage + 1)) : ratio;
}

double cy_topk_ratio_at(double ratio, int64_t warmup_steps, int64_t step)
{
    int stage = cy_topk_stages(ratio, warmup_steps);
    while (stage > 0 && step < cy_topk_stage_first(ratio, warmup_steps, stage))
        stage--;
    return cy_topk_stage_ratio(ratio, warmup_steps, stage);
}

size_t cy_compressed_bytes(
    const cy_compression_spec *spec, cy_dtype dtype, int64_t n, int group_size)
{
    if (spec->kind == CY_COMPRESSION_TOPK) {
        return (size_t)cy_topk_count(spec->ratio, n) * (cy_dtype_size(dtype) + sizeof(int32_t));
    }
    const int64_t part = n / group_size;
    return (size_t)cy_quantize_blocks(part) * sizeof(float) + (size_t)part;
}
