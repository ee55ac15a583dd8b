// How much of a bucket is sent, and what that takes: pure functions of sizes and steps.

#include "parallel/data/compress.h"

#include <math.h>

int64_t cy_topk_count(double ratio, int64_t n)
{
    const int64_t count = ((int64_t)ceil(ratio * (double)n) + 1) / 2 * 2;
    return count < n ? count : n;
}

double cy_topk_ratio_at(double ratio, int64_t dense_steps, int64_t step)
{
    double now = 1.0;
    for (int64_t end = dense_steps; dense_steps > 0 && end < step && now > ratio;
         end += dense_steps)
        now /= 4.0;
    return dense_steps == 0 || now < ratio ? ratio : now;
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
