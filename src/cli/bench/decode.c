// cyclotron bench decode: measures how fast a saved model generates.

#include "infer/bench_decode.h"

#include "cli/commands.h"
#include "cli/job.h"
#include "cli/report.h"
#include "config/config.h"

#include <stdio.h>

typedef struct values {
    int64_t prompt, tokens, repeats, threads;
    const char *dtype, *isa;
    bool json;
} values;

static const cy_option options[] = {
    {"prompt-tokens", CY_OPTION_COUNT, offsetof(values, prompt), .low = 1, .high = 1e8, .word = "N",
        .doc = "random tokens that are read first (default: 128, or what the model has room for)"},
    {"tokens", CY_OPTION_COUNT, offsetof(values, tokens), .low = 2, .high = 1e8, .word = "N",
        .doc = "tokens that are generated (default: 64, or what the model has room for)"},
    {"repeats", CY_OPTION_COUNT, offsetof(values, repeats), .initial = "5", .low = 1, .high = 1e4,
        .word = "N", .doc = "runs after one that warms up; medians are told"},
    {"dtype", CY_OPTION_TEXT, offsetof(values, dtype), .word = "TYPE",
        .doc = "bf16, fp16, fp32 or fp64; without it what the model was trained in"},
    {"threads", CY_OPTION_COUNT, offsetof(values, threads), .initial = "0", .high = 4096,
        .word = "N", .doc = "0: all cores"},
    {"isa", CY_OPTION_CHOICE, offsetof(values, isa), .initial = "auto",
        .values = CY_CONFIG_ISA_NAMES, .doc = "highest level of instructions", .word = "LEVEL"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print one JSON object only"},
};

static const cy_usage usage = {
    .name = "bench decode",
    .positional = "CHECKPOINT",
    .least = 1,
    .most = 1,
    .doc = "Times a saved model: the first token after a prompt, and the tokens after it.",
    .options = options,
    .option_count = CY_COUNT(options),
};

static void print(const values *given, int threads, const cy_bench_decode_result *r)
{
    const double share_with_context =
        (r->weight_bytes + r->context_bytes) * r->decode_tok_s / r->read_bytes_s;
    if (given->json) {
        printf("{\"first_token_ms\": %s, \"decode_tok_s\": %s, \"weights_gb_s\": %s, "
               "\"decode_tok_s_min\": %s, \"decode_tok_s_max\": %s, \"weights_gb\": %s, "
               "\"cache_gb\": %s, \"read_gb_s\": %s, \"share_of_read\": %s, "
               "\"share_with_context\": %s, \"beside_gb_s\": %s, \"share_beside\": %s, "
               "\"prompt_tokens\": %lld, \"tokens\": %lld, "
               "\"threads\": %d, "
               "\"dtype\": \"%s\"}\n",
            cy_json_number(r->first_token_s * 1e3, 6).bytes,
            cy_json_number(r->decode_tok_s, 6).bytes,
            cy_json_number(r->weight_bytes_s * 0x1p-30, 6).bytes,
            cy_json_number(r->decode_tok_s_min, 6).bytes,
            cy_json_number(r->decode_tok_s_max, 6).bytes,
            cy_json_number(r->weight_bytes * 0x1p-30, 6).bytes,
            cy_json_number(r->cache_bytes * 0x1p-30, 6).bytes,
            cy_json_number(r->read_bytes_s * 0x1p-30, 6).bytes,
            cy_json_number(r->weight_bytes_s / r->read_bytes_s, 4).bytes,
            cy_json_number(share_with_context, 4).bytes,
            cy_json_number(r->beside_bytes_s * 0x1p-30, 6).bytes,
            cy_json_number(r->share_beside, 4).bytes, (long long)r->prompt, (long long)r->tokens,
            threads, cy_dtype_name(r->dtype));
        return;
    }
    printf("first token   %.2f ms after a prompt of %lld tokens, %d thread%s, %s\n",
        r->first_token_s * 1e3, (long long)r->prompt, threads, threads == 1 ? "" : "s",
        cy_dtype_name(r->dtype));
    printf("then          %.1f tokens/s (%.1f to %.1f)\n", r->decode_tok_s, r->decode_tok_s_min,
        r->decode_tok_s_max);
    printf("weights       %.3f GB a token, %.2f GB/s; the cache takes %.3f GB\n",
        r->weight_bytes * 0x1p-30, r->weight_bytes_s * 0x1p-30, r->cache_bytes * 0x1p-30);
    printf("reading       %.2f GB/s at best; of the weights alone between the runs %.2f GB/s, of "
           "which tokens reach %.2f\n",
        r->read_bytes_s * 0x1p-30, r->beside_bytes_s * 0x1p-30, r->share_beside);
}

int cy_command_bench_decode(int argc, char **argv)
{
    cy_arguments arguments;
    values given;
    int status = cy_options_parse(&arguments, &given, &usage, argc, argv);
    if (status == CY_RUN_COMMAND) {
        const cy_bench_decode_options wanted = {
            .path = arguments.positional[0],
            .dtype = given.dtype,
            .isa = given.isa,
            .threads = given.threads > 0 ? (int)given.threads : cy_machine_found().cores,
            .prompt = given.prompt,
            .tokens = given.tokens,
            .repeats = given.repeats,
        };
        cy_bench_decode_result result;
        const cy_status done = cy_bench_decode(&wanted, &result);
        if (done == CY_OK) print(&given, wanted.threads, &result);
        status = done == CY_OK ? cy_report_output(CY_EXIT_DONE) : cy_report_status(done);
    }
    cy_arguments_free(&arguments);
    return status;
}
