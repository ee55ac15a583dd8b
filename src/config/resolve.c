// Derives values from other keys (aliases of picotron, the model's shape, the accumulation, the
// tokenizer), and the mesh, the schedule and the partition that a configuration asks for.

#include "base/file.h"
#include "kernel/cost.h"
#include "model/shape.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>

static void resolve_aliases(cy_config *config, cy_config_errors *errors)
{
    cy_config_distributed *distributed = &config->distributed;
    cy_config_environment *environment = &config->environment;
    if (distributed->backend == CY_CONFIG_BACKEND_GLOO) {
        distributed->backend = CY_CONFIG_BACKEND_AUTO;
    }
    if (environment->omp_num_threads > 0) {
        if (distributed->threads_per_rank == 0) {
            distributed->threads_per_rank = environment->omp_num_threads;
        } else if (distributed->threads_per_rank != environment->omp_num_threads) {
            cy_config_add_error(errors,
                "environment.OMP_NUM_THREADS = %d: distributed.threads_per_rank says %d",
                environment->omp_num_threads, distributed->threads_per_rank);
            cy_config_add_hint(errors, "leave OMP_NUM_THREADS out");
        }
        environment->omp_num_threads = 0;
    }
    if (environment->flash_atten == CY_CONFIG_FALSE) config->model.use_flash_attention = false;
    environment->flash_atten = CY_CONFIG_ABSENT;
}

static void name_faults(const char *name, cy_config_errors *errors)
{
    const char *slash = strchr(name, '/');
    const bool is_hub_id = slash != NULL && slash != name && strchr(slash + 1, '/') == NULL &&
        name[0] != '.' && slash[1] != '\0';
    if (is_hub_id) {
        cy_config_add_error(errors,
            "model.name = \"%s\": neither a folder with config.json nor a preset; nothing is "
            "downloaded while training",
            name);
        cy_config_add_hint(errors,
            "get it with 'huggingface-cli download %s --local-dir %s', and give that folder; the "
            "presets are " CY_PRESET_NAMES,
            name, slash + 1);
    } else {
        cy_config_add_error(
            errors, "model.name = \"%s\": neither a folder with config.json nor a preset", name);
        cy_config_add_hint(errors, "the presets are " CY_PRESET_NAMES);
    }
}

// Reads the shape that model.name names; an empty one without a name. False after an error.
static bool shape_from_name(cy_model_shape *shape, const char *name, cy_config_errors *errors)
{
    *shape = (cy_model_shape){
        .architecture = "llama",
        .norm_eps = 1e-6,
        .rope = {.theta = 1e4},
        .init_std = 0.02,
        .bos = -1,
        .eos = -1,
    };
    if (name[0] == '\0') return true;
    char path[CY_CONFIG_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/config.json", name);
    bool there = false;
    cy_status status = cy_path_find(&there, path);
    if (status != CY_OK || there) {
        if (there) status = cy_model_shape_read(shape, path);
        if (status == CY_OK) return true;
        cy_config_add_error_of(errors, status, "model.name = \"%s\": %s", name, cy_error_text());
        return false;
    }
    if (!cy_path_is_folder(name) && cy_preset_find(shape, name)) return true;
    name_faults(name, errors);
    return false;
}

#define TAKE(field, from)                                                                          \
    do {                                                                                           \
        if ((from) > 0) (field) = (from);                                                          \
    } while (0)

// Keys override the shape of the name.
static void apply_keys(
    cy_model_shape *shape, const cy_config_model *model, cy_config_errors *errors)
{
    const bool other_heads = model->num_attention_heads > 0 || model->hidden_size > 0;
    TAKE(shape->layers, model->num_hidden_layers);
    TAKE(shape->hidden, model->hidden_size);
    TAKE(shape->ffn, model->intermediate_size);
    TAKE(shape->heads, model->num_attention_heads);
    TAKE(shape->kv_heads, model->num_key_value_heads);
    if (shape->kv_heads == 0) shape->kv_heads = shape->heads;
    if ((other_heads || shape->head_dim == 0) && shape->heads > 0) {
        shape->head_dim = shape->hidden / shape->heads;
        if (shape->hidden % shape->heads != 0 && model->head_dim == 0) {
            cy_config_add_error(errors,
                "model.num_attention_heads = %d: does not divide model.hidden_size %lld",
                shape->heads, (long long)shape->hidden);
            cy_config_add_hint(errors, "give model.head_dim, or another number of heads");
        }
    }
    TAKE(shape->head_dim, model->head_dim);
    TAKE(shape->vocab, model->vocab_size);
    TAKE(shape->norm_eps, model->rms_norm_eps);
    TAKE(shape->rope.theta, model->rope_theta);
    TAKE(shape->init_std, model->initializer_range);
    TAKE(shape->experts, model->num_local_experts);
    TAKE(shape->experts_per_token, model->num_experts_per_tok);
    if (shape->experts > 0 && shape->expert_ffn == 0) shape->expert_ffn = shape->ffn;
    TAKE(shape->expert_ffn, model->moe_intermediate_size);
    if (model->sliding_window >= 0) shape->window = model->sliding_window;
    if (model->tie_word_embeddings != CY_CONFIG_ABSENT) {
        shape->tied = model->tie_word_embeddings == CY_CONFIG_TRUE;
    }
    if (model->has_rope_scaling) {
        const double theta = shape->rope.theta;
        shape->rope = model->rope_scaling;
        shape->rope.theta = theta;
    }
}

// Whether the key attention_bias of this architecture means all four projections.
static bool biases_all_projections(const cy_model_shape *shape)
{
    const cy_model_family *family = cy_family_find(shape->architecture);
    return family != NULL && family->bias_key;
}

// Applies the properties of the architecture that no key can set.
static void apply_architecture(
    cy_model_shape *shape, const cy_config_model *model, cy_config_errors *errors)
{
    // If the folder has this architecture, the properties that the folder gives stay.
    if (model->model_type[0] != '\0' && strcmp(model->model_type, shape->architecture) != 0) {
        const cy_model_family *family = cy_family_find(model->model_type);
        if (family == NULL) {
            cy_config_add_error(errors,
                "model.model_type = \"%s\": one of llama, mistral, qwen2, qwen3, mixtral, "
                "qwen3_moe is wanted",
                model->model_type);
            return;
        }
        memcpy(shape->architecture, model->model_type, sizeof(shape->architecture));
        shape->qkv_bias = family->qkv_bias;
        shape->out_bias = false;
        shape->qk_norm = family->qk_norm;
    }
    if (model->attention_bias != CY_CONFIG_ABSENT) {
        shape->qkv_bias = model->attention_bias == CY_CONFIG_TRUE;
        shape->out_bias = shape->qkv_bias && biases_all_projections(shape);
    }
}

// Reports expert keys of a model without experts: they would have no effect.
static void refuse_expert_keys(
    const cy_model_shape *shape, const cy_config_model *model, cy_config_errors *errors)
{
    const char *type = shape->architecture;
    const int before = errors->count;
    if (shape->experts > 0) return;
    if (strcmp(type, "mixtral") == 0 || strcmp(type, "qwen3_moe") == 0) {
        cy_config_add_error(errors, "model.model_type = \"%s\": the model has no experts", type);
    }
    if (model->num_experts_per_tok > 0) {
        cy_config_add_error(errors, "model.num_experts_per_tok = %d: the model has no experts",
            model->num_experts_per_tok);
    }
    if (model->moe_intermediate_size > 0) {
        cy_config_add_error(errors, "model.moe_intermediate_size = %lld: the model has no experts",
            (long long)model->moe_intermediate_size);
    }
    if (model->router_aux_loss_coef > 0) {
        cy_config_add_error(errors, "model.router_aux_loss_coef = %g: the model has no experts",
            model->router_aux_loss_coef);
    }
    if (errors->count > before) {
        cy_config_add_hint(errors, "leave it out, or give model.num_local_experts");
    }
}

// Reports sizes that are missing. They can be missing only without a name.
static void missing_sizes(const cy_model_shape *shape, cy_config_errors *errors)
{
    const struct {
        const char *name;
        int64_t size;
    } needed[] = {
        {"num_hidden_layers", shape->layers},
        {"hidden_size", shape->hidden},
        {"intermediate_size", shape->ffn},
        {"num_attention_heads", shape->heads},
        {"vocab_size", shape->vocab},
    };
    char names[160] = "";
    size_t length = 0;
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (needed[i].size > 0) continue;
        length += (size_t)snprintf(
            names + length, sizeof(names) - length, "%s%s", length > 0 ? ", " : "", needed[i].name);
    }
    if (length == 0) return;
    cy_config_add_error(errors, "model: %s missing", names);
    cy_config_add_hint(
        errors, "give model.name, a folder with config.json or a preset, or these keys");
}

// Writes the resolved shape back to the keys, so that a saved configuration needs no other file.
static void keys_from_shape(cy_config_model *model, const cy_model_shape *shape)
{
    memcpy(model->model_type, shape->architecture, sizeof(model->model_type));
    model->num_hidden_layers = shape->layers;
    model->hidden_size = shape->hidden;
    model->intermediate_size = shape->ffn;
    model->num_attention_heads = shape->heads;
    model->num_key_value_heads = shape->kv_heads;
    model->head_dim = shape->head_dim;
    model->vocab_size = shape->vocab;
    model->max_position_embeddings = shape->max_positions;
    model->rms_norm_eps = shape->norm_eps;
    model->rope_theta = shape->rope.theta;
    model->rope_scaling = shape->rope;
    model->has_rope_scaling = true;
    model->tie_word_embeddings = shape->tied ? CY_CONFIG_TRUE : CY_CONFIG_FALSE;
    // The architecture, not the key, gives a bias of q, k and v alone.
    model->attention_bias = shape->qkv_bias && !shape->out_bias && biases_all_projections(shape)
        ? CY_CONFIG_ABSENT
        : (shape->qkv_bias ? CY_CONFIG_TRUE : CY_CONFIG_FALSE);
    model->sliding_window = shape->window;
    model->initializer_range = shape->init_std;
    model->num_local_experts = shape->experts;
    model->num_experts_per_tok = shape->experts_per_token;
    model->moe_intermediate_size = shape->experts > 0 ? shape->expert_ffn : 0;
}

// Scalings without original positions are relative to those of the model, as in a config.json.
static void resolve_rope(cy_model_shape *shape, cy_config_errors *errors)
{
    cy_rope_shape *rope = &shape->rope;
    if (rope->scaling == CY_ROPE_PLAIN || rope->scaling == CY_ROPE_LINEAR) return;
    if (rope->original_length == 0) rope->original_length = shape->max_positions;
    if (rope->scaling == CY_ROPE_DYNAMIC && rope->original_length != shape->max_positions) {
        cy_config_add_error(errors,
            "model.rope_scaling.original_max_position_embeddings = %lld: differs from "
            "max_position_embeddings %lld",
            (long long)rope->original_length, (long long)shape->max_positions);
    }
    if (rope->scaling == CY_ROPE_LLAMA3 && rope->high_freq_factor <= rope->low_freq_factor) {
        cy_config_add_error(errors,
            "model.rope_scaling.high_freq_factor = %g: must be above low_freq_factor %g",
            rope->high_freq_factor, rope->low_freq_factor);
    }
}

static void resolve_shape(cy_config *config, cy_config_errors *errors)
{
    cy_config_model *model = &config->model;
    cy_model_shape *shape = &config->shape;
    const int faults_before = errors->count;
    if (!shape_from_name(shape, model->name, errors)) return;
    apply_keys(shape, model, errors);
    apply_architecture(shape, model, errors);
    refuse_expert_keys(shape, model, errors);
    const int64_t seq_length = config->training.seq_length;
    if (model->max_position_embeddings > 0) {
        shape->max_positions = model->max_position_embeddings;
    } else if (shape->max_positions < seq_length) {
        shape->max_positions = seq_length;
    }
    resolve_rope(shape, errors);
    // A misspelt key is missing as well: only the misspelling is reported.
    if (faults_before == 0) missing_sizes(shape, errors);
    if (errors->count == faults_before) keys_from_shape(model, shape);
}

static void resolve_accumulation(cy_config *config, cy_config_errors *errors)
{
    cy_config_training *training = &config->training;
    if (training->global_batch_size == 0) {
        if (training->gradient_accumulation_steps == 0) training->gradient_accumulation_steps = 1;
        return;
    }
    const int64_t replica = training->micro_batch_size * config->distributed.dp_size;
    const int64_t batch = training->global_batch_size;
    if (batch % replica != 0) {
        const int64_t below = batch / replica * replica, above = below + replica;
        cy_config_add_error(errors,
            "training.global_batch_size = %lld: micro_batch_size %lld x dp_size %d = %lld does not "
            "divide it",
            (long long)batch, (long long)training->micro_batch_size, config->distributed.dp_size,
            (long long)replica);
        if (below > 0) {
            cy_config_add_hint(errors, "%lld or %lld would do", (long long)below, (long long)above);
        } else {
            cy_config_add_hint(errors, "%lld would do", (long long)replica);
        }
        training->gradient_accumulation_steps = 1; // 0 would cause a second error
        return;
    }
    const int64_t steps = batch / replica;
    const int64_t given = training->gradient_accumulation_steps;
    if (given > 0 && given != steps) {
        cy_config_add_error(errors,
            "training.gradient_accumulation_steps = %lld: global_batch_size %lld / "
            "(micro_batch_size %lld x dp_size %d) is %lld",
            (long long)given, (long long)batch, (long long)training->micro_batch_size,
            config->distributed.dp_size, (long long)steps);
        cy_config_add_hint(errors, "give one of the two");
        return;
    }
    training->gradient_accumulation_steps = steps;
}

// Counts of tokens must stay exact, also as doubles.
static void resolve_batch(cy_config *config, cy_config_errors *errors)
{
    cy_config_training *training = &config->training;
    resolve_accumulation(config, errors);
    const double tokens = (double)cy_config_batch_samples(config) * (double)training->seq_length;
    if (tokens < 0x1p48) return;
    cy_config_add_error(errors,
        "training.gradient_accumulation_steps = %lld: a global batch of %.3g tokens is more than "
        "can be counted",
        (long long)training->gradient_accumulation_steps, tokens);
    training->gradient_accumulation_steps = 1;
    training->micro_batch_size = 1;
    training->seq_length = 1;
}

static void resolve_compression(cy_config *config)
{
    cy_config_distributed *distributed = &config->distributed;
    if (distributed->topk_warmup_steps >= 0) return;
    if (distributed->compression != CY_COMPRESSION_TOPK) return;
    distributed->topk_warmup_steps = cy_config_last_step(config) / 5 * 2;
}

static void resolve_tokenizer(cy_config *config, cy_config_errors *errors)
{
    char path[CY_CONFIG_PATH_BYTES + 16];
    if (config->dataset.tokenizer[0] != '\0' || !cy_path_is_folder(config->model.name)) return;
    const int length = snprintf(path, sizeof(path), "%s/tokenizer.json", config->model.name);
    bool there = false;
    const cy_status status = cy_path_find(&there, path);
    if (status != CY_OK) {
        cy_config_add_error_of(errors, status, "dataset.tokenizer: %s", cy_error_text());
    }
    if (!there) return;
    if (length < CY_CONFIG_PATH_BYTES) {
        memcpy(config->dataset.tokenizer, path, (size_t)length + 1);
    } else {
        cy_config_add_error(errors, "dataset.tokenizer = \"%s\": %d bytes, at most %d are taken",
            path, length, CY_CONFIG_PATH_BYTES - 1);
    }
}

cy_status cy_config_resolve(cy_config *config, cy_config_errors *errors)
{
    resolve_aliases(config, errors);
    resolve_shape(config, errors);
    resolve_batch(config, errors);
    resolve_compression(config);
    resolve_tokenizer(config, errors);
    return cy_config_errors_status(errors);
}

bool cy_config_through_mpi(const cy_config *config, const cy_config_machine *machine)
{
    const cy_config_backend backend = config->distributed.backend;
    return backend == CY_CONFIG_BACKEND_MPI ||
        (backend == CY_CONFIG_BACKEND_AUTO && machine->under_mpi);
}

int cy_config_ranks_of_process(const cy_config *config, const cy_config_machine *machine)
{
    const int world = (int)cy_config_world(config);
    if (!cy_config_through_mpi(config, machine)) return world;
    return machine->world > 0 ? world / machine->world : 1;
}

int64_t cy_config_world(const cy_config *config)
{
    const cy_config_distributed *d = &config->distributed;
    return (int64_t)d->tp_size * d->cp_size * d->pp_size * d->dp_size;
}

double cy_config_first_bucket_mb(const cy_config_distributed *distributed)
{
    if (distributed->first_bucket_mb > 0) return distributed->first_bucket_mb;
    return distributed->bucket_mb < 1 ? distributed->bucket_mb : 1;
}

int64_t cy_config_batch_samples(const cy_config *config)
{
    return config->training.micro_batch_size * config->training.gradient_accumulation_steps *
        config->distributed.dp_size;
}

int64_t cy_config_batch_tokens(const cy_config *config)
{
    return cy_config_batch_samples(config) * config->training.seq_length;
}

int64_t cy_config_last_step_from(const cy_config *config, int64_t step, int64_t tokens)
{
    const int64_t steps = config->training.total_train_steps;
    const int64_t most = config->training.max_tokens;
    if (most == 0) return steps;
    const int64_t batch = cy_config_batch_tokens(config);
    const int64_t left = most > tokens ? most - tokens : 0;
    const int64_t reached = step + left / batch + (left % batch != 0);
    return steps > 0 && steps < reached ? steps : reached;
}

int64_t cy_config_last_step(const cy_config *config)
{
    return cy_config_last_step_from(config, 0, 0);
}

// ---- options of other parts

cy_status cy_config_mesh(cy_mesh *mesh, const cy_config *config)
{
    const cy_config_distributed *distributed = &config->distributed;
    const cy_mesh_spec request = {
        .tp = distributed->tp_size,
        .cp = distributed->cp_size,
        .pp = distributed->pp_size,
        .dp = distributed->dp_size,
        .ep = distributed->ep_size,
        .etp = distributed->etp_size,
        .rank_order = distributed->rank_order,
    };
    return cy_mesh_make(mesh, &request);
}

cy_schedule_options cy_config_schedule(const cy_config *config)
{
    return (cy_schedule_options){
        .engine = config->distributed.pp_engine,
        .stages = config->distributed.pp_size,
        .microbatches = (int)config->training.gradient_accumulation_steps,
        .chunks = config->distributed.pp_chunks,
        .csv = config->distributed.pp_schedule,
    };
}

// Costs read shapes only, but a view with NULL data is none.
static cy_view shape_of(int64_t rows, int64_t cols)
{
    static char nothing;
    return cy_view_of(&nothing, CY_F32, rows, cols);
}

static double product(int64_t tokens, int64_t out, int64_t in)
{
    return cy_cost_matmul(shape_of(tokens, out), shape_of(tokens, in), shape_of(out, in),
        (cy_matmul_spec){.transpose_b = true})
        .flops;
}

// The costs of a forward pass of one sequence. A backward pass costs twice that, in every layer.
static cy_partition_costs costs_of(const cy_model_shape *shape, int64_t length)
{
    const int64_t q = shape->heads * shape->head_dim, kv = shape->kv_heads * shape->head_dim;
    const cy_attention_span span = {.q_count = length, .k_count = length};
    const cy_attention_spec attention = {
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .head_dim = shape->head_dim,
        .window = shape->window,
        .spans = &span,
        .span_count = 1,
    };
    const cy_cost heads =
        cy_cost_attention_forward(shape_of(length, q), shape_of(shape->heads, length),
            shape_of(length, q), shape_of(length, kv), shape_of(length, kv), &attention);
    return (cy_partition_costs){
        .layer = product(length, q + 2 * kv, shape->hidden) + heads.flops +
            product(length, shape->hidden, q) + product(length, 2 * shape->ffn, shape->hidden) +
            product(length, shape->hidden, shape->ffn),
        .embedding = cy_cost_embedding_forward(
            shape_of(length, shape->hidden), shape_of(shape->vocab, shape->hidden))
                         .flops,
        .head = product(length, shape->vocab, shape->hidden),
    };
}

cy_status cy_config_partition(
    cy_layer_range *ranges, const cy_config *config, const cy_schedule *schedule)
{
    const cy_config_distributed *distributed = &config->distributed;
    const int layers = config->shape.layers;
    if (distributed->pp_layer_count > 0 && schedule->stages > 1) {
        return cy_partition_by_list(
            ranges, schedule, layers, distributed->pp_layers, distributed->pp_layer_count);
    }
    const cy_partition_costs costs = costs_of(&config->shape, config->training.seq_length);
    return cy_partition_by_cost(ranges, schedule, layers, &costs);
}

const char *cy_config_schedule_conflict(const cy_config *config, const cy_schedule *schedule)
{
    if (config->training.recompute == CY_RECOMPUTE_NONE) return NULL;
    if (schedule->stages == 1) return NULL; // one stage runs 1F1B with any engine
    for (int rank = 0; rank < schedule->stages; rank++) {
        const cy_action_list *list = &schedule->ranks[rank];
        for (size_t i = 0; i < list->count; i++) {
            if (list->actions[i].kind == CY_ACTION_BACKWARD_INPUT) {
                return "a backward pass in two parts keeps what recomputation would make again";
            }
        }
    }
    return NULL;
}
