// model/shape_json.h: the shape of a model to and from Hugging Face's config.json.
//
// Reading is strict about the mathematics: a key that changes it and is not understood is an error
// that names it, and so is an unknown architecture; keys that only describe (dates, dtypes,
// training conveniences) are passed over. All that is wrong with a file is reported in one failure.
//
// Known: llama (2, 3, SmolLM, SmolLM2), mistral, qwen2, qwen3, mixtral, qwen3_moe. Nothing here is
// owned; pure functions but for the file.

#ifndef CY_MODEL_SHAPE_JSON_H
#define CY_MODEL_SHAPE_JSON_H

#include "base/text.h"
#include "model/shape.h"

// Reads the text of a config.json; `where` names it in errors. The shape is checked as well.
CY_MUST_CHECK cy_status cy_model_shape_from_json(
    cy_model_shape *shape, const char *json, size_t length, const char *where);

// The same from a file.
CY_MUST_CHECK cy_status cy_model_shape_read(cy_model_shape *shape, const char *path);

// Adds a config.json that transformers loads. `dtype` is what the files beside it hold. The family
// is the shape's own where it can express the shape, otherwise one that can: CY_ERR_UNSUPPORTED
// names what no family has.
CY_MUST_CHECK cy_status cy_model_shape_to_config(
    cy_text *json, const cy_model_shape *shape, cy_dtype dtype);

// Adds the shape as an object that cy_model_shape_from_json reads back exactly, whatever its
// family.
CY_MUST_CHECK cy_status cy_model_shape_to_json(cy_text *json, const cy_model_shape *shape);

// Adds one line "  key: there A, here B" for each difference that matters to the tensors or to the
// mathematics; *count is how many.
CY_MUST_CHECK cy_status cy_model_shape_differences(
    cy_text *lines, int *count, const cy_model_shape *there, const cy_model_shape *here);

#endif
