// data/inspect.h: what a dataset on disk is.

#ifndef CY_DATA_INSPECT_H
#define CY_DATA_INSPECT_H

#include "base/text.h"

// Opens what stands at a path, reads all of it, compares it with what its headers say, and appends
// a description for a person, or a JSON object.
CY_MUST_CHECK cy_status cy_data_inspect(cy_text *out, const char *path, int json);

#endif
