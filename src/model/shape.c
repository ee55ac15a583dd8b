#include "model/shape.h"

#include "base/text.h"
#include "kernel/kernel.h"

// Adds a line to the list of contradictions when `wrong` holds.
#define COMPLAIN(text, wrong, ...)                                                                 \
    do {                                                                                           \
        if (wrong) CY_TRY(cy_text_add((text), __VA_ARGS__));                                       \
    } while (0)

static cy_status check_sizes(cy_text *text, const cy_model_shape *shape)
{
    COMPLAIN(
        text, shape->layers < 1, "num_hidden_layers is %d, at least 1 is needed\n", shape->layers);
    COMPLAIN(text, shape->layers > CY_LAYERS_MAX,
        "num_hidden_layers is %d, models have at most %d\n", shape->layers, CY_LAYERS_MAX);
    COMPLAIN(text, shape->hidden < 1, "hidden_size is %lld, at least 1 is needed\n",
        (long long)shape->hidden);
    COMPLAIN(text, shape->ffn < 1, "intermediate_size is %lld, at least 1 is needed\n",
        (long long)shape->ffn);
    COMPLAIN(text, shape->vocab < 1, "vocab_size is %lld, at least 1 is needed\n",
        (long long)shape->vocab);
    COMPLAIN(text, shape->head_dim < 2 || shape->head_dim % 2 != 0,
        "head_dim is %lld: rotary positions turn pairs, so it must be even\n",
        (long long)shape->head_dim);
    COMPLAIN(text, shape->head_dim > CY_HEAD_DIM_MAX, "head_dim is %lld, heads have at most %d\n",
        (long long)shape->head_dim, CY_HEAD_DIM_MAX);
    COMPLAIN(
        text, shape->norm_eps <= 0, "rms_norm_eps is %g, it must be above 0\n", shape->norm_eps);
    return CY_OK;
}

static cy_status check_heads(cy_text *text, const cy_model_shape *shape)
{
    COMPLAIN(
        text, shape->heads < 1, "num_attention_heads is %d, at least 1 is needed\n", shape->heads);
    COMPLAIN(text, shape->kv_heads < 1, "num_key_value_heads is %d, at least 1 is needed\n",
        shape->kv_heads);
    if (shape->heads < 1 || shape->kv_heads < 1) return CY_OK;
    COMPLAIN(text, shape->heads % shape->kv_heads != 0,
        "num_attention_heads %d is not a multiple of num_key_value_heads %d\n", shape->heads,
        shape->kv_heads);
    return CY_OK;
}

cy_status cy_model_shape_check(const cy_model_shape *shape)
{
    cy_text text = {0};
    cy_status status = check_sizes(&text, shape);
    if (status == CY_OK) status = check_heads(&text, shape);
    if (status == CY_OK && text.length > 0) {
        text.bytes[text.length - 1] = '\0';
        status = CY_FAIL(CY_ERR_REQUEST, "%s", text.bytes);
    }
    cy_text_free(&text);
    return status;
}
