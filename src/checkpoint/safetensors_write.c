#include "checkpoint/safetensors.h"

#include "base/status.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define DATA_ALIGN 64

cy_status cy_safetensors_add_name(cy_text *json, const char *name, const char *what)
{
    json_t *value = json_string(name);
    char *quoted = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    if (quoted == NULL) return CY_FAIL(CY_ERR_REQUEST, "%s is not UTF-8", what);
    const cy_status status = cy_text_add(json, "%s", quoted);
    free(quoted);
    return status;
}

static cy_status add_entry(cy_text *text, cy_safetensors_entry *entry, uint64_t offset)
{
    const char *dtype = cy_safetensors_dtype_name(entry->dtype);
    CY_ASSERT(dtype != NULL);
    CY_TRY(cy_safetensors_add_name(text, entry->name, "a tensor's name"));
    CY_TRY(cy_text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", dtype));
    uint64_t bytes = cy_dtype_size(entry->dtype);
    for (int i = 0; i < entry->dimensions; i++) {
        CY_TRY(cy_text_add(text, "%s%" PRId64, i > 0 ? "," : "", entry->dims[i]));
        bytes *= (uint64_t)entry->dims[i];
    }
    entry->offset = offset; // counts from the data until the header's length is known
    entry->bytes = bytes;
    return cy_text_add(
        text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset, offset + bytes);
}

cy_status cy_safetensors_header(
    cy_text *header, cy_safetensors_entry *entries, int count, const char *metadata)
{
    char length_bytes[8] = {0};
    CY_ASSERT(header->length == 0);
    CY_TRY(cy_text_add_bytes(header, length_bytes, sizeof(length_bytes)));
    CY_TRY(cy_text_add(header, "{"));
    if (metadata != NULL) {
        CY_TRY(cy_text_add(header, "\"__metadata__\":%s%s", metadata, count > 0 ? "," : ""));
    }
    uint64_t offset = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0) CY_TRY(cy_text_add(header, ","));
        CY_TRY(add_entry(header, &entries[i], offset));
        offset += entries[i].bytes;
    }
    CY_TRY(cy_text_add(header, "}"));
    const size_t ragged = header->length % DATA_ALIGN;
    if (ragged > 0) CY_TRY(cy_text_add(header, "%*s", (int)(DATA_ALIGN - ragged), ""));

    const uint64_t total = header->length;
    for (int i = 0; i < 8; i++)
        header->bytes[i] = (char)((total - 8) >> (8 * i));
    for (int i = 0; i < count; i++)
        entries[i].offset += total;
    return CY_OK;
}
