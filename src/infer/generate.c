// The public face of generation, cyclotron/generate.h. The cache is in decoder.c, the forward pass
// in model/decode.c.

#include <cyclotron/generate.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/platform.h"
#include "checkpoint/identity.h"
#include "infer/model.h"
#include "infer/sampler.h"
#include "infer/stop_tokens.h"
#include "infer/utf8_stream.h"

#include <math.h>

#define DEFAULT_CONTEXT_MAX 4096

struct cy_generator {
    cy_tokenizer *tokenizer; // owned
    cy_decoder decoder;
    bool decoding;        // the decoder is open
    bool knows_tokenizer; // it was compared, or there is nothing that it should be
    cy_sampler sampler;
    float *logits;    // owned, [vocab]
    int32_t *unnamed; // owned, [unnamed_count]: ids of the model that the tokenizer has not
    int64_t unnamed_count;
    cy_stop_tokens stops;
};

// Vocabularies are padded, so a model has logits for ids that stand for no text. One that ends a
// text may still be chosen.
static cy_status find_unnamed(cy_generator *generator, int64_t vocab)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)vocab, sizeof(int32_t)));
    generator->unnamed = block;
    for (int32_t id = 0; id < vocab; id++) {
        size_t bytes;
        const bool named = cy_tokenizer_token(generator->tokenizer, id, &bytes) != NULL;
        if (named || cy_stop_tokens_has(&generator->stops, id)) continue;
        generator->unnamed[generator->unnamed_count++] = id;
    }
    return CY_OK;
}

static cy_status open_parts(cy_generator *generator, const cy_generator_options *options,
    cy_checkpoint *checkpoint, const char *path)
{
    void *block = NULL;
    cy_dtype dtype;
    if (options->context < 0 || options->context > INT32_MAX) {
        return CY_FAIL(CY_ERR_REQUEST, "a context of %lld tokens: 0 to %d are taken",
            (long long)options->context, INT32_MAX);
    }
    CY_TRY(cy_model_find(checkpoint, &dtype, path));
    if (options->dtype != NULL) CY_TRY(cy_model_dtype(&dtype, options->dtype));
    CY_TRY(cy_model_tokenizer(&generator->tokenizer, checkpoint));
    generator->knows_tokenizer = checkpoint->step == 0 || checkpoint->identity_json != NULL;
    CY_TRY(cy_identity_check_own_tokenizer(checkpoint, generator->tokenizer));
    const cy_model_shape *shape = &checkpoint->model;
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    const int64_t most =
        shape->max_positions < DEFAULT_CONTEXT_MAX ? shape->max_positions : DEFAULT_CONTEXT_MAX;
    const cy_decoder_options decoding = {
        .shape = *shape,
        .dtype = dtype,
        .capacity = options->context > 0 ? options->context : most,
        .threads = options->threads > 0 ? options->threads : cpu.cores,
        .first_core = -1,
        .isa = options->isa != NULL ? options->isa : "auto",
    };
    CY_TRY(cy_decoder_open(&generator->decoder, &decoding));
    generator->decoding = true;
    CY_TRY(cy_model_load(&generator->decoder, checkpoint));
    CY_TRY(cy_sampler_open(&generator->sampler, shape->vocab));
    CY_TRY(cy_memory_alloc(&block, (size_t)shape->vocab, sizeof(float)));
    generator->logits = block;
    CY_TRY(cy_stop_tokens_find(&generator->stops, checkpoint, generator->tokenizer));
    return find_unnamed(generator, shape->vocab);
}

typedef struct opening {
    const cy_generator_options *options;
    cy_generator *generator; // made
} opening;

static cy_status open_generator(void *context, const char *path)
{
    opening *run = context;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(cy_generator)));
    cy_generator *made = block;
    cy_checkpoint checkpoint = {0};
    const cy_status status = open_parts(made, run->options, &checkpoint, path);
    if (checkpoint.path != NULL) cy_checkpoint_close(&checkpoint);
    if (status != CY_OK) {
        cy_generator_close(made);
        return status;
    }
    run->generator = made;
    return CY_OK;
}

cy_status cy_generator_open(cy_generator **generator, const cy_generator_options *options)
{
    opening run = {.options = options};
    CY_TRY(cy_checkpoint_read_newest(options->path, open_generator, &run));
    *generator = run.generator;
    return CY_OK;
}

int cy_generator_knows_tokenizer(const cy_generator *generator)
{
    return generator->knows_tokenizer;
}

void cy_generator_close(cy_generator *generator)
{
    if (generator == NULL) return;
    cy_memory_free(generator->logits);
    cy_memory_free(generator->unnamed);
    cy_sampler_close(&generator->sampler);
    if (generator->decoding) cy_decoder_close(&generator->decoder);
    cy_tokenizer_close(generator->tokenizer);
    cy_memory_free(generator);
}

cy_generate_request cy_generate_defaults(void)
{
    return (cy_generate_request){.max_tokens = 128, .top_p = 1.0, .repetition_penalty = 1.0};
}

// One call of cy_generate.
typedef struct generation {
    cy_generator *generator;
    const cy_generate_request *request;
    cy_sampling_params spec;
    cy_tokens tokens; // prompt, then what was generated
    size_t prompt_tokens;
    cy_utf8_stream characters;
    cy_text text;
    size_t told; // bytes of text that the callback has seen
    bool ended;
} generation;

static void tell(generation *run)
{
    const cy_generate_request *request = run->request;
    if (request->on_text == NULL || run->told == run->text.length) return;
    request->on_text(request->context, run->text.bytes + run->told, run->text.length - run->told);
    run->told = run->text.length;
}

// Chooses the next token from the logits and appends it, unless it is the end.
static cy_status choose(generation *run)
{
    cy_generator *generator = run->generator;
    int32_t token;
    for (int64_t i = 0; i < generator->unnamed_count; i++)
        generator->logits[generator->unnamed[i]] = -INFINITY;
    CY_TRY(cy_sample_token(&token, &generator->sampler, generator->logits, &run->spec,
        (int64_t)run->tokens.count, run->tokens.ids, (int64_t)run->tokens.count));
    if (cy_stop_tokens_has(&generator->stops, token)) {
        run->ended = true;
        return CY_OK;
    }
    void *block = run->tokens.ids;
    CY_TRY(cy_memory_grow(&block, &run->tokens.capacity, run->tokens.count + 1, sizeof(int32_t)));
    run->tokens.ids = block;
    run->tokens.ids[run->tokens.count++] = token;
    size_t bytes = 0;
    const char *text = cy_tokenizer_token(generator->tokenizer, token, &bytes);
    CY_TRY(cy_utf8_stream_add(&run->characters, &run->text, text, bytes));
    tell(run);
    return CY_OK;
}

static cy_status prefill(generation *run)
{
    cy_generator *generator = run->generator;
    CY_TRY(cy_tokenizer_encode(generator->tokenizer, &run->tokens, run->request->prompt,
        run->request->prompt_bytes, CY_ENCODE_DEFAULT));
    run->prompt_tokens = run->tokens.count;
    const int64_t capacity = generator->decoder.options.capacity;
    if (run->tokens.count == 0) {
        return CY_FAIL(CY_ERR_REQUEST, "the prompt is empty: at least one token is needed");
    }
    if ((int64_t)run->tokens.count > capacity) {
        const int64_t positions = generator->decoder.options.shape.max_positions;
        const cy_status status =
            CY_FAIL(CY_ERR_REQUEST, "the prompt has %zu tokens, the context has room for %lld",
                run->tokens.count, (long long)capacity);
        if (capacity < positions) {
            cy_error_set_hint("the model has more positions: ask for a larger context");
        }
        return status;
    }
    const int64_t vocab = generator->decoder.options.shape.vocab;
    for (size_t i = 0; i < run->tokens.count; i++) {
        if (run->tokens.ids[i] < vocab) continue;
        return CY_FAIL(CY_ERR_REQUEST,
            "the prompt's token %d is not among the %lld that the model knows", run->tokens.ids[i],
            (long long)vocab);
    }
    cy_decoder_rewind(&generator->decoder, 0);
    CY_TRY(cy_decoder_set_reach(
        &generator->decoder, (int64_t)run->tokens.count, run->request->max_tokens));
    return cy_decoder_read(
        &generator->decoder, generator->logits, run->tokens.ids, (int64_t)run->tokens.count);
}

static cy_status generate(generation *run, cy_generated *generated)
{
    cy_generator *generator = run->generator;
    const double start = cy_clock_s();
    CY_TRY(cy_sampling_check(&run->spec));
    if (run->request->max_tokens < 0) {
        return CY_FAIL(CY_ERR_REQUEST, "max_tokens is %lld, must be 0 or more",
            (long long)run->request->max_tokens);
    }
    CY_TRY(prefill(run));
    if (run->request->max_tokens > 0) CY_TRY(choose(run));
    const double first = cy_clock_s();

    const int64_t capacity = generator->decoder.options.capacity;
    int64_t made = (int64_t)(run->tokens.count - run->prompt_tokens);
    while (!run->ended && made < run->request->max_tokens && generator->decoder.length < capacity) {
        CY_TRY(cy_decoder_read(
            &generator->decoder, generator->logits, &run->tokens.ids[run->tokens.count - 1], 1));
        CY_TRY(choose(run));
        made = (int64_t)(run->tokens.count - run->prompt_tokens);
    }
    CY_TRY(cy_utf8_stream_finish(&run->characters, &run->text));
    CY_TRY(cy_text_add_bytes(&run->text, "", 0)); // no text is "", not NULL
    tell(run);
    const double seconds = cy_clock_s() - first;
    generated->prefill_s = first - start;
    generated->decode_tok_s = made > 1 ? (double)(made - 1) / seconds : 0.0;
    return CY_OK;
}

cy_status cy_generate(
    cy_generator *generator, const cy_generate_request *request, cy_generated *generated)
{
    generation run = {
        .generator = generator,
        .request = request,
        .spec = {.temperature = request->temperature,
            .top_k = request->top_k,
            .top_p = request->top_p,
            .repetition_penalty = request->repetition_penalty,
            .seed = request->seed},
    };
    *generated = (cy_generated){0};
    const cy_status status = generate(&run, generated);
    if (status != CY_OK) {
        cy_tokens_free(&run.tokens);
        cy_text_free(&run.text);
        return status;
    }
    // The list keeps its memory; what came before the new tokens is moved away.
    generated->count = (int64_t)(run.tokens.count - run.prompt_tokens);
    for (int64_t i = 0; i < generated->count; i++) {
        run.tokens.ids[i] = run.tokens.ids[(size_t)i + run.prompt_tokens];
    }
    generated->tokens = run.tokens.ids;
    generated->prompt_tokens = (int64_t)run.prompt_tokens;
    generated->text = run.text.bytes;
    generated->text_bytes = run.text.length;
    generated->ended = run.ended;
    return CY_OK;
}

void cy_generated_free(cy_generated *generated)
{
    cy_memory_free(generated->tokens);
    cy_memory_free(generated->text);
    *generated = (cy_generated){0};
}
