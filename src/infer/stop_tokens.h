// infer/stop_tokens.h: the tokens that end a text.
//
// generation_config.json of the folder says which (eos_token_id, one or a list). Where it says
// nothing, they are those of config.json, or of the checkpoint's model, and the tokenizer's end
// token. Plain data after opening; failures name the file.

#ifndef CY_INFER_STOP_TOKENS_H
#define CY_INFER_STOP_TOKENS_H

#include <cyclotron/tokenizer.h>

#include "checkpoint/checkpoint.h"

#define CY_STOP_TOKENS_MAX 64

typedef struct cy_stop_tokens {
    int32_t tokens[CY_STOP_TOKENS_MAX];
    int count;
} cy_stop_tokens;

CY_MUST_CHECK cy_status cy_stop_tokens_find(
    cy_stop_tokens *stops, const cy_checkpoint *checkpoint, const cy_tokenizer *tokenizer);

bool cy_stop_tokens_has(const cy_stop_tokens *stops, int32_t token);

#endif
