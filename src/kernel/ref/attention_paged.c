#include "base/assert.h"
#include "kernel/ref/element.h"
#include "kernel/ref/ref.h"

typedef struct paged {
    cy_queue *queue;
    cy_view o, q;
    const cy_kv_pages *pages;
    const int32_t *sequences, *positions; // [rows of q]
    const cy_attention_spec *spec;
} paged;

// The row of keys and values that holds a position of a sequence.
static int64_t page_row(const cy_kv_pages *pages, int64_t sequence, int64_t position)
{
    const int64_t page = position / pages->page_size;
    CY_DEBUG_ASSERT(page < pages->pages_per_sequence);
    const int64_t number = pages->page_table[sequence * pages->pages_per_sequence + page];
    return number * pages->page_size + position % pages->page_size;
}

static void paged_query(void *context, int64_t task, int worker)
{
    (void)worker;
    const paged *of = context;
    const cy_attention_spec *spec = of->spec;
    const int64_t dim = spec->head_dim;
    const int64_t query = task / spec->heads, head = task % spec->heads;
    const int64_t kv_col = head / (spec->heads / spec->kv_heads) * dim;
    const int64_t last = of->positions[query];
    const int64_t first = spec->window > 0 && last >= spec->window ? last - spec->window + 1 : 0;
    double out[CY_HEAD_DIM_MAX] = {0}, q[CY_HEAD_DIM_MAX];
    double max = (double)-INFINITY, sum = 0.0;
    cy_ref_load_row(q, of->q, query, head * dim, dim);
    for (int pass = 0; pass < 2; pass++) { // the largest score first, then the sums
        for (int64_t position = first; position <= last; position++) {
            const int64_t row = page_row(of->pages, of->sequences[query], position);
            double score = 0.0;
            for (int64_t i = 0; i < dim; i++) {
                score += q[i] * cy_ref_load(of->pages->keys, row, kv_col + i);
            }
            score *= spec->scale;
            if (pass == 0) {
                max = fmax(max, score);
                continue;
            }
            const double weight = exp(score - max);
            sum += weight;
            for (int64_t i = 0; i < dim; i++) {
                out[i] += weight * cy_ref_load(of->pages->values, row, kv_col + i);
            }
        }
    }
    for (int64_t i = 0; i < dim; i++) {
        cy_ref_store(of->queue, of->o, query, head * dim + i, out[i] / sum);
    }
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
    };
    cy_queue_run(queue, paged_query, &of, q.rows * spec->heads);
}
