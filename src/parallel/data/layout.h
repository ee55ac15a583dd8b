// parallel/data/layout.h: how the flat range of parameters is cut into what travels together.
//
// A piece is one message: a bucket of gradients for stages 0 and 1, a unit for stages 2 and 3, a
// parameter for the naive way. Pieces are disjoint and ascend. With ZeRO each is divided evenly
// over the ranks, which is why buckets are cut at multiples of 64 elements a rank. Pure data: the
// same on every rank.

#ifndef CY_PARALLEL_DATA_LAYOUT_H
#define CY_PARALLEL_DATA_LAYOUT_H

#include "parallel/data/reducer.h"

typedef struct cy_piece_list {
    cy_flat_range *pieces; // owned, [count]
    int count;
} cy_piece_list;

// Start from a zeroed list.
CY_MUST_CHECK cy_status cy_pieces_make(
    cy_piece_list *list, const cy_reducer_spec *spec, const cy_flat_range *units, int unit_count);
void cy_pieces_free(cy_piece_list *list);

// Elements of a full bucket: a multiple of 64 a rank, at least that.
int64_t cy_bucket_elements(const cy_reducer_spec *spec);

// Elements of the bucket that fills first, likewise.
int64_t cy_first_bucket_elements(const cy_reducer_spec *spec);

// The equal part of a piece that a rank owns.
cy_flat_range cy_piece_part(cy_flat_range piece, int rank, int size);

// True when two ranges have elements in common.
bool cy_ranges_meet(cy_flat_range a, cy_flat_range b);

#endif
