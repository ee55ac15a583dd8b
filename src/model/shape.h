// model/shape.h: the shape of a Llama-like model, in the words of Hugging Face's config.json.
//
// Plain data without owned pointers: copied by assignment. Filled from config.json or from the
// model section of a configuration, checked by cy_model_shape_check.

#ifndef CY_MODEL_SHAPE_H
#define CY_MODEL_SHAPE_H

#include <cyclotron/dtype.h>

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define CY_LAYERS_MAX 65536

// Published ways to stretch RoPE beyond the length of training.
typedef enum cy_rope_scaling {
    CY_ROPE_PLAIN,
    CY_ROPE_LINEAR,  // positions divided by the factor
    CY_ROPE_DYNAMIC, // theta grown by the factor beyond the original length ("NTK-aware")
    CY_ROPE_LLAMA3,  // low frequencies divided, high ones kept, a ramp between
    CY_ROPE_YARN,    // Peng et al., "YaRN", 2023
} cy_rope_scaling;

typedef struct cy_rope_shape {
    double theta;
    cy_rope_scaling scaling;
    double factor;
    double low_freq_factor;  // llama3
    double high_freq_factor; // llama3
    double beta_fast;        // yarn
    double beta_slow;        // yarn
    double attention_factor; // yarn; 0: from the factor
    int64_t original_length; // llama3, dynamic, yarn: original_max_position_embeddings
} cy_rope_shape;

typedef struct cy_model_shape {
    char architecture[32]; // model_type: "llama", "mistral", "qwen2", "qwen3", ...
    int layers;            // num_hidden_layers
    int heads;             // num_attention_heads
    int kv_heads;          // num_key_value_heads
    bool tied;             // tie_word_embeddings
    bool qkv_bias;         // attention_bias, or Qwen2
    bool out_bias;         // attention_bias of Llama also biases the output projection
    bool qk_norm;          // Qwen3: RMSNorm over each head of q and k
    int64_t hidden;        // hidden_size
    int64_t ffn;           // intermediate_size
    int64_t head_dim;
    int64_t vocab;         // vocab_size
    int64_t max_positions; // max_position_embeddings
    double norm_eps;       // rms_norm_eps
    cy_rope_shape rope;
    int64_t window;   // sliding_window; 0: none
    double init_std;  // initializer_range
    int64_t bos, eos; // token ids; -1: none
    // Experts (Mixtral's and Qwen's keys); experts == 0 is dense.
    int experts;           // num_local_experts or num_experts
    int experts_per_token; // num_experts_per_tok
    int64_t expert_ffn;    // moe_intermediate_size or intermediate_size
} cy_model_shape;

// Every contradiction in the shape, in one failure with a line each: heads that kv heads do not
// divide, an odd head_dim, sizes below 1.
CY_MUST_CHECK cy_status cy_model_shape_check(const cy_model_shape *shape);

#endif
