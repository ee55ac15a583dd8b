// config/config.h: what a run is asked to do: one struct, filled from one JSON file and the command
// line's --section.key=value, by one table of keys (config/table.h).
//
// Plain data without owned pointers: copied by assignment (it is large: hand it down by pointer).
// Reading is done in three steps, each of which reports all of its faults and not only the first:
//   cy_config_read      the file and the overrides: names, types, ranges;
//   cy_config_resolve   what follows from other keys: model shape, accumulation, aliases;
//   cy_config_check     what contradicts each other or this build: sizes that do not divide.
// cy_config_load does all three. A key that is absent has the value that this page names; after
// cy_config_resolve the fields that say "resolved" have their real one.
//
// Faults of the request go into a cy_config_errors, a line each with key, value and what would do;
// the status is then CY_ERR_REQUEST and the error text holds them all, as far as they fit. Other
// statuses (a file that cannot be read, memory) are as everywhere. Any thread may call these on
// objects of its own.

#ifndef CY_CONFIG_CONFIG_H
#define CY_CONFIG_CONFIG_H

#include "base/output.h"
#include "base/text.h"
#include "model/shape.h"
#include "optim/lr_schedule.h"
#include "parallel/pipeline/schedule.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CY_CONFIG_TEXT_BYTES = 256,
    CY_CONFIG_PATH_BYTES = 1024,
    CY_CONFIG_SOURCES_MAX = 64,
    CY_CONFIG_STAGES_MAX = 256, // entries of pp_layers
};

// The enums of the keys that take one of several words, in the order of the words in the table of
// keys; the last of each is how many there are and no value. The pipeline engine and the rate's
// schedule are those of the parts that run them.

typedef enum cy_config_cp_style {
    CY_CONFIG_CP_RING,
    CY_CONFIG_CP_ALL_GATHER,
    CY_CONFIG_CP_ULYSSES,
    CY_CONFIG_CP_STYLES,
} cy_config_cp_style;

typedef enum cy_config_cp_layout {
    CY_CONFIG_CP_ZIGZAG,
    CY_CONFIG_CP_CONTIGUOUS,
    CY_CONFIG_CP_LAYOUTS,
} cy_config_cp_layout;

typedef enum cy_config_dp_reduce {
    CY_CONFIG_DP_BUCKETED,
    CY_CONFIG_DP_NAIVE,
    CY_CONFIG_DP_REDUCES,
} cy_config_dp_reduce;

typedef enum cy_config_compression {
    CY_CONFIG_COMPRESSION_NONE,
    CY_CONFIG_COMPRESSION_TOPK,
    CY_CONFIG_COMPRESSION_INT8,
    CY_CONFIG_COMPRESSIONS,
} cy_config_compression;

typedef enum cy_config_backend {
    CY_CONFIG_BACKEND_AUTO,
    CY_CONFIG_BACKEND_SELF,
    CY_CONFIG_BACKEND_THREADS,
    CY_CONFIG_BACKEND_MPI,
    CY_CONFIG_BACKEND_NCCL,
    CY_CONFIG_BACKEND_GLOO, // picotron's word; AUTO once resolved
    CY_CONFIG_BACKENDS,
} cy_config_backend;

// Levels of instructions, as cy_kernels_open names them.
typedef enum cy_config_isa {
    CY_CONFIG_ISA_AUTO,
    CY_CONFIG_ISA_REF,
    CY_CONFIG_ISA_AVX2,
    CY_CONFIG_ISA_AVX512,
    CY_CONFIG_ISA_AVX512_BF16,
    CY_CONFIG_ISA_AMX,
    CY_CONFIG_ISA_NEON,
    CY_CONFIG_ISAS,
} cy_config_isa;

// For the options of programs.
#define CY_CONFIG_ISA_NAMES "auto|ref|avx2|avx512|avx512_bf16|amx|neon"

// "auto", "ref" and so on, and the way back: CY_CONFIG_ISAS for a name that there is not.
const char *cy_config_isa_name(cy_config_isa isa);
cy_config_isa cy_config_isa_named(const char *name);

typedef enum cy_config_init {
    CY_CONFIG_INIT_RANDOM,
    CY_CONFIG_INIT_PRETRAINED, // the weights of the folder model.name
    CY_CONFIG_INITS,
} cy_config_init;

typedef enum cy_config_recompute {
    CY_CONFIG_RECOMPUTE_NONE,
    CY_CONFIG_RECOMPUTE_SELECTIVE,
    CY_CONFIG_RECOMPUTE_FULL,
    CY_CONFIG_RECOMPUTES,
} cy_config_recompute;

typedef enum cy_config_resume {
    CY_CONFIG_RESUME_NO,
    CY_CONFIG_RESUME_AUTO, // the newest checkpoint of save_dir, or a fresh start without one
    CY_CONFIG_RESUMES,
} cy_config_resume;

// What of a checkpoint's identity may be another than the run's.
typedef enum cy_config_accept {
    CY_CONFIG_ACCEPT_NOTHING,
    CY_CONFIG_ACCEPT_TOKENIZER, // another tokenizer, and what the data becomes by it
    CY_CONFIG_ACCEPT_DATA,      // other tokens under the same path
    CY_CONFIG_ACCEPT_ALL,
    CY_CONFIG_ACCEPTS,
} cy_config_accept;

typedef enum cy_config_load_what {
    CY_CONFIG_LOAD_ALL,
    CY_CONFIG_LOAD_WEIGHTS,
    CY_CONFIG_LOADS,
} cy_config_load_what;

// A bool that may be absent.
typedef enum cy_config_flag {
    CY_CONFIG_FALSE,
    CY_CONFIG_TRUE,
    CY_CONFIG_ABSENT,
} cy_config_flag;

typedef struct cy_config_distributed {
    int tp_size, cp_size, pp_size, dp_size;
    int ep_size, etp_size;
    cy_pipeline_engine pp_engine;
    int pp_chunks;
    char pp_schedule[CY_CONFIG_PATH_BYTES]; // CSV file; "": none
    int pp_layers[CY_CONFIG_STAGES_MAX];    // layers of each stage
    int pp_layer_count;                     // entries of pp_layers; 0: divided by cost
    int zero_stage;
    bool sequence_parallel;
    bool sequence_keep_inputs;
    bool tp_overlap;
    cy_config_cp_style cp_style;
    cy_config_cp_layout cp_layout;
    cy_config_dp_reduce dp_reduce;
    double bucket_mb;
    double first_bucket_mb; // 0: see cy_config_first_bucket_mb
    cy_config_compression compression;
    double topk_ratio;
    int64_t topk_warmup_steps; // in which the ratio falls by quarters; -1 before resolving
    cy_config_backend backend;
    char algorithm[CY_CONFIG_TEXT_BYTES];  // "auto", or a name of the group's algorithms
    int threads_per_rank;                  // 0: cores / ranks on the machine
    int ranks_per_node;                    // 0: as found
    cy_config_isa isa;                     // of the kernels
    char rank_order[CY_CONFIG_TEXT_BYTES]; // axes, fastest first
    double timeout_s;
    bool use_cpu;
} cy_config_distributed;

// The keys that describe the model are here as they were given; what they come to is in
// cy_config.shape.
typedef struct cy_config_model {
    char name[CY_CONFIG_PATH_BYTES]; // a folder with config.json, or a preset; "": keys only
    char model_type[32];             // "": from name, else "llama"
    cy_config_init init;
    int num_hidden_layers; // 0: absent, here and below
    int64_t hidden_size;
    int64_t intermediate_size;
    int num_attention_heads;
    int num_key_value_heads;
    int64_t head_dim;
    int64_t vocab_size;
    int64_t max_position_embeddings;
    double rms_norm_eps;
    double rope_theta;
    bool has_rope_scaling;
    cy_rope_shape rope_scaling; // without theta
    cy_config_flag tie_word_embeddings;
    cy_config_flag attention_bias;
    int64_t sliding_window; // -1: absent; 0: none
    double initializer_range;
    int num_local_experts; // num_experts means the same
    int num_experts_per_tok;
    int64_t moe_intermediate_size;
    double router_aux_loss_coef;
    cy_dtype dtype;
    bool use_flash_attention;
    bool use_fused_adam;
} cy_config_model;

typedef struct cy_config_training {
    int64_t seed;
    double learning_rate;
    double min_learning_rate;
    cy_lr_schedule_kind lr_schedule;
    int64_t warmup_steps;
    int64_t lr_decay_steps; // 0: absent
    double weight_decay;
    double adam_beta1, adam_beta2;
    double adam_eps;
    double grad_clip;          // 0: none
    int64_t total_train_steps; // 0: absent
    int64_t max_tokens;        // 0: absent
    int64_t seq_length;
    int64_t micro_batch_size;
    int64_t gradient_accumulation_steps; // resolved
    int64_t global_batch_size;           // in samples; 0: absent
    int64_t num_samples;                 // of the dataset to train on; 0: all
    cy_config_recompute recompute;
    bool strict;
} cy_config_training;

typedef struct cy_config_source {
    char path[CY_CONFIG_PATH_BYTES];
    double weight; // 0 for all where none is given: each counts by its size
} cy_config_source;

typedef struct cy_config_dataset {
    cy_config_source sources[CY_CONFIG_SOURCES_MAX];
    int source_count;                     // 0: absent
    char tokenizer[CY_CONFIG_PATH_BYTES]; // resolved: <model.name>/tokenizer.json where absent
    double validation_fraction;
    char split[CY_CONFIG_TEXT_BYTES];       // picotron's: "" or "train"
    char subset_name[CY_CONFIG_TEXT_BYTES]; // picotron's: ""
    int num_proc;                           // picotron's
    int num_workers;                        // picotron's
} cy_config_dataset;

typedef struct cy_config_checkpoint {
    char save_dir[CY_CONFIG_PATH_BYTES]; // "": no saves
    int64_t save_frequency;              // 0: no periodic saves
    char load_path[CY_CONFIG_PATH_BYTES];
    cy_config_resume resume;
    cy_config_load_what load;
    cy_config_accept accept;
    int64_t keep_last; // 0: all
    double timeout_s;  // of one call on a file
} cy_config_checkpoint;

typedef struct cy_config_logging {
    char run_dir[CY_CONFIG_PATH_BYTES]; // "": nothing is written but the console's lines
    char run_name[CY_CONFIG_TEXT_BYTES];
    int64_t log_frequency;
    int64_t eval_frequency; // 0: never
    int64_t eval_tokens;    // 0: all of the validation part
    int64_t hash_frequency; // 0: never
    bool measure_peak;      // false: the machine's peak is not measured
    bool tensorboard;
    bool use_wandb; // picotron's: true is an error
    char project_name[CY_CONFIG_TEXT_BYTES];
} cy_config_logging;

// picotron's; their meaning is moved to the keys above when the configuration is resolved.
typedef struct cy_config_environment {
    int omp_num_threads;        // 0: absent
    cy_config_flag flash_atten; // absent, false or true
} cy_config_environment;

typedef struct cy_config {
    cy_config_distributed distributed;
    cy_config_model model;
    cy_config_training training;
    cy_config_dataset dataset;
    cy_config_checkpoint checkpoint;
    cy_config_logging logging;
    cy_config_environment environment;
    cy_model_shape shape; // resolved
} cy_config;

// All faults of a configuration. Start from a zeroed struct; free with cy_config_errors_free.
typedef struct cy_config_errors {
    cy_text lines;   // "distributed.tp_size = 3: ...\n" each; a line that begins with two spaces is
                     // the advice for the one before
    int count;       // faults, without advice
    bool unreadable; // the text is not JSON: nothing more can be found out
    cy_status broken; // memory ran out while one was noted
} cy_config_errors;

void cy_config_errors_free(cy_config_errors *errors);

// What the configuration is for: `plan` and `bench` need no data and no end of the run; a file that
// is made may name data and folders that are made later, and leave the end of the run open.
typedef enum cy_config_purpose {
    CY_CONFIG_FOR_SHAPE, // plan, bench: mesh, model and batch
    CY_CONFIG_FOR_FILE,  // config create: every value, but nothing that is looked for on the disk
    CY_CONFIG_FOR_TRAIN, // all of it: the data and the folders are there
} cy_config_purpose;

// Every key at its default, nothing resolved.
void cy_config_defaults(cy_config *config);

// Defaults, then the JSON `text` (its origin `name` is for messages; text may be NULL for none),
// then `overrides`: "section.key=value" each, whose value is JSON or a plain text.
CY_MUST_CHECK cy_status cy_config_read(cy_config *config, cy_config_errors *errors,
    const char *text, size_t length, const char *name, const char *const *overrides,
    int override_count);

CY_MUST_CHECK cy_status cy_config_resolve(cy_config *config, cy_config_errors *errors);

// What was found: cores that the process may use, processes that were started (0: not known yet).
// Ranks that are a multiple of them are threads, as many in each process.
typedef struct cy_config_machine {
    int cores;
    int world;
    bool under_mpi; // started by mpirun or srun
    bool unwired;   // by a srun that has not told the tasks how to find each other
    int rank;       // of this process among those started
    int sharing;    // started processes that have these same cores; 0: not known
} cy_config_machine;

CY_MUST_CHECK cy_status cy_config_check(const cy_config *config, cy_config_errors *errors,
    cy_config_purpose purpose, const cy_config_machine *machine);

// Reads the file and does all three steps; a step runs also where the one before it found faults,
// as far as that makes sense, so that they are reported together.
CY_MUST_CHECK cy_status cy_config_load(cy_config *config, cy_config_errors *errors,
    const char *path, const char *const *overrides, int override_count, cy_config_purpose purpose,
    const cy_config_machine *machine);

// How a file with such a configuration is recognised.
extern const cy_output_kind cy_config_kind;

// The resolved configuration as JSON that starts the same run again. Appended to *json.
CY_MUST_CHECK cy_status cy_config_to_json(cy_text *json, const cy_config *config);

// ---- what follows from a configuration

// Ranks: tp x cp x pp x dp.
int64_t cy_config_world(const cy_config *config);

// Whether the ranks are processes of MPI: asked for, or started so; otherwise they are threads.
bool cy_config_through_mpi(const cy_config *config, const cy_config_machine *machine);

// Ranks that each process runs: all of them where they are threads of one.
int cy_config_ranks_of_process(const cy_config *config, const cy_config_machine *machine);

// MiB of the gradient bucket that fills first: first_bucket_mb; where it is absent, the smaller of
// 1 and bucket_mb.
double cy_config_first_bucket_mb(const cy_config_distributed *distributed);

// Samples and tokens of a global batch.
int64_t cy_config_batch_samples(const cy_config *config);
int64_t cy_config_batch_tokens(const cy_config *config);

// The last step of the run: the sooner of total_train_steps and what max_tokens allows (the step
// that reaches it); 0 where neither is given.
int64_t cy_config_last_step(const cy_config *config);

// The same for a run that goes on behind `step` with `tokens` trained on, perhaps in other batches.
int64_t cy_config_last_step_from(const cy_config *config, int64_t step, int64_t tokens);

#endif
