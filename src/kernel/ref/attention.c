// Scores are computed anew wherever they are needed and never stored: a query, or a key, at a time.

#include "kernel/ref/element.h"
#include "kernel/ref/ref.h"

typedef struct attention {
    cy_queue *queue;
    cy_view o, q, k, v, lse, delta, d_o, dq, dk, dv;
    const cy_attention_spec *spec;
} attention;

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static bool sees(const cy_attention_spec *spec, int64_t query, int64_t key)
{
    const int64_t p = spec->q_positions[query], at = spec->k_positions[key];
    return at <= p && (spec->window == 0 || at > p - spec->window);
}

static const cy_attention_span *span_of_query(const cy_attention_spec *spec, int64_t query)
{
    for (int i = 0; i < spec->span_count; i++) {
        const cy_attention_span *span = &spec->spans[i];
        if (query >= span->q_first && query < span->q_first + span->q_count) return span;
    }
    return NULL;
}

// ---- forward

// The largest score first, then the sums.
static void forward_query(void *context, int64_t task, int worker)
{
    (void)worker;
    const attention *of = context;
    const cy_attention_spec *spec = of->spec;
    const int64_t dim = spec->head_dim;
    const int64_t query = task / spec->heads, head = task % spec->heads;
    const int64_t kv_col = head / (spec->heads / spec->kv_heads) * dim;
    const cy_attention_span *span = span_of_query(spec, query);
    const int64_t k_end = span != NULL ? span->k_first + span->k_count : 0;
    double q[CY_HEAD_DIM_MAX], row[CY_HEAD_DIM_MAX], out[CY_HEAD_DIM_MAX] = {0};
    cy_ref_load_row(q, of->q, query, head * dim, dim);

    bool saw = false; // not read off the sum: a NaN must come through
    double max = (double)-INFINITY, sum = 0.0;
    for (int64_t key = span != NULL ? span->k_first : 0; key < k_end; key++) {
        if (!sees(spec, query, key)) continue;
        cy_ref_load_row(row, of->k, key, kv_col, dim);
        max = fmax(max, spec->scale * dot(q, row, dim));
        saw = true;
    }
    for (int64_t key = span != NULL ? span->k_first : 0; key < k_end; key++) {
        if (!sees(spec, query, key)) continue;
        cy_ref_load_row(row, of->k, key, kv_col, dim);
        const double weight = exp(spec->scale * dot(q, row, dim) - max);
        cy_ref_load_row(row, of->v, key, kv_col, dim);
        sum += weight;
        for (int64_t i = 0; i < dim; i++)
            out[i] += weight * row[i];
    }
    for (int64_t i = 0; i < dim; i++) {
        cy_ref_store(of->queue, of->o, query, head * dim + i, saw ? out[i] / sum : 0.0);
    }
    cy_ref_store(of->queue, of->lse, head, query, max + log(sum));
}

void cy_ref_attention_forward(cy_queue *queue, cy_view o, cy_view lse, cy_view q, cy_view k,
    cy_view v, const cy_attention_spec *spec)
{
    attention of = {
        .queue = queue,
        .o = o,
        .lse = lse,
        .q = q,
        .k = k,
        .v = v,
        .spec = spec,
    };
    cy_queue_run(queue, forward_query, &of, q.rows * spec->heads);
}

void cy_ref_attention_merge(
    cy_queue *queue, cy_view o, cy_view lse, cy_view o_part, cy_view lse_part, int heads)
{
    if (queue->dry) return;
    const int64_t dim = o.cols / heads;
    for (int64_t t = 0; t < o.rows; t++) {
        for (int64_t head = 0; head < heads; head++) {
            const double a = cy_ref_load(lse, head, t), b = cy_ref_load(lse_part, head, t);
            const double max = fmax(a, b);
            if (max == (double)-INFINITY) continue; // neither saw a key: o is 0 already
            const double of_a = exp(a - max), of_b = exp(b - max), sum = of_a + of_b;
            for (int64_t i = head * dim; i < (head + 1) * dim; i++) {
                const double merged =
                    of_a * cy_ref_load(o, t, i) + of_b * cy_ref_load(o_part, t, i);
                cy_ref_store(queue, o, t, i, merged / sum);
            }
            cy_ref_store(queue, lse, head, t, max + log(sum));
        }
    }
}

// ---- backward: with P = exp(scale q k - lse), dV = P^T dO, dS = P * (dO V^T - delta), dQ = scale
// dS K, dK = scale dS^T Q

void cy_ref_attention_delta(cy_queue *queue, cy_view delta, cy_view d_o, cy_view o, int heads)
{
    if (queue->dry) return;
    const int64_t dim = o.cols / heads;
    for (int64_t t = 0; t < o.rows; t++) {
        for (int64_t head = 0; head < heads; head++) {
            double sum = 0.0;
            for (int64_t i = head * dim; i < (head + 1) * dim; i++) {
                sum += cy_ref_load(d_o, t, i) * cy_ref_load(o, t, i);
            }
            cy_ref_store(queue, delta, head, t, sum);
        }
    }
}

// Adds factor * row to a range of columns. In fixed point every term is rounded on its own;
// otherwise the terms meet in `sum` and are stored once, by finish_row.
static void add_row(const attention *of, cy_view gradient, int64_t at, int64_t col, double *sum,
    double factor, const double *row)
{
    for (int64_t i = 0; i < of->spec->head_dim; i++) {
        if (gradient.dtype == CY_FX64) {
            cy_ref_add(of->queue, gradient, at, col + i, factor * row[i]);
        } else {
            sum[i] += factor * row[i];
        }
    }
}

static void finish_row(
    const attention *of, cy_view gradient, int64_t at, int64_t col, const double *sum)
{
    if (gradient.dtype == CY_FX64) return;
    for (int64_t i = 0; i < of->spec->head_dim; i++) {
        if (of->spec->accumulate) {
            cy_ref_add(of->queue, gradient, at, col + i, sum[i]);
        } else {
            cy_ref_store(of->queue, gradient, at, col + i, sum[i]);
        }
    }
}

// What a pair of a query and a key contributes: P and dS.
typedef struct pair {
    double p;
    double ds;
} pair;

static pair pair_of(const attention *of, int64_t head, int64_t query, const double *q,
    const double *d_o, const double *k, const double *v)
{
    const int64_t dim = of->spec->head_dim;
    const double lse = cy_ref_load(of->lse, head, query);
    const double p = exp(of->spec->scale * dot(q, k, dim) - lse);
    const double ds = p * (dot(d_o, v, dim) - cy_ref_load(of->delta, head, query));
    return (pair){.p = p, .ds = ds};
}

static void backward_query(void *context, int64_t task, int worker)
{
    (void)worker;
    const attention *of = context;
    const cy_attention_spec *spec = of->spec;
    const int64_t dim = spec->head_dim;
    const int64_t query = task / spec->heads, head = task % spec->heads;
    const int64_t kv_col = head / (spec->heads / spec->kv_heads) * dim;
    const cy_attention_span *span = span_of_query(spec, query);
    double q[CY_HEAD_DIM_MAX], d_o[CY_HEAD_DIM_MAX], k[CY_HEAD_DIM_MAX], v[CY_HEAD_DIM_MAX];
    double sum[CY_HEAD_DIM_MAX] = {0};
    cy_ref_load_row(q, of->q, query, head * dim, dim);
    cy_ref_load_row(d_o, of->d_o, query, head * dim, dim);
    const int64_t k_end = span != NULL ? span->k_first + span->k_count : 0;
    for (int64_t key = span != NULL ? span->k_first : 0; key < k_end; key++) {
        if (!sees(spec, query, key)) continue;
        cy_ref_load_row(k, of->k, key, kv_col, dim);
        cy_ref_load_row(v, of->v, key, kv_col, dim);
        const pair at = pair_of(of, head, query, q, d_o, k, v);
        add_row(of, of->dq, query, head * dim, sum, spec->scale * at.ds, k);
    }
    finish_row(of, of->dq, query, head * dim, sum);
}

static void backward_key(void *context, int64_t task, int worker)
{
    (void)worker;
    const attention *of = context;
    const cy_attention_spec *spec = of->spec;
    const int64_t dim = spec->head_dim, group = spec->heads / spec->kv_heads;
    const int64_t key = task / spec->kv_heads, kv_head = task % spec->kv_heads;
    double q[CY_HEAD_DIM_MAX], d_o[CY_HEAD_DIM_MAX], k[CY_HEAD_DIM_MAX], v[CY_HEAD_DIM_MAX];
    double dk[CY_HEAD_DIM_MAX] = {0}, dv[CY_HEAD_DIM_MAX] = {0};
    cy_ref_load_row(k, of->k, key, kv_head * dim, dim);
    cy_ref_load_row(v, of->v, key, kv_head * dim, dim);
    for (int s = 0; s < spec->span_count; s++) {
        const cy_attention_span span = spec->spans[s];
        if (key < span.k_first || key >= span.k_first + span.k_count) continue;
        for (int64_t query = span.q_first; query < span.q_first + span.q_count; query++) {
            if (!sees(spec, query, key)) continue;
            for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
                cy_ref_load_row(q, of->q, query, head * dim, dim);
                cy_ref_load_row(d_o, of->d_o, query, head * dim, dim);
                const pair at = pair_of(of, head, query, q, d_o, k, v);
                add_row(of, of->dk, key, kv_head * dim, dk, spec->scale * at.ds, q);
                add_row(of, of->dv, key, kv_head * dim, dv, at.p, d_o);
            }
        }
    }
    finish_row(of, of->dk, key, kv_head * dim, dk);
    finish_row(of, of->dv, key, kv_head * dim, dv);
}

static void clear_fixed(cy_queue *queue, cy_view gradient)
{
    if (gradient.dtype == CY_FX64) cy_ref_fill(queue, gradient, 0.0);
}

void cy_ref_attention_backward(cy_queue *queue, cy_view dq, cy_view dk, cy_view dv, cy_view d_o,
    cy_view lse, cy_view delta, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    attention of = {
        .queue = queue,
        .q = q,
        .k = k,
        .v = v,
        .lse = lse,
        .delta = delta,
        .d_o = d_o,
        .dq = dq,
        .dk = dk,
        .dv = dv,
        .spec = spec,
    };
    if (!spec->accumulate) {
        clear_fixed(queue, dq);
        clear_fixed(queue, dk);
        clear_fixed(queue, dv);
    }
    cy_queue_run(queue, backward_query, &of, q.rows * spec->heads);
    cy_queue_run(queue, backward_key, &of, k.rows * spec->kv_heads);
}
