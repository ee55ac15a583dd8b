// What must divide what: every fault with its numbers and the nearest sizes that work.

#include "comm/algorithm.h"
#include "comm/world.h"
#include "kernel/kernel.h"
#include "config/check.h"
#include "config/pipeline.h"

#include <stdio.h>
#include <string.h>

// Advises the sizes nearest to `size` that divide `whole`.
static void advise_divisors(cy_config_errors *errors, const char *key, int64_t whole, int64_t size)
{
    int64_t below = size < whole ? size : whole;
    while (below > 1 && whole % below != 0)
        below--;
    int64_t above = size;
    while (above <= whole && whole % above != 0)
        above++;
    if (above <= whole) {
        cy_config_add_hint(
            errors, "%s %lld or %lld would do", key, (long long)below, (long long)above);
    } else {
        cy_config_add_hint(errors, "%s %lld would do", key, (long long)below);
    }
}

// Advises the multiples of `part` nearest to `size`.
static void advise_multiples(cy_config_errors *errors, const char *key, int64_t part, int64_t size)
{
    const int64_t below = size / part * part, above = below + part;
    if (below > 0) {
        cy_config_add_hint(
            errors, "%s %lld or %lld would do", key, (long long)below, (long long)above);
    } else {
        cy_config_add_hint(errors, "%s %lld would do", key, (long long)part);
    }
}

// With fewer kv heads than ranks, neighbours hold copies, evenly many of each.
static bool kv_heads_split(int kv_heads, int64_t ranks)
{
    return kv_heads % ranks == 0 || ranks % kv_heads == 0;
}

// The vocabulary need not divide: its parts may differ by a row.
static bool tensor_size_works(const cy_model_shape *shape, int64_t tp)
{
    return shape->heads % tp == 0 && kv_heads_split(shape->kv_heads, tp) && shape->ffn % tp == 0 &&
        shape->vocab >= tp;
}

static void check_tensor(const cy_config *config, cy_config_errors *errors)
{
    const cy_model_shape *shape = &config->shape;
    const int tp = config->distributed.tp_size;
    if (tensor_size_works(shape, tp)) return;
    if (shape->heads % tp != 0) {
        cy_config_add_error(errors,
            "distributed.tp_size = %d: does not divide model.num_attention_heads %d", tp,
            shape->heads);
    }
    if (!kv_heads_split(shape->kv_heads, tp)) {
        cy_config_add_error(errors,
            "distributed.tp_size = %d: model.num_key_value_heads %d is neither a multiple nor a "
            "divisor of it",
            tp, shape->kv_heads);
    }
    if (shape->ffn % tp != 0) {
        cy_config_add_error(errors,
            "distributed.tp_size = %d: does not divide model.intermediate_size %lld", tp,
            (long long)shape->ffn);
    }
    if (shape->vocab < tp) {
        cy_config_add_error(errors, "distributed.tp_size = %d: more than model.vocab_size %lld", tp,
            (long long)shape->vocab);
    }
    int below = tp < shape->heads ? tp : shape->heads;
    while (!tensor_size_works(shape, below))
        below--; // 1 always does
    int above = tp;
    while (above <= shape->heads && !tensor_size_works(shape, above))
        above++;
    if (above <= shape->heads) {
        cy_config_add_hint(errors, "tp_size %d or %d would do", below, above);
    } else {
        cy_config_add_hint(errors, "tp_size %d would do", below);
    }
}

static void check_model(const cy_config *config, cy_config_errors *errors)
{
    const cy_model_shape *shape = &config->shape;
    if (shape->heads % shape->kv_heads != 0) {
        cy_config_add_error(errors,
            "model.num_key_value_heads = %d: does not divide model.num_attention_heads %d",
            shape->kv_heads, shape->heads);
        advise_divisors(errors, "num_key_value_heads", shape->heads, shape->kv_heads);
    }
    if (shape->head_dim % 2 != 0) {
        cy_config_add_error(errors,
            "model.head_dim = %lld: rotary positions turn pairs: it must be even",
            (long long)shape->head_dim);
    }
    if (shape->head_dim > CY_HEAD_DIM_MAX) {
        cy_config_add_error(errors, "model.head_dim = %lld: heads have at most %d",
            (long long)shape->head_dim, CY_HEAD_DIM_MAX);
        cy_config_add_hint(errors, "more num_attention_heads of hidden_size %lld would do",
            (long long)shape->hidden);
    }
    if (config->training.seq_length > shape->max_positions) {
        cy_config_add_error(errors,
            "training.seq_length = %lld: longer than model.max_position_embeddings %lld",
            (long long)config->training.seq_length, (long long)shape->max_positions);
        cy_config_add_hint(errors, "leave max_position_embeddings out to have it follow");
    }
    if (shape->experts == 0) return;
    if (shape->experts_per_token < 1 || shape->experts_per_token > shape->experts) {
        cy_config_add_error(errors,
            "model.num_experts_per_tok = %d: from 1 to num_local_experts %d",
            shape->experts_per_token, shape->experts);
    }
}

static void check_experts(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_distributed *d = &config->distributed;
    const cy_model_shape *shape = &config->shape;
    if (shape->experts == 0) {
        if (d->ep_size > 1 || d->etp_size > 1) {
            cy_config_add_error(errors, "distributed.%s = %d: the model has no experts",
                d->ep_size > 1 ? "ep_size" : "etp_size", d->ep_size > 1 ? d->ep_size : d->etp_size);
            cy_config_add_hint(errors, "leave it out, or give model.num_local_experts");
        }
        return;
    }
    const int64_t stage = (int64_t)d->tp_size * d->cp_size * d->dp_size;
    if (stage % ((int64_t)d->ep_size * d->etp_size) != 0) {
        cy_config_add_error(errors,
            "distributed.ep_size = %d: ep_size x etp_size = %lld does not divide the %lld ranks "
            "(tp x cp x dp) of a stage",
            d->ep_size, (long long)d->ep_size * d->etp_size, (long long)stage);
    }
    if (shape->experts % d->ep_size != 0) {
        cy_config_add_error(errors,
            "distributed.ep_size = %d: does not divide model.num_local_experts %d", d->ep_size,
            shape->experts);
        advise_divisors(errors, "ep_size", shape->experts, d->ep_size);
    }
    if (shape->expert_ffn % d->etp_size != 0) {
        cy_config_add_error(errors,
            "distributed.etp_size = %d: does not divide model.moe_intermediate_size %lld",
            d->etp_size, (long long)shape->expert_ffn);
        advise_divisors(errors, "etp_size", shape->expert_ffn, d->etp_size);
    }
}

// Ulysses gives each of cp x tp ranks whole heads.
static bool ulysses_works(const cy_model_shape *shape, int64_t ranks)
{
    return shape->heads % ranks == 0 && kv_heads_split(shape->kv_heads, ranks);
}

static void check_ulysses(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_distributed *d = &config->distributed;
    const cy_model_shape *shape = &config->shape;
    const int64_t ranks = (int64_t)d->cp_size * d->tp_size;
    if (d->cp_style != CY_CONFIG_CP_ULYSSES || d->cp_size == 1 || ulysses_works(shape, ranks)) {
        return;
    }
    if (shape->heads % ranks != 0) {
        cy_config_add_error(errors,
            "distributed.cp_style = \"ulysses\": cp_size %d x tp_size %d = %lld does not divide "
            "model.num_attention_heads %d",
            d->cp_size, d->tp_size, (long long)ranks, shape->heads);
    } else {
        cy_config_add_error(errors,
            "distributed.cp_style = \"ulysses\": model.num_key_value_heads %d is neither a "
            "multiple nor a divisor of cp_size %d x tp_size %d = %lld",
            shape->kv_heads, d->cp_size, d->tp_size, (long long)ranks);
    }
    int64_t below = d->cp_size < shape->heads ? d->cp_size : shape->heads;
    while (below > 1 && !ulysses_works(shape, below * d->tp_size))
        below--;
    int64_t above = d->cp_size;
    while (above <= shape->heads && !ulysses_works(shape, above * d->tp_size))
        above++;
    if (above <= shape->heads) {
        cy_config_add_hint(errors,
            "cp_size %lld or %lld would do, or cp_style ring, which takes any number of heads",
            (long long)below, (long long)above);
    } else {
        cy_config_add_hint(errors,
            "cp_size %lld would do, or cp_style ring, which takes any number of heads",
            (long long)below);
    }
}

static void check_context(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_distributed *d = &config->distributed;
    const int64_t seq = config->training.seq_length;
    const bool zigzag = d->cp_size > 1 && d->cp_style != CY_CONFIG_CP_ULYSSES &&
        d->cp_layout == CY_CONFIG_CP_ZIGZAG;
    const int64_t pieces = zigzag ? 2 * (int64_t)d->cp_size : d->cp_size;
    const int64_t split = d->sequence_parallel ? pieces * d->tp_size : pieces;
    if (seq % split != 0) {
        char factors[96];
        const int length = snprintf(factors, sizeof(factors), "%scp_size %d%s",
            zigzag ? "2 x " : "", d->cp_size, zigzag ? " (zigzag)" : "");
        if (d->sequence_parallel) {
            snprintf(
                factors + length, sizeof(factors) - (size_t)length, " x tp_size %d", d->tp_size);
        }
        cy_config_add_error(errors, "training.seq_length = %lld: %s = %lld pieces do not divide it",
            (long long)seq, factors, (long long)split);
        advise_multiples(errors, "seq_length", split, seq);
    }
    if (d->sequence_keep_inputs && !d->sequence_parallel) {
        cy_config_add_error(errors,
            "distributed.sequence_keep_inputs = true: inputs are gathered with "
            "distributed.sequence_parallel only");
    }
    check_ulysses(config, errors);
}

static void check_stages(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_distributed *d = &config->distributed;
    const int64_t pieces = (int64_t)d->pp_size * d->pp_chunks;
    if (config->shape.layers < pieces) {
        cy_config_add_error(errors,
            "model.num_hidden_layers = %d: fewer than pp_size %d x pp_chunks %d = %lld",
            config->shape.layers, d->pp_size, d->pp_chunks, (long long)pieces);
        const int most = config->shape.layers / d->pp_chunks;
        if (most > 0) cy_config_add_hint(errors, "pp_size %d would do", most);
    }
    if (d->pp_layer_count == 0) return;
    int64_t sum = 0;
    int least = d->pp_layers[0];
    for (int i = 0; i < d->pp_layer_count; i++) {
        sum += d->pp_layers[i];
        if (d->pp_layers[i] < least) least = d->pp_layers[i];
    }
    if (d->pp_layer_count != pieces) {
        cy_config_add_error(errors,
            "distributed.pp_layers: %d entries, pp_size %d x pp_chunks %d = %lld are wanted",
            d->pp_layer_count, d->pp_size, d->pp_chunks, (long long)pieces);
    }
    if (sum != config->shape.layers) {
        cy_config_add_error(errors,
            "distributed.pp_layers: %lld layers in all, model.num_hidden_layers is %d",
            (long long)sum, config->shape.layers);
    }
    if (least < 1) cy_config_add_error(errors, "distributed.pp_layers: a stage without layers");
}

static void check_engine(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_distributed *d = &config->distributed;
    if (d->pp_engine != CY_PIPELINE_CSV && d->pp_schedule[0] != '\0') {
        cy_config_add_error(errors, "distributed.pp_schedule = \"%s\": only pp_engine csv reads it",
            d->pp_schedule);
    }
    if (d->pp_engine == CY_PIPELINE_CSV && d->pp_schedule[0] == '\0') {
        cy_config_add_error(errors, "distributed.pp_engine = \"csv\": pp_schedule names no file");
        return;
    }
    // What an engine takes, and whether the file's schedule can run, the engine knows best.
    const cy_schedule_options options = cy_config_schedule(config);
    cy_schedule schedule;
    const cy_status status = cy_schedule_open(&schedule, &options);
    if (status == CY_OK) {
        const char *conflict = cy_config_schedule_conflict(config, &schedule);
        if (conflict != NULL) {
            cy_config_add_error(errors, "training.recompute with pp_engine %s: %s",
                cy_pipeline_engine_name(options.engine), conflict);
            cy_config_add_hint(errors, "recompute none, or another pp_engine");
        }
        cy_schedule_close(&schedule);
        return;
    }
    cy_config_add_error_of(errors, status,
        "distributed: pp_size %d, pp_chunks %d, gradient_accumulation_steps %lld: %s", d->pp_size,
        d->pp_chunks, (long long)config->training.gradient_accumulation_steps, cy_error_text());
}

static void check_rank_order(const cy_config *config, cy_config_errors *errors)
{
    const char *order = config->distributed.rank_order;
    static const char *const axes[] = {"tp", "cp", "pp", "dp"};
    bool is_right = strlen(order) == 11;
    for (int i = 0; i < 4 && is_right; i++) {
        int times = 0;
        for (int place = 0; place < 4; place++)
            times += memcmp(&order[(size_t)place * 3], axes[i], 2) == 0;
        is_right = times == 1 && (i == 3 || order[3 * i + 2] == ',');
    }
    if (is_right) return;
    cy_config_add_error(
        errors, "distributed.rank_order = \"%s\": tp, cp, pp and dp, once each, are wanted", order);
    cy_config_add_hint(errors, "for example tp,cp,pp,dp");
}

static void check_reduction(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_distributed *d = &config->distributed;
    if (d->dp_reduce == CY_CONFIG_DP_NAIVE && d->zero_stage > 0) {
        cy_config_add_error(errors,
            "distributed.dp_reduce = \"naive\": zero_stage %d works on buckets", d->zero_stage);
        cy_config_add_hint(errors, "dp_reduce bucketed, or zero_stage 0");
    }
    if (d->first_bucket_mb > d->bucket_mb) {
        cy_config_add_error(errors,
            "distributed.first_bucket_mb = %g: the first bucket is larger than the others, of "
            "bucket_mb %g",
            d->first_bucket_mb, d->bucket_mb);
        cy_config_add_hint(errors, "first_bucket_mb of at most %g", d->bucket_mb);
    }
    if (d->compression == CY_CONFIG_COMPRESSION_NONE) return;
    if (d->zero_stage > 0) {
        cy_config_add_error(errors,
            "distributed.compression: zero_stage %d keeps a part of the gradients; what "
            "compression "
            "keeps back is of the whole",
            d->zero_stage);
        cy_config_add_hint(errors, "zero_stage 0, or compression none");
    }
    if (d->dp_reduce == CY_CONFIG_DP_NAIVE) {
        cy_config_add_error(errors,
            "distributed.dp_reduce = \"naive\": it is there to compare with and sends gradients as "
            "they are");
        cy_config_add_hint(errors, "dp_reduce bucketed, or compression none");
    }
    if (d->compression == CY_CONFIG_COMPRESSION_TOPK && config->model.dtype == CY_F16) {
        cy_config_add_error(errors,
            "distributed.compression = \"topk\": what is kept back would be in units of fp16's "
            "loss scale, which changes");
        cy_config_add_hint(errors, "compression int8, or model.dtype bf16");
    }
    if (config->training.strict) {
        cy_config_add_error(errors,
            "training.strict = true: compressed gradients depend on the mesh, strict ones do not");
        cy_config_add_hint(errors, "compression none");
    }
}

static void check_algorithm(const cy_config *config, cy_config_errors *errors)
{
    cy_algorithm_table table;
    bool tables;
    const char *name = config->distributed.algorithm;
    if (strcmp(name, "auto") == 0) return;
    if (cy_algorithm_find(&table, &tables, name, "") == CY_OK) return;
    cy_config_add_error(errors, "distributed.algorithm = \"%s\": there is none", name);
    cy_config_add_hint(errors, "auto, native, ring, tree, doubling, hierarchical or server");
}

static void check_world(
    const cy_config *config, cy_config_errors *errors, const cy_config_machine *machine)
{
    const cy_config_distributed *d = &config->distributed;
    const int64_t world = cy_config_world(config);
    if (d->backend == CY_CONFIG_BACKEND_SELF && world > 1) {
        cy_config_add_error(errors, "distributed.backend = \"self\": one rank, %lld are asked for",
            (long long)world);
        cy_config_add_hint(errors, "backend threads, or auto");
    }
    if (d->backend == CY_CONFIG_BACKEND_THREADS && world > CY_WORLD_THREADS) {
        cy_config_add_error(errors,
            "distributed.backend = \"threads\": at most %d ranks, %lld are asked for",
            CY_WORLD_THREADS, (long long)world);
        cy_config_add_hint(errors, "backend mpi");
    }
    const bool alone =
        d->backend == CY_CONFIG_BACKEND_SELF || d->backend == CY_CONFIG_BACKEND_THREADS;
    if (alone && machine->under_mpi && machine->world > 1) {
        cy_config_add_error(errors,
            "distributed.backend = \"%s\": %d processes were started, and each would run all "
            "%lld ranks by itself",
            d->backend == CY_CONFIG_BACKEND_SELF ? "self" : "threads", machine->world,
            (long long)world);
        cy_config_add_hint(errors, "backend auto or mpi, or start one process");
    }
    const bool through_mpi = cy_config_through_mpi(config, machine);
    if (through_mpi && machine->unwired) {
        cy_config_add_error(errors,
            "distributed: srun started %d tasks without the wiring of MPI: each would be alone",
            machine->world);
        cy_config_add_hint(errors, "srun --mpi=pmix, or mpirun");
    } else if (machine->world > 0 && through_mpi && world % machine->world != 0) {
        cy_config_add_error(errors,
            "distributed: tp_size %d x cp_size %d x pp_size %d x dp_size %d = %lld ranks, %d "
            "processes were started",
            d->tp_size, d->cp_size, d->pp_size, d->dp_size, (long long)world, machine->world);
        const int64_t rest = world / d->dp_size;
        if (machine->world % rest == 0) {
            cy_config_add_hint(errors, "start %lld or a divisor of it, or dp_size %lld would do",
                (long long)world, (long long)(machine->world / rest));
        } else {
            cy_config_add_hint(errors, "start %lld or a divisor of it", (long long)world);
        }
    }
}

void cy_config_check_sizes(
    const cy_config *config, cy_config_errors *errors, const cy_config_machine *machine)
{
    check_world(config, errors, machine);
    check_algorithm(config, errors);
    check_rank_order(config, errors);
    check_reduction(config, errors);
    check_engine(config, errors);
    const cy_model_shape *shape = &config->shape;
    const bool has_shape = shape->layers > 0 && shape->hidden > 0 && shape->ffn > 0 &&
        shape->heads > 0 && shape->kv_heads > 0 && shape->vocab > 0;
    if (!has_shape) return; // said already
    check_model(config, errors);
    check_tensor(config, errors);
    check_experts(config, errors);
    check_context(config, errors);
    check_stages(config, errors);
    cy_config_check_strict(config, errors);
}

cy_status cy_config_check(const cy_config *config, cy_config_errors *errors,
    cy_config_purpose purpose, const cy_config_machine *machine)
{
    cy_config_check_build(config, errors, machine);
    cy_config_check_sizes(config, errors, machine);
    if (purpose != CY_CONFIG_FOR_SHAPE) cy_config_check_run(config, errors, purpose);
    return cy_config_errors_status(errors);
}
