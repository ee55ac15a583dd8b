// cyclotron config: makes, checks and shows configurations.

#include "base/file.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/report.h"
#include "config/config.h"
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

// ---- the group

int cy_command_config(int argc, char **argv)
{
    static const cy_command commands[] = {
        {"create", cy_command_config_create, "write a configuration from picotron's options"},
        {"check", command_check, "report every error of a configuration"},
        {"show", command_show, "print what a configuration comes to, or all keys"},
    };
    return cy_commands_run(commands, CY_COUNT(commands), "config", argc, argv);
}
