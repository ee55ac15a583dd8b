// Checks a resolved configuration: sizes that must divide each other, strict mode, what this build
// supports, and what a training run needs. Each error has its numbers and the nearest valid ones.

#include "base/file.h"
#include "build_info.h"
#include "comm/algorithm.h"
#include "comm/world.h"
#include "data/shard.h"
#include "kernel/kernel.h"
#include "kernel/strict/strict.h"
#include "model/strict_sums.h"
#include "config/config.h"

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
        below--; // 1 always works
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
    if (d->cp_style != CY_CONTEXT_ULYSSES || d->cp_size == 1 || ulysses_works(shape, ranks)) {
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
    const bool zigzag =
        d->cp_size > 1 && d->cp_style != CY_CONTEXT_ULYSSES && d->cp_layout == CY_CONFIG_CP_ZIGZAG;
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
    // Opening the schedule checks the limits of each kind and the schedule of the file.
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
    if (d->compression == CY_COMPRESSION_NONE) return;
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
    if (d->compression == CY_COMPRESSION_TOPK && config->model.dtype == CY_F16) {
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

// ---- strict mode
//
// Every cut must lie at a multiple of the blocks whose chains are the terms of strict mode's sums,
// and the number of terms is bounded. docs/equivalence.md.

static void check_strict_dtype(const cy_config *config, cy_config_errors *errors)
{
    const cy_dtype dtype = config->model.dtype;
    if (dtype == CY_F32 || dtype == CY_BF16) return;
    cy_config_add_error(errors, "training.strict = true: model.dtype \"%s\" has no strict mode",
        cy_dtype_name(dtype));
    cy_config_add_hint(errors, "model.dtype fp32 or bf16");
}

static void check_strict_limits(const cy_config *config, cy_config_errors *errors)
{
    const int64_t tokens = cy_config_batch_tokens(config), most = CY_STRICT_TERMS_MAX;
    if (tokens > most) {
        cy_config_add_error(errors,
            "training.strict = true: %lld tokens in a global batch, at most %lld",
            (long long)tokens, (long long)most);
    }
    if (config->shape.vocab > most) {
        cy_config_add_error(errors, "training.strict = true: model.vocab_size %lld, at most %lld",
            (long long)config->shape.vocab, (long long)most);
    }
}

static void check_strict_sequence(
    const cy_config *config, const cy_sum_blocks *blocks, cy_config_errors *errors)
{
    const cy_config_distributed *d = &config->distributed;
    const long long length = config->training.seq_length, block = blocks->tokens;
    const bool zigzag =
        d->cp_size > 1 && d->cp_style != CY_CONTEXT_ULYSSES && d->cp_layout == CY_CONFIG_CP_ZIGZAG;
    const long long pieces = zigzag ? 2LL * d->cp_size : d->cp_size;
    if (length % (pieces * block) == 0) return;
    cy_config_add_error(errors,
        "training.strict = true: training.seq_length %lld is no multiple of %lld: blocks of %lld "
        "tokens, %lld pieces of a sequence",
        length, pieces * block, block, pieces);
    if (zigzag && length % (d->cp_size * block) == 0) {
        cy_config_add_hint(errors, "cp_layout contiguous would do");
    } else {
        const long long below = length / (pieces * block) * pieces * block;
        cy_config_add_hint(errors, "seq_length %lld would do", below > 0 ? below : pieces * block);
    }
}

// The vocabulary is cut at multiples of its blocks wherever it has a block for each rank.
static void check_strict_vocabulary(
    const cy_config *config, const cy_sum_blocks *blocks, cy_config_errors *errors)
{
    const long long vocab = config->shape.vocab, block = blocks->vocab;
    const int tp = config->distributed.tp_size;
    if (tp == 1 || (vocab + block - 1) / block >= tp) return;
    cy_config_add_error(errors,
        "training.strict = true: model.vocab_size %lld has %lld blocks of %lld, tp_size is %d",
        vocab, (vocab + block - 1) / block, block, tp);
}

static void check_strict_cut(const cy_config *config, const char *what, int64_t length,
    int64_t block, cy_config_errors *errors)
{
    const int tp = config->distributed.tp_size;
    for (int rank = 1; rank < tp; rank++) {
        const int64_t cut = length * rank / tp;
        if (cut % block == 0) continue;
        cy_config_add_error(errors,
            "training.strict = true: %s %lld is cut at %lld by tp_size %d, and its blocks are %lld",
            what, (long long)length, (long long)cut, tp, (long long)block);
        int below = tp - 1;
        while (below > 1 && (length % below != 0 || length / below % block != 0))
            below--;
        cy_config_add_hint(errors, "tp_size %d would do for this", below);
        return;
    }
}

static void check_strict(const cy_config *config, cy_config_errors *errors)
{
    if (!config->training.strict) return;
    const cy_sum_blocks blocks = cy_sum_blocks_of(&config->shape, config->training.seq_length);
    check_strict_dtype(config, errors);
    check_strict_limits(config, errors);
    check_strict_sequence(config, &blocks, errors);
    check_strict_cut(config, "model.intermediate_size", config->shape.ffn, blocks.ffn, errors);
    check_strict_vocabulary(config, &blocks, errors);
}

// ---- the build and the run

static void check_build(
    const cy_config *config, cy_config_errors *errors, const cy_config_machine *machine)
{
    const cy_config_distributed *d = &config->distributed;
    if (!d->use_cpu) {
        cy_config_add_error(
            errors, "distributed.use_cpu = false: this build trains on the processor");
        cy_config_add_hint(errors, "use_cpu true");
    }
    if (d->device == CY_CONFIG_DEVICE_CUDA) {
        cy_config_add_error(errors, "distributed.device = \"cuda\": this build has no GPUs");
        cy_config_add_hint(errors, "device cpu");
    }
    if (d->backend == CY_CONFIG_BACKEND_NCCL) {
        cy_config_add_error(errors, "distributed.backend = \"nccl\": this build has no GPUs");
        cy_config_add_hint(errors, "backend auto");
    }
    if (d->backend == CY_CONFIG_BACKEND_MPI && !CY_HAVE_MPI) {
        cy_config_add_error(
            errors, "distributed.backend = \"mpi\": this build was made without MPI");
        cy_config_add_hint(errors, "backend threads, or build where an MPI is installed");
    } else if (d->backend == CY_CONFIG_BACKEND_AUTO && machine->world > 1 && !CY_HAVE_MPI) {
        cy_config_add_error(errors,
            "distributed.backend = \"auto\": %d processes were started, but this "
            "build was made without MPI",
            machine->world);
        cy_config_add_hint(errors, "start one process: its ranks are threads");
    } else if (d->backend == CY_CONFIG_BACKEND_MPI && !machine->under_mpi &&
        cy_config_world(config) > 1) {
        cy_config_add_error(errors, "distributed.backend = \"mpi\": not started by mpirun or srun");
        cy_config_add_hint(errors, "mpirun -n %lld cyclotron train ..., or backend threads",
            (long long)cy_config_world(config));
    }
    if (config->shape.experts > 0) {
        cy_config_add_error(errors,
            "model.num_local_experts = %d: this build trains dense models only",
            config->shape.experts);
    }
    if (config->logging.use_wandb) {
        cy_config_add_error(errors, "logging.use_wandb = true: nothing is sent anywhere");
        cy_config_add_hint(errors,
            "logging.tensorboard true writes event files; logging.run_dir has metrics.jsonl");
    }
}

static void check_rate(const cy_config *config, cy_config_errors *errors, cy_config_purpose purpose)
{
    const cy_config_training *t = &config->training;
    const int64_t last = cy_config_last_step(config);
    const bool was_misread = errors->lines.bytes != NULL &&
        (strstr(errors->lines.bytes, "training.total_train_steps = ") != NULL ||
            strstr(errors->lines.bytes, "training.max_tokens = ") != NULL);
    if (last == 0 && !was_misread && purpose == CY_CONFIG_FOR_TRAIN) {
        cy_config_add_error(errors, "training: total_train_steps and max_tokens are both absent");
        cy_config_add_hint(errors, "give the step or the number of tokens at which training ends");
    }
    if (t->min_learning_rate > t->learning_rate) {
        cy_config_add_error(errors, "training.min_learning_rate = %g: above learning_rate %g",
            t->min_learning_rate, t->learning_rate);
    }
    if (t->learning_rate * t->weight_decay >= 2) {
        cy_config_add_error(errors,
            "training.weight_decay = %g: with learning_rate %g each step multiplies a matrix by "
            "%g, so "
            "it grows without end",
            t->weight_decay, t->learning_rate, 1 - t->learning_rate * t->weight_decay);
    }
    if (t->lr_decay_steps == 0) return;
    if (t->lr_schedule == CY_LR_CONSTANT) {
        cy_config_add_error(errors,
            "training.lr_decay_steps = %lld: lr_schedule constant has no decay",
            (long long)t->lr_decay_steps);
    } else if (t->lr_schedule == CY_LR_WSD) {
        if (last > 0 && t->warmup_steps > last - t->lr_decay_steps) { // subtracting cannot overflow
            cy_config_add_error(errors,
                "training.lr_decay_steps = %lld: with warmup_steps %lld more than the %lld steps "
                "of "
                "the run",
                (long long)t->lr_decay_steps, (long long)t->warmup_steps, (long long)last);
        }
    } else if (t->lr_decay_steps <= t->warmup_steps) {
        cy_config_add_error(errors, "training.lr_decay_steps = %lld: not after warmup_steps %lld",
            (long long)t->lr_decay_steps, (long long)t->warmup_steps);
    }
}

static bool looks_like_hub_id(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash != NULL && slash != name && slash[1] != '\0' && strchr(slash + 1, '/') == NULL &&
        name[0] != '.' && strchr(slash, '.') == NULL;
}

// Looks for a path. Returns false, with an error, where it cannot be looked at: what leads in a
// circle or lies in a folder that may not be entered is not missing.
static bool look_for(bool *there, cy_config_errors *errors, const char *key, const char *path)
{
    const cy_status status = cy_path_find(there, path);
    if (status != CY_OK) {
        cy_config_add_error_of(errors, status, "%s = \"%s\": %s", key, path, cy_error_text());
    }
    return status == CY_OK;
}

static void check_sources(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_dataset *data = &config->dataset;
    bool has_text = false;
    if (data->source_count == 0) {
        cy_config_add_error(errors, "dataset.name: absent");
        cy_config_add_hint(
            errors, "give a folder that 'cyclotron data prepare' made, or a text file");
    }
    for (int i = 0; i < data->source_count; i++) {
        const char *path = data->sources[i].path;
        bool there;
        if (cy_path_is_folder(path) || !look_for(&there, errors, "dataset.name", path)) continue;
        if (there) {
            const size_t length = strlen(path);
            const char *ending = length < 4 ? "" : path + length - 4;
            const bool of_tokens = strcmp(ending, ".bin") == 0 || strcmp(ending, ".idx") == 0;
            bool shard = false;
            const cy_status status = of_tokens ? CY_OK : cy_shard_is_file(&shard, path);
            if (status != CY_OK) cy_config_add_error_of(errors, status, "%s", cy_error_text());
            has_text = has_text || (!of_tokens && !shard);
            continue;
        }
        cy_config_add_error(errors, "dataset.name = \"%s\": no such file or folder", path);
        if (looks_like_hub_id(path)) {
            cy_config_add_hint(errors,
                "nothing is downloaded while training: save the text as .txt or .jsonl, then "
                "'cyclotron data prepare --tokenizer=tokenizer.json --out=DIR FILE...', and give "
                "DIR");
        } else {
            cy_config_add_hint(
                errors, "give a folder that 'cyclotron data prepare' made, or a text file");
        }
    }
    if (data->tokenizer[0] != '\0') {
        bool there;
        if (look_for(&there, errors, "dataset.tokenizer", data->tokenizer) && !there) {
            cy_config_add_error(
                errors, "dataset.tokenizer = \"%s\": no such file", data->tokenizer);
        }
    } else if (has_text) {
        cy_config_add_error(errors, "dataset.tokenizer: absent, and dataset.name is text");
        cy_config_add_hint(errors,
            "'cyclotron tokenizer train --vocab-size=N --out=tokenizer.json FILE' makes one");
    }
}

static void check_dataset(
    const cy_config *config, cy_config_errors *errors, cy_config_purpose purpose)
{
    const cy_config_dataset *data = &config->dataset;
    if (purpose == CY_CONFIG_FOR_TRAIN) check_sources(config, errors);
    if (data->split[0] != '\0' && strcmp(data->split, "train") != 0) {
        cy_config_add_error(
            errors, "dataset.split = \"%s\": local data has no splits", data->split);
        cy_config_add_hint(errors, "validation_fraction keeps the last part for evaluation");
    }
    if (data->subset_name[0] != '\0') {
        cy_config_add_error(
            errors, "dataset.subset_name = \"%s\": local data has no subsets", data->subset_name);
        cy_config_add_hint(errors, "give the subset's files or shards as dataset.name");
    }
    if (data->num_proc > 1 && data->num_proc != 4) {
        cy_config_add_error(errors,
            "dataset.num_proc = %d: text is cut into tokens once, beforehand", data->num_proc);
        cy_config_add_hint(errors, "'cyclotron data prepare --threads=N' does that; leave it out");
    }
    if (data->num_workers > 0 && data->num_workers != 4) {
        cy_config_add_error(errors, "dataset.num_workers = %d: one thread of its own reads ahead",
            data->num_workers);
        cy_config_add_hint(errors, "leave it out");
    }
}

static void check_load_path(const char *path, cy_config_errors *errors)
{
    bool there;
    if (path[0] == '\0' || cy_path_is_folder(path)) return;
    if (!look_for(&there, errors, "checkpoint.load_path", path)) return;
    if (!there) {
        cy_config_add_error(errors, "checkpoint.load_path = \"%s\": no such folder", path);
        return;
    }
    cy_config_add_error(errors, "checkpoint.load_path = \"%s\": is a file, not a folder", path);
    cy_config_add_hint(errors, "give a step's folder, or the save_dir that holds them");
}

// Files and folders must exist and be of the right kind.
static void check_folders(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_checkpoint *c = &config->checkpoint;
    const char *run_dir = config->logging.run_dir;
    if (cy_path_exists(c->save_dir) && !cy_path_is_folder(c->save_dir)) {
        cy_config_add_error(
            errors, "checkpoint.save_dir = \"%s\": is there and is not a folder", c->save_dir);
    }
    check_load_path(c->load_path, errors);
    if (config->model.init == CY_CONFIG_INIT_PRETRAINED && !cy_path_is_folder(config->model.name)) {
        cy_config_add_error(errors,
            "model.init = \"pretrained\": model.name = \"%s\" is no folder with weights",
            config->model.name);
        cy_config_add_hint(errors, "give a folder with config.json and model*.safetensors");
    }
    if (cy_path_exists(run_dir) && !cy_path_is_folder(run_dir)) {
        cy_config_add_error(
            errors, "logging.run_dir = \"%s\": is there and is not a folder", run_dir);
    }
}

static void check_checkpoint(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_checkpoint *c = &config->checkpoint;
    if (c->save_dir[0] == '\0' && c->save_frequency > 0) {
        cy_config_add_error(errors, "checkpoint.save_frequency = %lld: save_dir names no folder",
            (long long)c->save_frequency);
    }
    if (c->save_dir[0] == '\0' && c->resume == CY_CONFIG_RESUME_AUTO) {
        cy_config_add_error(errors, "checkpoint.resume = \"auto\": save_dir names no folder");
    }
    if (c->load == CY_CONFIG_LOAD_WEIGHTS && c->load_path[0] == '\0') {
        cy_config_add_error(errors, "checkpoint.load = \"weights\": load_path names no checkpoint");
    }
    if (config->model.init == CY_CONFIG_INIT_PRETRAINED && c->load_path[0] != '\0') {
        cy_config_add_error(
            errors, "model.init = \"pretrained\": checkpoint.load_path loads others");
        cy_config_add_hint(errors, "give one of the two");
    }
}

static void check_logging(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_logging *l = &config->logging;
    if (l->tensorboard && l->run_dir[0] == '\0') {
        cy_config_add_error(errors, "logging.tensorboard = true: run_dir names no folder");
    }
    if (l->eval_frequency > 0 && config->dataset.validation_fraction == 0) {
        cy_config_add_error(errors, "logging.eval_frequency = %lld: no data is kept for evaluation",
            (long long)l->eval_frequency);
        cy_config_add_hint(errors, "dataset.validation_fraction 0.05 keeps a twentieth");
    }
}

static void check_run(const cy_config *config, cy_config_errors *errors, cy_config_purpose purpose)
{
    check_rate(config, errors, purpose);
    check_dataset(config, errors, purpose);
    if (purpose == CY_CONFIG_FOR_TRAIN) check_folders(config, errors);
    check_checkpoint(config, errors);
    check_logging(config, errors);
}

// ---- all of it

static void check_sizes(
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
    if (!has_shape) return; // reported already
    check_model(config, errors);
    check_tensor(config, errors);
    check_experts(config, errors);
    check_context(config, errors);
    check_stages(config, errors);
    check_strict(config, errors);
}

cy_status cy_config_check(const cy_config *config, cy_config_errors *errors,
    cy_config_purpose purpose, const cy_config_machine *machine)
{
    check_build(config, errors, machine);
    check_sizes(config, errors, machine);
    if (purpose != CY_CONFIG_FOR_SHAPE) check_run(config, errors, purpose);
    return cy_config_errors_status(errors);
}
