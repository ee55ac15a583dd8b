#include "base/status.h"
#include "checkpoint/checksum.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/manifest.h"
#include "model/shape.h"

#include <inttypes.h>
#include <string.h>

static cy_status add_name(cy_text *json, const char *name)
{
    return cy_safetensors_add_name(json, name, "a name in a checkpoint");
}

static cy_status add_checksums(cy_text *json, const uint64_t *checksums, int64_t count)
{
    CY_TRY(cy_text_add(json, "\"checksums\": \""));
    for (int64_t i = 0; i < count; i++)
        CY_TRY(cy_text_add(json, "%016" PRIx64, checksums[i]));
    return cy_text_add(json, "\"");
}

static cy_status add_file(cy_text *json, const cy_checkpoint_file *file)
{
    CY_TRY(cy_text_add(json, "    {\"name\": "));
    CY_TRY(add_name(json, file->name));
    CY_TRY(cy_text_add(json, ", \"bytes\": %" PRIu64 ", \"head_bytes\": %" PRIu64 ", ", file->bytes,
        file->head_bytes));
    CY_TRY(add_checksums(json, file->checksums, cy_chunk_count(file->head_bytes)));
    return cy_text_add(json, "}");
}

static cy_status add_piece(
    cy_text *json, const cy_stored_shard *stored, const cy_global_tensor *tensor)
{
    const cy_tensor_shard *piece = &stored->piece;
    const cy_rectangle *r = &piece->rectangle;
    CY_TRY(cy_text_add(
        json, "      {\"file\": %d, \"offset\": %" PRIu64 ", ", stored->file, stored->offset));
    if (r->rows != tensor->rows) {
        CY_TRY(cy_text_add(json, "\"rows\": [%" PRId64 ", %" PRId64 "], ", r->row_first, r->rows));
    }
    if (r->cols != tensor->cols) {
        CY_TRY(
            cy_text_add(json, "\"columns\": [%" PRId64 ", %" PRId64 "], ", r->col_first, r->cols));
    }
    if (piece->count != r->rows * r->cols) {
        CY_TRY(cy_text_add(
            json, "\"elements\": [%" PRId64 ", %" PRId64 "], ", piece->first, piece->count));
    }
    CY_TRY(add_checksums(json, stored->checksums, cy_chunk_count(cy_stored_shard_bytes(stored))));
    return cy_text_add(json, "}");
}

static cy_status add_tensor(cy_text *json, const cy_stored_tensor *stored)
{
    const cy_global_tensor *tensor = &stored->tensor;
    CY_TRY(cy_text_add(json, "    {\"name\": "));
    CY_TRY(add_name(json, tensor->name));
    CY_TRY(cy_text_add(json, ", \"kind\": \"%s\", \"dtype\": \"%s\", \"shape\": [",
        cy_tensor_kind_name(tensor->kind), cy_safetensors_dtype_name(tensor->dtype)));
    if (tensor->dimensions == 2) CY_TRY(cy_text_add(json, "%" PRId64 ", ", tensor->rows));
    CY_TRY(cy_text_add(json, "%" PRId64 "], \"pieces\": [\n", tensor->cols));
    for (int64_t i = 0; i < stored->piece_count; i++) {
        CY_TRY(add_piece(json, &stored->pieces[i], tensor));
        CY_TRY(cy_text_add(json, "%s\n", i + 1 < stored->piece_count ? "," : ""));
    }
    return cy_text_add(json, "    ]}");
}

cy_status cy_checkpoint_to_json(cy_text *json, const cy_checkpoint *checkpoint)
{
    const size_t start = json->length;
    CY_TRY(cy_text_add(json,
        "{\n  \"format_version\": %d,\n  \"step\": %" PRId64 ",\n  \"tokens\": %" PRId64 ",\n",
        CY_CHECKPOINT_FORMAT, checkpoint->step, checkpoint->tokens));
    if (checkpoint->has_model) {
        CY_TRY(cy_text_add(json, "  \"model\": "));
        CY_TRY(cy_model_shape_to_json(json, &checkpoint->model));
        json->length--; // its line end
        CY_TRY(cy_text_add(json, ",\n"));
    }
    // Not through the format: a text may be longer than a formatted one should be.
    const char *const keys[3] = {"config", "state", "identity"};
    const char *const texts[3] = {
        checkpoint->config_json, checkpoint->state_json, checkpoint->identity_json};
    for (int i = 0; i < 3; i++) {
        if (texts[i] == NULL) continue;
        CY_TRY(cy_text_add(json, "  \"%s\": ", keys[i]));
        CY_TRY(cy_text_add_bytes(json, texts[i], strlen(texts[i])));
        CY_TRY(cy_text_add(json, ",\n"));
    }
    CY_TRY(cy_text_add(json, "  \"files\": [\n"));
    for (int i = 0; i < checkpoint->file_count; i++) {
        CY_TRY(add_file(json, &checkpoint->files[i]));
        CY_TRY(cy_text_add(json, "%s\n", i + 1 < checkpoint->file_count ? "," : ""));
    }
    CY_TRY(cy_text_add(json, "  ],\n  \"tensors\": [\n"));
    for (int i = 0; i < checkpoint->tensor_count; i++) {
        CY_TRY(add_tensor(json, &checkpoint->tensors[i]));
        CY_TRY(cy_text_add(json, "%s\n", i + 1 < checkpoint->tensor_count ? "," : ""));
    }
    CY_TRY(cy_text_add(json, "  ],\n  "));
    const uint64_t checksum = cy_checksum(json->bytes + start, json->length - start);
    return cy_text_add(json, "\"checksum\": \"%016" PRIx64 "\"\n}\n", checksum);
}
