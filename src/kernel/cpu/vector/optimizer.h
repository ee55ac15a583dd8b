// kernel/cpu/vector/optimizer.h: operators over flat ranges of parameters: sums of squares, AdamW,
// random numbers and hashes. Memory bandwidth limits them.

#ifndef CY_KERNEL_CPU_VECTOR_OPTIMIZER_H
#define CY_KERNEL_CPU_VECTOR_OPTIMIZER_H

#include "base/random.h"
#include "kernel/cpu/vector/elementwise.h"

// ---- sum of squares: parts of SQUARES elements in fp64, added in ascending order

#define SQUARES 65536

typedef struct squares_of {
    cy_view x;
    int64_t across; // parts of a row
    double *parts;  // in scratch
} squares_of;

// Two sums side by side, each in registers: an index into them would put both into memory.
FORCE_INLINE double squares_of_range(const void *x, cy_dtype dtype, int64_t first, int64_t end)
{
    squares even = {{0}, {0}}, odd = {{0}, {0}};
    int64_t i = first;
    for (; i + INT64_C(2) * LANES <= end; i += INT64_C(2) * LANES) {
        squares_add(&even, load(x, dtype, i, LANES));
        squares_add(&odd, load(x, dtype, i + LANES, LANES));
    }
    if (i < end) squares_add(&even, load(x, dtype, i, lanes_left(end, i)));
    if (i + LANES < end) squares_add(&odd, load(x, dtype, i + LANES, end - i - LANES));
    return squares_total(even) + squares_total(odd);
}

static void sum_squares_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const squares_of *of = context;
    const int64_t first = number % of->across * SQUARES;
    const int64_t end = first + SQUARES < of->x.cols ? first + SQUARES : of->x.cols;
    const void *x = cy_view_at(of->x, number / of->across, 0);
    of->parts[number] = of->x.dtype == CY_BF16 ? squares_of_range(x, CY_BF16, first, end)
                                               : squares_of_range(x, CY_F32, first, end);
}

static void sum_squares(cy_queue *queue, cy_view out, cy_view x)
{
    if (!supported(x) || out.dtype != CY_F64) {
        cy_ref_sum_squares(queue, out, x);
        return;
    }
    if (cy_view_is_dense(x)) flatten(&x);
    const size_t mark = cy_arena_mark(queue->scratch);
    squares_of of = {.x = x, .across = cy_ceil_div(x.cols, SQUARES)};
    const int64_t count = of.across * x.rows;
    of.parts = cy_arena_alloc(queue->scratch, (size_t)count * sizeof(double));
    cy_queue_run(queue, sum_squares_chunk, &of, count);
    if (!queue->dry) {
        double total = 0.0;
        for (int64_t i = 0; i < count; i++)
            total += of.parts[i];
        *(double *)out.data += total;
    }
    cy_arena_rewind(queue->scratch, mark);
}

// ---- AdamW

// In the order in which they follow each other.
typedef enum adamw_step {
    ADAMW_FIRST, // both moments
    ADAMW_SECOND,
    ADAMW_MASTER,
    ADAMW_WEIGHT,
} adamw_step;

typedef struct adamw_range {
    grid cut;
    cy_view weight, master, m, v, grad;
    float scale;
    float beta1, beta2, rest1, rest2; // rest = 1 - beta
    float step_size;                  // learning rate over the first moment's correction
    float root;                       // 1 / sqrt of the second moment's correction
    float eps, decay;                 // decay = learning rate * weight decay
    float share;                      // of g, whose square is the least second moment; mostly 0
    adamw_step alone;                 // which one, where each has a pass of its own
} adamw_range;

FORCE_INLINE vec adamw_gradient(
    const adamw_range *of, int64_t i, int64_t lanes, cy_dtype grad_dtype)
{
    return vec_mul(vec_all(of->scale), load(of->grad.data, grad_dtype, i, lanes));
}

FORCE_INLINE vec adamw_first(const adamw_range *of, vec g, vec m)
{
    return vec_fma(vec_all(of->rest1), g, vec_mul(vec_all(of->beta1), m));
}

FORCE_INLINE vec adamw_second(const adamw_range *of, vec g, vec v)
{
    const vec least = vec_mul(vec_all(of->share), g);
    const vec mean = vec_fma(vec_mul(vec_all(of->rest2), g), g, vec_mul(vec_all(of->beta2), v));
    return vec_max(mean, vec_mul(least, least));
}

FORCE_INLINE vec adamw_updated(const adamw_range *of, vec old, vec first, vec second)
{
    const vec below = vec_fma(vec_sqrt(second), vec_all(of->root), vec_all(of->eps));
    const vec step = vec_div(vec_mul(vec_all(of->step_size), first), below);
    // Both small terms first: 1 - decay as one factor would lose most of the decay's digits.
    return vec_sub(old, vec_fma(vec_all(of->decay), old, step));
}

FORCE_INLINE void adamw_vector(const adamw_range *of, int64_t i, int64_t lanes, cy_dtype grad_dtype)
{
    float *master = (float *)of->master.data + i;
    float *m = (float *)of->m.data + i, *v = (float *)of->v.data + i;
    const int64_t ahead = i + INT64_C(16) * LANES;
    prefetch(of->grad.data, grad_dtype, ahead);
    prefetch(of->master.data, CY_F32, ahead);
    prefetch(of->m.data, CY_F32, ahead);
    prefetch(of->v.data, CY_F32, ahead);
    const vec g = adamw_gradient(of, i, lanes, grad_dtype);
    const vec first = adamw_first(of, g, load_f32(m, lanes));
    const vec second = adamw_second(of, g, load_f32(v, lanes));
    const vec updated = adamw_updated(of, load_f32(master, lanes), first, second);
    store_f32(m, first, lanes);
    store_f32(v, second, lanes);
    store_f32(master, updated, lanes);
    if (of->weight.data != NULL) store(of->weight.data, of->weight.dtype, i, updated, lanes);
}

static void adamw_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const adamw_range *of = context;
    const chunk at = chunk_at(of->cut, 1, of->master.cols, number);
    for (int64_t i = at.col; i < at.col_end; i += LANES) {
        const int64_t lanes = lanes_left(at.col_end, i);
        if (of->grad.dtype == CY_BF16) {
            adamw_vector(of, i, lanes, CY_BF16);
        } else {
            adamw_vector(of, i, lanes, CY_F32);
        }
    }
}

// Computes one step of the formula; the next step reads what it wrote.
FORCE_INLINE void adamw_alone(const adamw_range *of, int64_t i, int64_t lanes)
{
    float *master = (float *)of->master.data + i;
    float *m = (float *)of->m.data + i, *v = (float *)of->v.data + i;
    const cy_dtype grad = of->grad.dtype;
    switch (of->alone) {
    case ADAMW_FIRST:
        store_f32(
            m, adamw_first(of, adamw_gradient(of, i, lanes, grad), load_f32(m, lanes)), lanes);
        break;
    case ADAMW_SECOND:
        store_f32(
            v, adamw_second(of, adamw_gradient(of, i, lanes, grad), load_f32(v, lanes)), lanes);
        break;
    case ADAMW_MASTER: {
        const vec old = load_f32(master, lanes);
        const vec updated = adamw_updated(of, old, load_f32(m, lanes), load_f32(v, lanes));
        store_f32(master, updated, lanes);
        break;
    }
    case ADAMW_WEIGHT:
        store(of->weight.data, of->weight.dtype, i, load_f32(master, lanes), lanes);
        break;
    }
}

static void adamw_alone_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const adamw_range *of = context;
    const chunk at = chunk_at(of->cut, 1, of->master.cols, number);
    for (int64_t i = at.col; i < at.col_end; i += LANES)
        adamw_alone(of, i, lanes_left(at.col_end, i));
}

static void adamw_passes(cy_queue *queue, adamw_range *of)
{
    const adamw_step last = of->weight.data != NULL ? ADAMW_WEIGHT : ADAMW_MASTER;
    for (of->alone = ADAMW_FIRST; of->alone <= last; of->alone++)
        cy_queue_run(queue, adamw_alone_chunk, of, of->cut.count);
}

static double adamw_power(double base, int64_t exponent)
{
    return pow(base, (double)exponent);
}

// The arguments of one update in the form that its vectors use.
static adamw_range adamw_range_of(cy_view weight, cy_view master, cy_view m, cy_view v,
    cy_view grad, double factor, const cy_adamw_spec *spec, double (*power)(double, int64_t))
{
    const cy_adamw_second_moment second = cy_adamw_second_moment_of(spec);
    const double correction1 = 1.0 - power(spec->beta1, spec->step);
    const double correction2 = 1.0 - power(spec->beta2, second.steps);
    return (adamw_range){
        .cut = grid_of(1, master.cols),
        .weight = weight,
        .master = master,
        .m = m,
        .v = v,
        .grad = grad,
        .scale = (float)factor,
        .beta1 = (float)spec->beta1,
        .beta2 = (float)second.beta2,
        .rest1 = (float)(1.0 - spec->beta1),
        .rest2 = (float)(1.0 - second.beta2),
        .step_size = (float)(spec->learning_rate / correction1),
        .root = (float)(1.0 / sqrt(correction2)),
        .eps = (float)spec->eps,
        .decay = (float)(spec->learning_rate * spec->weight_decay),
        .share = (float)second.share,
    };
}

static void adamw_of(cy_queue *queue, cy_view weight, cy_view master, cy_view m, cy_view v,
    cy_view grad, cy_view scale, const cy_adamw_spec *spec, bool fused)
{
    const bool has_weight = !cy_view_is_none(weight);
    if (master.dtype != CY_F32 || !supported(grad) || (has_weight && !supported(weight))) {
        cy_ref_adamw(queue, weight, master, m, v, grad, scale, spec);
        return;
    }
    if (queue->dry) return;
    const double factor = *(const double *)scale.data;
    if (!isfinite(factor)) return;
    adamw_range of = adamw_range_of(weight, master, m, v, grad, factor, spec, adamw_power);
    if (fused) {
        cy_queue_run(queue, adamw_chunk, &of, of.cut.count);
    } else {
        adamw_passes(queue, &of);
    }
}

static void adamw(cy_queue *queue, cy_view weight, cy_view master, cy_view m, cy_view v,
    cy_view grad, cy_view scale, const cy_adamw_spec *spec)
{
    adamw_of(queue, weight, master, m, v, grad, scale, spec, true);
}

// ---- random numbers and hashes: the bits are those of the reference

typedef struct numbered {
    grid cut;
    cy_view x;
    uint64_t key, first;
    int64_t global_cols;
    double std;
    uint64_t *parts; // in scratch: of hashes, one a chunk
} numbered;

static void random_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const numbered *of = context;
    const chunk at = chunk_at(of->cut, of->x.rows, of->x.cols, number);
    for (int64_t t = at.row; t < at.row_end; t++) {
        const uint64_t first = of->first + (uint64_t)(t * of->global_cols + at.col);
        float *x = cy_view_at(of->x, t, at.col);
        cy_random_normal_range(x, of->key, first, at.col_end - at.col);
        for (int64_t i = 0; i < at.col_end - at.col; i++)
            x[i] = (float)(of->std * (double)x[i]);
    }
}

static void random_fill(
    cy_queue *queue, cy_view x, uint64_t key, uint64_t first, int64_t global_cols, double std)
{
    if (x.dtype != CY_F32) {
        cy_ref_random_fill(queue, x, key, first, global_cols, std);
        return;
    }
    if (global_cols == x.cols && cy_view_is_dense(x)) {
        flatten(&x);
        global_cols = x.cols;
    }
    numbered of = {
        .cut = grid_of(x.rows, x.cols),
        .x = x,
        .key = key,
        .first = first,
        .global_cols = global_cols,
        .std = std,
    };
    cy_queue_run(queue, random_chunk, &of, of.cut.count);
}

static void hash_chunk(void *context, int64_t number, int worker)
{
    (void)worker;
    const numbered *of = context;
    const chunk at = chunk_at(of->cut, of->x.rows, of->x.cols, number);
    uint64_t sum = 0;
    for (int64_t t = at.row; t < at.row_end; t++) {
        const float *x = cy_view_at(of->x, t, 0);
        const uint64_t first = of->first + (uint64_t)(t * of->global_cols);
        for (int64_t i = at.col; i < at.col_end; i++) {
            const double value = (double)x[i];
            uint64_t bits;
            memcpy(&bits, &value, sizeof(bits));
            sum += cy_random_mixed(cy_random_mixed(of->key, first + (uint64_t)i), bits);
        }
    }
    of->parts[number] = sum;
}

static void hash(
    cy_queue *queue, cy_view out, cy_view x, uint64_t key, uint64_t first, int64_t global_cols)
{
    if (x.dtype != CY_F32) {
        cy_ref_hash(queue, out, x, key, first, global_cols);
        return;
    }
    const size_t mark = cy_arena_mark(queue->scratch);
    numbered of = {
        .cut = grid_of(x.rows, x.cols),
        .x = x,
        .key = key,
        .first = first,
        .global_cols = global_cols,
    };
    of.parts = cy_arena_alloc(queue->scratch, (size_t)of.cut.count * sizeof(uint64_t));
    cy_queue_run(queue, hash_chunk, &of, of.cut.count);
    if (!queue->dry) {
        for (int64_t i = 0; i < of.cut.count; i++)
            *(uint64_t *)out.data += of.parts[i];
    }
    cy_arena_rewind(queue->scratch, mark);
}

#endif
