// config/config.h: the configuration of a run: one struct, which one table of keys
// (config/option_table.h) fills from a JSON file and from --section.key=value.
//
// The struct is plain data without owned pointers and is copied by assignment; it is large, so pass
// it by pointer. Three steps read a configuration. Each reports all of its errors, not only the
// first:
//   cy_config_read      parses the file and the overrides: names, types, ranges;
//   cy_config_resolve   derives values from other keys: model shape, accumulation, aliases;
//   cy_config_check     finds contradictions between keys, or with this build.
// cy_config_load runs all three. An absent key has the value that this header names; fields that
// say "resolved" get their value in cy_config_resolve.
//
// Errors of the user go into a cy_config_errors: one line each, with the key, its value and the
// values that work. The status is then CY_ERR_REQUEST, and the error text holds as many of the
// lines as fit. Other failures (a file that cannot be read, memory) have their usual status. Any
// thread may call these functions on its own objects.

#ifndef CY_CONFIG_CONFIG_H
#define CY_CONFIG_CONFIG_H

#include "base/output.h"
#include "base/text.h"
#include "comm/mesh.h"
#include "model/stage.h"
#include "optim/lr_schedule.h"
#include "parallel/data/compress.h"
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

// Enums of the keys that take one of several words, in the order of the words in the table of keys.
// The last enumerator counts the others. Words of the parts that run them have the enums of those
// parts: cy_pipeline_engine, cy_context_style, cy_compression, cy_recompute, cy_lr_schedule_kind.

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

typedef enum cy_config_backend {
    CY_CONFIG_BACKEND_AUTO,
    CY_CONFIG_BACKEND_SELF,
    CY_CONFIG_BACKEND_THREADS,
    CY_CONFIG_BACKEND_MPI,
    CY_CONFIG_BACKEND_NCCL,
    CY_CONFIG_BACKEND_GLOO, // picotron's word; AUTO once resolved
    CY_CONFIG_BACKENDS,
} cy_config_backend;

// What computes, as cy_device_open names it.
typedef enum cy_config_device {
    CY_CONFIG_DEVICE_CPU,
    CY_CONFIG_DEVICE_TEST,
    CY_CONFIG_DEVICE_CUDA, // of no build yet
    CY_CONFIG_DEVICES,
} cy_config_device;

#define CY_CONFIG_DEVICE_NAMES "cpu|test|cuda"

const char *cy_config_device_name(cy_config_device device);

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

// The name of a level, "auto", "ref" and so on, and the level of a name: CY_CONFIG_ISAS where no
// level has it.
const char *cy_config_isa_name(cy_config_isa isa);
cy_config_isa cy_config_isa_named(const char *name);

typedef enum cy_config_init {
    CY_CONFIG_INIT_RANDOM,
    CY_CONFIG_INIT_PRETRAINED, // the weights of the folder model.name
    CY_CONFIG_INITS,
} cy_config_init;

typedef enum cy_config_resume {
    CY_CONFIG_RESUME_NO,
    CY_CONFIG_RESUME_AUTO, // the newest checkpoint of save_dir, or a fresh start without one
    CY_CONFIG_RESUMES,
} cy_config_resume;

// Which differences between a checkpoint's identity and the run's are accepted.
typedef enum cy_config_accept {
    CY_CONFIG_ACCEPT_NOTHING,
    CY_CONFIG_ACCEPT_TOKENIZER, // another tokenizer, and the tokens that it makes of the data
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
    cy_context_style cp_style;
    cy_config_cp_layout cp_layout;
    cy_config_dp_reduce dp_reduce;
    double bucket_mb;
    double first_bucket_mb; // 0: see cy_config_first_bucket_mb
    cy_compression compression;
    double topk_ratio;
    int64_t topk_warmup_steps; // in which the ratio falls by quarters; -1 before resolving
    cy_config_backend backend;
    char algorithm[CY_CONFIG_TEXT_BYTES]; // "auto", or an algorithm of comm/algorithm.h
    int threads_per_rank;                 // 0: cores / ranks of the machine
    int ranks_per_node;                   // 0: as detected
    cy_config_device device;
    cy_config_isa isa;                     // of the kernels
    char rank_order[CY_CONFIG_TEXT_BYTES]; // axes, fastest first
    double timeout_s;
    bool use_cpu;
} cy_config_distributed;

// The keys that describe the model, as the user gave them. The resolved model is cy_config.shape.
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
    cy_recompute recompute;
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

// Keys of picotron. cy_config_resolve moves their values to the keys above.
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

// All errors of a configuration. Start from a zeroed struct; free with cy_config_errors_free.
typedef struct cy_config_errors {
    cy_text lines;    // "distributed.tp_size = 3: ...\n" each; a line that begins with two spaces
                      // is a hint for the error before it
    int count;        // errors, without hints
    bool unreadable;  // the text is not JSON, so later steps have nothing to check
    cy_status broken; // memory ran out while an error was added
} cy_config_errors;

void cy_config_errors_free(cy_config_errors *errors);

// Adds an error: key, value, and what is accepted.
void cy_config_add_error(cy_config_errors *errors, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Adds the error of a call that ended with `status`, and its hint; the format takes
// cy_error_text(). Missing memory is no error of the user: cy_config_errors_status returns it.
void cy_config_add_error_of(cy_config_errors *errors, cy_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Adds a hint for the last error.
void cy_config_add_hint(cy_config_errors *errors, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// CY_OK without errors, else CY_ERR_REQUEST with all lines as its text.
CY_MUST_CHECK cy_status cy_config_errors_status(const cy_config_errors *errors);

// How much cy_config_check checks. `plan` and `bench` need neither data nor the end of the run.
// `config create` accepts data and folders that do not exist yet, and a run without an end.
typedef enum cy_config_purpose {
    CY_CONFIG_FOR_SHAPE, // plan, bench: mesh, model and batch
    CY_CONFIG_FOR_FILE,  // config create: every value, without looking at the disk
    CY_CONFIG_FOR_TRAIN, // everything: the data and the folders exist
} cy_config_purpose;

// Sets every key to its default; resolves nothing.
void cy_config_defaults(cy_config *config);

// Sets the defaults, then reads the JSON `text` (messages call it `name`; NULL: none), then the
// `overrides`: "section.key=value" each, where the value is JSON or plain text.
CY_MUST_CHECK cy_status cy_config_read(cy_config *config, cy_config_errors *errors,
    const char *text, size_t length, const char *name, const char *const *overrides,
    int override_count);

CY_MUST_CHECK cy_status cy_config_resolve(cy_config *config, cy_config_errors *errors);

// What the program detected about the machine and its launch. With more ranks than processes, each
// process runs the same number of ranks as threads.
typedef struct cy_config_machine {
    int cores;      // that the process may use
    int world;      // processes that were started; 0: not known yet
    bool under_mpi; // started by mpirun or srun
    bool unwired;   // started by srun without an interface through which the tasks find each other
    int rank;       // of this process
    int sharing;    // started processes that have the same cores; 0: not known
    bool reopens;   // as of cy_world_options, as is what follows
    void (*left_behind)(cy_status status);
} cy_config_machine;

CY_MUST_CHECK cy_status cy_config_check(const cy_config *config, cy_config_errors *errors,
    cy_config_purpose purpose, const cy_config_machine *machine);

// Reads the file and runs all three steps. A step runs even if the one before it found errors, so
// that all are reported together, unless the file is not JSON.
CY_MUST_CHECK cy_status cy_config_load(cy_config *config, cy_config_errors *errors,
    const char *path, const char *const *overrides, int override_count, cy_config_purpose purpose,
    const cy_config_machine *machine);

// The signature by which a configuration file that the program wrote is recognised.
extern const cy_output_kind cy_config_kind;

// Appends the resolved configuration as JSON that starts the same run again.
CY_MUST_CHECK cy_status cy_config_to_json(cy_text *json, const cy_config *config);

// The table of keys as documentation. Appends one entry per key for a terminal: name, values,
// default, description.
CY_MUST_CHECK cy_status cy_config_doc_text(cy_text *page);

// Appends docs/configuration.md.
CY_MUST_CHECK cy_status cy_config_doc_markdown(cy_text *page);

// Appends the keys as words for a shell's completion: "--training.seed=".
CY_MUST_CHECK cy_status cy_config_doc_words(cy_text *page);

// ---- values that follow from a configuration

// Ranks: tp x cp x pp x dp.
int64_t cy_config_world(const cy_config *config);

// Fails with CY_ERR_REQUEST as cy_mesh_make does.
CY_MUST_CHECK cy_status cy_config_mesh(cy_mesh *mesh, const cy_config *config);

// Whether the ranks are MPI processes, by `backend` or by how they were started. Otherwise they are
// threads.
bool cy_config_through_mpi(const cy_config *config, const cy_config_machine *machine);

// Ranks that each process runs: all of them if they are threads of one process.
int cy_config_ranks_of_process(const cy_config *config, const cy_config_machine *machine);

// MiB of the gradient bucket that fills first: first_bucket_mb, or if it is absent the smaller of 1
// and bucket_mb.
double cy_config_first_bucket_mb(const cy_config_distributed *distributed);

// Samples and tokens of a global batch.
int64_t cy_config_batch_samples(const cy_config *config);
int64_t cy_config_batch_tokens(const cy_config *config);

// The last step of the run: total_train_steps or the step that reaches max_tokens, whichever comes
// first; 0 if both are absent.
int64_t cy_config_last_step(const cy_config *config);

// The same for a run that continues after `step`, with `tokens` trained on so far. Their batches
// may have had another size.
int64_t cy_config_last_step_from(const cy_config *config, int64_t step, int64_t tokens);

// The options of the pipeline schedule.
cy_schedule_options cy_config_schedule(const cy_config *config);

// The layers of each segment of a schedule, [cy_schedule_segments]: distributed.pp_layers, or a cut
// that makes the most expensive rank as cheap as possible, by the floating-point operations of a
// layer, the embedding and the head. CY_ERR_REQUEST if no such cut exists.
CY_MUST_CHECK cy_status cy_config_partition(
    cy_layer_range *ranges, const cy_config *config, const cy_schedule *schedule);

// The reason why other keys of the configuration contradict a schedule, or NULL.
const char *cy_config_schedule_conflict(const cy_config *config, const cy_schedule *schedule);

#endif
