// The table of configuration keys: names, fields, defaults, ranges and descriptions.

#include "config/option_table.h"

#include "kernel/kernel.h"
#include "model/shape.h"
#include "parallel/pipeline/schedule.h"

#include <string.h>

// NOLINTNEXTLINE(bugprone-macro-parentheses): the name of a member has none
#define AT(part, field) .section = #part, .offset = offsetof(cy_config, part.field)
#define TEXT(part, field)                                                                          \
    .kind = CY_KEY_TEXT, AT(part, field), .bytes = sizeof(((cy_config *)NULL)->part.field)
#define PATH(part, field)                                                                          \
    .kind = CY_KEY_PATH, AT(part, field), .bytes = sizeof(((cy_config *)NULL)->part.field)
#define NAMED(part, field) .name = #field, AT(part, field)

// AdamW moves a weight by about the learning rate in each step. The smallest model of examples/
// learns with 1 and has no finite gradient after some tens of steps with 10.
#define LEARNING_RATE_MAX 10

// clang-format off: one key a paragraph, its words last
static const cy_key keys[] = {
    {NAMED(distributed, tp_size), .kind = CY_KEY_INT, .initial = "1", .low = 1, .high = 65536,
        .doc = "tensor-parallel ranks: each holds a part of every matrix"},
    {NAMED(distributed, cp_size), .kind = CY_KEY_INT, .initial = "1", .low = 1, .high = 65536,
        .doc = "context-parallel ranks: each holds a part of every sequence"},
    {NAMED(distributed, pp_size), .kind = CY_KEY_INT, .initial = "1", .low = 1, .high = 256,
        .doc = "pipeline stages: each holds a part of the layers"},
    {NAMED(distributed, dp_size), .kind = CY_KEY_INT, .initial = "1", .low = 1, .high = 65536,
        .doc = "data-parallel replicas: each trains on a part of the batch"},
    {NAMED(distributed, ep_size), .kind = CY_KEY_INT, .initial = "1", .low = 1, .high = 65536,
        .doc = "expert-parallel ranks, cut from the ranks of one pipeline stage"},
    {NAMED(distributed, etp_size), .kind = CY_KEY_INT, .initial = "1", .low = 1, .high = 65536,
        .doc = "tensor-parallel ranks of each expert"},
    {NAMED(distributed, pp_engine), .kind = CY_KEY_CHOICE, .initial = "1f1b",
        .choices = CY_PIPELINE_ENGINES, .values = "afab|1f1b|interleaved|zero_bubble|csv",
        .doc = "pipeline schedule; interleaved differs from 1f1b from pp_chunks 2 on; csv reads "
               "pp_schedule"},
    {NAMED(distributed, pp_chunks), .kind = CY_KEY_INT, .initial = "1", .low = 1, .high = 64,
        .doc = "chunks of layers per stage; zero_bubble: 1 is ZB-H1, 2 is ZB-V"},
    {.name = "pp_schedule",
        PATH(distributed, pp_schedule),
        .doc = "CSV file with the schedule, for pp_engine csv"},
    {.name = "pp_layers",
        .kind = CY_KEY_STAGES,
        AT(distributed, pp_layers),
        .doc = "layers of each stage (of each chunk, in model order); absent: by cost"},
    {NAMED(distributed, zero_stage), .kind = CY_KEY_INT, .initial = "0", .low = 0, .high = 3,
        .doc = "what is kept as a 1/dp part: 1 optimizer, 2 also gradients, 3 also parameters"},
    {NAMED(distributed, sequence_parallel), .kind = CY_KEY_BOOL, .initial = "false",
        .doc = "norms and residuals split over tensor-parallel ranks by sequence"},
    {NAMED(distributed, sequence_keep_inputs), .kind = CY_KEY_BOOL, .initial = "false",
        .doc = "gathered inputs are kept for the weight gradients, not gathered again"},
    {NAMED(distributed, tp_overlap), .kind = CY_KEY_BOOL, .initial = "true",
        .doc = "tensor-parallel traffic overlaps with products"},
    {NAMED(distributed, cp_style), .kind = CY_KEY_CHOICE, .initial = "ring",
        .choices = CY_CONTEXT_ULYSSES + 1, .values = "ring|all_gather|ulysses",
        .doc = "how context-parallel ranks share keys"},
    {NAMED(distributed, cp_layout), .kind = CY_KEY_CHOICE, .initial = "zigzag",
        .choices = CY_CONFIG_CP_LAYOUTS, .values = "zigzag|contiguous",
        .doc = "which positions a rank holds; ulysses ignores it"},
    {NAMED(distributed, dp_reduce), .kind = CY_KEY_CHOICE, .initial = "bucketed",
        .choices = CY_CONFIG_DP_REDUCES, .values = "bucketed|naive",
        .doc = "gradients in buckets, or one message a parameter"},
    {NAMED(distributed, bucket_mb), .kind = CY_KEY_NUMBER, .initial = "25", .above = true,
        .high = 1e9, .doc = "size of a gradient bucket, in MiB"},
    {NAMED(distributed, first_bucket_mb), .kind = CY_KEY_NUMBER, .above = true, .high = 1e9,
        .doc = "size of the bucket that fills first, at most bucket_mb; absent: 1, or bucket_mb "
               "where that is smaller"},
    {NAMED(distributed, compression), .kind = CY_KEY_CHOICE, .initial = "none",
        .choices = CY_COMPRESSION_INT8 + 1, .values = "none|topk|int8",
        .doc = "of gradients between replicas"},
    {NAMED(distributed, topk_ratio), .kind = CY_KEY_NUMBER, .initial = "0.01", .above = true,
        .high = 1, .doc = "part of the gradient that topk sends"},
    {NAMED(distributed, topk_warmup_steps), .kind = CY_KEY_COUNT, .initial = "-1", .low = -1,
        .high = 0x1p48,
        .doc = "steps in which topk's ratio falls by quarters to topk_ratio, a quarter in step 1; "
               "0: topk_ratio from step 1; -1: two fifths of the run's"},
    {NAMED(distributed, backend), .kind = CY_KEY_CHOICE, .initial = "auto",
        .choices = CY_CONFIG_BACKENDS, .values = "auto|self|threads|mpi|nccl|gloo",
        .doc = "what carries messages; auto: mpi under mpirun or srun, else threads; gloo: auto"},
    {.name = "algorithm",
        TEXT(distributed, algorithm),
        .initial = "auto",
        .doc = "of all_reduce: native is the backend's own; ring, tree, doubling, hierarchical, "
               "server; auto is measured as the run starts and saved with it, by dimension and "
               "size: tp:tree<=1536,native;dp:native"},
    {NAMED(distributed, threads_per_rank), .kind = CY_KEY_INT, .initial = "0", .low = 0,
        .high = 4096, .doc = "threads of a rank; 0: cores / ranks on the machine"},
    {NAMED(distributed, ranks_per_node), .kind = CY_KEY_INT, .initial = "0", .low = 0,
        .high = 65536,
        .doc = "consecutive ranks that count as a node; 0: as found, the ranks of a machine"},
    {NAMED(distributed, device), .kind = CY_KEY_CHOICE, .initial = "cpu",
        .choices = CY_CONFIG_DEVICES, .values = CY_CONFIG_DEVICE_NAMES,
        .doc = "what computes; test: the processor behind the interface of a GPU, for tests"},
    {NAMED(distributed, isa), .kind = CY_KEY_CHOICE, .initial = "auto", .choices = CY_CONFIG_ISAS,
        .values = CY_CONFIG_ISA_NAMES,
        .doc = "highest level of instructions, for every library too; auto: the processor's"},
    {.name = "rank_order",
        TEXT(distributed, rank_order),
        .initial = "tp,cp,pp,dp",
        .doc = "order of the axes in a rank's number, fastest first"},
    {NAMED(distributed, timeout_s), .kind = CY_KEY_NUMBER, .initial = "60", .above = true,
        .high = 1e9, .doc = "seconds since the last heartbeat after which a rank is given up"},
    {NAMED(distributed, use_cpu), .kind = CY_KEY_BOOL, .initial = "true",
        .doc = "train on the processor"},

    {.name = "name",
        PATH(model, name),
        .others = CY_PRESET_NAMES,
        .doc = "a folder with config.json, or a preset; the other keys change what it says"},
    {.name = "model_type",
        TEXT(model, model_type),
        .doc = "architecture, in Hugging Face's word; absent: from name, else llama"},
    {NAMED(model, init), .kind = CY_KEY_CHOICE, .initial = "random", .choices = CY_CONFIG_INITS,
        .values = "random|pretrained", .doc = "first weights: random, or those in the folder"},
    {NAMED(model, num_hidden_layers), .kind = CY_KEY_INT, .low = 1, .high = CY_LAYERS_MAX,
        .doc = "layers"},
    {NAMED(model, hidden_size), .kind = CY_KEY_COUNT, .low = 1, .high = 1 << 24,
        .doc = "width of the residual stream"},
    {NAMED(model, intermediate_size), .kind = CY_KEY_COUNT, .low = 1, .high = 1 << 26,
        .doc = "width of the feed-forward layer"},
    {NAMED(model, num_attention_heads), .kind = CY_KEY_INT, .low = 1, .high = 65536,
        .doc = "query heads"},
    {NAMED(model, num_key_value_heads), .kind = CY_KEY_INT, .low = 1, .high = 65536,
        .doc = "key and value heads; absent: as many as query heads"},
    {NAMED(model, head_dim), .kind = CY_KEY_COUNT, .low = 1, .high = CY_HEAD_DIM_MAX,
        .doc = "width of a head; absent: hidden_size / num_attention_heads"},
    {NAMED(model, vocab_size), .kind = CY_KEY_COUNT, .low = 1, .high = 1 << 28,
        .doc = "tokens; at least those of the tokenizer"},
    {NAMED(model, max_position_embeddings), .kind = CY_KEY_COUNT, .low = 1, .high = 1 << 24,
        .doc = "longest context; absent: what name says, at least training.seq_length"},
    {NAMED(model, rms_norm_eps), .kind = CY_KEY_NUMBER, .low = 1e-37, .high = 1,
        .doc = "added to the mean square in norms"},
    {NAMED(model, rope_theta), .kind = CY_KEY_NUMBER, .above = true,
        .doc = "base of the rotary positions' wavelengths"},
    {.name = "rope_scaling",
        .kind = CY_KEY_ROPE,
        AT(model, rope_scaling),
        .doc =
            "object, as in config.json: rope_type linear, dynamic, llama3 or yarn, and its keys"},
    {NAMED(model, tie_word_embeddings), .kind = CY_KEY_FLAG,
        .doc = "output projection is the embedding"},
    {NAMED(model, attention_bias), .kind = CY_KEY_FLAG,
        .doc = "biases in the attention's projections"},
    {NAMED(model, sliding_window), .kind = CY_KEY_COUNT, .low = 0, .high = 1 << 24,
        .doc = "positions that attention looks back; 0: all"},
    {NAMED(model, initializer_range), .kind = CY_KEY_NUMBER, .above = true, .high = 100,
        .doc = "standard deviation of random weights"},
    {NAMED(model, num_local_experts), .kind = CY_KEY_INT, .low = 1, .high = 65536,
        .doc = "experts of a layer; absent: dense"},
    {.name = "num_experts",
        .kind = CY_KEY_INT,
        AT(model, num_local_experts),
        .low = 1,
        .high = 65536,
        .hidden = true,
        .doc = "the same, in Qwen's word"},
    {NAMED(model, num_experts_per_tok), .kind = CY_KEY_INT, .low = 1, .high = 65536,
        .doc = "experts that a token goes to"},
    {NAMED(model, moe_intermediate_size), .kind = CY_KEY_COUNT, .low = 1, .high = 1 << 26,
        .doc = "width of an expert; absent: intermediate_size"},
    {NAMED(model, router_aux_loss_coef), .kind = CY_KEY_NUMBER, .initial = "0", .low = 0,
        .doc = "weight of the loss that balances experts"},
    {NAMED(model, dtype), .kind = CY_KEY_DTYPE, .initial = "bf16",
        .doc = "of computation: bf16, fp16, fp32 or fp64 (bfloat16, float32, ... mean the same)"},
    {NAMED(model, use_flash_attention), .kind = CY_KEY_BOOL, .initial = "true",
        .doc = "attention in tiles; false: the reference that follows the formula (strict has its "
               "own)"},
    {NAMED(model, use_fused_adam), .kind = CY_KEY_BOOL, .initial = "true",
        .doc = "optimizer in one pass; false: one for each step of the formula, the bits are the "
               "same"},

    {NAMED(training, seed), .kind = CY_KEY_COUNT, .initial = "42", .low = 0,
        .doc = "of weights and data order"},
    {NAMED(training, learning_rate), .kind = CY_KEY_NUMBER, .initial = "3e-4", .low = 0,
        .high = LEARNING_RATE_MAX, .doc = "highest learning rate"},
    {NAMED(training, min_learning_rate), .kind = CY_KEY_NUMBER, .initial = "0", .low = 0,
        .high = LEARNING_RATE_MAX, .doc = "where linear, cosine and wsd end"},
    {NAMED(training, lr_schedule), .kind = CY_KEY_CHOICE, .initial = "constant",
        .choices = CY_LR_SCHEDULES, .values = "constant|linear|cosine|wsd",
        .doc = "what follows the warm-up"},
    {NAMED(training, warmup_steps), .kind = CY_KEY_COUNT, .initial = "0", .low = 0,
        .doc = "steps over which the learning rate rises"},
    {NAMED(training, lr_decay_steps), .kind = CY_KEY_COUNT, .low = 1,
        .doc = "step at which linear and cosine end; absent: the last step. wsd: length of the "
               "decay"},
    {NAMED(training, weight_decay), .kind = CY_KEY_NUMBER, .initial = "0.01", .low = 0, .high = 1e6,
        .doc = "of matrices; with learning_rate it must stay below 2 / learning_rate"},
    {NAMED(training, adam_beta1), .kind = CY_KEY_NUMBER, .initial = "0.9", .low = 0, .high = 1,
        .below = true, .doc = "decay of the first moment"},
    {NAMED(training, adam_beta2), .kind = CY_KEY_NUMBER, .initial = "0.999", .low = 0, .high = 1,
        .below = true, .doc = "decay of the second moment"},
    {NAMED(training, adam_eps), .kind = CY_KEY_NUMBER, .initial = "1e-8", .low = 1e-37,
        .high = 1e30, .doc = "added to the root of the second moment"},
    {NAMED(training, grad_clip), .kind = CY_KEY_NUMBER, .initial = "0", .low = 0,
        .doc = "largest norm of the gradient; 0: no limit"},
    {NAMED(training, total_train_steps), .kind = CY_KEY_COUNT, .low = 1,
        .doc = "last step, resumed ones included"},
    {NAMED(training, max_tokens), .kind = CY_KEY_COUNT, .low = 1,
        .doc = "tokens after which training ends, resumed ones included"},
    {NAMED(training, seq_length), .kind = CY_KEY_COUNT, .initial = "1024", .low = 1,
        .high = 1 << 24, .doc = "tokens of a sample"},
    {NAMED(training, micro_batch_size), .kind = CY_KEY_COUNT, .initial = "1", .low = 1,
        .high = 65536, .doc = "samples of a microbatch on a replica"},
    {NAMED(training, gradient_accumulation_steps), .kind = CY_KEY_COUNT, .low = 1,
        .high = CY_PIPELINE_MICROBATCHES,
        .doc = "microbatches of a step (of a pipeline); absent: 1, or from global_batch_size"},
    {NAMED(training, global_batch_size), .kind = CY_KEY_COUNT, .low = 1, .high = 1 << 28,
        .doc = "samples of a step over all replicas: fixes gradient_accumulation_steps"},
    {NAMED(training, num_samples), .kind = CY_KEY_COUNT, .low = 1,
        .doc = "samples of seq_length tokens to train on, the first ones; absent: all"},
    {NAMED(training, recompute), .kind = CY_KEY_CHOICE, .initial = "none",
        .choices = CY_RECOMPUTE_FULL + 1, .values = "none|selective|full",
        .doc = "what backward makes again instead of keeping"},
    {NAMED(training, strict), .kind = CY_KEY_BOOL, .initial = "false",
        .doc = "the same bits whatever the mesh, slower"},

    {.name = "name",
        .kind = CY_KEY_SOURCES,
        AT(dataset, sources),
        .doc =
            "folder of token shards, text file, or a list of {path, weight}; no weights: by size"},
    {.name = "tokenizer",
        PATH(dataset, tokenizer),
        .doc = "tokenizer.json; absent: the one in the folder model.name, else beside the first "
               "source"},
    {NAMED(dataset, validation_fraction), .kind = CY_KEY_NUMBER, .initial = "0", .low = 0,
        .high = 1, .below = true, .doc = "last part of each source, kept for evaluation"},
    {.name = "split", TEXT(dataset, split), .doc = "picotron's; train is what there is"},
    {.name = "subset_name", TEXT(dataset, subset_name), .doc = "picotron's; must be absent"},
    {NAMED(dataset, num_proc), .kind = CY_KEY_INT, .low = 1, .high = 65536,
        .doc = "picotron's; 1 or 4, its defaults, are let pass"},
    {NAMED(dataset, num_workers), .kind = CY_KEY_INT, .low = 0, .high = 65536,
        .doc = "picotron's; 0 or 4, its defaults, are let pass"},

    {.name = "save_dir",
        PATH(checkpoint, save_dir),
        .doc = "folder of checkpoints; absent: none are saved"},
    {NAMED(checkpoint, save_frequency), .kind = CY_KEY_COUNT, .initial = "0", .low = 0,
        .doc = "steps between saves; 0: only at the end"},
    {.name = "load_path",
        PATH(checkpoint, load_path),
        .doc = "a checkpoint, or a folder of them: the newest complete one"},
    {NAMED(checkpoint, resume), .kind = CY_KEY_CHOICE, .initial = "no",
        .choices = CY_CONFIG_RESUMES, .values = "no|auto",
        .doc = "auto: the newest of save_dir, or a fresh start where there is none"},
    {NAMED(checkpoint, load), .kind = CY_KEY_CHOICE, .initial = "all", .choices = CY_CONFIG_LOADS,
        .values = "all|weights", .doc = "weights: start at step 1 with the loaded weights"},
    {NAMED(checkpoint, accept), .kind = CY_KEY_CHOICE, .initial = "nothing",
        .choices = CY_CONFIG_ACCEPTS, .values = "nothing|tokenizer|data|all",
        .doc = "what may differ from the run that saved: its tokenizer, its data's content"},
    {NAMED(checkpoint, keep_last), .kind = CY_KEY_COUNT, .initial = "0", .low = 0, .high = 1 << 30,
        .doc = "newest checkpoints that are kept; 0: all"},

    {NAMED(checkpoint, timeout_s), .kind = CY_KEY_NUMBER, .initial = "1800", .above = true,
        .doc = "seconds that a rank may spend in one call on a file before it is given up"},
    {.name = "run_dir",
        PATH(logging, run_dir),
        .doc = "folder of metrics.jsonl and config.json, exactly this one; one run at a time"},
    {.name = "run_name", TEXT(logging, run_name), .doc = "a label"},
    {NAMED(logging, log_frequency), .kind = CY_KEY_COUNT, .initial = "1", .low = 1,
        .doc = "steps between lines on the console"},
    {NAMED(logging, eval_frequency), .kind = CY_KEY_COUNT, .initial = "0", .low = 0,
        .doc = "steps between evaluations; 0: never"},
    {NAMED(logging, eval_tokens), .kind = CY_KEY_COUNT, .low = 1,
        .doc = "tokens of an evaluation; absent: all that are held out"},
    {NAMED(logging, hash_frequency), .kind = CY_KEY_COUNT, .initial = "0", .low = 0,
        .doc = "steps between hashes of all parameters, which are compared between replicas; 0: "
               "never"},
    {NAMED(logging, measure_peak), .kind = CY_KEY_BOOL, .initial = "true",
        .doc = "measure the machine's peak after the first step, in about a second; false: no mfu"},
    {NAMED(logging, tensorboard), .kind = CY_KEY_BOOL, .initial = "false",
        .doc = "write event files for TensorBoard"},
    {NAMED(logging, use_wandb), .kind = CY_KEY_BOOL, .initial = "false",
        .doc = "picotron's; must be false: see tensorboard"},
    {.name = "project_name", TEXT(logging, project_name), .doc = "picotron's; only a label"},

    {.name = "OMP_NUM_THREADS",
        .kind = CY_KEY_INT,
        AT(environment, omp_num_threads),
        .low = 1,
        .high = 4096,
        .accepts_text = true,
        .hidden = true,
        .doc = "picotron's; the same as distributed.threads_per_rank"},
    {.name = "FLASH_ATTEN",
        .kind = CY_KEY_FLAG,
        AT(environment, flash_atten),
        .accepts_text = true,
        .hidden = true,
        .doc = "picotron's; 0 is model.use_flash_attention false"},
    {.name = "TOKENIZERS_PARALLELISM",
        .kind = CY_KEY_IGNORED,
        .section = "environment",
        .hidden = true,
        .doc = "picotron's; ignored"},
    {.name = "HF_TOKEN",
        .kind = CY_KEY_IGNORED,
        .section = "environment",
        .hidden = true,
        .doc = "picotron's; ignored and never saved"},
};
// clang-format on

static const char *const sections[] = {
    "distributed", "model", "training", "dataset", "checkpoint", "logging", "environment"};

const cy_key *cy_config_keys(int *count)
{
    *count = (int)(sizeof(keys) / sizeof(keys[0]));
    return keys;
}

const cy_key *cy_config_key(const char *section, const char *name)
{
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (strcmp(keys[i].section, section) == 0 && strcmp(keys[i].name, name) == 0) {
            return &keys[i];
        }
    }
    return NULL;
}

const char *const *cy_config_sections(int *count)
{
    *count = (int)(sizeof(sections) / sizeof(sections[0]));
    return sections;
}

int64_t cy_key_absent(const cy_key *key)
{
    return (int64_t)key->low - 1;
}

// ---- devices and levels of instructions

const char *cy_config_device_name(cy_config_device device)
{
    static const char *const names[CY_CONFIG_DEVICES] = {"cpu", "test", "cuda"};
    return names[device];
}

static const char *const isa_names[CY_CONFIG_ISAS] = {
    "auto", "ref", "avx2", "avx512", "avx512_bf16", "amx", "neon"};

const char *cy_config_isa_name(cy_config_isa isa)
{
    return isa_names[isa];
}

cy_config_isa cy_config_isa_named(const char *name)
{
    int isa = 0;
    while (isa < CY_CONFIG_ISAS && strcmp(isa_names[isa], name) != 0)
        isa++;
    return (cy_config_isa)isa;
}
