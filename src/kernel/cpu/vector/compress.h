// kernel/cpu/vector/compress.h: compression of gradients: the largest elements (top-k), int8 codes,
// and the step ahead that weights take for gradients that have not been sent. The bits are those of
// the reference.
//
// Top-k compares magnitudes as integers: the bits of a float without its sign have
// the order of its magnitude. Three passes count them by their first 11, next 11 and last 9 bits,
// each pass only the elements that agree with the bits of the k-th largest that are known; a fourth
// pass moves the elements that are not below it. Parts of PART elements keep their own counts, so a
// part knows the places of its elements before it moves any, and nothing depends on the number of
// threads.

#ifndef CY_KERNEL_CPU_VECTOR_COMPRESS_H
#define CY_KERNEL_CPU_VECTOR_COMPRESS_H

#include "kernel/cpu/vector/elementwise.h"

#define PART        65536
#define TOP_SHIFT   20
#define TOP_BINS    2048 // 11 bits
#define MIDDLE_BINS 2048
#define LOW_SHIFT   9
#define LOW_BINS    512
#define TOPK_BINS   (TOP_BINS + MIDDLE_BINS + LOW_BINS)
#define BANKS       4 // of counters, so that neighbours in one bin do not wait for each other

static inline uint32_t magnitude_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x7fffffffu;
}

typedef struct topk_of {
    float *values;
    int32_t *indices;
    float *residual;
    const float *grad;
    int64_t n, parts;
    float scale;
    uint32_t least;  // the known bits of the k-th largest magnitude
    int32_t *counts; // [parts][TOPK_BINS], in scratch
    int64_t *starts; // [parts]: where a part's elements go
    int64_t *ties;   // [parts]: how many that equal `least` it moves
} topk_of;

static inline int64_t part_end(const topk_of *of, int64_t part)
{
    return (part + 1) * PART < of->n ? (part + 1) * PART : of->n;
}

static void topk_add_chunk(void *context, int64_t part, int worker)
{
    (void)worker;
    const topk_of *of = context;
    int32_t banks[BANKS][TOP_BINS];
    memset(banks, 0, sizeof(banks));
    const int64_t end = part_end(of, part);
    for (int64_t i = part * PART; i < end; i += LANES) {
        const int64_t lanes = lanes_left(end, i);
        float *x = of->residual + i;
        const vec added = vec_mul(vec_all(of->scale), load_f32(of->grad + i, lanes));
        store_f32(x, vec_add(load_f32(x, lanes), added), lanes);
        for (int64_t j = 0; j < lanes; j++)
            banks[j % BANKS][magnitude_bits(x[j]) >> TOP_SHIFT]++;
    }
    int32_t *counts = of->counts + part * TOPK_BINS;
    for (int i = 0; i < TOP_BINS; i++)
        counts[i] = banks[0][i] + banks[1][i] + banks[2][i] + banks[3][i];
}

// Counts, by the `bins` bits from `shift` on, the elements that agree with `least` in the bits
// above.
FORCE_INLINE void count_agreeing(
    const topk_of *of, int64_t part, int32_t *counts, int shift, int64_t bins)
{
    const int64_t below = (int64_t)of->least - 1, span = bins << shift;
    const int64_t end = part_end(of, part);
    memset(counts, 0, (size_t)bins * sizeof(*counts));
    for (int64_t i = part * PART; i < end; i += LANES) {
        const float *x = of->residual + i;
        const int64_t lanes = lanes_left(end, i);
        unsigned mask = lanes_above(x, below, lanes);
        if (mask == 0) continue;
        mask &= ~lanes_above(x, below + span, lanes);
        for (; mask != 0; mask &= mask - 1) {
            counts[magnitude_bits(x[__builtin_ctz(mask)]) >> shift & (bins - 1)]++;
        }
    }
}

static void topk_middle_chunk(void *context, int64_t part, int worker)
{
    (void)worker;
    const topk_of *of = context;
    count_agreeing(of, part, of->counts + part * TOPK_BINS + TOP_BINS, LOW_SHIFT, MIDDLE_BINS);
}

static void topk_low_chunk(void *context, int64_t part, int worker)
{
    (void)worker;
    const topk_of *of = context;
    int32_t *counts = of->counts + part * TOPK_BINS + TOP_BINS + MIDDLE_BINS;
    count_agreeing(of, part, counts, 0, LOW_BINS);
}

static void topk_move_chunk(void *context, int64_t part, int worker)
{
    (void)worker;
    const topk_of *of = context;
    const int64_t end = part_end(of, part), least = of->least;
    int64_t at = of->starts[part], ties = of->ties[part];
    for (int64_t i = part * PART; i < end; i += LANES) {
        float *x = of->residual + i;
        const int64_t lanes = lanes_left(end, i);
        unsigned mask = lanes_above(x, least - 1, lanes);
        for (; mask != 0; mask &= mask - 1) {
            const int lane = __builtin_ctz(mask);
            if (magnitude_bits(x[lane]) == least && ties-- <= 0) continue;
            of->values[at] = x[lane];
            of->indices[at++] = (int32_t)(i + lane);
            x[lane] = 0.0f;
        }
    }
}

// Which of `bins` bins, from the highest, holds the element that has `wanted` - 1 above it.
// *wanted becomes its number within that bin; each part's start counts what it has above.
static uint32_t choose_bin(topk_of *of, int64_t offset, int64_t bins, int64_t *wanted)
{
    int64_t bin = bins - 1;
    for (;; bin--) {
        int64_t total = 0;
        for (int64_t part = 0; part < of->parts; part++)
            total += of->counts[part * TOPK_BINS + offset + bin];
        if (total >= *wanted) break;
        *wanted -= total;
        for (int64_t part = 0; part < of->parts; part++)
            of->starts[part] += of->counts[part * TOPK_BINS + offset + bin];
    }
    return (uint32_t)bin;
}

// Computes places from counts: the first parts move the first ties.
static void place_parts(topk_of *of, int64_t ties)
{
    int64_t at = 0;
    for (int64_t part = 0; part < of->parts; part++) {
        const int64_t equal =
            of->counts[part * TOPK_BINS + TOP_BINS + MIDDLE_BINS + (of->least & (LOW_BINS - 1))];
        of->ties[part] = equal < ties ? equal : ties;
        ties -= of->ties[part];
        const int64_t moved = of->starts[part] + of->ties[part];
        of->starts[part] = at;
        at += moved;
    }
}

static void topk(cy_queue *queue, cy_view values, cy_view indices, cy_view residual, cy_view grad,
    cy_view sum_squares, double max_norm)
{
    if (residual.dtype != CY_F32 || grad.dtype != CY_F32) {
        cy_ref_topk(queue, values, indices, residual, grad, sum_squares, max_norm);
        return;
    }
    const size_t mark = cy_arena_mark(queue->scratch);
    const int64_t parts = cy_ceil_div(grad.cols, PART);
    topk_of of = {
        .values = values.data,
        .indices = indices.data,
        .residual = residual.data,
        .grad = grad.data,
        .n = grad.cols,
        .parts = parts,
        .counts = cy_arena_alloc(queue->scratch, (size_t)parts * TOPK_BINS * sizeof(*of.counts)),
        .starts = cy_arena_alloc(queue->scratch, (size_t)parts * sizeof(*of.starts)),
        .ties = cy_arena_alloc(queue->scratch, (size_t)parts * sizeof(*of.ties)),
    };
    if (!queue->dry) {
        int64_t wanted = values.cols;
        of.scale = (float)cy_ref_topk_scale(sum_squares, max_norm);
        memset(of.starts, 0, (size_t)parts * sizeof(*of.starts));
        cy_queue_run(queue, topk_add_chunk, &of, parts);
        of.least = choose_bin(&of, 0, TOP_BINS, &wanted) << TOP_SHIFT;
        cy_queue_run(queue, topk_middle_chunk, &of, parts);
        of.least |= choose_bin(&of, TOP_BINS, MIDDLE_BINS, &wanted) << LOW_SHIFT;
        cy_queue_run(queue, topk_low_chunk, &of, parts);
        of.least |= choose_bin(&of, TOP_BINS + MIDDLE_BINS, LOW_BINS, &wanted);
        place_parts(&of, wanted);
        cy_queue_run(queue, topk_move_chunk, &of, parts);
    }
    cy_arena_rewind(queue->scratch, mark);
}

// ---- a step ahead of what was sent

typedef struct ahead_of {
    cy_view weight;
    const float *master, *residual, *v;
    int64_t n;
    float scale, rate, root, eps, most;
} ahead_of;

static void look_ahead_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const ahead_of *of = context;
    const int64_t end = (number + 1) * CHUNK < of->n ? (number + 1) * CHUNK : of->n;
    for (int64_t i = number * CHUNK; i < end; i += LANES) {
        const int64_t lanes = lanes_left(end, i);
        const vec root = vec_mul(vec_all(of->root), vec_sqrt(load_f32(of->v + i, lanes)));
        const vec scaled = vec_mul(vec_all(of->scale), load_f32(of->residual + i, lanes));
        const vec step = vec_div(scaled, vec_add(root, vec_all(of->eps)));
        const vec most = vec_min(vec_max(step, vec_all(-of->most)), vec_all(of->most));
        const vec moved = vec_mul(vec_all(of->rate), most);
        store(of->weight.data, of->weight.dtype, i, vec_sub(load_f32(of->master + i, lanes), moved),
            lanes);
    }
}

static void step_ahead(cy_queue *queue, cy_view weight, cy_view master, cy_view residual, cy_view v,
    const cy_step_ahead_spec *spec)
{
    if (master.dtype != CY_F32 || !supported(weight)) {
        cy_ref_step_ahead(queue, weight, master, residual, v, spec);
        return;
    }
    ahead_of of = {
        .weight = weight,
        .master = master.data,
        .residual = residual.data,
        .v = v.data,
        .n = master.cols,
        .scale = (float)spec->scale,
        .rate = (float)spec->learning_rate,
        .root = (float)spec->root,
        .eps = (float)spec->eps,
        .most = (float)spec->most,
    };
    cy_queue_run(queue, look_ahead_chunk, &of, cy_ceil_div(master.cols, CHUNK));
}

// ---- int8 with a scale a block

typedef struct quantize_of {
    int8_t *codes;
    float *scales;
    float *x;
    int64_t n;
    bool accumulate;
} quantize_of;

#define CHUNK_BLOCKS (CHUNK / CY_QUANTIZE_BLOCK)

static inline int64_t block_end(const quantize_of *of, int64_t block)
{
    const int64_t end = (block + 1) * CY_QUANTIZE_BLOCK;
    return end < of->n ? end : of->n;
}

// The largest magnitude over 127; NaN where one of them is not finite.
static float block_scale(const quantize_of *of, int64_t block)
{
    const int64_t end = block_end(of, block);
    vec_int most = vec_int_magnitude(vec_all(0.0f));
    for (int64_t i = block * CY_QUANTIZE_BLOCK; i < end; i += LANES) {
        most = vec_int_max(most, vec_int_magnitude(load_f32(of->x + i, lanes_left(end, i))));
    }
    const int32_t bits = vec_int_largest(most);
    float largest;
    memcpy(&largest, &bits, sizeof(largest));
    return isfinite(largest) ? largest / 127.0f : NAN;
}

static void quantize_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const quantize_of *of = context;
    const int64_t blocks = cy_ceil_div(of->n, CY_QUANTIZE_BLOCK);
    for (int64_t b = number * CHUNK_BLOCKS; b < (number + 1) * CHUNK_BLOCKS && b < blocks; b++) {
        const int64_t end = block_end(of, b);
        const float scale = block_scale(of, b);
        of->scales[b] = scale;
        for (int64_t i = b * CY_QUANTIZE_BLOCK; i < end; i += LANES) {
            const int64_t lanes = lanes_left(end, i);
            vec units = vec_all(0.0f);
            if (scale > 0.0f) {
                const vec ratio = vec_div(load_f32(of->x + i, lanes), vec_all(scale));
                units = vec_max(vec_min(ratio, vec_all(127.0f)), vec_all(-127.0f));
            }
            store_codes(of->codes + i, vec_round(units), lanes);
        }
    }
}

static void quantize(cy_queue *queue, cy_view codes, cy_view scales, cy_view x)
{
    if (x.dtype != CY_F32) {
        cy_ref_quantize(queue, codes, scales, x);
        return;
    }
    quantize_of of = {.codes = codes.data, .scales = scales.data, .x = x.data, .n = x.cols};
    cy_queue_run(queue, quantize_chunk, &of, cy_ceil_div(x.cols, CHUNK));
}

static void dequantize_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const quantize_of *of = context;
    const int64_t blocks = cy_ceil_div(of->n, CY_QUANTIZE_BLOCK);
    for (int64_t b = number * CHUNK_BLOCKS; b < (number + 1) * CHUNK_BLOCKS && b < blocks; b++) {
        const vec scale = vec_all(of->scales[b]);
        const int64_t end = block_end(of, b);
        for (int64_t i = b * CY_QUANTIZE_BLOCK; i < end; i += LANES) {
            const int64_t lanes = lanes_left(end, i);
            vec value = vec_mul(scale, load_codes(of->codes + i, lanes));
            if (of->accumulate) value = vec_add(load_f32(of->x + i, lanes), value);
            store_f32(of->x + i, value, lanes);
        }
    }
}

static void dequantize(cy_queue *queue, cy_view y, cy_view codes, cy_view scales, bool accumulate)
{
    if (y.dtype != CY_F32) {
        cy_ref_dequantize(queue, y, codes, scales, accumulate);
        return;
    }
    quantize_of of = {.codes = codes.data,
        .scales = scales.data,
        .x = y.data,
        .n = y.cols,
        .accumulate = accumulate};
    cy_queue_run(queue, dequantize_chunk, &of, cy_ceil_div(y.cols, CHUNK));
}

#endif
