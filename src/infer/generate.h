// infer/generate.h: parts of generation: the tokens that end a text, and decoded bytes as whole
// characters.
//
// Stop tokens: eos_token_id (one or a list) of the folder's generation_config.json. Where that
// gives none, they are eos_token_id of config.json or of the checkpoint's model, and the
// tokenizer's end token. Plain data after opening; failures name the file.
//
// A UTF-8 stream: a token's bytes may end in the middle of a character. The stream passes on whole
// characters and holds back at most three bytes until the rest has come. Bytes that can never
// become a character are replaced by U+FFFD, one for each longest beginning of a character that was
// cut off (Unicode, "Substitution of maximal subparts"). So the output is always valid UTF-8, and
// is the same however the bytes were cut into pieces. Plain data; one thread uses it.

#ifndef CY_INFER_GENERATE_H
#define CY_INFER_GENERATE_H

#include <cyclotron/tokenizer.h>

#include "base/text.h"
#include "checkpoint/checkpoint.h"

#define CY_STOP_TOKENS_MAX 64

typedef struct cy_stop_tokens {
    int32_t tokens[CY_STOP_TOKENS_MAX];
    int count;
} cy_stop_tokens;

CY_MUST_CHECK cy_status cy_stop_tokens_find(
    cy_stop_tokens *stops, const cy_checkpoint *checkpoint, const cy_tokenizer *tokenizer);

bool cy_stop_tokens_has(const cy_stop_tokens *stops, int32_t token);

// Start from a zeroed struct.
typedef struct cy_utf8_stream {
    unsigned char held[4]; // [held_count]: the beginning of a character
    int held_count;
} cy_utf8_stream;

// Appends to `out` the characters that bytes [count] complete.
CY_MUST_CHECK cy_status cy_utf8_stream_add(
    cy_utf8_stream *characters, cy_text *out, const void *bytes, size_t count);

// Ends the text: a beginning of a character that is still held will not be completed.
CY_MUST_CHECK cy_status cy_utf8_stream_finish(cy_utf8_stream *characters, cy_text *out);

#endif
