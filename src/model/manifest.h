// model/manifest.h: the one table of a model's parameters.
//
// An entry is a tensor as Hugging Face names and shapes it; role, layer and expert identify it, and
// its name follows from them. Sizes, initialisation, sharding,
// optimizer groups, checkpoints, import and export all read this table; nothing else knows the
// names. Fused storage (q, k and v in one matrix; gate and up in another) is a view over entries
// that follow each other in memory, see model/storage.h.

#ifndef CY_MODEL_MANIFEST_H
#define CY_MODEL_MANIFEST_H

#include "model/shape.h"

// How tensor parallelism cuts a parameter. Rows are output features, columns input features.
typedef enum cy_split {
    CY_SPLIT_NONE,    // every rank holds all of it
    CY_SPLIT_ROWS,    // equal ranges of rows: column-parallel linear
    CY_SPLIT_VOCAB,   // ranges of rows, cut at multiples of cy_vocab_unit: no token is made up
    CY_SPLIT_COLS,    // equal ranges of columns: row-parallel linear
    CY_SPLIT_KV_ROWS, // rows by kv head; with fewer kv heads than ranks, neighbours share a copy
} cy_split;

typedef enum cy_init {
    CY_INIT_NORMAL, // init_std times normal numbers keyed on (seed, name, global index)
    CY_INIT_ONES,
    CY_INIT_ZEROS,
} cy_init;

// What a parameter is to the layer that uses it.
typedef enum cy_role {
    CY_ROLE_EMBED,
    CY_ROLE_NORM1,
    CY_ROLE_Q,
    CY_ROLE_K,
    CY_ROLE_V,
    CY_ROLE_Q_BIAS,
    CY_ROLE_K_BIAS,
    CY_ROLE_V_BIAS,
    CY_ROLE_Q_NORM,
    CY_ROLE_K_NORM,
    CY_ROLE_OUT,
    CY_ROLE_OUT_BIAS,
    CY_ROLE_NORM2,
    CY_ROLE_GATE,
    CY_ROLE_UP,
    CY_ROLE_DOWN,
    CY_ROLE_FINAL_NORM,
    CY_ROLE_HEAD,
    CY_ROLE_COUNT,
} cy_role;

// The expert of a parameter that every token uses.
#define CY_DENSE (-1)

// What identifies a parameter. The order of keys is that of the manifest: by layer, then role, then
// expert.
typedef struct cy_param_key {
    cy_role role;
    int layer;  // 0..layers-1; -1 for the embedding, `layers` for the final norm and head
    int expert; // 0..experts-1 of the layer, or CY_DENSE
} cy_param_key;

typedef struct cy_param {
    char name[96]; // "model.layers.0.self_attn.q_proj.weight"
    cy_param_key key;
    int dimensions; // 1 or 2
    int64_t rows;   // global; 1 where dimensions is 1
    int64_t cols;   // global
    cy_split split;
    cy_init init;
    double init_std;
    bool decay;     // weight decay applies: matrices only
    cy_dtype dtype; // of the weights for compute
} cy_param;

// A rule for the dtype of weights for compute. The operators of norms take weights of any dtype;
// those of other roles take weights of the activations' dtype, so a rule must name a norm.
typedef struct cy_dtype_rule {
    cy_role role;
    int layer; // or CY_EVERY_LAYER
    cy_dtype dtype;
} cy_dtype_rule;

#define CY_EVERY_LAYER (-2)

// The dtypes of a model's weights for compute: that of the first rule that names a parameter, or
// else `dtype`.
typedef struct cy_precision {
    cy_dtype dtype;             // of activations too
    const cy_dtype_rule *rules; // borrowed, [rule_count]
    int rule_count;
} cy_precision;

static inline cy_precision cy_precision_of(cy_dtype dtype)
{
    return (cy_precision){.dtype = dtype};
}

typedef struct cy_manifest {
    cy_param *params; // owned, [count], keys ascend: embedding, layers, final norm, head
    int count;
    int *firsts; // owned, [layers + 3]: where layers -1 to `layers` begin, and `count`
    cy_model_shape shape;
} cy_manifest;

// CY_ERR_UNSUPPORTED where a rule names a role or a dtype that the operators do not take.
CY_MUST_CHECK cy_status cy_manifest_open(
    cy_manifest *manifest, const cy_model_shape *shape, cy_precision precision);
void cy_manifest_close(cy_manifest *manifest);

// Below, at or above zero as key `a` comes before `b`, is `b`, or comes behind.
int cy_param_key_compare(cy_param_key a, cy_param_key b);

// The name of a parameter, NUL-terminated, at most `size` bytes.
void cy_param_name(char *name, size_t size, cy_param_key key);

// The parameter of a key, or NULL where the model has none.
const cy_param *cy_manifest_find(const cy_manifest *manifest, cy_param_key key);

// The parameters of one layer, -1 to `layers` as in cy_param_key: [count], which follow each other.
const cy_param *cy_manifest_layer(const cy_manifest *manifest, int layer, int *count);

// Elements of all parameters together.
int64_t cy_manifest_elements(const cy_manifest *manifest);

// The rectangle of a parameter that one tensor-parallel rank holds.
typedef struct cy_slice {
    int64_t row_first, rows;
    int64_t col_first, cols;
    int copies;     // ranks that hold this very rectangle (kv heads fewer than ranks)
    int copy_index; // which of them this rank is; 0 owns it in norms, hashes and checkpoints
} cy_slice;

// The rows at whose multiples tensor parallelism cuts a vocabulary of so many: a power of two, at
// most a 64th of it and at most 128. Follows from the size alone, so that the chains of strict mode
// lie within one rank's part on every mesh. Where there are more ranks than such chunks, ranges are
// cut anywhere.
int64_t cy_vocab_unit(int64_t vocab);

cy_slice cy_param_slice(
    const cy_param *param, const cy_model_shape *shape, int tp_rank, int tp_size);

// Elements of the largest slice of any rank: what storage sets aside, so that all ranks have the
// same layout.
int64_t cy_param_most_elements(const cy_param *param, const cy_model_shape *shape, int tp_size);

#endif
