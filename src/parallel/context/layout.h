// parallel/context/layout.h: which positions of a sequence each context-parallel rank holds.
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

#endif
