// model/shape.h: the shape of a Llama-like model, in the words of Hugging Face's config.json:
// presets, rotary frequencies, families of models, reading and writing config.json.
//
// A shape is plain data without owned pointers: it is copied by assignment. It comes from a preset,
// from config.json or from the model section of a configuration, and cy_model_shape_check checks
// it. All functions are pure but for the one that reads a file; any thread may call them.

#ifndef CY_MODEL_SHAPE_H
#define CY_MODEL_SHAPE_H

#include <cyclotron/dtype.h>

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
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

// ---- presets: shapes that are known by name, so that a run needs no folder with config.json

// The names of all presets, for texts that are made when this is compiled.
#define CY_PRESET_NAMES                                                                            \
    "tiny, demo, smollm-135m, smollm-360m, smollm-1.7b, llama-3.2-1b, llama-2-7b, llama-3-8b"

// Sets *shape to that of a preset. The name may also be the model's id on the hub, as
// "HuggingFaceTB/SmolLM-135M"; letters' case does not count. Returns false when it is none.
bool cy_preset_find(cy_model_shape *shape, const char *name);

// The name of preset `index`, or NULL behind the last.
const char *cy_preset_name(size_t index);

// ---- rotary frequencies

// inv_freq [head_dim / 2]: radians per position of each pair. `length` is the length of sequences,
// which only the dynamic scaling looks at. Returns the factor on cosines and sines (1, except
// YaRN).
//
// Sources: plain, Su et al. 2021; linear, Chen et al. 2023 ("Position interpolation"); dynamic,
// the NTK-aware rule; llama3, Llama 3.1's model card; YaRN, Peng et al. 2023.
double cy_rope_frequencies(double *inv_freq, const cy_model_shape *shape, int64_t length);

// ---- families of models: where config.json leaves a key out, the family's default applies, which
// is that of its publishers' code. The tables have static storage.

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

// ---- config.json
//
// Reading is strict about the mathematics: a key that changes it and is not supported is an error
// that names the key, and so is an unknown architecture; keys that only describe (dates, dtypes,
// training conveniences) are ignored. One failure reports everything that is wrong with a file.
// Supported: llama (2, 3, SmolLM, SmolLM2), mistral, qwen2, qwen3, mixtral, qwen3_moe.

// Reads the text of a config.json; `where` names it in errors. The shape is checked as well.
CY_MUST_CHECK cy_status cy_model_shape_from_json(
    cy_model_shape *shape, const char *json, size_t length, const char *where);

// The same from a file.
CY_MUST_CHECK cy_status cy_model_shape_read(cy_model_shape *shape, const char *path);

// Adds a config.json that transformers loads. `dtype` is what the files beside it hold. The family
// is the shape's own where it can express the shape, otherwise one that can: CY_ERR_UNSUPPORTED
// names what no family has.
CY_MUST_CHECK cy_status cy_model_shape_to_config(
    cy_text *json, const cy_model_shape *shape, cy_dtype dtype);

// Adds the shape as an object that cy_model_shape_from_json reads back exactly, whatever its
// family.
CY_MUST_CHECK cy_status cy_model_shape_to_json(cy_text *json, const cy_model_shape *shape);

// Adds one line "  key: there A, here B" for each difference that matters to the tensors or to the
// mathematics; *count is how many.
CY_MUST_CHECK cy_status cy_model_shape_differences(
    cy_text *lines, int *count, const cy_model_shape *there, const cy_model_shape *here);

#endif
