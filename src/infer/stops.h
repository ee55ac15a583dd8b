// infer/stops.h: the tokens that end a text.
//
// generation_config.json of the folder says which (eos_token_id, one or a list). Where it says
// nothing, they are those of config.json, or of the checkpoint's model, and the tokenizer's end
// token. Plain data after opening; failures name the file.

#ifndef CY_INFER_STOPS_H
#define CY_INFER_STOPS_H

#include <cyclotron/tokenizer.h>

#include "checkpoint/checkpoint.h"

#define CY_STOPS_MAX 64

typedef struct cy_stops {
    int32_t tokens[CY_STOPS_MAX];
    int count;
} cy_stops;

CY_MUST_CHECK cy_status cy_stops_find(
    cy_stops *stops, const cy_checkpoint *checkpoint, const cy_tokenizer *tokenizer);

bool cy_stops_has(const cy_stops *stops, int32_t token);

#endif
