// cyclotron bench decode: measures on random tokens how fast a saved model reads a prompt and
// generates tokens.
//
// The time to the first token grows with the prompt. The time of a later token hardly does: it
// reads all weights once, and the keys and values of the context. So a whole answer takes
//
//     first_token + (tokens - 1) / decode_tok_s.

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/random.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/report.h"
#include "config/config.h"
#include "infer/decoder.h"
#include "infer/sampler.h"
#include "kernel/peak.h"

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

// ---- measuring

typedef struct timing {
    double first_token_s; // from the prompt's ids to the choice of the first token
    double decode_tok_s;  // of the tokens after the first
    double decode_tok_s_min, decode_tok_s_max;
    double weight_bytes_s; // the rate at which weights are read, at that speed
    double weight_bytes;   // that each token reads
    double cache_bytes;
    double context_bytes; // of keys and values that a token reads, mean over the tokens
    double read_bytes_s;  // the memory's rate with the same threads: the best of before and after
    // The rate of reading only the weights with the same threads, measured after each run, and the
    // share of it that the run reached: a memory whose rate changes does not change the share.
    double beside_bytes_s, share_beside; // medians over the runs
    cy_dtype dtype;
    int64_t prompt, tokens; // that were read and generated
} timing;

typedef struct bench {
    const values *given;
    const char *path; // borrowed: a checkpoint, a folder of them, or a Hugging Face folder
    int threads;
    cy_decoder decoder;
    bool decoding; // the decoder is open
    cy_sampler sampler;
    float *logits;          // owned, [vocab]
    int64_t prompt_count;   // tokens of the prompt
    int64_t tokens;         // generated behind it
    int32_t *prompt;        // owned, [prompt_count]
    double *first, *speed;  // owned, [repeats] each
    double *beside, *share; // owned, [repeats] each
} bench;

// Chooses lengths that were not given so that they fit into the model's positions, where possible.
static void choose_lengths(bench *run, int64_t positions)
{
    run->tokens = run->given->tokens;
    run->prompt_count = run->given->prompt;
    if (run->tokens == 0) {
        const int64_t room =
            run->prompt_count > 0 ? positions - run->prompt_count : positions - positions / 2;
        run->tokens = room < 2 ? 2 : cy_min(64, room);
    }
    if (run->prompt_count == 0) {
        const int64_t room = positions - run->tokens;
        run->prompt_count = room < 1 ? 1 : cy_min(128, room);
    }
}

static cy_status open_decoder(bench *run, cy_checkpoint *checkpoint, timing *result)
{
    CY_TRY(cy_model_find(checkpoint, &result->dtype, run->path));
    const cy_model_shape *shape = &checkpoint->model;
    if (run->given->dtype != NULL) CY_TRY(cy_model_dtype(&result->dtype, run->given->dtype));
    choose_lengths(run, shape->max_positions);
    if (run->prompt_count + run->tokens > shape->max_positions) {
        return CY_FAIL(CY_ERR_REQUEST,
            "a prompt of %lld and %lld tokens do not fit into the model's %lld positions",
            (long long)run->prompt_count, (long long)run->tokens, (long long)shape->max_positions);
    }
    result->prompt = run->prompt_count;
    result->tokens = run->tokens;
    const cy_decoder_options opening = {
        .shape = *shape,
        .dtype = result->dtype,
        .capacity = run->prompt_count + run->tokens,
        .threads = run->threads,
        .first_core = -1,
        .isa = run->given->isa,
    };
    CY_TRY(cy_decoder_open(&run->decoder, &opening));
    run->decoding = true;
    return cy_model_load(&run->decoder, checkpoint);
}

static cy_status open_tables(bench *run)
{
    const int64_t vocab = run->decoder.options.shape.vocab;
    const size_t repeats = (size_t)run->given->repeats;
    CY_TRY(cy_sampler_open(&run->sampler, vocab));
    CY_TRY(CY_ALLOC(&run->logits, (size_t)vocab));
    CY_TRY(CY_ALLOC(&run->first, repeats));
    CY_TRY(CY_ALLOC(&run->speed, repeats));
    CY_TRY(CY_ALLOC(&run->beside, repeats));
    CY_TRY(CY_ALLOC(&run->share, repeats));
    CY_TRY(CY_ALLOC(&run->prompt, (size_t)run->prompt_count));
    const uint64_t key = cy_random_key(0, "bench");
    for (int64_t i = 0; i < run->prompt_count; i++) {
        run->prompt[i] = (int32_t)(cy_random_bits(key, (uint64_t)i) % (uint64_t)vocab);
    }
    return CY_OK;
}

static cy_status next(bench *run, const int32_t *tokens, int64_t count, int32_t *token)
{
    const cy_sampling_params greedy = cy_sampling_defaults();
    CY_TRY(cy_decoder_read(&run->decoder, run->logits, tokens, count));
    return cy_sample_token(
        token, &run->sampler, run->logits, &greedy, run->decoder.length, NULL, 0);
}

#define BESIDE_PASSES 5

// Counts every parameter, except an embedding that is only looked up: a tied one is also the matrix
// of the head.
static double weight_bytes(const cy_decoder *decoder)
{
    int64_t elements = cy_manifest_elements(&decoder->storage.manifest);
    const cy_model_shape *shape = &decoder->options.shape;
    if (!shape->tied) elements -= shape->vocab * shape->hidden;
    return (double)elements * (double)cy_dtype_size(decoder->options.dtype);
}

static cy_status time_once(bench *run, int64_t repeat)
{
    int32_t token;
    cy_decoder_rewind(&run->decoder, 0);
    const double start = cy_clock_s();
    CY_TRY(next(run, run->prompt, run->prompt_count, &token));
    const double first = cy_clock_s();
    for (int64_t i = 1; i < run->tokens; i++)
        CY_TRY(next(run, &token, 1, &token));
    const double end = cy_clock_s();
    if (repeat < 0) return CY_OK;
    run->first[repeat] = first - start;
    run->speed[repeat] = (double)(run->tokens - 1) / (end - first);
    const cy_view weights = run->decoder.weights;
    CY_TRY(cy_read_bandwidth_measure(&run->beside[repeat], &run->decoder.queue, weights.data,
        cy_view_bytes(weights), BESIDE_PASSES));
    run->share[repeat] = run->speed[repeat] * weight_bytes(&run->decoder) / run->beside[repeat];
    return CY_OK;
}

// Counts the keys and values before the middle of the generated tokens.
static double context_bytes(const bench *run)
{
    const cy_model_shape *shape = &run->decoder.options.shape;
    const int64_t positions = run->prompt_count + run->tokens / 2;
    const int64_t seen = shape->window > 0 && shape->window < positions ? shape->window : positions;
    return 2.0 * (double)(seen * shape->layers * shape->kv_heads * shape->head_dim) *
        (double)cy_dtype_size(run->decoder.options.dtype);
}

static cy_status measure_reading(bench *run, double *bytes_s)
{
    cy_bandwidth bandwidth;
    CY_TRY(cy_bandwidth_measure(&bandwidth, &run->decoder.queue, CY_BANDWIDTH_BYTES));
    if (bandwidth.read > *bytes_s) *bytes_s = bandwidth.read;
    return CY_OK;
}

static cy_status measure(bench *run, timing *result)
{
    const int64_t repeats = run->given->repeats;
    CY_TRY(measure_reading(run, &result->read_bytes_s));
    for (int64_t i = -1; i < repeats; i++) // the first one warms up
        CY_TRY(time_once(run, i));
    CY_TRY(measure_reading(run, &result->read_bytes_s));
    result->context_bytes = context_bytes(run);
    result->first_token_s = cy_median(run->first, (int)repeats);
    result->decode_tok_s = cy_median(run->speed, (int)repeats);
    result->beside_bytes_s = cy_median(run->beside, (int)repeats);
    result->share_beside = cy_median(run->share, (int)repeats);
    result->decode_tok_s_min = run->speed[0];
    result->decode_tok_s_max = run->speed[repeats - 1];
    result->weight_bytes = weight_bytes(&run->decoder);
    result->weight_bytes_s = result->weight_bytes * result->decode_tok_s;
    result->cache_bytes = (double)cy_decoder_cache_bytes(&run->decoder);
    return CY_OK;
}

static void close_all(bench *run)
{
    cy_memory_free(run->prompt);
    cy_memory_free(run->share);
    cy_memory_free(run->beside);
    cy_memory_free(run->speed);
    cy_memory_free(run->first);
    cy_memory_free(run->logits);
    cy_sampler_close(&run->sampler);
    if (run->decoding) cy_decoder_close(&run->decoder);
}

// Fails, with the numbers, where prompt and tokens do not fit into the model's positions.
static cy_status time_model(timing *result, const values *given, const char *path, int threads)
{
    bench run = {.given = given, .path = path, .threads = threads};
    cy_checkpoint checkpoint = {0};
    cy_status status = open_decoder(&run, &checkpoint, result);
    if (checkpoint.path != NULL) cy_checkpoint_close(&checkpoint);
    if (status == CY_OK) status = open_tables(&run);
    if (status == CY_OK) status = measure(&run, result);
    close_all(&run);
    return status;
}

// ---- the command

static void print(const values *given, int threads, const timing *r)
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
        const int threads = given.threads > 0 ? (int)given.threads : cy_machine_found().cores;
        timing result = {0};
        const cy_status done = time_model(&result, &given, arguments.positional[0], threads);
        if (done == CY_OK) print(&given, threads, &result);
        status = done == CY_OK ? cy_report_output(CY_EXIT_DONE) : cy_report_status(done);
    }
    cy_arguments_free(&arguments);
    return status;
}
