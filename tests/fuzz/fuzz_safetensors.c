// A header that is accepted describes ranges that are in the file and do not overlap.

#include "fuzz.h"

#include "checkpoint/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cy_safetensors file;
    if (cy_safetensors_parse(&file, "fuzz", data, size, size) != CY_OK) return 0;
    uint64_t end = file.data_first;
    for (int i = 0; i < file.count; i++) {
        const cy_safetensors_entry *entry = &file.entries[i];
        if (entry->offset != end || entry->bytes > size - entry->offset) abort();
        uint64_t elements = 1;
        for (int d = 0; d < entry->dimensions; d++)
            elements *= (uint64_t)entry->dims[d];
        if (elements * cy_dtype_size(entry->dtype) != entry->bytes) abort();
        if (cy_safetensors_find(&file, entry->name) == NULL) abort();
        end += entry->bytes;
    }
    if (end != size) abort();
    cy_safetensors_close(&file);
    return 0;
}
