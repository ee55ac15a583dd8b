// cyclotron config: makes, checks and shows configurations.

#include "base/file.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/report.h"
#include "config/config.h"
#include "model/shape.h"
#include "train/checks.h"

#include <stdio.h>
#include <string.h>

// ---- check

typedef struct check_values {
    const char *purpose;
    bool json;
} check_values;

static const cy_option check_options[] = {
    {"for", CY_OPTION_CHOICE, offsetof(check_values, purpose), .initial = "train",
        .values = "train|plan", .doc = "plan: without data, folders and end of the run"},
    {"json", CY_OPTION_FLAG, offsetof(check_values, json),
        .doc = "print {\"errors\": [{\"error\", \"hint\"}]} only"},
};

static const cy_usage check_usage = {
    .name = "config check",
    .positional = "CONFIG",
    .least = 1,
    .most = 1,
    .doc = "Reports every error of a configuration, before anything is started.",
    .options = check_options,
    .option_count = CY_COUNT(check_options),
    .overrides = true,
};

// The text at *line without its line end, as a JSON string; *line goes on to the next one.
static json_t *take_line(const char **line, size_t indent)
{
    const size_t length = strcspn(*line, "\n");
    json_t *text = cy_json_string(*line + indent, length - indent);
    *line += length + ((*line)[length] == '\n');
    return text;
}

// The errors as an array; each item has its advice where there is some.
static json_t *errors_to_json(const cy_config_errors *errors)
{
    json_t *array = json_array();
    const char *line = errors->lines.bytes != NULL ? errors->lines.bytes : "";
    while (*line != '\0') {
        json_t *item = json_pack("{s:o}", "error", take_line(&line, 0));
        if (strncmp(line, "  ", 2) == 0) cy_json_set(&item, "hint", take_line(&line, 2));
        cy_json_append(&array, item);
    }
    return json_pack("{s:o}", "errors", array);
}

static void print_batch(const cy_config *config, FILE *stream)
{
    fprintf(stream,
        "global batch: %lld samples, %lld tokens (micro_batch_size %lld x "
        "gradient_accumulation_steps %lld x dp_size %d, seq_length %lld)\n",
        (long long)cy_config_batch_samples(config), (long long)cy_config_batch_tokens(config),
        (long long)config->training.micro_batch_size,
        (long long)config->training.gradient_accumulation_steps, config->distributed.dp_size,
        (long long)config->training.seq_length);
}

static int check(const check_values *values, const cy_arguments *arguments)
{
    const cy_config_machine machine = cy_machine_found();
    const char *path = arguments->positional[0];
    cy_config config;
    cy_config_errors errors = {0};
    const cy_config_purpose purpose =
        strcmp(values->purpose, "plan") == 0 ? CY_CONFIG_FOR_SHAPE : CY_CONFIG_FOR_TRAIN;
    cy_status status = cy_config_load(
        &config, &errors, path, arguments->overrides, arguments->override_count, purpose, &machine);
    if (status == CY_OK && purpose == CY_CONFIG_FOR_TRAIN) {
        cy_check_outputs(&config, &errors);
        status = cy_check_inputs(&config, &errors, machine.cores);
    }
    int exit_status = status == CY_OK ? CY_EXIT_DONE : CY_EXIT_REQUEST;
    const bool complete = status == CY_OK || (errors.count > 0 && status != CY_ERR_MEMORY);
    if (values->json && complete) {
        const cy_status printed = cy_report_json(errors_to_json(&errors), 0);
        if (printed != CY_OK) exit_status = cy_report_status(printed);
    } else if (status == CY_OK) {
        printf("%s: no errors\n", path);
        print_batch(&config, stdout);
    } else {
        exit_status = cy_report_config(status, &errors);
    }
    cy_config_errors_free(&errors);
    return cy_report_output(exit_status);
}

static int command_check(int argc, char **argv)
{
    check_values values;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &values, &check_usage, argc, argv);
    if (status == CY_RUN_COMMAND) status = check(&values, &arguments);
    cy_arguments_free(&arguments);
    return status;
}

// ---- show

typedef struct show_values {
    bool defaults;
    bool keys;
    bool words;
    bool markdown;
    bool json;
} show_values;

static const cy_option show_options[] = {
    {"defaults", CY_OPTION_FLAG, offsetof(show_values, defaults),
        .doc = "every key at its default, as a file to start from"},
    {"keys", CY_OPTION_FLAG, offsetof(show_values, keys),
        .doc = "every key, what it takes and what it does"},
    {"words", CY_OPTION_FLAG, offsetof(show_values, words),
        .doc = "every key as the command line takes it, for a shell's completion"},
    {"markdown", CY_OPTION_FLAG, offsetof(show_values, markdown),
        .doc = "every key, as the page docs/configuration.md"},
    {"json", CY_OPTION_FLAG, offsetof(show_values, json), .doc = "JSON only, as without it"},
};

static const cy_usage show_usage = {
    .name = "config show",
    .positional = "[CONFIG]",
    .least = 0,
    .most = 1,
    .doc = "Prints what a configuration comes to: the file that starts the same run again.",
    .options = show_options,
    .option_count = CY_COUNT(show_options),
    .overrides = true,
};

static int show(const show_values *values, const cy_arguments *arguments)
{
    cy_text text = {0};
    cy_config config;
    if (values->json && (values->keys || values->words || values->markdown)) {
        return cy_usage_error(&show_usage, "--keys, --words and --markdown print text, not JSON");
    }
    if (values->keys) return cy_report_text(cy_config_doc_text(&text), &text);
    if (values->words) return cy_report_text(cy_config_doc_words(&text), &text);
    if (values->markdown) return cy_report_text(cy_config_doc_markdown(&text), &text);
    if (values->defaults) {
        cy_config_defaults(&config);
        return cy_report_text(cy_config_to_json(&text, &config), &text);
    }
    if (arguments->count == 0) {
        return cy_usage_error(&show_usage, "cyclotron config show needs CONFIG");
    }
    const int status = cy_load_config(&config, arguments, CY_CONFIG_FOR_SHAPE);
    if (status != CY_RUN_COMMAND) return status;
    return cy_report_text(cy_config_to_json(&text, &config), &text);
}

static int command_show(int argc, char **argv)
{
    show_values values;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &values, &show_usage, argc, argv);
    if (status == CY_RUN_COMMAND) status = show(&values, &arguments);
    cy_arguments_free(&arguments);
    return status;
}

// ---- create

// Options that are another name for a key. The key's own reader reads their create_values.
static const struct {
    const char *name;
    const char *key;
    const char *initial;
    const char *doc;
} words[] = {
    {"tp", "distributed.tp_size", "1", "tensor-parallel ranks"},
    {"cp", "distributed.cp_size", "1", "context-parallel ranks"},
    {"dp", "distributed.dp_size", "1", "data-parallel replicas"},
    {"pp", "distributed.pp_size", "1", "pipeline stages"},
    {"pp-engine", "distributed.pp_engine", "1f1b", "pipeline schedule"},
    {"zero-stage", "distributed.zero_stage", NULL, "what is kept as a 1/dp part, 0 to 3"},
    {"model-name", "model.name", "smollm-360m", "a folder with config.json, or a preset"},
    {"num-hidden-layers", "model.num_hidden_layers", NULL, "layers, instead of the model's"},
    {"num-attention-heads", "model.num_attention_heads", NULL, "heads, instead of the model's"},
    {"num-key-value-heads", "model.num_key_value_heads", NULL, "kv heads, instead of the model's"},
    {"dtype", "model.dtype", NULL, "of computation"},
    {"grad-acc-steps", "training.gradient_accumulation_steps", NULL,
        "microbatches of a step; absent: 1"},
    {"mbs", "training.micro_batch_size", "1", "samples of a microbatch"},
    {"seq-len", "training.seq_length", "1024", "tokens of a sample"},
    {"seed", "training.seed", NULL, "of weights and data order"},
    {"learning-rate", "training.learning_rate", NULL, "highest learning rate"},
    {"lr-schedule", "training.lr_schedule", NULL, "constant, linear, cosine or wsd"},
    {"warmup-steps", "training.warmup_steps", NULL, "steps of rising learning rate"},
    {"weight-decay", "training.weight_decay", NULL, "of matrices"},
    {"grad-clip", "training.grad_clip", NULL, "largest norm of the gradient"},
    {"total-train-steps", "training.total_train_steps", NULL, "last step"},
    {"max-tokens", "training.max_tokens", NULL, "tokens at which training ends"},
    {"dataset-name", "dataset.name", NULL, "folder of token shards, or text file"},
    {"tokenizer", "dataset.tokenizer", NULL, "tokenizer.json"},
    {"subset-name", "dataset.subset_name", NULL, "picotron's; local data has none"},
    {"save-dir", "checkpoint.save_dir", NULL, "folder of checkpoints"},
    {"save-frequency", "checkpoint.save_frequency", NULL, "steps between saves"},
    {"load-path", "checkpoint.load_path", NULL, "checkpoint to start from"},
    {"run-dir", "logging.run_dir", NULL, "folder of the run's metrics"},
    {"omp-num-threads", "environment.OMP_NUM_THREADS", NULL, "threads of a rank"},
};

#define WORD_COUNT CY_COUNT(words)

typedef struct create_values {
    const char *texts[sizeof(words) / sizeof(words[0])];
    const char *out_dir;
    const char *exp_name;
    const char *hf_token;
    bool use_wandb;
    bool use_cpu;
    bool use_fused_adam;
    bool force;
    bool json;
} create_values;

static const cy_option own_options[] = {
    {"out-dir", CY_OPTION_TEXT, offsetof(create_values, out_dir), .initial = "tmp", .word = "DIR",
        .doc = "where the experiment's folder is made"},
    {"exp-name", CY_OPTION_TEXT, offsetof(create_values, exp_name), .initial = "dummy_exp",
        .word = "NAME", .doc = "the experiment's folder, and the run's name"},
    {"hf-token", CY_OPTION_TEXT, offsetof(create_values, hf_token),
        .doc = "picotron's; nothing is downloaded, and it is not saved"},
    {"use-wandb", CY_OPTION_FLAG, offsetof(create_values, use_wandb),
        .doc = "picotron's; an error that points to TensorBoard"},
    {"use-cpu", CY_OPTION_FLAG, offsetof(create_values, use_cpu), .doc = "train on the processor"},
    {"use-fused-adam", CY_OPTION_FLAG, offsetof(create_values, use_fused_adam),
        .doc = "optimizer in one pass, which is the default"},
    {"force", CY_OPTION_FLAG, offsetof(create_values, force),
        .doc = "replace a config.json that this command or a run wrote"},
    {"json", CY_OPTION_FLAG, offsetof(create_values, json),
        .doc = "print {\"path\", \"global_batch_size\", \"global_batch_tokens\"} only"},
};

#define OPTION_COUNT (WORD_COUNT + CY_COUNT(own_options))

static void fill_options(cy_option *options)
{
    for (int i = 0; i < WORD_COUNT; i++) {
        options[i] = (cy_option){
            .name = words[i].name,
            .kind = CY_OPTION_TEXT,
            .offset = (unsigned)(offsetof(create_values, texts) + (size_t)i * sizeof(const char *)),
            .initial = words[i].initial,
            .word = "VALUE",
            .doc = words[i].doc,
        };
    }
    memcpy(options + WORD_COUNT, own_options, sizeof(own_options));
}

// Lists one override for each option in *texts, then those given as --section.key=value.
static cy_status collect(cy_text *texts, const char **overrides, int *count, const create_values *v,
    const cy_arguments *arguments)
{
    size_t starts[OPTION_COUNT];
    int made = 0;
#define ADD(...)                                                                                   \
    do {                                                                                           \
        starts[made++] = texts->length;                                                            \
        CY_TRY(cy_text_add(texts, __VA_ARGS__));                                                   \
        CY_TRY(cy_text_add_bytes(texts, "", 1));                                                   \
    } while (0)
    for (int i = 0; i < WORD_COUNT; i++) {
        if (v->texts[i] != NULL) ADD("%s=%s", words[i].key, v->texts[i]);
    }
    ADD("logging.run_name=%s", v->exp_name);
    if (v->use_wandb) ADD("logging.use_wandb=true");
    if (v->use_cpu) ADD("distributed.use_cpu=true");
    if (v->use_fused_adam) ADD("model.use_fused_adam=true");
#undef ADD
    for (int i = 0; i < made; i++)
        overrides[i] = texts->bytes + starts[i];
    for (int i = 0; i < arguments->override_count; i++)
        overrides[made + i] = arguments->overrides[i];
    *count = made + arguments->override_count;
    return CY_OK;
}

// Reads, checks and writes the configuration; *config is then the resolved one, *path the file.
static cy_status make_file(cy_config *config, cy_config_errors *errors, cy_text *path,
    const create_values *v, const char *const *overrides, int count)
{
    const cy_config_machine machine = cy_machine_found();
    cy_status status = cy_config_read(config, errors, NULL, 0, "", overrides, count);
    cy_config as_given = *config;
    if (status != CY_OK && status != CY_ERR_REQUEST) return status;
    status = cy_config_resolve(config, errors);
    if (status != CY_OK && status != CY_ERR_REQUEST) return status;
    CY_TRY(cy_config_check(config, errors, CY_CONFIG_FOR_FILE, &machine));

    // The file holds what was asked for; only picotron's environment becomes a key of ours.
    as_given.distributed.threads_per_rank = config->distributed.threads_per_rank;
    as_given.model.use_flash_attention = config->model.use_flash_attention;
    CY_TRY(cy_text_add(path, "%s/%s", v->out_dir, v->exp_name));
    CY_TRY(cy_folder_make(path->bytes));
    CY_TRY(cy_text_add(path, "/config.json"));
    if (!v->force && cy_path_exists(path->bytes)) {
        status = CY_FAIL(CY_ERR_REQUEST, "%s is there already", path->bytes);
        cy_error_set_hint("--force replaces it");
        return status;
    }
    cy_text json = {0};
    status = cy_config_to_json(&json, &as_given);
    if (status == CY_OK)
        status = cy_output_write(path->bytes, &cy_config_kind, json.bytes, json.length);
    cy_text_free(&json);
    return status;
}

static int print_result(const cy_config *config, const char *path, bool json)
{
    const long long samples = (long long)cy_config_batch_samples(config);
    const long long tokens = (long long)cy_config_batch_tokens(config);
    if (json) {
        const cy_status status =
            cy_report_json(json_pack("{s:o, s:I, s:I}", "path", cy_json_string(path, strlen(path)),
                               "global_batch_size", (json_int_t)samples, "global_batch_tokens",
                               (json_int_t)tokens),
                0);
        if (status != CY_OK) return cy_report_status(status);
    } else {
        printf("global batch: %lld samples, %lld tokens (mbs %lld x grad_acc_steps %lld x dp %d, "
               "seq_len %lld)\nconfiguration: %s\n",
            samples, tokens, (long long)config->training.micro_batch_size,
            (long long)config->training.gradient_accumulation_steps, config->distributed.dp_size,
            (long long)config->training.seq_length, path);
    }
    return cy_report_output(CY_EXIT_DONE);
}

static int create(const create_values *v, const cy_arguments *arguments)
{
    enum { MOST = 512 };
    const char *overrides[MOST];
    int count = 0;
    if (arguments->override_count > MOST - OPTION_COUNT) {
        cy_report_error(
            "%d keys, at most %d are taken", arguments->override_count, MOST - OPTION_COUNT);
        return CY_EXIT_REQUEST;
    }
    cy_config config;
    cy_config_errors errors = {0};
    cy_text texts = {0};
    cy_text path = {0};
    cy_status status = collect(&texts, overrides, &count, v, arguments);
    if (status == CY_OK) status = make_file(&config, &errors, &path, v, overrides, count);
    const int exit_status = status == CY_OK ? print_result(&config, path.bytes, v->json)
                                            : cy_report_config(status, &errors);
    cy_text_free(&path);
    cy_text_free(&texts);
    cy_config_errors_free(&errors);
    return exit_status;
}

static int command_create(int argc, char **argv)
{
    cy_option options[OPTION_COUNT];
    fill_options(options);
    const cy_usage usage = {
        .name = "config create",
        .doc = "Writes OUT_DIR/EXP_NAME/config.json from picotron's options and any other key.",
        .more = "Presets: " CY_PRESET_NAMES,
        .options = options,
        .option_count = OPTION_COUNT,
        .overrides = true,
    };
    create_values v;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &v, &usage, argc, argv);
    if (status == CY_RUN_COMMAND) status = create(&v, &arguments);
    cy_arguments_free(&arguments);
    return status;
}

// ---- the group

int cy_command_config(int argc, char **argv)
{
    static const cy_command commands[] = {
        {"create", command_create, "write a configuration from picotron's options"},
        {"check", command_check, "report every error of a configuration"},
        {"show", command_show, "print what a configuration comes to, or all keys"},
    };
    return cy_commands_run(commands, CY_COUNT(commands), "config", argc, argv);
}
