// parallel/context/tables.h: what one rank's attention kernels are told of positions and spans,
// made once from the layout.
//
// Host arrays are owned; device arrays belong to the arena they are taken from. Read-only after
// cy_context_tables_fill; one rank's.

#ifndef CY_PARALLEL_CONTEXT_TABLES_H
#define CY_PARALLEL_CONTEXT_TABLES_H

#include "parallel/context/layout.h"

// Queries and keys that meet in one kernel call.
typedef struct cy_context_block {
    cy_attention_span *spans; // borrowed from the tables
    int span_count;           // 0: no query sees any key
    double pairs;             // that see each other, over all sequences
} cy_context_block;

typedef struct cy_context_tables {
    cy_context_layout layout;
    int rank;
    cy_attention_span *spans; // owned, host, [ranks + 2, sequences]
    cy_context_block *parts;  // owned, [ranks + 2]: own queries against the keys of each rank,
                              // against all keys in order, and all queries against all keys
    int32_t *by_rank;         // borrowed, device, [ranks, tokens_local]: positions of all tokens
    int32_t *in_order;        // borrowed, device, [sequences, length]: 0, 1, 2...
} cy_context_tables;

CY_MUST_CHECK cy_status cy_context_tables_open(
    cy_context_tables *tables, const cy_context_layout *layout, int rank);
void cy_context_tables_close(cy_context_tables *tables);

// Takes the device arrays: once from a measuring arena, once for good, then fills them.
void cy_context_tables_alloc(cy_context_tables *tables, cy_arena *run);
void cy_context_tables_fill(cy_context_tables *tables);

// Positions of this rank's tokens, [tokens_local], and the spans of its queries among its own keys.
int32_t *cy_context_tables_positions(const cy_context_tables *tables);
const cy_context_block *cy_context_tables_own(const cy_context_tables *tables);

// `spec` for own queries against the keys of another rank; against all keys in order; for all
// queries against all keys, both in order.
cy_attention_spec cy_context_spec_of(
    const cy_context_tables *tables, const cy_attention_spec *spec, int k_rank);
cy_attention_spec cy_context_spec_of_all(
    const cy_context_tables *tables, const cy_attention_spec *spec);
cy_attention_spec cy_context_spec_whole(
    const cy_context_tables *tables, const cy_attention_spec *spec);

// Rows of all ranks' tokens, rank after rank, [ranks tokens_local, n], brought into the order of
// [sequences, length] and back.
void cy_context_to_order(
    const cy_context_tables *tables, cy_queue *queue, cy_view in_order, cy_view by_rank);
void cy_context_to_ranks(
    const cy_context_tables *tables, cy_queue *queue, cy_view by_rank, cy_view in_order);

#endif
