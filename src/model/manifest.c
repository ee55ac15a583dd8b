// Lists the parameters of a model, and the slice of each that a tensor-parallel rank holds.

#include "model/manifest.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

// The name of a parameter by role; {layer} and {expert} stand for those of its key.
static const char *const name_formats[CY_ROLE_COUNT] = {
    [CY_ROLE_EMBED] = "model.embed_tokens.weight",
    [CY_ROLE_NORM1] = "model.layers.{layer}.input_layernorm.weight",
    [CY_ROLE_Q] = "model.layers.{layer}.self_attn.q_proj.weight",
    [CY_ROLE_K] = "model.layers.{layer}.self_attn.k_proj.weight",
    [CY_ROLE_V] = "model.layers.{layer}.self_attn.v_proj.weight",
    [CY_ROLE_Q_BIAS] = "model.layers.{layer}.self_attn.q_proj.bias",
    [CY_ROLE_K_BIAS] = "model.layers.{layer}.self_attn.k_proj.bias",
    [CY_ROLE_V_BIAS] = "model.layers.{layer}.self_attn.v_proj.bias",
    [CY_ROLE_Q_NORM] = "model.layers.{layer}.self_attn.q_norm.weight",
    [CY_ROLE_K_NORM] = "model.layers.{layer}.self_attn.k_norm.weight",
    [CY_ROLE_OUT] = "model.layers.{layer}.self_attn.o_proj.weight",
    [CY_ROLE_OUT_BIAS] = "model.layers.{layer}.self_attn.o_proj.bias",
    [CY_ROLE_NORM2] = "model.layers.{layer}.post_attention_layernorm.weight",
    [CY_ROLE_GATE] = "model.layers.{layer}.mlp.gate_proj.weight",
    [CY_ROLE_UP] = "model.layers.{layer}.mlp.up_proj.weight",
    [CY_ROLE_DOWN] = "model.layers.{layer}.mlp.down_proj.weight",
    [CY_ROLE_FINAL_NORM] = "model.norm.weight",
    [CY_ROLE_HEAD] = "lm_head.weight",
};

// ---- keys

int cy_param_key_compare(cy_param_key a, cy_param_key b)
{
    if (a.layer != b.layer) return a.layer < b.layer ? -1 : 1;
    if (a.role != b.role) return a.role < b.role ? -1 : 1;
    return (a.expert > b.expert) - (a.expert < b.expert);
}

void cy_param_name(char *name, size_t size, cy_param_key key)
{
    static const char layer[] = "{layer}", expert[] = "{expert}";
    const char *format = name_formats[key.role];
    size_t at = 0;
    while (*format != '\0') {
        CY_ASSERT(at + 16 < size); // a number and the end fit
        if (strncmp(format, layer, sizeof(layer) - 1) == 0) {
            at += (size_t)snprintf(name + at, size - at, "%d", key.layer);
            format += sizeof(layer) - 1;
        } else if (strncmp(format, expert, sizeof(expert) - 1) == 0) {
            at += (size_t)snprintf(name + at, size - at, "%d", key.expert);
            format += sizeof(expert) - 1;
        } else {
            name[at++] = *format++;
        }
    }
    name[at] = '\0';
}

// ---- the table

// Shape, split and initialisation of a role; false where the model has no such parameter.
static bool describe(cy_param *param, const cy_model_shape *shape)
{
    const int64_t q = shape->heads * shape->head_dim;
    const int64_t kv = shape->kv_heads * shape->head_dim;
    const int64_t hidden = shape->hidden;
    const cy_param matrix = {.dimensions = 2, .init = CY_INIT_NORMAL, .decay = true};
    const cy_param vector = {.dimensions = 1, .rows = 1};
    cy_param made;
    bool there = true;

#define MATRIX(r, c, s) (made = matrix, made.rows = (r), made.cols = (c), made.split = (s))
#define VECTOR(c, s, i) (made = vector, made.cols = (c), made.split = (s), made.init = (i))
    switch (param->key.role) {
    case CY_ROLE_EMBED:
        MATRIX(shape->vocab, hidden, CY_SPLIT_VOCAB);
        break;
    case CY_ROLE_HEAD:
        MATRIX(shape->vocab, hidden, CY_SPLIT_VOCAB);
        there = !shape->tied;
        break;
    case CY_ROLE_NORM1:
    case CY_ROLE_NORM2:
    case CY_ROLE_FINAL_NORM:
        VECTOR(hidden, CY_SPLIT_NONE, CY_INIT_ONES);
        break;
    case CY_ROLE_Q:
        MATRIX(q, hidden, CY_SPLIT_ROWS);
        break;
    case CY_ROLE_K:
    case CY_ROLE_V:
        MATRIX(kv, hidden, CY_SPLIT_KV_ROWS);
        break;
    case CY_ROLE_Q_BIAS:
        VECTOR(q, CY_SPLIT_ROWS, CY_INIT_ZEROS);
        there = shape->qkv_bias;
        break;
    case CY_ROLE_K_BIAS:
    case CY_ROLE_V_BIAS:
        VECTOR(kv, CY_SPLIT_KV_ROWS, CY_INIT_ZEROS);
        there = shape->qkv_bias;
        break;
    case CY_ROLE_Q_NORM:
    case CY_ROLE_K_NORM:
        VECTOR(shape->head_dim, CY_SPLIT_NONE, CY_INIT_ONES);
        there = shape->qk_norm;
        break;
    case CY_ROLE_OUT:
        MATRIX(hidden, q, CY_SPLIT_COLS);
        break;
    case CY_ROLE_OUT_BIAS:
        VECTOR(hidden, CY_SPLIT_NONE, CY_INIT_ZEROS);
        there = shape->out_bias;
        break;
    case CY_ROLE_GATE:
    case CY_ROLE_UP:
        MATRIX(shape->ffn, hidden, CY_SPLIT_ROWS);
        break;
    case CY_ROLE_DOWN:
        MATRIX(hidden, shape->ffn, CY_SPLIT_COLS);
        break;
    case CY_ROLE_COUNT:
    default:
        return false;
    }
#undef MATRIX
#undef VECTOR
    made.key = param->key;
    made.init_std = shape->init_std;
    memcpy(made.name, param->name, sizeof(made.name));
    *param = made;
    return there;
}

static bool is_norm(cy_role role)
{
    return role == CY_ROLE_NORM1 || role == CY_ROLE_NORM2 || role == CY_ROLE_FINAL_NORM ||
        role == CY_ROLE_Q_NORM || role == CY_ROLE_K_NORM;
}

static cy_status check_precision(const cy_precision *precision)
{
    for (int i = 0; i < precision->rule_count; i++) {
        const cy_dtype_rule *rule = &precision->rules[i];
        if (is_norm(rule->role) && cy_dtype_is_float(rule->dtype)) continue;
        char name[96];
        const int layer = rule->layer == CY_EVERY_LAYER ? 0 : rule->layer;
        cy_param_name(name, sizeof(name), (cy_param_key){rule->role, layer, CY_DENSE});
        return CY_FAIL(CY_ERR_UNSUPPORTED, "%s in %s: only norms may differ from %s", name,
            cy_dtype_name(rule->dtype), cy_dtype_name(precision->dtype));
    }
    return CY_OK;
}

static cy_dtype dtype_of(const cy_precision *precision, cy_param_key key)
{
    for (int i = 0; i < precision->rule_count; i++) {
        const cy_dtype_rule *rule = &precision->rules[i];
        const bool layer = rule->layer == CY_EVERY_LAYER || rule->layer == key.layer;
        if (layer && rule->role == key.role) return rule->dtype;
    }
    return precision->dtype;
}

static void add(cy_manifest *manifest, const cy_precision *precision, cy_param_key key)
{
    cy_param *param = &manifest->params[manifest->count];
    *param = (cy_param){.key = key};
    cy_param_name(param->name, sizeof(param->name), key);
    if (!describe(param, &manifest->shape)) return;
    param->dtype = dtype_of(precision, key);
    CY_ASSERT(manifest->count == 0 || cy_param_key_compare(param[-1].key, key) < 0);
    manifest->count++;
}

cy_status cy_manifest_open(
    cy_manifest *manifest, const cy_model_shape *shape, cy_precision precision)
{
    CY_TRY(check_precision(&precision));
    CY_TRY(cy_model_shape_check(shape));
    void *block = NULL;
    const size_t most = ((size_t)shape->layers + 1) * CY_ROLE_COUNT;
    CY_TRY(cy_memory_alloc(&block, most, sizeof(cy_param)));
    *manifest = (cy_manifest){.params = block, .shape = *shape};
    const cy_status status = cy_memory_alloc(&block, (size_t)shape->layers + 3, sizeof(int));
    if (status != CY_OK) {
        cy_manifest_close(manifest);
        return status;
    }
    int *first = block; // the embedding begins at 0
    manifest->firsts = block;

    add(manifest, &precision, (cy_param_key){CY_ROLE_EMBED, -1, CY_DENSE});
    for (int layer = 0; layer < shape->layers; layer++) {
        *++first = manifest->count;
        for (int role = CY_ROLE_EMBED + 1; role < CY_ROLE_FINAL_NORM; role++)
            add(manifest, &precision, (cy_param_key){(cy_role)role, layer, CY_DENSE});
    }
    *++first = manifest->count;
    add(manifest, &precision, (cy_param_key){CY_ROLE_FINAL_NORM, shape->layers, CY_DENSE});
    add(manifest, &precision, (cy_param_key){CY_ROLE_HEAD, shape->layers, CY_DENSE});
    *++first = manifest->count;
    return CY_OK;
}

const cy_param *cy_manifest_layer(const cy_manifest *manifest, int layer, int *count)
{
    CY_ASSERT(-1 <= layer && layer <= manifest->shape.layers);
    const int *first = &manifest->firsts[layer + 1];
    *count = first[1] - first[0];
    return &manifest->params[first[0]];
}

const cy_param *cy_manifest_find(const cy_manifest *manifest, cy_param_key key)
{
    int count;
    const cy_param *params = cy_manifest_layer(manifest, key.layer, &count);
    int low = 0, high = count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const int order = cy_param_key_compare(params[middle].key, key);
        if (order == 0) return &params[middle];
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

void cy_manifest_close(cy_manifest *manifest)
{
    cy_memory_free(manifest->firsts);
    cy_memory_free(manifest->params);
    *manifest = (cy_manifest){0};
}

int64_t cy_manifest_elements(const cy_manifest *manifest)
{
    int64_t elements = 0;
    for (int i = 0; i < manifest->count; i++) {
        elements += manifest->params[i].rows * manifest->params[i].cols;
    }
    return elements;
}

// Equal ranges of `count` units over tp ranks; fewer units than ranks are shared by neighbours.
static cy_slice split_units(int64_t units, int64_t unit_length, int tp_rank, int tp_size)
{
    cy_slice slice = {.copies = 1};
    if (units >= tp_size) {
        CY_ASSERT(units % tp_size == 0);
        slice.rows = units / tp_size * unit_length;
        slice.row_first = tp_rank * slice.rows;
        return slice;
    }
    CY_ASSERT(tp_size % units == 0);
    slice.copies = (int)(tp_size / units);
    slice.copy_index = tp_rank % slice.copies;
    slice.rows = unit_length;
    slice.row_first = tp_rank / slice.copies * unit_length;
    return slice;
}

int64_t cy_vocab_unit(int64_t vocab)
{
    int64_t unit = 1;
    while (unit < 128 && unit * 2 * 64 <= vocab)
        unit *= 2;
    return unit;
}

// Where the part of rank `part` begins; the last part ends at the vocabulary's end.
static int64_t vocab_cut(int64_t vocab, int part, int tp_size)
{
    CY_ASSERT(vocab >= tp_size);
    int64_t unit = cy_vocab_unit(vocab);
    if ((vocab + unit - 1) / unit < tp_size) unit = 1;
    const int64_t units = (vocab + unit - 1) / unit;
    return part == tp_size ? vocab : units * part / tp_size * unit;
}

cy_slice cy_param_slice(
    const cy_param *param, const cy_model_shape *shape, int tp_rank, int tp_size)
{
    CY_ASSERT(0 <= tp_rank && tp_rank < tp_size);
    cy_slice slice = {.copies = 1};
    // A vector's only axis counts as the output features.
    const int64_t length = param->dimensions == 1 ? param->cols : param->rows;
    switch (param->split) {
    case CY_SPLIT_NONE:
        return (cy_slice){
            .rows = param->rows, .cols = param->cols, .copies = tp_size, .copy_index = tp_rank};
    case CY_SPLIT_ROWS:
        slice = split_units(length, 1, tp_rank, tp_size);
        break;
    case CY_SPLIT_VOCAB:
        slice.row_first = vocab_cut(length, tp_rank, tp_size);
        slice.rows = vocab_cut(length, tp_rank + 1, tp_size) - slice.row_first;
        break;
    case CY_SPLIT_KV_ROWS:
        slice = split_units(shape->kv_heads, shape->head_dim, tp_rank, tp_size);
        break;
    case CY_SPLIT_COLS:
        slice = split_units(param->cols, 1, tp_rank, tp_size);
        return (cy_slice){
            .rows = param->rows, .col_first = slice.row_first, .cols = slice.rows, .copies = 1};
    }
    if (param->dimensions == 1) {
        slice.col_first = slice.row_first;
        slice.cols = slice.rows;
        slice.row_first = 0;
        slice.rows = 1;
    } else {
        slice.cols = param->cols;
    }
    return slice;
}

int64_t cy_param_most_elements(const cy_param *param, const cy_model_shape *shape, int tp_size)
{
    int64_t most = 0;
    for (int rank = 0; rank < tp_size; rank++) {
        const cy_slice slice = cy_param_slice(param, shape, rank, tp_size);
        if (slice.rows * slice.cols > most) most = slice.rows * slice.cols;
    }
    return most;
}
