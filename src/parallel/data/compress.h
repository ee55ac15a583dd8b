// parallel/data/compress.h: compression of gradients before ranks exchange them. A part of the
// reducer, for gradients that every rank keeps whole (ZeRO 0). docs/compression.md.
//
// topk (Lin et al., "Deep gradient compression", 2018; error feedback after Seide et al., 2014): a
// rank sends of each bucket the share of its elements with the largest magnitudes, as index and
// value, and keeps the rest as residual, which is added to the gradient of the next step. Sent part
// and residual together are the gradient, bit for bit. With clipping, a rank's gradient is clipped
// before it is added to the residual.
//
// int8 (the scheme of ZeRO++, Wang et al., 2023): a scale for each block of 256 elements. A rank
// sends each part of a bucket to the rank that sums it, in order of rank and in full precision; the
// sums go out in the same form. There is no residual.
//
// Norms and biases are a thousandth of the elements, and tensor-parallel ranks hold copies of them
// that must stay equal: they are sent uncompressed, in one message. Every rank of the group sums
// the same numbers in the same order, so replicas stay equal.

#ifndef CY_PARALLEL_DATA_COMPRESS_H
#define CY_PARALLEL_DATA_COMPRESS_H

#include "comm/group.h"
#include "kernel/kernel.h"

typedef enum cy_compression {
    CY_COMPRESSION_NONE,
    CY_COMPRESSION_TOPK,
    CY_COMPRESSION_INT8,
} cy_compression;

typedef struct cy_compression_spec {
    cy_compression kind;
    double ratio; // of topk: the share of a bucket's elements that is sent, until it is set anew
    double most_ratio; // the most that will be asked for
    double most_norm;  // of topk: of a rank's gradient, clipped to it first; 0: no limit
    cy_group *model;   // borrowed: the ranks that hold the parts of one model
    const struct cy_flat_range *dense; // borrowed while opening, [dense_count]: sent uncompressed
    int dense_count;
} cy_compression_spec;

// Blocks of int8 that n elements make, each of which has a scale.
static inline int64_t cy_quantize_blocks(int64_t n)
{
    return (n + CY_QUANTIZE_BLOCK - 1) / CY_QUANTIZE_BLOCK;
}

// Elements of a bucket of n that topk sends: ratio * n rounded up, and to an even number, which
// keeps rows of fp64 values aligned.
int64_t cy_topk_count(double ratio, int64_t n);

// The exponential warm-up of Lin et al., section 3.3: in the first warmup_steps of a run a quarter
// of the elements is sent, then a quarter of that, and so on while that is above the ratio that was
// asked for: stages of as many steps each, up to one, at most CY_TOPK_STAGES. After them, and from
// step 1 without warm-up steps, the ratio is that.
#define CY_TOPK_STAGES 8

// How many stages come before the ratio itself.
int cy_topk_stages(double ratio, int64_t warmup_steps);

// The first step of a stage, counted from 1, and what is sent in it; `stage` is at most
// cy_topk_stages, which is the ratio itself.
int64_t cy_topk_stage_first(double ratio, int64_t warmup_steps, int stage);
double cy_topk_stage_ratio(double ratio, int64_t warmup_steps, int stage);

// The ratio of a step.
double cy_topk_ratio_at(double ratio, int64_t warmup_steps, int64_t step);

// Bytes of one rank's share of a bucket of n elements on the wire.
size_t cy_compressed_bytes(
    const cy_compression_spec *spec, cy_dtype dtype, int64_t n, int group_size);

#endif
