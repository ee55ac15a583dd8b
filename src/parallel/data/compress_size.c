// How much of a bucket is sent, and what that takes: pure functions of sizes and steps.

#include "parallel/data/compress.h"

#include <math.h>

int64_t cy_topk_count(double ratio, int64_t n)
{
    const int64_t count = ((int64_t)ceil(ratio * (double)n) + 1) / 2 * 2;
    return count < n ? count : n;
}

int cy_topk_stages(double ratio, int64_t warmup_steps)
{
    int stages = 0;
    while (
        stages < CY_TOPK_STAGES && stages < warmup_steps && ldexp(1.0, -2 * (stages + 1)) > ratio)
        stages++;
    return stages;
}

int64_t cy_topk_stage_first(double ratio, int64_t warmup_steps, int stage)
{
    const int64_t stages = cy_topk_stages(ratio, warmup_steps);
    if (stages == 0) return 1;
    // The first stages have the steps that do not divide.
    const int64_t longer = warmup_steps % stages;
    return 1 + stage * (warmup_steps / stages) + (stage < longer ? stage : longer);
}

double cy_topk_stage_ratio(double ratio, int64_t warmup_steps, int stage)
{
    return stage < cy_topk_stages(ratio, warmup_steps) ? ldexp(1.0, -2 * (stage + 1)) : ratio;
}

double cy_topk_ratio_at(double ratio, int64_t warmup_steps, int64_t step)
{
    int stage = cy_topk_stages(ratio, warmup_steps);
    while (stage > 0 && step < cy_topk_stage_first(ratio, warmup_steps, stage))
        stage--;
    return cy_topk_stage_ratio(ratio, warmup_steps, stage);
}

size_t cy_compressed_bytes(
    const cy_compression_spec *spec, cy_dtype dtype, int64_t n, int group_size)
{
    if (spec->kind == CY_COMPRESSION_TOPK) {
        return (size_t)cy_topk_count(spec->ratio, n) * (cy_dtype_size(dtype) + sizeof(int32_t));
    }
    const int64_t part = n / group_size;
    return (size_t)cy_quantize_blocks(part) * sizeof(float) + (size_t)part;
}
