// A config.json that is accepted describes a shape that is written and read back as it was.

#include "fuzz.h"

#include "base/text.h"
#include "model/shape.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cy_model_shape shape, again;
    cy_text json = {0};
    if (cy_model_shape_from_json(&shape, (const char *)data, size, "fuzz") != CY_OK) return 0;
    if (cy_model_shape_to_json(&json, &shape) != CY_OK) abort();
    if (cy_model_shape_from_json(&again, json.bytes, json.length, "again") != CY_OK) abort();
    if (memcmp(&shape, &again, sizeof(shape)) != 0) abort();
    cy_text_free(&json);
    return 0;
}
