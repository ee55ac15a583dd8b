#include "kernel/ref/element.h"
#include "kernel/ref/ref.h"

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
