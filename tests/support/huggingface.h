// support/huggingface.h: a Hugging Face folder of a small model, as it would come from a hub.

#ifndef CY_TESTS_HUGGINGFACE_H
#define CY_TESTS_HUGGINGFACE_H

#include "model/shape.h"

// Writes config.json, tokenizer.json and the weights, in `files` files (more than one: with an
// index), as `dtype`. The values are those of cy_test_value.
void cy_test_huggingface(
    const char *folder, const cy_model_shape *shape, int files, cy_dtype dtype);

// A Llama-like shape of a few thousand parameters.
cy_model_shape cy_test_shape(void);

#endif
