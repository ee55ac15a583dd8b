// cyclotron/generate.h: text from a trained model.
//
// A generator holds a model (a checkpoint of ours or a Hugging Face folder), its tokenizer and a
// cache of keys and values. One thread uses it at a time. Nothing here prints.

#ifndef CYCLOTRON_GENERATE_H
#define CYCLOTRON_GENERATE_H

#include <cyclotron/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A model that is open for generation. Used by one thread at a time.
typedef struct cy_generator cy_generator;

// What is opened, and how.
typedef struct cy_generator_options {
    // Borrowed: a checkpoint, a folder of them (the newest), or a Hugging Face folder.
    const char *path;
    const char *dtype; // borrowed: "bf16", "fp32"...; NULL: what the model was trained in
    int threads;       // 0: all cores that the process may use
    int64_t context;   // positions that the cache has room for; 0: the model's, at most 4096
    const char *isa; // borrowed: the highest level of instructions: "avx2"...; NULL: all there are
    const char *device; // borrowed: what computes: "cpu" (and NULL), "test"
} cy_generator_options;

// Reads the weights and takes the memory for `context` positions. *generator is owned by the
// caller, who frees it with cy_generator_close. A checkpoint whose tokenizer.json is not the one
// that it was trained with is CY_ERR_REQUEST. Fails with CY_ERR_IO or CY_ERR_CORRUPT for files,
// which it names, with CY_ERR_MEMORY, and with CY_ERR_UNSUPPORTED for a model that is not in this
// build.
CY_API CY_MUST_CHECK cy_status cy_generator_open(
    cy_generator **generator, const cy_generator_options *options);
// 0 for a checkpoint of an earlier program, which does not say what it was trained with, so that
// nothing could be compared.
CY_API int cy_generator_knows_tokenizer(const cy_generator *generator);
// NULL is fine.
CY_API void cy_generator_close(cy_generator *generator);

// A text to continue. Start from cy_generate_defaults.
typedef struct cy_generate_request {
    const char *prompt;        // borrowed, [prompt_bytes], at least one token
    size_t prompt_bytes;       // without a zero at the end, which need not be there
    int64_t max_tokens;        // at most so many new tokens
    double temperature;        // 0: always the likeliest token
    int64_t top_k;             // 0: all
    double top_p;              // 1: all
    double repetition_penalty; // 1: none
    uint64_t seed;             // of the draws: the same seed and request, the same text
    void *context;             // borrowed: for the callback
    // Called with each piece of text as it comes, valid UTF-8, not terminated; may be NULL.
    void (*on_text)(void *context, const char *text, size_t bytes);
} cy_generate_request;

// max_tokens 128, greedy, no callback; the prompt is to be set.
CY_API cy_generate_request cy_generate_defaults(void);

// What was generated, without the prompt and without the end token.
typedef struct cy_generated {
    int32_t *tokens;       // owned, [count]; freed with cy_generated_free
    int64_t count;         // of new tokens
    char *text;            // owned, terminated by a zero, valid UTF-8
    size_t text_bytes;     // without the zero
    int64_t prompt_tokens; // of the prompt
    double prefill_s;      // until the first new token was chosen
    double decode_tok_s;   // of the tokens after the first; 0 where there is none
    int ended;             // by the end token, not by max_tokens or a full context
} cy_generated;

// Continues a text; returns when it has ended. A prompt longer than the context is CY_ERR_REQUEST
// with both numbers, and so are settings out of their range; logits that are no numbers are
// CY_ERR_NOT_FINITE. On failure *generated owns nothing, but what came before it was handed to
// on_text.
CY_API CY_MUST_CHECK cy_status cy_generate(
    cy_generator *generator, const cy_generate_request *request, cy_generated *generated);
// Frees the tokens and the text, and zeroes *generated.
CY_API void cy_generated_free(cy_generated *generated);

#ifdef __cplusplus
}
#endif

#endif
