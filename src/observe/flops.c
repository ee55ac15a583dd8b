#include "observe/flops.h"

#include <math.h>

// Parameters of one layer, with `experts` of its experts.
static int64_t layer_params(const cy_model_shape *shape, int64_t experts)
{
    const int64_t h = shape->hidden;
    const int64_t q = shape->heads * shape->head_dim;
    const int64_t kv = shape->kv_heads * shape->head_dim;
    int64_t count = h * (q + 2 * kv) + q * h; // q, k, v and out
    if (shape->qkv_bias) count += q + 2 * kv;
    if (shape->out_bias) count += h;
    if (shape->qk_norm) count += 2 * shape->head_dim;
    count += 2 * h; // norms
    if (shape->experts > 0) return count + shape->experts * h + experts * 3 * h * shape->expert_ffn;
    return count + 3 * h * shape->ffn;
}

static int64_t params(const cy_model_shape *shape, int64_t experts)
{
    const int64_t table = shape->vocab * shape->hidden;
    return shape->layers * layer_params(shape, experts) + (shape->tied ? 1 : 2) * table +
        shape->hidden; // the final norm
}

int64_t cy_params_all(const cy_model_shape *shape)
{
    return params(shape, shape->experts);
}

int64_t cy_params_active(const cy_model_shape *shape)
{
    return params(shape, shape->experts_per_token);
}

double cy_flops_per_token(const cy_model_shape *shape, int64_t sequence)
{
    const double attention = 12.0 * shape->layers * (double)shape->hidden * (double)sequence;
    return 6.0 * (double)cy_params_active(shape) + attention;
}

double cy_flops_per_token_causal(const cy_model_shape *shape, int64_t sequence)
{
    const double attention = 6.0 * shape->layers * (double)shape->hidden * (double)sequence;
    const int64_t look_up = shape->tied ? 0 : shape->vocab * shape->hidden;
    return 6.0 * (double)(cy_params_active(shape) - look_up) + attention;
}

double cy_flops_utilization(double tok_s, double flops_per_token, double peak_flop_s)
{
    return peak_flop_s > 0 ? tok_s * flops_per_token / peak_flop_s : (double)NAN;
}
