// cyclotron eval: computes the loss and perplexity of a model on a text.

#include "train/evaluate.h"

#include "cli/commands.h"
#include "cli/job.h"
#include "cli/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct values {
    const char *split, *isa;
    double validation_fraction;
    int64_t seq_length, max_tokens;
    bool accept_tokenizer, json;
} values;

static const cy_option options[] = {
    {"split", CY_OPTION_CHOICE, offsetof(values, split), .initial = "validation",
        .values = "train|validation", .doc = "which part of the data"},
    {"validation-fraction", CY_OPTION_NUMBER, offsetof(values, validation_fraction),
        .initial = "-1", .low = -1, .high = 1, .word = "F",
        .doc = "how much of its end is held out; -1: as in the run. 0: all is evaluated"},
    {"seq-length", CY_OPTION_COUNT, offsetof(values, seq_length), .initial = "0", .high = 1e8,
        .word = "N", .doc = "tokens of a sample; 0: that of the run, or the model's"},
    {"max-tokens", CY_OPTION_COUNT, offsetof(values, max_tokens), .initial = "0", .high = 1e15,
        .word = "N", .doc = "stop after N tokens; 0: all"},
    {"isa", CY_OPTION_CHOICE, offsetof(values, isa), .initial = "auto",
        .values = CY_CONFIG_ISA_NAMES, .doc = "highest level of instructions", .word = "LEVEL"},
    {"accept-tokenizer", CY_OPTION_FLAG, offsetof(values, accept_tokenizer),
        .doc = "take shards that another tokenizer made"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print one JSON object only"},
};

static const cy_usage usage = {
    .name = "eval",
    .positional = "CHECKPOINT DATA...",
    .least = 2,
    .most = -1,
    .doc = "Evaluates a model on folders of token shards or on texts.",
    .options = options,
    .option_count = CY_COUNT(options),
};

static cy_status print(const values *given, const cy_evaluation *found)
{
    if (!given->json) {
        printf("loss %.4f nats a token, perplexity %.3f", found->loss, found->perplexity);
        if (isfinite(found->bits_per_byte)) printf(", %.4f bits per byte", found->bits_per_byte);
        printf(", over %lld tokens%s\n", (long long)found->tokens,
            found->held_out ? "" : " (nothing was held out: all of the data)");
        return CY_OK;
    }
    // Without a tokenizer the bytes of token shards are unknown.
    return cy_report_json(
        json_pack("{s:o, s:o, s:o, s:I}", "loss", cy_json_real(found->loss), "perplexity",
            cy_json_real(found->perplexity), "bits_per_byte", cy_json_real(found->bits_per_byte),
            "tokens", (json_int_t)found->tokens),
        0);
}

int cy_command_eval(int argc, char **argv)
{
    cy_arguments arguments;
    values given;
    int status = cy_options_parse(&arguments, &given, &usage, argc, argv);
    if (status == CY_RUN_COMMAND) {
        const cy_evaluate_options wanted = {
            .checkpoint = arguments.positional[0],
            .data = arguments.positional + 1,
            .data_count = arguments.count - 1,
            .split = strcmp(given.split, "train") == 0 ? CY_DATASET_TRAIN : CY_DATASET_VALIDATION,
            .validation_fraction = given.validation_fraction,
            .seq_length = given.seq_length,
            .max_tokens = given.max_tokens,
            .isa = cy_config_isa_named(given.isa),
            .cores = cy_machine_found().cores,
            .accept_tokenizer = given.accept_tokenizer,
        };
        cy_evaluation found;
        cy_status done = cy_evaluate(&wanted, &found);
        if (done == CY_OK && found.unmarked) {
            fprintf(stderr, "cyclotron: %s carries no fingerprint of its tokenizer: not compared\n",
                wanted.checkpoint);
        }
        if (done == CY_OK) done = print(&given, &found);
        status = done == CY_OK ? cy_report_output(CY_EXIT_DONE) : cy_report_status(done);
    }
    cy_arguments_free(&arguments);
    return status;
}
