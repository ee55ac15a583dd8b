// parallel/context/layout.h: which positions of a sequence each context-parallel rank holds, and
// the positions and spans that its attention kernels read.
//
// A sequence is cut into equal chunks, ascending. With the contiguous layout rank r holds chunk r
// of `ranks`: under a causal mask the last rank sees nearly twice the mean. With zigzag there are 2
// ranks chunks and rank r holds chunks r and 2 ranks - 1 - r, one that sees little and one that
// sees much, which is the same work for all. Either way a rank's positions ascend.
//
// A layout is a value and these functions are pure, on the host; nothing fails.

#ifndef CY_PARALLEL_CONTEXT_LAYOUT_H
#define CY_PARALLEL_CONTEXT_LAYOUT_H

#include "kernel/kernel.h"

typedef struct cy_context_layout {
    int ranks;
    bool zigzag;
    int64_t length;    // of a whole sequence; the chunks divide it
    int64_t sequences; // of a microbatch
    int64_t window;    // 0: a position sees all before it
} cy_context_layout;

// Positions [first, first + count) of a sequence.
typedef struct cy_context_range {
    int64_t first, count;
} cy_context_range;

#define CY_CONTEXT_RANGES 2

// Positions of a sequence that each rank holds, and its tokens of a microbatch.
int64_t cy_context_length_local(const cy_context_layout *layout);
int64_t cy_context_tokens_local(const cy_context_layout *layout);

// ranges [CY_CONTEXT_RANGES]: what a rank holds of every sequence, ascending. Returns how many.
int cy_context_ranges(const cy_context_layout *layout, int rank, cy_context_range *ranges);

// positions [tokens_local]: of a rank's tokens, sequence after sequence.
void cy_context_positions(const cy_context_layout *layout, int rank, int32_t *positions);

// spans [sequences]: queries of one rank against keys of another, without those at either end that
// see nothing of the other side. Returns how many: 0 where no query sees any key.
int cy_context_spans(
    const cy_context_layout *layout, int q_rank, int k_rank, cy_attention_span *spans);

// Likewise against all keys, [sequences, length] in the order of positions.
int cy_context_spans_of_all(const cy_context_layout *layout, int q_rank, cy_attention_span *spans);

// Pairs of a query and a key that see each other in one sequence: queries of one rank against keys
// of another, and against all keys.
double cy_context_pairs(const cy_context_layout *layout, int q_rank, int k_rank);
double cy_context_pairs_of_all(const cy_context_layout *layout, int q_rank);

// The attention of the rank that has most to do, relative to the mean: 1 is balanced.
double cy_context_imbalance(const cy_context_layout *layout);

// ---- tables: the positions and spans that one rank's attention kernels read, made once from the
// layout
//
// Host arrays are owned; device arrays belong to the arena they are taken from. Read-only after
// cy_context_tables_fill; one rank's.

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

// Takes the device arrays: once from a measuring arena, once for good, then fills them by copies
// that it waits for.
void cy_context_tables_alloc(cy_context_tables *tables, cy_arena *run);
CY_MUST_CHECK cy_status cy_context_tables_fill(cy_context_tables *tables, cy_queue *queue);

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
