// cyclotron data: makes token shards from text, and shows what shards hold.

#define _GNU_SOURCE
#include "base/clock.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/signal_watch.h"
#include "data/prepare.h"
#include "observe/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// ---- prepare

typedef struct prepare_values {
    const char *tokenizer;
    const char *out;
    const char *field;
    const char *end_token;
    int64_t threads;
    int64_t shard_tokens;
    bool json;
} prepare_values;

static const cy_option prepare_options[] = {
    {"tokenizer", CY_OPTION_TEXT, offsetof(prepare_values, tokenizer), .required = true,
        .doc = "tokenizer.json, or a folder with one", .word = "FILE"},
    {"out", CY_OPTION_TEXT, offsetof(prepare_values, out), .required = true,
        .doc = "the folder to make", .word = "DIR"},
    {"field", CY_OPTION_TEXT, offsetof(prepare_values, field), .initial = "text",
        .doc = "the field of .jsonl that holds the text", .word = "NAME"},
    {"end-token", CY_OPTION_TEXT, offsetof(prepare_values, end_token),
        .doc = "the token that ends a document (default: the tokenizer's)", .word = "TEXT"},
    {"threads", CY_OPTION_COUNT, offsetof(prepare_values, threads), .low = 0, .high = 1024,
        .doc = "threads to tokenize with (default: all cores)", .word = "N"},
    {"shard-tokens", CY_OPTION_COUNT, offsetof(prepare_values, shard_tokens),
        .initial = "268435456", .low = 1, .high = 1e15,
        .doc = "a shard ends with the piece of text that fills so many tokens", .word = "N"},
    {"json", CY_OPTION_FLAG, offsetof(prepare_values, json), .doc = "print JSON only"},
};

static const cy_usage prepare_usage = {.name = "data prepare",
    .positional = "FILE...",
    .least = 1,
    .most = -1,
    .doc = "Makes a folder of token shards of .txt and .jsonl files (also .gz, .zst).",
    .more = "A .txt file is a document, a line of .jsonl is one; a document ends with the end "
            "token.",
    .options = prepare_options,
    .option_count = CY_COUNT(prepare_options)};

typedef struct reporting {
    cy_progress progress;
    bool open;
    bool silent;
    int64_t done;
    cy_signal_watch stop;
} reporting;

static bool report_progress(void *context, int64_t done_bytes, int64_t total_bytes)
{
    reporting *r = context;
    if (r->silent) return cy_signal_watch_stop(&r->stop) == 0;
    const double now = cy_clock_s();
    if (!r->open) {
        const cy_progress_writer writer = {
            .write = cy_report_progress, .terminal = isatty(STDERR_FILENO)};
        cy_progress_open(&r->progress, &writer, "preparing", "bytes", total_bytes, now);
        r->open = true;
    }
    cy_progress_update(&r->progress, done_bytes, now);
    r->done = done_bytes;
    return cy_signal_watch_stop(&r->stop) == 0;
}

static cy_status find_end_token(
    int32_t *id, const cy_tokenizer *tokenizer, const prepare_values *values)
{
    *id = -1;
    if (values->end_token == NULL) return CY_OK;
    *id = cy_tokenizer_find(tokenizer, values->end_token, strlen(values->end_token));
    if (*id >= 0) return CY_OK;
    return CY_FAIL(CY_ERR_REQUEST, "--end-token=%s: %s has no such token", values->end_token,
        values->tokenizer);
}

static cy_status print_result(const cy_prepare_result *result, const prepare_values *values)
{
    if (values->json) {
        return cy_report_json(
            json_pack("{s:I, s:I, s:I, s:i, s:i}", "tokens", (json_int_t)result->tokens,
                "documents", (json_int_t)result->documents, "text_bytes",
                (json_int_t)result->text_bytes, "shards", result->shards, "token_bytes",
                result->token_bytes),
            0);
    }
    printf("%s: %" PRId64 " tokens of %d bytes, %" PRId64
           " document%s, %.2f bytes of text a token, %d shard%s\n",
        values->out, result->tokens, result->token_bytes, result->documents,
        result->documents == 1 ? "" : "s",
        result->tokens > 0 ? (double)result->text_bytes / (double)result->tokens : 0.0,
        result->shards, result->shards == 1 ? "" : "s");
    return CY_OK;
}

static cy_status prepare(const prepare_values *values, const cy_arguments *arguments, reporting *r)
{
    cy_tokenizer *tokenizer = NULL;
    CY_TRY(cy_tokenizer_open(&tokenizer, values->tokenizer));
    if (cy_tokenizer_missing_bytes(tokenizer) > 0) {
        cy_report_warning("%s: %d of 256 bytes have no token and are dropped", values->tokenizer,
            cy_tokenizer_missing_bytes(tokenizer));
    }
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    cy_prepare_options options = {.out = values->out,
        .shard_tokens = values->shard_tokens,
        .corpus = {.tokenizer = tokenizer,
            .paths = arguments->positional,
            .count = arguments->count,
            .field = values->field,
            .threads = values->threads > 0 ? (int)values->threads : (int)(cores > 0 ? cores : 1),
            .progress = report_progress,
            .progress_context = r}};
    cy_status status = find_end_token(&options.corpus.end_token, tokenizer, values);
    cy_prepare_result result;
    if (status == CY_OK) status = cy_data_prepare(&result, &options);
    if (r->open && status == CY_OK) cy_progress_close(&r->progress, r->done, cy_clock_s());
    if (r->open && status != CY_OK) cy_progress_clear(&r->progress);
    if (status == CY_OK) status = print_result(&result, values);
    cy_tokenizer_close(tokenizer);
    return status;
}

static int command_prepare(int argc, char **argv)
{
    prepare_values values;
    cy_arguments arguments;
    int exit_status = cy_options_parse(&arguments, &values, &prepare_usage, argc, argv);
    bool missing = false;
    if (exit_status == CY_RUN_COMMAND) {
        missing = cy_report_missing(&values.tokenizer, 1);
        missing = cy_report_missing(arguments.positional, arguments.count) || missing;
    }
    if (missing) {
        exit_status = CY_EXIT_REQUEST;
    } else if (exit_status == CY_RUN_COMMAND) {
        reporting r = {.silent = values.json};
        cy_signal_watch_open(&r.stop, false);
        const cy_status status = prepare(&values, &arguments, &r);
        exit_status = status == CY_OK ? cy_report_output(CY_EXIT_DONE) : cy_report_status(status);
        if (status == CY_ERR_STOPPED) exit_status = 128 + cy_signal_watch_stop(&r.stop);
        cy_signal_watch_close(&r.stop);
    }
    cy_arguments_free(&arguments);
    return exit_status;
}

// ---- inspect

typedef struct inspect_values {
    bool json;
} inspect_values;

static const cy_option inspect_options[] = {
    {"json", CY_OPTION_FLAG, offsetof(inspect_values, json), .doc = "print JSON only"},
};

static const cy_usage inspect_usage = {.name = "data inspect",
    .positional = "DIR",
    .least = 1,
    .most = 1,
    .doc = "Says what a folder of token shards holds, and checks all of it.",
    .options = inspect_options,
    .option_count = CY_COUNT(inspect_options)};

static int command_inspect(int argc, char **argv)
{
    inspect_values values;
    cy_arguments arguments;
    int exit_status = cy_options_parse(&arguments, &values, &inspect_usage, argc, argv);
    if (exit_status == CY_RUN_COMMAND) {
        cy_text text = {0};
        const cy_status status = cy_data_inspect(&text, arguments.positional[0], values.json);
        if (status == CY_OK) fwrite(text.bytes, 1, text.length, stdout);
        exit_status = status == CY_OK ? cy_report_output(CY_EXIT_DONE) : cy_report_status(status);
        cy_text_free(&text);
    }
    cy_arguments_free(&arguments);
    return exit_status;
}

int cy_command_data(int argc, char **argv)
{
    static const cy_command commands[] = {
        {"prepare", command_prepare, "text to token shards"},
        {"inspect", command_inspect, "what token shards hold"},
    };
    return cy_commands_run(commands, CY_COUNT(commands), "data", argc, argv);
}
