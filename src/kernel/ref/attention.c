// Computes the reference attention: over spans of queries and keys for training, and over pages of
// keys and values for decoding. Scores are computed again wherever they are needed and are never
// stored.

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
            cy_ref_accumulate(of->queue, gradient, at, col + i, factor * row[i]);
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
            cy_ref_accumulate(of->queue, gradient, at, col + i, sum[i]);
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

// ---- pages of keys and values

typedef struct paged {
    cy_queue *queue;
    cy_view o, q; // o: none where parts are made
    const cy_kv_pages *pages;
    const int32_t *sequences, *positions; // [rows of q]
    const cy_attention_spec *spec;
    cy_view parts;
    int64_t first;        // number of the first of them
    cy_dtype parts_dtype; // what a part is rounded to
} paged;

// What one query head has of some keys.
typedef struct sums {
    double max, sum;
    double out[CY_HEAD_DIM_MAX];
} sums;

// The row of the cache that holds a position of a query's sequence.
static int64_t row_of(const paged *of, int64_t query, int64_t position)
{
    return cy_kv_row(of->pages, of->pages->page_table, of->sequences[query], position);
}

static int64_t kv_col(const cy_attention_spec *spec, int64_t head)
{
    return head / (spec->heads / spec->kv_heads) * spec->head_dim;
}

static double rounded(double x, cy_dtype dtype)
{
    return dtype == CY_F64 ? x : (double)(float)x;
}

static double score_of(const paged *of, const double *q, int64_t key_row, int64_t head)
{
    double score = 0.0;
    for (int64_t i = 0; i < of->spec->head_dim; i++) {
        score += q[i] * cy_ref_load(of->pages->keys, key_row, kv_col(of->spec, head) + i);
    }
    return score * of->spec->scale;
}

// The keys among positions [part * CY_ATTENTION_PART, ...) that the query sees.
static void make_part(sums *made, const paged *of, int64_t query, int64_t head, int64_t part)
{
    const cy_attention_spec *spec = of->spec;
    const int64_t dim = spec->head_dim, last = of->positions[query];
    const int64_t start = part * CY_ATTENTION_PART, seen = cy_attention_first(spec, last);
    const int64_t first = start > seen ? start : seen;
    const int64_t end = last + 1 < start + CY_ATTENTION_PART ? last + 1 : start + CY_ATTENTION_PART;
    double q[CY_HEAD_DIM_MAX];
    cy_ref_load_row(q, of->q, query, head * dim, dim);
    *made = (sums){.max = (double)-INFINITY};
    for (int64_t position = first; position < end; position++) {
        const int64_t row = row_of(of, query, position);
        made->max = fmax(made->max, score_of(of, q, row, head));
    }
    made->max = rounded(made->max, of->parts_dtype); // weights are against what is kept
    for (int64_t position = first; position < end; position++) {
        const int64_t row = row_of(of, query, position);
        const double weight = exp(score_of(of, q, row, head) - made->max);
        made->sum += weight;
        for (int64_t i = 0; i < dim; i++)
            made->out[i] += weight * cy_ref_load(of->pages->values, row, kv_col(spec, head) + i);
    }
    made->sum = rounded(made->sum, of->parts_dtype);
    for (int64_t i = 0; i < dim; i++)
        made->out[i] = rounded(made->out[i], of->parts_dtype);
}

// all += part, both against the larger of their maxima.
static void join(sums *all, const sums *part, int64_t dim)
{
    const bool grows = part->max > all->max;
    const double a = grows ? exp(all->max - part->max) : 1.0;
    const double b = grows ? 1.0 : exp(part->max - all->max);
    all->max = grows ? part->max : all->max;
    all->sum = all->sum * a + part->sum * b;
    for (int64_t i = 0; i < dim; i++)
        all->out[i] = all->out[i] * a + part->out[i] * b;
}

static void store_head(cy_queue *queue, cy_view o, int64_t row, const sums *all,
    const cy_attention_spec *spec, int64_t head)
{
    for (int64_t i = 0; i < spec->head_dim; i++) {
        cy_ref_store(queue, o, row, head * spec->head_dim + i, all->out[i] / all->sum);
    }
}

static void paged_query(void *context, int64_t task, int worker)
{
    (void)worker;
    const paged *of = context;
    const int64_t query = task / of->spec->heads, head = task % of->spec->heads;
    const int64_t last = of->positions[query];
    sums all = {.max = (double)-INFINITY}, part;
    for (int64_t i = cy_attention_first(of->spec, last) / CY_ATTENTION_PART;
         i <= last / CY_ATTENTION_PART; i++) {
        make_part(&part, of, query, head, i);
        join(&all, &part, of->spec->head_dim);
    }
    store_head(of->queue, of->o, query, &all, of->spec, head);
}

void cy_ref_attention_paged(cy_queue *queue, cy_view o, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec)
{
    paged of = {
        .queue = queue,
        .o = o,
        .q = q,
        .pages = pages,
        .sequences = sequences,
        .positions = positions,
        .spec = spec,
        .parts_dtype = cy_sum_dtype(q.dtype),
    };
    cy_queue_run(queue, paged_query, &of, q.rows * spec->heads);
}

// ---- parts of one row: [group, head_dim] sums of values, [group] maxima, [group] sums of weights

static void part_head(void *context, int64_t task, int worker)
{
    (void)worker;
    const paged *of = context;
    const cy_attention_spec *spec = of->spec;
    const int64_t dim = spec->head_dim, group = spec->heads / spec->kv_heads;
    const int64_t row = task / group, i = task % group, number = of->first + row;
    const int64_t head = number % spec->kv_heads * group + i;
    const int64_t seen = cy_attention_first(spec, of->positions[0]) / CY_ATTENTION_PART;
    sums made;
    make_part(&made, of, 0, head, seen + number / spec->kv_heads);
    for (int64_t j = 0; j < dim; j++)
        cy_ref_store(of->queue, of->parts, row, i * dim + j, made.out[j]);
    cy_ref_store(of->queue, of->parts, row, group * dim + i, made.max);
    cy_ref_store(of->queue, of->parts, row, group * dim + group + i, made.sum);
}

void cy_ref_attention_split(cy_queue *queue, cy_view parts, cy_view q, const cy_kv_pages *pages,
    const int32_t *sequences, const int32_t *positions, const cy_attention_spec *spec,
    int64_t first)
{
    paged of = {
        .queue = queue,
        .q = q,
        .pages = pages,
        .sequences = sequences,
        .positions = positions,
        .spec = spec,
        .parts = parts,
        .first = first,
        .parts_dtype = cy_sum_dtype(q.dtype),
    };
    cy_queue_run(queue, part_head, &of, parts.rows * (spec->heads / spec->kv_heads));
}

typedef struct joining {
    cy_queue *queue;
    cy_view o, parts;
    const cy_attention_spec *spec;
} joining;

static void join_head(void *context, int64_t head, int worker)
{
    (void)worker;
    const joining *of = context;
    const cy_attention_spec *spec = of->spec;
    const int64_t dim = spec->head_dim, group = spec->heads / spec->kv_heads, i = head % group;
    sums all = {.max = (double)-INFINITY}, part;
    for (int64_t row = head / group; row < of->parts.rows; row += spec->kv_heads) {
        cy_ref_load_row(part.out, of->parts, row, i * dim, dim);
        part.max = cy_ref_load(of->parts, row, group * dim + i);
        part.sum = cy_ref_load(of->parts, row, group * dim + group + i);
        join(&all, &part, dim);
    }
    store_head(of->queue, of->o, 0, &all, spec, head);
}

void cy_ref_attention_combine(
    cy_queue *queue, cy_view o, cy_view parts, const cy_attention_spec *spec)
{
    joining of = {.queue = queue, .o = o, .parts = parts, .spec = spec};
    cy_queue_run(queue, join_head, &of, spec->heads);
}
