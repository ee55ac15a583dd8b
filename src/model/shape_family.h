// model/shape_family.h: the families of models that are known, and the keys of their config.json.
//
// Tables only. What a family leaves out of its config.json means its default here, which is the one
// that its publishers' code takes. Static storage; safe from any thread.

#ifndef CY_MODEL_SHAPE_FAMILY_H
#define CY_MODEL_SHAPE_FAMILY_H

#include "model/shape.h"

typedef enum cy_window_style {
    CY_WINDOW_NONE,     // sliding_window is not read
    CY_WINDOW_DIRECT,   // sliding_window is a number or null
    CY_WINDOW_OPTIONAL, // and counts only with use_sliding_window
} cy_window_style;

typedef struct cy_model_family {
    const char *model_type;
    const char *architecture; // the class that transformers loads
    bool bias_key;            // attention_bias biases q, k, v and the output projection
    bool qkv_bias;            // q, k, v always have a bias
    bool qk_norm;
    bool experts;
    cy_window_style window;
    int64_t window_default;
    int64_t kv_heads; // default; 0: as many as heads
    int64_t head_dim; // default; 0: hidden / heads
    int64_t max_positions;
    double norm_eps;
    double rope_theta;
    int64_t bos, eos;
} cy_model_family;

#define CY_FAMILY_NAMES "llama, mistral, qwen2, qwen3, mixtral and qwen3_moe"

// The family of a model_type, or NULL.
const cy_model_family *cy_family_find(const char *model_type);

// The family that expresses a shape: its own where it can, otherwise the first that can, or NULL.
const cy_model_family *cy_family_for_shape(const cy_model_shape *shape);

typedef enum cy_family_key_kind {
    CY_KEY_READ,   // becomes part of the shape
    CY_KEY_PASSED, // does not change the mathematics
    CY_KEY_FIXED,  // must have the value *wanted, a JSON text, or be null
    CY_KEY_UNKNOWN,
} cy_family_key_kind;

cy_family_key_kind cy_family_key(const char *key, const char **wanted);

#endif
