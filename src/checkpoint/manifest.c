// Computes checksums; checks, reads and writes the manifest of a checkpoint.

#include "checkpoint/manifest.h"

#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/safetensors.h"
#include "model/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

// ---- checksums

uint64_t cy_checksum(const void *bytes, size_t count)
{
    return XXH64(bytes, count, 0);
}

// ---- the table

int64_t cy_chunk_count(uint64_t bytes)
{
    return (int64_t)((bytes + CY_CHUNK_BYTES - 1) / CY_CHUNK_BYTES);
}

cy_status cy_checkpoint_file_head(cy_checkpoint_file *file, const void *bytes, size_t count)
{
    void *checksums = NULL;
    CY_TRY(cy_memory_alloc(&checksums, (size_t)cy_chunk_count(count), sizeof(uint64_t)));
    file->head_bytes = count;
    file->checksums = checksums;
    for (size_t done = 0, i = 0; done < count; done += CY_CHUNK_BYTES, i++) {
        const size_t left = count - done;
        file->checksums[i] =
            cy_checksum((const char *)bytes + done, left < CY_CHUNK_BYTES ? left : CY_CHUNK_BYTES);
    }
    return CY_OK;
}

uint64_t cy_stored_shard_bytes(const cy_stored_shard *piece)
{
    return (uint64_t)piece->piece.count * cy_dtype_size(piece->piece.dtype);
}

void cy_tensor_full_name(char *text, size_t bytes, const cy_global_tensor *tensor)
{
    const bool weight = tensor->kind == CY_TENSOR_WEIGHT;
    snprintf(text, bytes, "%s%s%s", weight ? "" : cy_tensor_kind_name(tensor->kind),
        weight ? "" : " of ", tensor->name);
}

static int by_kind_and_name(const void *left, const void *right)
{
    const cy_stored_tensor *a = left;
    const cy_stored_tensor *b = right;
    if (a->tensor.kind != b->tensor.kind) return a->tensor.kind < b->tensor.kind ? -1 : 1;
    return strcmp(a->tensor.name, b->tensor.name);
}

static cy_status check_cover(const cy_stored_tensor *stored, const char *where)
{
    char label[256];
    void *pieces = NULL;
    CY_TRY(cy_memory_alloc(&pieces, (size_t)stored->piece_count, sizeof(cy_tensor_shard)));
    for (int64_t i = 0; i < stored->piece_count; i++) {
        ((cy_tensor_shard *)pieces)[i] = stored->pieces[i].piece;
    }
    cy_tensor_full_name(label, sizeof(label), &stored->tensor);
    const cy_status status = cy_tensor_shards_check_cover(
        pieces, stored->piece_count, label, stored->tensor.rows, stored->tensor.cols);
    if (status != CY_OK) cy_error_prefix("%s: ", where);
    cy_memory_free(pieces);
    return status;
}

cy_status cy_checkpoint_finalize(cy_checkpoint *checkpoint, const char *where, bool part)
{
    const int count = checkpoint->tensor_count;
    if (count > 0) {
        qsort(checkpoint->tensors, (size_t)count, sizeof(*checkpoint->tensors), by_kind_and_name);
    }
    for (int i = 0; i < count; i++) {
        const cy_stored_tensor *stored = &checkpoint->tensors[i];
        if (i > 0 && by_kind_and_name(stored - 1, stored) == 0) {
            return CY_FAIL(
                CY_ERR_CORRUPT, "%s: tensor %s is there twice", where, stored->tensor.name);
        }
        if (!part) CY_TRY(check_cover(stored, where));
    }
    return CY_OK;
}

const cy_stored_tensor *cy_checkpoint_find(
    const cy_checkpoint *checkpoint, cy_tensor_kind kind, const char *name)
{
    const cy_stored_tensor key = {.tensor = {.name = name, .kind = kind}};
    if (checkpoint->tensor_count == 0) return NULL;
    return bsearch(&key, checkpoint->tensors, (size_t)checkpoint->tensor_count,
        sizeof(*checkpoint->tensors), by_kind_and_name);
}

// ---- writing

static json_t *checksums_to_json(const uint64_t *checksums, int64_t count)
{
    cy_text text = {0};
    cy_status status = cy_text_add_bytes(&text, "", 0); // no checksums are "", not NULL
    for (int64_t i = 0; status == CY_OK && i < count; i++)
        status = cy_text_add(&text, "%016" PRIx64, checksums[i]);
    json_t *value = status == CY_OK ? json_stringn(text.bytes, text.length) : NULL;
    cy_text_free(&text);
    return value;
}

static cy_status add_file(cy_text *json, const cy_checkpoint_file *file)
{
    json_t *name = NULL;
    CY_TRY(cy_safetensors_name_to_json(&name, file->name, "a name in a checkpoint"));
    json_t *object = json_pack("{s:o, s:I, s:I, s:o}", "name", name, "bytes",
        (json_int_t)file->bytes, "head_bytes", (json_int_t)file->head_bytes, "checksums",
        checksums_to_json(file->checksums, cy_chunk_count(file->head_bytes)));
    return cy_json_add(json, object, 0);
}

static json_t *range_to_json(int64_t first, int64_t count)
{
    return json_pack("[I, I]", (json_int_t)first, (json_int_t)count);
}

static cy_status add_piece(
    cy_text *json, const cy_stored_shard *stored, const cy_global_tensor *tensor)
{
    const cy_tensor_shard *piece = &stored->piece;
    const cy_rectangle *r = &piece->rectangle;
    json_t *object =
        json_pack("{s:i, s:I}", "file", stored->file, "offset", (json_int_t)stored->offset);
    if (r->rows != tensor->rows) {
        cy_json_set(&object, "rows", range_to_json(r->row_first, r->rows));
    }
    if (r->cols != tensor->cols) {
        cy_json_set(&object, "columns", range_to_json(r->col_first, r->cols));
    }
    if (piece->count != r->rows * r->cols) {
        cy_json_set(&object, "elements", range_to_json(piece->first, piece->count));
    }
    const int64_t chunks = cy_chunk_count(cy_stored_shard_bytes(stored));
    cy_json_set(&object, "checksums", checksums_to_json(stored->checksums, chunks));
    return cy_json_add(json, object, 0);
}

static cy_status add_tensor(cy_text *json, const cy_stored_tensor *stored)
{
    const cy_global_tensor *tensor = &stored->tensor;
    json_t *name = NULL;
    CY_TRY(cy_safetensors_name_to_json(&name, tensor->name, "a name in a checkpoint"));
    json_t *shape = json_array();
    if (tensor->dimensions == 2) cy_json_append(&shape, json_integer(tensor->rows));
    cy_json_append(&shape, json_integer(tensor->cols));
    json_t *object =
        json_pack("{s:o, s:s, s:s, s:o}", "name", name, "kind", cy_tensor_kind_name(tensor->kind),
            "dtype", cy_safetensors_dtype_name(tensor->dtype), "shape", shape);
    CY_TRY(cy_json_add(json, object, 0));
    json->length--; // its closing brace
    CY_TRY(cy_text_add(json, ", \"pieces\": [\n"));
    for (int64_t i = 0; i < stored->piece_count; i++) {
        CY_TRY(cy_text_add(json, "      "));
        CY_TRY(add_piece(json, &stored->pieces[i], tensor));
        CY_TRY(cy_text_add(json, "%s\n", i + 1 < stored->piece_count ? "," : ""));
    }
    return cy_text_add(json, "    ]}");
}

// The layout is the program's own, a line for each file and shard, and the checksum at the end is
// of the bytes before it: jansson prints what stands on a line.
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
    // Not through cy_text_add, which formats texts of moderate length only.
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
        CY_TRY(cy_text_add(json, "    "));
        CY_TRY(add_file(json, &checkpoint->files[i]));
        CY_TRY(cy_text_add(json, "%s\n", i + 1 < checkpoint->file_count ? "," : ""));
    }
    CY_TRY(cy_text_add(json, "  ],\n  \"tensors\": [\n"));
    for (int i = 0; i < checkpoint->tensor_count; i++) {
        CY_TRY(cy_text_add(json, "    "));
        CY_TRY(add_tensor(json, &checkpoint->tensors[i]));
        CY_TRY(cy_text_add(json, "%s\n", i + 1 < checkpoint->tensor_count ? "," : ""));
    }
    CY_TRY(cy_text_add(json, "  ],\n  "));
    const uint64_t checksum = cy_checksum(json->bytes + start, json->length - start);
    return cy_text_add(json, "\"checksum\": \"%016" PRIx64 "\"\n}\n", checksum);
}

// ---- reading

// The text ends with `"checksum": "0123456789abcdef"`, line end, brace, line end.
#define TAIL_KEY   "\"checksum\": \""
#define TAIL_END   "\"\n}\n"
#define TAIL_BYTES (sizeof(TAIL_KEY) - 1 + CY_CHECKSUM_DIGITS + sizeof(TAIL_END) - 1)

static bool read_hex(uint64_t *value, const char *text)
{
    uint64_t result = 0;
    for (int i = 0; i < CY_CHECKSUM_DIGITS; i++) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        result = result << 4 | (uint64_t)digit;
    }
    *value = result;
    return true;
}

static cy_status check_tail(const char *json, size_t length, const char *where)
{
    uint64_t told = 0;
    const char *tail = json + length - TAIL_BYTES;
    if (length < TAIL_BYTES || memcmp(tail, TAIL_KEY, sizeof(TAIL_KEY) - 1) != 0 ||
        !read_hex(&told, tail + sizeof(TAIL_KEY) - 1) ||
        memcmp(json + length - sizeof(TAIL_END) + 1, TAIL_END, sizeof(TAIL_END) - 1) != 0) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: does not end with its checksum: cut or changed", where);
    }
    const uint64_t found = cy_checksum(json, length - TAIL_BYTES);
    if (found == told) return CY_OK;
    return CY_FAIL(CY_ERR_CORRUPT,
        "%s: changed since it was written: checksum %016" PRIx64 ", it says %016" PRIx64, where,
        found, told);
}

// Reads a member that must be an integer of at least 0.
static cy_status take_count(
    int64_t *count, const json_t *object, const char *key, const char *where)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: %s is missing or not a count", where, key);
    }
    *count = json_integer_value(value);
    return CY_OK;
}

static cy_status take_name(char **name, const json_t *object, const char *where)
{
    const char *text = json_string_value(json_object_get(object, "name"));
    if (text == NULL || text[0] == '\0') {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: a name is missing or not a text", where);
    }
    return cy_memory_copy_text(name, text);
}

// Reads a member [first, count] within `total`; where it is absent, the range is all of it.
static cy_status take_range(int64_t *first, int64_t *count, const json_t *object, const char *key,
    int64_t total, const char *where)
{
    const json_t *value = json_object_get(object, key);
    *first = 0;
    *count = total;
    if (value == NULL) return CY_OK;
    const json_t *from = json_array_get(value, 0);
    const json_t *size = json_array_get(value, 1);
    *first = json_integer_value(from);
    *count = json_integer_value(size);
    if (json_array_size(value) != 2 || !json_is_integer(from) || !json_is_integer(size) ||
        *first < 0 || *count < 1 || *first > total || *count > total - *first) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: %s is not a range within %" PRId64, where, key, total);
    }
    return CY_OK;
}

static cy_status take_checksums(
    uint64_t **checksums, const json_t *object, uint64_t bytes, const char *where)
{
    const char *text = json_string_value(json_object_get(object, "checksums"));
    const size_t count = (size_t)cy_chunk_count(bytes);
    if (text == NULL || strlen(text) != count * CY_CHECKSUM_DIGITS) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: not one checksum for each of %zu chunks", where, count);
    }
    void *values = NULL;
    CY_TRY(cy_memory_alloc(&values, count, sizeof(uint64_t)));
    for (size_t i = 0; i < count; i++) {
        if (!read_hex((uint64_t *)values + i, text + i * CY_CHECKSUM_DIGITS)) {
            cy_memory_free(values);
            return CY_FAIL(CY_ERR_CORRUPT, "%s: checksum %zu is not hexadecimal", where, i);
        }
    }
    *checksums = values;
    return CY_OK;
}

static cy_status read_file(cy_checkpoint_file *file, const json_t *value, const char *where)
{
    int64_t bytes = 0, head = 0;
    file->fd = -1;
    CY_TRY(take_name(&file->name, value, where));
    if (strchr(file->name, '/') != NULL || file->name[0] == '.') {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: %s is not a name of a file here", where, file->name);
    }
    CY_TRY(take_count(&bytes, value, "bytes", where));
    CY_TRY(take_count(&head, value, "head_bytes", where));
    if (head > bytes) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: %s: %" PRId64 " head bytes of %" PRId64, where,
            file->name, head, bytes);
    }
    file->bytes = (uint64_t)bytes;
    file->head_bytes = (uint64_t)head;
    return take_checksums(&file->checksums, value, (uint64_t)head, where);
}

static cy_status read_piece(cy_stored_shard *stored, const json_t *value,
    const cy_global_tensor *tensor, const cy_checkpoint *checkpoint, const char *where)
{
    int64_t file = 0, offset = 0;
    cy_tensor_shard *piece = &stored->piece;
    cy_rectangle *r = &piece->rectangle;
    piece->dtype = tensor->dtype;
    CY_TRY(take_count(&file, value, "file", where));
    CY_TRY(take_count(&offset, value, "offset", where));
    CY_TRY(take_range(&r->row_first, &r->rows, value, "rows", tensor->rows, where));
    CY_TRY(take_range(&r->col_first, &r->cols, value, "columns", tensor->cols, where));
    CY_TRY(take_range(&piece->first, &piece->count, value, "elements", r->rows * r->cols, where));
    piece->stride = r->cols;
    if (file >= checkpoint->file_count) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: tensor %s: file %" PRId64 " of %d", where, tensor->name,
            file, checkpoint->file_count);
    }
    stored->file = (int)file;
    stored->offset = (uint64_t)offset;
    const cy_checkpoint_file *holder = &checkpoint->files[file];
    const uint64_t bytes = cy_stored_shard_bytes(stored);
    if (stored->offset < holder->head_bytes || stored->offset > holder->bytes ||
        bytes > holder->bytes - stored->offset) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: tensor %s: bytes %" PRIu64 "+%" PRIu64 " do not lie in the data of %s", where,
            tensor->name, stored->offset, bytes, holder->name);
    }
    return take_checksums(&stored->checksums, value, bytes, where);
}

static cy_status read_shape(cy_global_tensor *tensor, const json_t *value, const char *where)
{
    const json_t *shape = json_object_get(value, "shape");
    const size_t dimensions = json_array_size(shape);
    if (dimensions < 1 || dimensions > 2) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: tensor %s: its shape has %zu dimensions", where,
            tensor->name, dimensions);
    }
    int64_t dims[2] = {1, 1};
    for (size_t i = 0; i < dimensions; i++) {
        dims[i] = json_integer_value(json_array_get(shape, i));
        if (dims[i] < 1 || dims[i] > INT64_MAX / 16 / (i > 0 ? dims[0] : 1)) {
            return CY_FAIL(CY_ERR_CORRUPT, "%s: tensor %s: dimension %zu of its shape is not one",
                where, tensor->name, i);
        }
    }
    tensor->dimensions = (int)dimensions;
    tensor->rows = dimensions == 2 ? dims[0] : 1;
    tensor->cols = dims[dimensions - 1];
    return CY_OK;
}

static cy_status read_kind_and_dtype(
    cy_global_tensor *tensor, const json_t *value, const char *where)
{
    const char *kind = json_string_value(json_object_get(value, "kind"));
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    int k = 0, d = 0;
    while (k < CY_TENSOR_KINDS &&
        (kind == NULL || strcmp(cy_tensor_kind_name((cy_tensor_kind)k), kind) != 0)) {
        k++;
    }
    for (; d <= CY_FX64; d++) {
        const char *name = cy_safetensors_dtype_name((cy_dtype)d);
        if (name != NULL && dtype != NULL && strcmp(name, dtype) == 0) break;
    }
    if (k == CY_TENSOR_KINDS || d > CY_FX64) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: tensor %s: kind %.20s, dtype %.20s", where,
            tensor->name, kind != NULL ? kind : "missing", dtype != NULL ? dtype : "missing");
    }
    tensor->kind = (cy_tensor_kind)k;
    tensor->dtype = (cy_dtype)d;
    return CY_OK;
}

static cy_status read_tensor(
    cy_checkpoint *checkpoint, cy_stored_tensor *stored, const json_t *value, const char *where)
{
    char *name = NULL;
    CY_TRY(take_name(&name, value, where));
    stored->tensor.name = name;
    stored->pieces = checkpoint->pieces + checkpoint->piece_count;
    CY_TRY(read_kind_and_dtype(&stored->tensor, value, where));
    CY_TRY(read_shape(&stored->tensor, value, where));
    const json_t *pieces = json_object_get(value, "pieces");
    stored->piece_count = (int64_t)json_array_size(pieces);
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        // Counted before it is read, so that closing frees what a failed read allocated.
        cy_stored_shard *piece = &checkpoint->pieces[checkpoint->piece_count++];
        CY_TRY(read_piece(piece, json_array_get(pieces, i), &stored->tensor, checkpoint, where));
    }
    return CY_OK;
}

static cy_status read_lists(cy_checkpoint *checkpoint, const json_t *root, const char *where)
{
    const json_t *files = json_object_get(root, "files");
    const json_t *tensors = json_object_get(root, "tensors");
    if (!json_is_array(files) || !json_is_array(tensors)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: files or tensors is missing or not a list", where);
    }
    size_t index;
    json_t *value;
    size_t piece_count = 0;
    json_array_foreach(tensors, index, value)
    {
        piece_count += json_array_size(json_object_get(value, "pieces"));
    }
    void *memory[3] = {NULL, NULL, NULL};
    CY_TRY(cy_memory_alloc(&memory[0], json_array_size(files), sizeof(cy_checkpoint_file)));
    checkpoint->files = memory[0];
    CY_TRY(cy_memory_alloc(&memory[1], json_array_size(tensors), sizeof(cy_stored_tensor)));
    checkpoint->tensors = memory[1];
    CY_TRY(cy_memory_alloc(&memory[2], piece_count, sizeof(cy_stored_shard)));
    checkpoint->pieces = memory[2];
    json_array_foreach(files, index, value)
    {
        CY_TRY(read_file(&checkpoint->files[checkpoint->file_count++], value, where));
    }
    json_array_foreach(tensors, index, value)
    {
        cy_stored_tensor *stored = &checkpoint->tensors[checkpoint->tensor_count++];
        CY_TRY(read_tensor(checkpoint, stored, value, where));
    }
    return CY_OK;
}

static int by_place(const void *left, const void *right)
{
    const cy_stored_shard *a = *(const cy_stored_shard *const *)left;
    const cy_stored_shard *b = *(const cy_stored_shard *const *)right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

// Checks that head and shards fill each file without gap or overlap.
static cy_status check_fill(
    const cy_checkpoint *checkpoint, const cy_stored_shard *const *sorted, const char *where)
{
    int64_t i = 0;
    for (int f = 0; f < checkpoint->file_count; f++) {
        const cy_checkpoint_file *file = &checkpoint->files[f];
        uint64_t next = file->head_bytes;
        for (; i < checkpoint->piece_count && sorted[i]->file == f; i++) {
            if (sorted[i]->offset != next) break;
            next += cy_stored_shard_bytes(sorted[i]);
        }
        const bool stopped = i < checkpoint->piece_count && sorted[i]->file == f;
        if (stopped || next != file->bytes) {
            return CY_FAIL(CY_ERR_CORRUPT,
                "%s: %s: a gap or an overlap of tensors at byte %" PRIu64, where, file->name, next);
        }
    }
    return CY_OK;
}

static cy_status check_places(const cy_checkpoint *checkpoint, const char *where)
{
    void *memory = NULL;
    CY_TRY(cy_memory_alloc(&memory, (size_t)checkpoint->piece_count, sizeof(void *)));
    const cy_stored_shard **sorted = memory;
    for (int64_t i = 0; i < checkpoint->piece_count; i++)
        sorted[i] = &checkpoint->pieces[i];
    qsort(memory, (size_t)checkpoint->piece_count, sizeof(void *), by_place);
    const cy_status status = check_fill(checkpoint, sorted, where);
    cy_memory_free(memory);
    return status;
}

// Copies a member that must be an object as a text; leaves NULL where it is absent.
static cy_status take_object(char **text, const json_t *root, const char *key, const char *where)
{
    json_t *value = json_object_get(root, key);
    if (value == NULL) return CY_OK;
    if (!json_is_object(value)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: %s is not an object", where, key);
    }
    cy_text printed = {0};
    const cy_status status = cy_json_add(&printed, json_incref(value), JSON_INDENT(2));
    if (status != CY_OK) {
        cy_text_free(&printed);
        return status;
    }
    *text = printed.bytes;
    return CY_OK;
}

static cy_status read_root(
    cy_checkpoint *checkpoint, const json_t *root, const char *where, bool part)
{
    char *model = NULL;
    CY_TRY(take_count(&checkpoint->step, root, "step", where));
    CY_TRY(take_count(&checkpoint->tokens, root, "tokens", where));
    CY_TRY(take_object(&checkpoint->config_json, root, "config", where));
    CY_TRY(take_object(&checkpoint->state_json, root, "state", where));
    CY_TRY(take_object(&checkpoint->identity_json, root, "identity", where));
    CY_TRY(take_object(&model, root, "model", where));
    if (model != NULL) {
        const cy_status status =
            cy_model_shape_from_json(&checkpoint->model, model, strlen(model), where);
        cy_memory_free(model);
        CY_TRY(status);
        checkpoint->has_model = true;
    }
    CY_TRY(read_lists(checkpoint, root, where));
    CY_TRY(check_places(checkpoint, where));
    return cy_checkpoint_finalize(checkpoint, where, part);
}

cy_status cy_checkpoint_from_json(
    cy_checkpoint *checkpoint, const char *json, size_t length, const char *where, bool part)
{
    json_error_t error;
    cy_checkpoint read = {0};
    json_t *root = json_loadb(json, length, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: line %d, column %d: %s", where, error.line,
            error.column, error.text);
    }
    const json_t *version = json_object_get(root, "format_version");
    cy_status status;
    if (!json_is_integer(version)) {
        status = CY_FAIL(CY_ERR_CORRUPT, "%s: no format_version: not a checkpoint", where);
    } else if (json_integer_value(version) != CY_CHECKPOINT_FORMAT) {
        // Checked before the checksum, which another version may compute in another way.
        status = CY_FAIL(CY_ERR_UNSUPPORTED,
            "%s: format version %" JSON_INTEGER_FORMAT ", this program reads version %d", where,
            json_integer_value(version), CY_CHECKPOINT_FORMAT);
        if (json_integer_value(version) > CY_CHECKPOINT_FORMAT) {
            cy_error_set_hint("a newer cyclotron wrote it, and can read it");
        }
    } else {
        status = check_tail(json, length, where);
        if (status == CY_OK) status = read_root(&read, root, where, part);
    }
    json_decref(root);
    if (status != CY_OK) {
        cy_checkpoint_close(&read);
        return status;
    }
    *checkpoint = read;
    return CY_OK;
}
