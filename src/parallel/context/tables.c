#include "parallel/context/tables.h"

#include "base/memory.h"

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

void cy_context_tables_fill(cy_context_tables *tables)
{
    const cy_context_layout *layout = &tables->layout;
    const cy_context_layout one = one_rank(layout);
    cy_context_positions(&one, 0, tables->in_order);
    for (int rank = 0; rank < layout->ranks; rank++) {
        cy_context_positions(
            layout, rank, tables->by_rank + rank * cy_context_tokens_local(layout));
    }
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
