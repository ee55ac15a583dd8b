// Times a saved model on random tokens: reading a prompt, and generating tokens one by one.

#include "infer/bench_decode.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/random.h"
#include "infer/decoder.h"
#include "infer/sampler.h"
#include "kernel/peak.h"

typedef struct bench {
    const cy_bench_decode_options *options;
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

static cy_status take(void **block, int64_t count, size_t size)
{
    return cy_memory_alloc(block, (size_t)count, size);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Chooses lengths that were not given so that they fit into the model's positions, where possible.
static void choose_lengths(bench *run, int64_t positions)
{
    const cy_bench_decode_options *options = run->options;
    run->tokens = options->tokens;
    run->prompt_count = options->prompt;
    if (run->tokens == 0) {
        const int64_t room =
            run->prompt_count > 0 ? positions - run->prompt_count : positions - positions / 2;
        run->tokens = room < 2 ? 2 : least(64, room);
    }
    if (run->prompt_count == 0) {
        const int64_t room = positions - run->tokens;
        run->prompt_count = room < 1 ? 1 : least(128, room);
    }
}

static cy_status open_decoder(bench *run, cy_checkpoint *checkpoint, cy_bench_decode_result *result)
{
    const cy_bench_decode_options *options = run->options;
    CY_TRY(cy_model_find(checkpoint, &result->dtype, options->path));
    const cy_model_shape *shape = &checkpoint->model;
    if (options->dtype != NULL) CY_TRY(cy_model_dtype(&result->dtype, options->dtype));
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
        .threads = options->threads,
        .first_core = -1,
        .isa = options->isa,
    };
    CY_TRY(cy_decoder_open(&run->decoder, &opening));
    run->decoding = true;
    return cy_model_load(&run->decoder, checkpoint);
}

static cy_status open_tables(bench *run)
{
    const int64_t vocab = run->decoder.options.shape.vocab;
    void *block = NULL;
    CY_TRY(cy_sampler_open(&run->sampler, vocab));
    CY_TRY(take(&block, vocab, sizeof(float)));
    run->logits = block;
    CY_TRY(take(&block, run->options->repeats, sizeof(double)));
    run->first = block;
    CY_TRY(take(&block, run->options->repeats, sizeof(double)));
    run->speed = block;
    CY_TRY(take(&block, run->options->repeats, sizeof(double)));
    run->beside = block;
    CY_TRY(take(&block, run->options->repeats, sizeof(double)));
    run->share = block;
    CY_TRY(take(&block, run->prompt_count, sizeof(int32_t)));
    run->prompt = block;
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

static cy_status measure(bench *run, cy_bench_decode_result *result)
{
    const int64_t repeats = run->options->repeats;
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

cy_status cy_bench_decode(const cy_bench_decode_options *options, cy_bench_decode_result *result)
{
    bench run = {.options = options};
    cy_checkpoint checkpoint = {0};
    *result = (cy_bench_decode_result){0};
    cy_status status = open_decoder(&run, &checkpoint, result);
    if (checkpoint.path != NULL) cy_checkpoint_close(&checkpoint);
    if (status == CY_OK) status = open_tables(&run);
    if (status == CY_OK) status = measure(&run, result);
    close_all(&run);
    return status;
}
