// cyclotron tokenizer: trains a tokenizer, and turns text into token ids and back.

#include <cyclotron/tokenizer.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/output.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INPUT_LIMIT ((size_t)16 << 30)

// ---- train

typedef struct train_values {
    int64_t vocab_size;
    const char *out;
    const char *end_token;
    const char *style;
    const char *field;
    int64_t threads;
    bool json;
} train_values;

static const cy_option train_options[] = {
    {"vocab-size", CY_OPTION_COUNT, offsetof(train_values, vocab_size), .low = 257, .high = 1 << 24,
        .required = true, .doc = "tokens in all: the end token, the 256 bytes and merges",
        .word = "N"},
    {"out", CY_OPTION_TEXT, offsetof(train_values, out), .required = true,
        .doc = "where to write tokenizer.json", .word = "FILE"},
    {"end-token", CY_OPTION_TEXT, offsetof(train_values, end_token), .initial = "<|endoftext|>",
        .doc = "the token that ends a document", .word = "TEXT"},
    {"style", CY_OPTION_CHOICE, offsetof(train_values, style), .initial = "gpt2",
        .values = "gpt2|llama3|qwen2|smollm", .doc = "how text is cut into words"},
    {"field", CY_OPTION_TEXT, offsetof(train_values, field), .initial = "text",
        .doc = "the field of .jsonl that holds the text", .word = "NAME"},
    {"threads", CY_OPTION_COUNT, offsetof(train_values, threads), .low = 0, .high = 1024,
        .doc = "threads to count words with (default: all cores)", .word = "N"},
    {"json", CY_OPTION_FLAG, offsetof(train_values, json), .doc = "print JSON only"},
};

static const cy_usage train_usage = {.name = "tokenizer train",
    .positional = "FILE...",
    .least = 1,
    .most = -1,
    .doc = "Trains a byte-level BPE tokenizer on .txt and .jsonl files (also .gz, .zst).",
    .options = train_options,
    .option_count = CY_COUNT(train_options)};

static int thread_count(int64_t asked)
{
    if (asked > 0) return (int)asked;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}

static cy_tokenizer_style style_of(const char *name)
{
    if (strcmp(name, "llama3") == 0) return CY_TOKENIZER_LLAMA3;
    if (strcmp(name, "qwen2") == 0) return CY_TOKENIZER_QWEN2;
    if (strcmp(name, "smollm") == 0) return CY_TOKENIZER_SMOLLM;
    return CY_TOKENIZER_GPT2;
}

static int train(const train_values *values, const cy_arguments *arguments)
{
    const cy_tokenizer_train_options options = {.vocab_size = (int32_t)values->vocab_size,
        .end_token = values->end_token,
        .style = style_of(values->style),
        .threads = thread_count(values->threads)};
    const double start = cy_clock_s();
    cy_tokenizer *tokenizer = NULL;
    uint64_t bytes = 0;
    cy_status status = cy_output_check(values->out, &cy_tokenizer_kind);
    if (status == CY_OK) {
        status = cy_tokenizer_train_files(&tokenizer, &bytes, arguments->positional,
            (size_t)arguments->count, values->field, &options);
    }
    if (status == CY_OK) {
        size_t length = 0;
        const char *json = cy_tokenizer_json(tokenizer, &length);
        status = cy_output_write(values->out, &cy_tokenizer_kind, json, length);
    }
    if (status != CY_OK) {
        cy_tokenizer_close(tokenizer);
        return cy_report_status(status);
    }
    const double seconds = cy_clock_s() - start;
    const int32_t made = cy_tokenizer_vocab_size(tokenizer);
    cy_tokenizer_close(tokenizer);
    if (values->json) {
        status = cy_report_json(json_pack("{s:i, s:I, s:o}", "vocab_size", made, "text_bytes",
                                    (json_int_t)bytes, "seconds", cy_json_real(seconds)),
            JSON_REAL_PRECISION(4));
    } else {
        printf("%s: %" PRId32 " tokens from %.2f MB of text in %.2f s\n", values->out, made,
            (double)bytes / 1e6, seconds);
    }
    if (made < options.vocab_size) {
        fprintf(stderr, "merges ran out: %" PRId32 " tokens of the %" PRId32 " asked for\n", made,
            options.vocab_size);
    }
    return cy_report_output(cy_report_status(status));
}

static int command_train(int argc, char **argv)
{
    train_values values;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &values, &train_usage, argc, argv);
    if (status == CY_RUN_COMMAND && cy_report_missing(arguments.positional, arguments.count)) {
        status = CY_EXIT_REQUEST;
    }
    if (status == CY_RUN_COMMAND) status = train(&values, &arguments);
    cy_arguments_free(&arguments);
    return status;
}

// ---- encode

// Reads all of a file, or of stdin without a name or with "-".
static cy_status read_input(cy_text *text, const cy_arguments *arguments)
{
    const char *path = arguments->count > 1 ? arguments->positional[1] : "-";
    if (strcmp(path, "-") != 0) return cy_file_read(text, path, INPUT_LIMIT);
    char piece[65536];
    for (;;) {
        const ssize_t got = cy_io_read(STDIN_FILENO, piece, sizeof(piece));
        if (got == 0) return cy_text_add_bytes(text, "", 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "read stdin");
        CY_TRY(cy_text_add_bytes(text, piece, (size_t)got));
    }
}

// What encode and decode share: one converts a text to ids, the other ids to a text.
typedef struct convert_values {
    bool json;         // of encode
    bool skip_special; // of decode
} convert_values;

typedef cy_status converter(
    const cy_tokenizer *tokenizer, const cy_text *input, const convert_values *values);

static const cy_option encode_options[] = {
    {"json", CY_OPTION_FLAG, offsetof(convert_values, json),
        .doc = "print one flat array of the whole input as one text"},
};

static const cy_usage encode_usage = {.name = "tokenizer encode",
    .positional = "TOKENIZER [FILE]",
    .least = 1,
    .most = 2,
    .doc = "Prints the token ids of a text: one line of ids per line of the text.",
    .more = "The end of a line is left out. Without FILE the text is read from stdin.",
    .options = encode_options,
    .option_count = CY_COUNT(encode_options)};

static void print_ids(const cy_tokens *tokens, const char *between)
{
    for (size_t i = 0; i < tokens->count; i++) {
        printf("%s%" PRId32, i > 0 ? between : "", tokens->ids[i]);
    }
}

static cy_status encode(
    const cy_tokenizer *tokenizer, const cy_text *text, const convert_values *values)
{
    cy_tokens tokens = {0};
    cy_status status = CY_OK;
    if (values->json) {
        status =
            cy_tokenizer_encode(tokenizer, &tokens, text->bytes, text->length, CY_ENCODE_DEFAULT);
        if (status == CY_OK) {
            printf("[");
            print_ids(&tokens, ", ");
            printf("]\n");
        }
        cy_tokens_free(&tokens);
        return status;
    }
    const char *end = text->bytes + text->length;
    for (const char *line = text->bytes; line < end && status == CY_OK;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *line_end = newline != NULL ? newline : end;
        tokens.count = 0;
        status = cy_tokenizer_encode(
            tokenizer, &tokens, line, (size_t)(line_end - line), CY_ENCODE_DEFAULT);
        if (status != CY_OK) break;
        print_ids(&tokens, " ");
        printf("\n");
        line = line_end + 1;
    }
    cy_tokens_free(&tokens);
    return status;
}

static int convert(converter *with, const cy_usage *usage, int argc, char **argv)
{
    convert_values values = {0};
    cy_arguments arguments;
    int exit_status = cy_options_parse(&arguments, &values, usage, argc, argv);
    if (exit_status == CY_RUN_COMMAND && cy_report_missing(arguments.positional, arguments.count)) {
        exit_status = CY_EXIT_REQUEST;
    } else if (exit_status == CY_RUN_COMMAND) {
        cy_tokenizer *tokenizer = NULL;
        cy_text text = {0};
        cy_status status = cy_tokenizer_open(&tokenizer, arguments.positional[0]);
        const int missing = status == CY_OK ? cy_tokenizer_missing_bytes(tokenizer) : 0;
        if (missing > 0 && with == encode) {
            cy_report_warning("%s: %d of 256 bytes have no token and are dropped",
                arguments.positional[0], missing);
        }
        if (status == CY_OK) status = read_input(&text, &arguments);
        if (status == CY_OK) status = with(tokenizer, &text, &values);
        exit_status = status == CY_OK ? cy_report_output(CY_EXIT_DONE) : cy_report_status(status);
        cy_text_free(&text);
        cy_tokenizer_close(tokenizer);
    }
    cy_arguments_free(&arguments);
    return exit_status;
}

static int command_encode(int argc, char **argv)
{
    return convert(encode, &encode_usage, argc, argv);
}

// ---- decode

static const cy_option decode_options[] = {
    {"skip-special", CY_OPTION_FLAG, offsetof(convert_values, skip_special),
        .doc = "leave special tokens out"},
};

static const cy_usage decode_usage = {.name = "tokenizer decode",
    .positional = "TOKENIZER [FILE]",
    .least = 1,
    .most = 2,
    .doc = "Prints the text of token ids: one line of text per line of ids.",
    .more = "What 'tokenizer encode --json' prints, an array, becomes the text as it was. Without "
            "FILE the ids are read from stdin.",
    .options = decode_options,
    .option_count = CY_COUNT(decode_options)};

// The ids between `at` and `end`: numbers with spaces, or commas in an array.
static cy_status read_ids(cy_tokens *tokens, const char *at, const char *end, bool array)
{
    tokens->count = 0;
    while (at < end) {
        if (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n' || (array && *at == ',')) {
            at++;
            continue;
        }
        char *after = NULL;
        errno = 0;
        const long long id = strtoll(at, &after, 10); // the text ends in a zero
        if (after == at || errno != 0 || id < 0 || id > INT32_MAX) {
            return CY_FAIL(
                CY_ERR_CORRUPT, "'%.*s' is no token id", (int)(end - at < 20 ? end - at : 20), at);
        }
        void *block = tokens->ids;
        CY_TRY(cy_memory_grow(&block, &tokens->capacity, tokens->count + 1, sizeof(int32_t)));
        tokens->ids = block;
        tokens->ids[tokens->count++] = (int32_t)id;
        at = after;
    }
    return CY_OK;
}

static cy_status print_decoded(
    const cy_tokenizer *tokenizer, const cy_tokens *tokens, bool skip_special)
{
    char *text = NULL;
    size_t bytes = 0;
    CY_TRY(cy_tokenizer_decode(tokenizer, &text, &bytes, tokens->ids, tokens->count,
        skip_special ? CY_DECODE_SKIP_SPECIAL : CY_DECODE_DEFAULT));
    fwrite(text, 1, bytes, stdout);
    cy_tokenizer_free_text(text);
    return CY_OK;
}

static cy_status decode(
    const cy_tokenizer *tokenizer, const cy_text *input, const convert_values *values)
{
    const bool skip_special = values->skip_special;
    cy_tokens tokens = {0};
    cy_status status = CY_OK;
    const char *at = input->bytes, *end = input->bytes + input->length;
    const char *first = at + strspn(at, " \t\r\n");
    if (*first == '[') {
        const char *close = strchr(first, ']');
        if (close == NULL) {
            return CY_FAIL(CY_ERR_CORRUPT, "the array of token ids has no end");
        }
        const char *after = close + 1 + strspn(close + 1, " \t\r\n");
        if (after != end) {
            return CY_FAIL(
                CY_ERR_CORRUPT, "something follows the array of token ids: '%.20s'", after);
        }
        status = read_ids(&tokens, first + 1, close, true);
        if (status == CY_OK) status = print_decoded(tokenizer, &tokens, skip_special);
    } else {
        while (at < end && status == CY_OK) {
            const char *newline = memchr(at, '\n', (size_t)(end - at));
            const char *line_end = newline != NULL ? newline : end;
            status = read_ids(&tokens, at, line_end, false);
            if (status == CY_OK) status = print_decoded(tokenizer, &tokens, skip_special);
            if (status == CY_OK) printf("\n");
            at = line_end + 1;
        }
    }
    cy_tokens_free(&tokens);
    return status;
}

static int command_decode(int argc, char **argv)
{
    return convert(decode, &decode_usage, argc, argv);
}

int cy_command_tokenizer(int argc, char **argv)
{
    static const cy_command commands[] = {
        {"train", command_train, "train a tokenizer on text"},
        {"encode", command_encode, "text to token ids"},
        {"decode", command_decode, "token ids to text"},
    };
    return cy_commands_run(commands, CY_COUNT(commands), "tokenizer", argc, argv);
}
