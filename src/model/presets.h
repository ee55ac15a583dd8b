// model/presets.h: shapes that are known by name, so that a run needs no folder with config.json.
//
// Static data; any thread.

#ifndef CY_MODEL_PRESETS_H
#define CY_MODEL_PRESETS_H

#include "model/shape.h"

#include <stddef.h>

// The names of all presets, for texts that are made when this is compiled.
#define CY_PRESET_NAMES                                                                            \
    "tiny, demo, smollm-135m, smollm-360m, smollm-1.7b, llama-3.2-1b, llama-2-7b, llama-3-8b"

// Sets *shape to that of a preset. The name may also be the model's id on the hub, as
// "HuggingFaceTB/SmolLM-135M"; letters' case does not count. Returns false when it is none.
bool cy_preset_find(cy_model_shape *shape, const char *name);

// The name of preset `index`, or NULL behind the last.
const char *cy_preset_name(size_t index);

#endif
