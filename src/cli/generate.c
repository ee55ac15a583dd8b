// cyclotron generate: continues a text with a trained model.

#include <cyclotron/generate.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>

typedef struct values {
    const char *prompt, *dtype, *isa, *device;
    int64_t max_tokens, top_k, seed, threads, context;
    double temperature, top_p, repetition_penalty;
    bool json;
} values;

static const cy_option options[] = {
    {"prompt", CY_OPTION_TEXT, offsetof(values, prompt), .word = "TEXT", .required = true,
        .doc = "what the text begins with"},
    {"max-tokens", CY_OPTION_COUNT, offsetof(values, max_tokens), .initial = "128", .word = "N",
        .low = 0, .high = 1e9, .doc = "stop after N new tokens"},
    {"temperature", CY_OPTION_NUMBER, offsetof(values, temperature), .initial = "1", .low = 0,
        .high = 1e6, .word = "T", .doc = "0 always takes the likeliest token"},
    {"top-k", CY_OPTION_COUNT, offsetof(values, top_k), .initial = "0", .high = 1e9, .word = "K",
        .doc = "choose among the K likeliest tokens; 0: all"},
    {"top-p", CY_OPTION_NUMBER, offsetof(values, top_p), .initial = "1", .low = 0, .high = 1,
        .word = "P", .doc = "choose among the likeliest tokens that together have probability P"},
    {"repetition-penalty", CY_OPTION_NUMBER, offsetof(values, repetition_penalty), .initial = "1",
        .low = 1e-3, .high = 1e3, .word = "R", .doc = "above 1: tokens that occurred count less"},
    {"seed", CY_OPTION_COUNT, offsetof(values, seed), .initial = "0", .high = 9e15, .word = "S",
        .doc = "of the choices"},
    {"context", CY_OPTION_COUNT, offsetof(values, context), .initial = "0", .high = 1e8,
        .word = "N", .doc = "positions to make room for; 0: the model's, at most 4096"},
    {"dtype", CY_OPTION_TEXT, offsetof(values, dtype), .word = "TYPE",
        .doc = "bf16, fp16, fp32 or fp64; without it what the model was trained in"},
    {"threads", CY_OPTION_COUNT, offsetof(values, threads), .initial = "0", .high = 4096,
        .word = "N", .doc = "0: all cores"},
    {"isa", CY_OPTION_CHOICE, offsetof(values, isa), .initial = "auto",
        .values = CY_CONFIG_ISA_NAMES, .doc = "highest level of instructions", .word = "LEVEL"},
    {"device", CY_OPTION_CHOICE, offsetof(values, device), .initial = "cpu",
        .values = CY_CONFIG_DEVICE_NAMES, .doc = "what computes", .word = "NAME"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print one JSON object only"},
};

static const cy_usage usage = {
    .name = "generate",
    .positional = "CHECKPOINT",
    .least = 1,
    .most = 1,
    .doc = "Continues a text with a trained model: a checkpoint or a Hugging Face folder.",
    .options = options,
    .option_count = CY_COUNT(options),
};

// The prompt is printed with the first piece of text, so a refused prompt is not printed.
static void print_prompt(const char **prompt)
{
    if (*prompt != NULL) fputs(*prompt, stdout);
    *prompt = NULL;
}

static void print_piece(void *context, const char *text, size_t bytes)
{
    print_prompt(context);
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
}

static cy_status print_json(const values *given, const cy_generated *made)
{
    json_t *tokens = json_array();
    for (int64_t i = 0; i < made->count; i++)
        cy_json_append(&tokens, json_integer(made->tokens[i]));
    return cy_report_json(
        json_pack("{s:o, s:o, s:o, s:o, s:o}", "prompt",
            cy_json_string(given->prompt, strlen(given->prompt)), "text",
            cy_json_string(made->text, made->text_bytes), "tokens", tokens, "prefill_s",
            cy_json_real(made->prefill_s), "decode_tok_s", cy_json_real(made->decode_tok_s)),
        JSON_REAL_PRECISION(6));
}

static cy_status generate(const values *given, const char *path)
{
    const cy_generator_options opening = {
        .path = path,
        .dtype = given->dtype,
        .isa = given->isa,
        .device = given->device,
        .threads = (int)given->threads,
        .context = given->context,
    };
    cy_generator *generator = NULL;
    CY_TRY(cy_generator_open(&generator, &opening));
    if (!cy_generator_knows_tokenizer(generator)) {
        fprintf(
            stderr, "cyclotron: %s carries no fingerprint of its tokenizer: not compared\n", path);
    }
    cy_generate_request request = cy_generate_defaults();
    request.prompt = given->prompt;
    request.prompt_bytes = strlen(given->prompt);
    request.max_tokens = given->max_tokens;
    request.temperature = given->temperature;
    request.top_k = given->top_k;
    request.top_p = given->top_p;
    request.repetition_penalty = given->repetition_penalty;
    request.seed = (uint64_t)given->seed;
    const char *prompt = given->prompt;
    if (!given->json) {
        request.context = &prompt;
        request.on_text = print_piece;
    }
    cy_generated made;
    cy_status status = cy_generate(generator, &request, &made);
    if (status == CY_OK) {
        if (given->json) status = print_json(given, &made);
        if (!given->json) {
            print_prompt(&prompt);
            putchar('\n');
        }
        cy_generated_free(&made);
    }
    cy_generator_close(generator);
    return status;
}

int cy_command_generate(int argc, char **argv)
{
    cy_arguments arguments;
    values given;
    int status = cy_options_parse(&arguments, &given, &usage, argc, argv);
    if (status == CY_RUN_COMMAND) {
        const cy_status done = generate(&given, arguments.positional[0]);
        status = done == CY_OK ? cy_report_output(CY_EXIT_DONE) : cy_report_status(done);
    }
    cy_arguments_free(&arguments);
    return status;
}
