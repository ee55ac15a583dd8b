// parallel/data/bucket_list.h: how the flat range of parameters is cut into what travels together.
//
// A bucket is one message: consecutive gradients for stages 0 and 1, a unit for stages 2 and 3, a
// parameter for the naive way. Pieces are disjoint and ascend. With ZeRO each is divided evenly
// over the ranks, which is why buckets are cut at multiples of 64 elements a rank. Pure data: the
// same on every rank.

#ifndef CY_PARALLEL_DATA_BUCKET_LIST_H
#define CY_PARALLEL_DATA_BUCKET_LIST_H

#include "parallel/data/reducer.h"

typedef struct cy_bucket_list {
    cy_flat_range *buckets; // owned, [count]
    int count;
} cy_bucket_list;

// Start from a zeroed list.
CY_MUST_CHECK cy_status cy_bucket_list_make(
    cy_bucket_list *list, const cy_reducer_spec *spec, const cy_flat_range *units, int unit_count);
void cy_bucket_list_free(cy_bucket_list *list);

// Elements of a full bucket: a multiple of 64 a rank, at least that.
int64_t cy_bucket_elements(const cy_reducer_spec *spec);

// Elements of the bucket that fills first, likewise.
int64_t cy_first_bucket_elements(const cy_reducer_spec *spec);

// The equal part of a bucket that a rank owns.
cy_flat_range cy_bucket_shard(cy_flat_range bucket, int rank, int size);

// True when two ranges have elements in common.
bool cy_ranges_meet(cy_flat_range a, cy_flat_range b);

#endif
