// Generates text (cyclotron/generate.h): opens a model, reads a prompt, chooses token after token
// until one ends the text, and passes on whole characters. The cache is in decoder.c, the forward
// pass in model/decode.c.

#include "infer/generate.h"

#include <cyclotron/generate.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/platform.h"
#include "checkpoint/identity.h"
#include "infer/decoder.h"
#include "infer/sampler.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>

// ---- stop tokens

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

bool cy_stop_tokens_has(const cy_stop_tokens *stops, int32_t token)
{
    for (int i = 0; i < stops->count; i++) {
        if (stops->tokens[i] == token) return true;
    }
    return false;
}

// Some files have -1 for no token.
static cy_status add_stop(cy_stop_tokens *stops, int64_t token, const char *path)
{
    if (token < 0 || token > INT32_MAX || cy_stop_tokens_has(stops, (int32_t)token)) return CY_OK;
    if (stops->count == CY_STOP_TOKENS_MAX) {
        return CY_FAIL(
            CY_ERR_UNSUPPORTED, "%s: eos_token_id: more than %d tokens", path, CY_STOP_TOKENS_MAX);
    }
    stops->tokens[stops->count++] = (int32_t)token;
    return CY_OK;
}

static cy_status add_stops(cy_stop_tokens *stops, const json_t *value, const char *path)
{
    if (value == NULL || json_is_null(value)) return CY_OK;
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *token = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(token)) {
            return CY_FAIL(
                CY_ERR_CORRUPT, "%s: eos_token_id is neither a token id nor a list of them", path);
        }
        CY_TRY(add_stop(stops, json_integer_value(token), path));
    }
    return CY_OK;
}

// Adds the tokens of eos_token_id in a file of the folder; no file adds none.
static cy_status add_file(cy_stop_tokens *stops, const char *folder, const char *name)
{
    cy_text path = {0}, text = {0};
    json_error_t error;
    cy_status status = cy_text_add(&path, "%s/%s", folder, name);
    bool there = false;
    if (status == CY_OK) status = cy_path_find(&there, path.bytes);
    if (there) {
        status = cy_file_read(&text, path.bytes, CONFIG_BYTES_MAX);
        if (status == CY_OK) {
            json_t *root = json_loadb(text.bytes, text.length, JSON_REJECT_DUPLICATES, &error);
            status = root == NULL
                ? CY_FAIL(CY_ERR_CORRUPT, "%s: line %d, column %d: %s", path.bytes, error.line,
                      error.column, error.text)
                : add_stops(stops, json_object_get(root, "eos_token_id"), path.bytes);
            json_decref(root);
        }
    }
    cy_text_free(&text);
    cy_text_free(&path);
    return status;
}

cy_status cy_stop_tokens_find(
    cy_stop_tokens *stops, const cy_checkpoint *checkpoint, const cy_tokenizer *tokenizer)
{
    cy_stop_tokens found = {0};
    CY_TRY(add_file(&found, checkpoint->path, "generation_config.json"));
    if (found.count == 0) {
        if (checkpoint->is_hf) CY_TRY(add_file(&found, checkpoint->path, "config.json"));
        CY_TRY(add_stop(&found, checkpoint->model.eos, checkpoint->path));
        CY_TRY(add_stop(&found, cy_tokenizer_end_token(tokenizer), checkpoint->path));
    }
    *stops = found;
    return CY_OK;
}

// ---- UTF-8 streams

// Whether a byte may be number `place` of the character that `lead` begins. Behind some leads the
// first byte has a smaller range, which excludes overlong forms, surrogates and numbers beyond
// U+10FFFF.
static bool may_follow(unsigned char lead, int place, unsigned char byte)
{
    unsigned char low = 0x80, high = 0xbf;
    if (place == 1) {
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
    }
    return low <= byte && byte <= high;
}

// Bytes of the character that `lead` begins; 0 when it begins none.
static int length_of(unsigned char lead)
{
    if (lead < 0x80) return 1;
    if (lead < 0xc2) return 0;
    if (lead < 0xe0) return 2;
    if (lead < 0xf0) return 3;
    return lead < 0xf5 ? 4 : 0;
}

cy_status cy_utf8_stream_finish(cy_utf8_stream *characters, cy_text *out)
{
    if (characters->held_count == 0) return CY_OK;
    characters->held_count = 0;
    return cy_text_add_bytes(out, "\xef\xbf\xbd", 3);
}

static cy_status add_byte(cy_utf8_stream *characters, cy_text *out, unsigned char byte)
{
    if (characters->held_count > 0 &&
        !may_follow(characters->held[0], characters->held_count, byte)) {
        CY_TRY(cy_utf8_stream_finish(characters, out)); // and `byte` begins a new character
    }
    characters->held[characters->held_count++] = byte;
    const int length = length_of(characters->held[0]);
    if (length == 0) return cy_utf8_stream_finish(characters, out);
    if (characters->held_count < length) return CY_OK;
    characters->held_count = 0;
    return cy_text_add_bytes(out, characters->held, (size_t)length);
}

cy_status cy_utf8_stream_add(
    cy_utf8_stream *characters, cy_text *out, const void *bytes, size_t count)
{
    const unsigned char *next = bytes;
    for (size_t i = 0; i < count; i++)
        CY_TRY(add_byte(characters, out, next[i]));
    return CY_OK;
}

// ---- generation

#define DEFAULT_CONTEXT_MAX 4096

struct cy_generator {
    cy_tokenizer *tokenizer; // owned
    cy_decoder decoder;
    bool decoding;        // the decoder is open
    bool knows_tokenizer; // compared with the checkpoint, or there was nothing to compare with
    cy_sampler sampler;
    float *logits;    // owned, [vocab]
    int32_t *unnamed; // owned, [unnamed_count]: ids of the model that the tokenizer lacks
    int64_t unnamed_count;
    cy_stop_tokens stops;
};

// Lists the ids that stand for no text: vocabularies are padded, so a model has logits for them. A
// stop token may be chosen although it has no text.
static cy_status find_unnamed(cy_generator *generator, int64_t vocab)
{
    CY_TRY(CY_ALLOC(&generator->unnamed, (size_t)vocab));
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
        .device = options->device,
    };
    CY_TRY(cy_decoder_open(&generator->decoder, &decoding));
    generator->decoding = true;
    CY_TRY(cy_model_load(&generator->decoder, checkpoint));
    CY_TRY(cy_sampler_open(&generator->sampler, shape->vocab));
    CY_TRY(CY_ALLOC(&generator->logits, (size_t)shape->vocab));
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
    cy_generator *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
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
    size_t told; // bytes of text that the callback has got
    bool ended;
} generation;

static void tell(generation *run)
{
    const cy_generate_request *request = run->request;
    if (request->on_text == NULL || run->told == run->text.length) return;
    request->on_text(request->context, run->text.bytes + run->told, run->text.length - run->told);
    run->told = run->text.length;
}

// Chooses the next token from the logits, and appends it unless it is a stop token.
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
    CY_TRY(cy_text_add_bytes(&run->text, "", 0)); // an empty text is "", not NULL
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
    // The new tokens are moved to the front of the list, over the prompt.
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
