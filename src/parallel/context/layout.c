// Divides a sequence over the context-parallel ranks, and prepares the positions and spans of
// attention.

#include "parallel/context/layout.h"

#include "base/memory.h"
#include "base/status.h"
#include "device/device.h"

// ---- layout

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t cy_context_length_local(const cy_context_layout *layout)
{
    CY_ASSERT(layout->length % layout->ranks == 0);
    return layout->length / layout->ranks;
}

int64_t cy_context_tokens_local(const cy_context_layout *layout)
{
    return layout->sequences * cy_context_length_local(layout);
}

int cy_context_ranges(const cy_context_layout *layout, int rank, cy_context_range *ranges)
{
    CY_ASSERT(0 <= rank && rank < layout->ranks);
    const bool two = layout->zigzag && layout->ranks > 1;
    const int64_t chunks = two ? 2 * layout->ranks : layout->ranks;
    CY_ASSERT(layout->length % chunks == 0);
    const int64_t count = layout->length / chunks;
    ranges[0] = (cy_context_range){.first = rank * count, .count = count};
    if (!two) return 1;
    ranges[1] = (cy_context_range){.first = (chunks - 1 - rank) * count, .count = count};
    return 2;
}

void cy_context_positions(const cy_context_layout *layout, int rank, int32_t *positions)
{
    cy_context_range ranges[CY_CONTEXT_RANGES];
    const int count = cy_context_ranges(layout, rank, ranges);
    for (int64_t sequence = 0; sequence < layout->sequences; sequence++) {
        for (int r = 0; r < count; r++) {
            for (int64_t i = 0; i < ranges[r].count; i++)
                *positions++ = (int32_t)(ranges[r].first + i);
        }
    }
}

// The last position that sees a key at `position`; it may be beyond the sequence.
static int64_t last_visible_query(const cy_context_layout *layout, int64_t position)
{
    return layout->window == 0 ? INT64_MAX : position + layout->window - 1;
}

// Whole ranges that no query (or key) of the other side meets are cut off at both ends: the kernel
// leaves out the rest by blocks.
typedef struct trimmed {
    int64_t first, count; // of the rank's positions
    int64_t low, high;    // the positions between them, inclusive
} trimmed;

static trimmed trim(const cy_context_range *ranges, int count, int64_t low, int64_t high)
{
    trimmed kept = {.low = INT64_MAX, .high = -1};
    int64_t before = 0;
    for (int r = 0; r < count; r++) {
        const int64_t end = ranges[r].first + ranges[r].count - 1;
        if (ranges[r].first <= high && end >= low) {
            if (kept.count == 0) kept.first = before;
            kept.count = before + ranges[r].count - kept.first;
            kept.low = least(kept.low, ranges[r].first);
            kept.high = end;
        }
        before += ranges[r].count;
    }
    return kept;
}

// Spans of a query rank against keys that lie in `k_ranges` of each sequence.
static int make_spans(const cy_context_layout *layout, int q_rank, const cy_context_range *k_ranges,
    int k_count, int64_t k_length, cy_attention_span *spans)
{
    cy_context_range q_ranges[CY_CONTEXT_RANGES];
    const int q_count = cy_context_ranges(layout, q_rank, q_ranges);
    const int64_t q_length = cy_context_length_local(layout);
    const int64_t reach =
        last_visible_query(layout, k_ranges[k_count - 1].first + k_ranges[k_count - 1].count - 1);
    const trimmed q = trim(q_ranges, q_count, k_ranges[0].first, reach);
    if (q.count == 0) return 0;
    const int64_t oldest = layout->window == 0 ? 0 : most(q.low - layout->window + 1, 0);
    const trimmed k = trim(k_ranges, k_count, oldest, q.high);
    if (k.count == 0) return 0;
    for (int64_t i = 0; i < layout->sequences; i++) {
        spans[i] = (cy_attention_span){
            .q_first = i * q_length + q.first,
            .q_count = q.count,
            .k_first = i * k_length + k.first,
            .k_count = k.count,
        };
    }
    return (int)layout->sequences;
}

int cy_context_spans(
    const cy_context_layout *layout, int q_rank, int k_rank, cy_attention_span *spans)
{
    cy_context_range ranges[CY_CONTEXT_RANGES];
    const int count = cy_context_ranges(layout, k_rank, ranges);
    return make_spans(layout, q_rank, ranges, count, cy_context_length_local(layout), spans);
}

int cy_context_spans_of_all(const cy_context_layout *layout, int q_rank, cy_attention_span *spans)
{
    const cy_context_range all = {.first = 0, .count = layout->length};
    return make_spans(layout, q_rank, &all, 1, layout->length, spans);
}

// Keys of a range that a query at `position` sees.
static int64_t seen(const cy_context_layout *layout, int64_t position, cy_context_range keys)
{
    const int64_t oldest = layout->window == 0 ? 0 : position - layout->window + 1;
    const int64_t first = most(keys.first, oldest);
    const int64_t end = least(keys.first + keys.count, position + 1);
    return end > first ? end - first : 0;
}

static double count_pairs(
    const cy_context_layout *layout, int q_rank, const cy_context_range *k_ranges, int k_count)
{
    cy_context_range q_ranges[CY_CONTEXT_RANGES];
    const int q_count = cy_context_ranges(layout, q_rank, q_ranges);
    double pairs = 0;
    for (int q = 0; q < q_count; q++) {
        for (int64_t i = 0; i < q_ranges[q].count; i++) {
            for (int k = 0; k < k_count; k++)
                pairs += (double)seen(layout, q_ranges[q].first + i, k_ranges[k]);
        }
    }
    return pairs;
}

double cy_context_pairs(const cy_context_layout *layout, int q_rank, int k_rank)
{
    cy_context_range ranges[CY_CONTEXT_RANGES];
    const int count = cy_context_ranges(layout, k_rank, ranges);
    return count_pairs(layout, q_rank, ranges, count);
}

double cy_context_pairs_of_all(const cy_context_layout *layout, int q_rank)
{
    const cy_context_range all = {.first = 0, .count = layout->length};
    return count_pairs(layout, q_rank, &all, 1);
}

double cy_context_imbalance(const cy_context_layout *layout)
{
    double worst = 0, sum = 0;
    for (int rank = 0; rank < layout->ranks; rank++) {
        const double pairs = cy_context_pairs_of_all(layout, rank);
        if (pairs > worst) worst = pairs;
        sum += pairs;
    }
    return worst * layout->ranks / sum;
}

// ---- tables

static cy_context_layout one_rank(const cy_context_layout *layout)
{
    cy_context_layout whole = *layout;
    whole.ranks = 1;
    return whole;
}

cy_status cy_context_tables_open(
    cy_context_tables *tables, const cy_context_layout *layout, int rank)
{
    void *block = NULL;
    const size_t parts = (size_t)layout->ranks + 2;
    cy_context_tables made = {.layout = *layout, .rank = rank};
    CY_TRY(cy_memory_alloc(&block, parts, sizeof(cy_context_block)));
    made.parts = block;
    const cy_status status =
        cy_memory_alloc(&block, parts * (size_t)layout->sequences, sizeof(cy_attention_span));
    if (status != CY_OK) {
        cy_memory_free(made.parts);
        return status;
    }
    made.spans = block;
    for (size_t i = 0; i < parts; i++)
        made.parts[i].spans = made.spans + i * (size_t)layout->sequences;

    const double sequences = (double)layout->sequences;
    for (int k_rank = 0; k_rank < layout->ranks; k_rank++) {
        cy_context_block *part = &made.parts[k_rank];
        part->span_count = cy_context_spans(layout, rank, k_rank, part->spans);
        part->pairs = sequences * cy_context_pairs(layout, rank, k_rank);
    }
    cy_context_block *all = &made.parts[layout->ranks];
    all->span_count = cy_context_spans_of_all(layout, rank, all->spans);
    all->pairs = sequences * cy_context_pairs_of_all(layout, rank);
    cy_context_block *whole = all + 1;
    const cy_context_layout one = one_rank(layout);
    whole->span_count = cy_context_spans_of_all(&one, 0, whole->spans);
    whole->pairs = sequences * cy_context_pairs_of_all(&one, 0);
    *tables = made;
    return CY_OK;
}

void cy_context_tables_close(cy_context_tables *tables)
{
    cy_memory_free(tables->parts);
    cy_memory_free(tables->spans);
    *tables = (cy_context_tables){0};
}

void cy_context_tables_alloc(cy_context_tables *tables, cy_arena *run)
{
    const cy_context_layout *layout = &tables->layout;
    const size_t bytes = (size_t)(layout->sequences * layout->length) * sizeof(int32_t);
    tables->by_rank = cy_arena_alloc(run, bytes);
    tables->in_order = layout->ranks > 1 ? cy_arena_alloc(run, bytes) : tables->by_rank;
}

cy_status cy_context_tables_fill(cy_context_tables *tables, cy_queue *queue)
{
    const cy_context_layout *layout = &tables->layout;
    const cy_context_layout one = one_rank(layout);
    const int64_t tokens = layout->sequences * layout->length;
    int32_t *by_rank = NULL;
    CY_TRY(CY_ALLOC(&by_rank, 2 * (size_t)tokens));
    int32_t *in_order = by_rank + tokens;
    cy_context_positions(&one, 0, in_order);
    for (int rank = 0; rank < layout->ranks; rank++)
        cy_context_positions(layout, rank, by_rank + rank * cy_context_tokens_local(layout));
    const size_t bytes = (size_t)tokens * sizeof(int32_t);
    cy_queue_upload(queue, tables->by_rank, by_rank, bytes);
    cy_queue_upload(queue, tables->in_order, in_order, bytes); // the same memory on one rank
    const cy_status status = cy_queue_synchronize(queue);
    cy_memory_free(by_rank);
    return status;
}

int32_t *cy_context_tables_positions(const cy_context_tables *tables)
{
    return tables->by_rank + tables->rank * cy_context_tokens_local(&tables->layout);
}

const cy_context_block *cy_context_tables_own(const cy_context_tables *tables)
{
    return &tables->parts[tables->rank];
}

static cy_attention_spec spec_with(const cy_attention_spec *spec, const cy_context_block *part,
    const int32_t *q_positions, const int32_t *k_positions)
{
    cy_attention_spec made = *spec;
    made.spans = part->spans;
    made.span_count = part->span_count;
    made.pairs = part->pairs;
    made.q_positions = q_positions;
    made.k_positions = k_positions;
    return made;
}

cy_attention_spec cy_context_spec_of(
    const cy_context_tables *tables, const cy_attention_spec *spec, int k_rank)
{
    const int64_t tokens = cy_context_tokens_local(&tables->layout);
    return spec_with(spec, &tables->parts[k_rank], cy_context_tables_positions(tables),
        tables->by_rank + k_rank * tokens);
}

cy_attention_spec cy_context_spec_of_all(
    const cy_context_tables *tables, const cy_attention_spec *spec)
{
    return spec_with(spec, &tables->parts[tables->layout.ranks],
        cy_context_tables_positions(tables), tables->in_order);
}

cy_attention_spec cy_context_spec_whole(
    const cy_context_tables *tables, const cy_attention_spec *spec)
{
    return spec_with(
        spec, &tables->parts[tables->layout.ranks + 1], tables->in_order, tables->in_order);
}

static void reorder(const cy_context_tables *tables, cy_queue *queue, cy_view in_order,
    cy_view by_rank, bool to_order)
{
    const cy_context_layout *layout = &tables->layout;
    cy_context_range ranges[CY_CONTEXT_RANGES];
    int64_t row = 0;
    for (int rank = 0; rank < layout->ranks; rank++) {
        const int count = cy_context_ranges(layout, rank, ranges);
        for (int64_t sequence = 0; sequence < layout->sequences; sequence++) {
            for (int r = 0; r < count; r++) {
                const int64_t at = sequence * layout->length + ranges[r].first;
                const cy_view ordered = cy_view_rows(in_order, at, ranges[r].count);
                const cy_view ranked = cy_view_rows(by_rank, row, ranges[r].count);
                cy_copy(queue, to_order ? ordered : ranked, to_order ? ranked : ordered);
                row += ranges[r].count;
            }
        }
    }
}

void cy_context_to_order(
    const cy_context_tables *tables, cy_queue *queue, cy_view in_order, cy_view by_rank)
{
    reorder(tables, queue, in_order, by_rank, true);
}

void cy_context_to_ranks(
    const cy_context_tables *tables, cy_queue *queue, cy_view by_rank, cy_view in_order)
{
    reorder(tables, queue, in_order, by_rank, false);
}
