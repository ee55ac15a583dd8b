// Exports a checkpoint as a Hugging Face folder: weights, config.json and the tokenizer's files.

#define _GNU_SOURCE
#include "checkpoint/hf/hf.h"

#include <cyclotron/tokenizer.h>

#include "base/file.h"
#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/status.h"
#include "checkpoint/convert.h"
#include "checkpoint/file_io.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "model/shape.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- the small files beside the weights

#define TEXT_BYTES_MAX ((size_t)1 << 30)

// Writes FOLDER/NAME.
static cy_status write_text(const char *folder, const char *name, const cy_text *text)
{
    char *path = NULL;
    CY_TRY(cy_folder_join(&path, folder, name));
    const cy_status status = cy_file_write_unsynced(path, text->bytes, text->length);
    cy_memory_free(path);
    return status;
}

// Reads a file of the checkpoint; *found says whether there is one.
static cy_status read_text(
    cy_text *text, bool *found, const cy_checkpoint *source, const char *name)
{
    char *path = NULL;
    CY_TRY(cy_folder_join(&path, source->path, name));
    cy_status status = cy_path_find(found, path);
    if (*found) status = cy_file_read(text, path, TEXT_BYTES_MAX);
    cy_memory_free(path);
    return status;
}

static cy_status copy_text(
    bool *found, const cy_checkpoint *source, const char *folder, const char *name)
{
    cy_text text = {0};
    cy_status status = read_text(&text, found, source, name);
    if (status == CY_OK && *found) status = write_text(folder, name, &text);
    cy_text_free(&text);
    return status;
}

// Writes `root` as FOLDER/NAME and releases it. NULL means that there was no memory for it.
static cy_status write_json(const char *folder, const char *name, json_t *root)
{
    cy_text text = {0};
    cy_status status = cy_json_add(&text, root, JSON_INDENT(2));
    if (status == CY_OK) status = cy_text_add(&text, "\n");
    if (status == CY_OK) status = write_text(folder, name, &text);
    cy_text_free(&text);
    return status;
}

// The id of a token; NULL, which json_pack leaves out, where the model has none.
static json_t *token_id(int64_t id)
{
    return id >= 0 ? json_integer(id) : NULL;
}

// The text of the added token of that id, borrowed; NULL where there is none.
static json_t *token_text(const json_t *tokenizer, int64_t id)
{
    size_t i;
    json_t *token;
    if (id < 0) return NULL;
    json_array_foreach(json_object_get(tokenizer, "added_tokens"), i, token)
    {
        if (json_integer_value(json_object_get(token, "id")) != id) continue;
        json_t *content = json_object_get(token, "content");
        if (json_is_string(content)) return content;
    }
    return NULL;
}

static cy_status make_tokenizer_config(
    const cy_checkpoint *source, const cy_text *tokenizer, const char *folder)
{
    json_error_t error;
    const cy_model_shape *shape = &source->model;
    json_t *root = json_loadb(tokenizer->bytes, tokenizer->length, JSON_DISABLE_EOF_CHECK, &error);
    if (root == NULL) {
        return CY_FAIL(
            CY_ERR_CORRUPT, "%s/tokenizer.json: line %d: %s", source->path, error.line, error.text);
    }
    json_t *config = json_pack("{s:s, s:b, s:O*, s:O*, s:I}", "tokenizer_class",
        "PreTrainedTokenizerFast", "clean_up_tokenization_spaces", 0, "bos_token",
        token_text(root, shape->bos), "eos_token", token_text(root, shape->eos), "model_max_length",
        (json_int_t)shape->max_positions);
    json_decref(root);
    return write_json(folder, "tokenizer_config.json", config);
}

static cy_status export_tokenizer(const cy_checkpoint *source, const char *folder)
{
    bool found = false, has_config = false, ignored = false;
    cy_text tokenizer = {0};
    cy_status status = read_text(&tokenizer, &found, source, "tokenizer.json");
    if (status == CY_OK && found) status = write_text(folder, "tokenizer.json", &tokenizer);
    if (status == CY_OK && found) {
        status = copy_text(&has_config, source, folder, "tokenizer_config.json");
    }
    if (status == CY_OK && found && !has_config) {
        status = make_tokenizer_config(source, &tokenizer, folder);
    }
    if (status == CY_OK) status = copy_text(&ignored, source, folder, "special_tokens_map.json");
    if (status == CY_OK) status = copy_text(&ignored, source, folder, "chat_template.jinja");
    cy_text_free(&tokenizer);
    return status;
}

// Writes generation_config.json and, where the checkpoint has a tokenizer, the tokenizer's files:
// copies of what the checkpoint holds, otherwise made from the model's shape and the tokenizer.
static cy_status write_texts(const cy_checkpoint *source, const char *folder)
{
    bool found = false;
    const cy_model_shape *shape = &source->model;
    CY_TRY(export_tokenizer(source, folder));
    CY_TRY(copy_text(&found, source, folder, "generation_config.json"));
    if (found) return CY_OK;
    json_t *config =
        json_pack("{s:o*, s:o*, s:o*, s:b}", "bos_token_id", token_id(shape->bos), "eos_token_id",
            token_id(shape->eos), "pad_token_id", token_id(shape->eos), "_from_model_config", 1);
    return write_json(folder, "generation_config.json", config);
}

// ---- the weights

#define STREAM_ELEMENTS ((int64_t)1 << 18)

typedef struct exporter {
    cy_checkpoint *source;
    const cy_export_options *options;
    const char *folder;
    const cy_global_tensor *tensors; // [count]: what the model needs, in the model's order
    int count;
    char *buffer;       // owned, STREAM_ELEMENTS of the largest type
    json_t *weight_map; // owned: the file of each tensor
    uint64_t total;
} exporter;

static cy_dtype dtype_of(const exporter *out, int tensor)
{
    if (!out->options->keep_dtype) return out->options->dtype;
    const cy_global_tensor *wanted = &out->tensors[tensor];
    return cy_checkpoint_find(out->source, wanted->kind, wanted->name)->tensor.dtype;
}

static uint64_t bytes_of(const exporter *out, int tensor)
{
    const cy_global_tensor *wanted = &out->tensors[tensor];
    return (uint64_t)(wanted->rows * wanted->cols) * cy_dtype_size(dtype_of(out, tensor));
}

// Fails with the number of stored values of a tensor that are not finite, or would not be finite in
// the dtype of the export: such a folder could not be computed with.
static cy_status refuse_not_finite(exporter *out, int tensor)
{
    const cy_global_tensor *wanted = &out->tensors[tensor];
    const cy_dtype dtype = dtype_of(out, tensor);
    const cy_rectangle all = {0, wanted->rows, 0, wanted->cols};
    const int64_t elements = wanted->rows * wanted->cols;
    cy_checkpoint_traffic traffic = {0};
    int64_t lost = 0, never = 0;
    for (int64_t done = 0; done < elements; done += STREAM_ELEMENTS) {
        const int64_t left = elements - done;
        const int64_t some = left < STREAM_ELEMENTS ? left : STREAM_ELEMENTS;
        const cy_tensor_shard piece =
            cy_tensor_shard_of_range(tensor, all, done, some, out->buffer, CY_F64);
        CY_TRY(cy_checkpoint_load(out->source, out->tensors, &piece, 1, &traffic));
        lost += cy_convert_not_finite(dtype, out->buffer, CY_F64, some);
        never += cy_convert_not_finite(CY_F64, out->buffer, CY_F64, some);
    }
    if (never > 0) {
        return CY_FAIL(CY_ERR_NOT_FINITE, "%s: %lld of its %lld values are not finite",
            wanted->name, (long long)never, (long long)elements);
    }
    const cy_status status = CY_FAIL(CY_ERR_NOT_FINITE, "%s: %lld of its %lld values are beyond %s",
        wanted->name, (long long)lost, (long long)elements, cy_dtype_name(dtype));
    cy_error_set_hint("--dtype=stored keeps them as they are");
    return status;
}

static cy_status stream_tensor(exporter *out, cy_file_writer *writer, int tensor)
{
    const cy_global_tensor *wanted = &out->tensors[tensor];
    const cy_rectangle all = {0, wanted->rows, 0, wanted->cols};
    const cy_dtype dtype = dtype_of(out, tensor);
    const int64_t elements = wanted->rows * wanted->cols;
    cy_checkpoint_traffic traffic = {0};
    for (int64_t done = 0; done < elements; done += STREAM_ELEMENTS) {
        const int64_t left = elements - done;
        const int64_t some = left < STREAM_ELEMENTS ? left : STREAM_ELEMENTS;
        const cy_tensor_shard piece =
            cy_tensor_shard_of_range(tensor, all, done, some, out->buffer, dtype);
        CY_TRY(cy_checkpoint_load(out->source, out->tensors, &piece, 1, &traffic));
        if (cy_convert_not_finite(dtype, out->buffer, dtype, some) > 0) {
            return refuse_not_finite(out, tensor);
        }
        CY_TRY(cy_file_writer_add(writer, out->buffer, (size_t)some * cy_dtype_size(dtype)));
    }
    return CY_OK;
}

// Writes the tensors [first, end) as one file.
static cy_status write_shard(exporter *out, int first, int end, const char *path)
{
    void *memory = NULL;
    cy_text header = {0};
    cy_file_writer *writer = NULL;
    CY_TRY(cy_memory_alloc(&memory, (size_t)(end - first), sizeof(cy_safetensors_entry)));
    cy_safetensors_entry *entries = memory;
    for (int i = first; i < end; i++) {
        const cy_global_tensor *tensor = &out->tensors[i];
        const bool matrix = tensor->dimensions == 2;
        entries[i - first] = (cy_safetensors_entry){
            .name = cy_memory_writable(tensor->name), // only read
            .dtype = dtype_of(out, i),
            .dimensions = tensor->dimensions,
            .dims = {matrix ? tensor->rows : tensor->cols, tensor->cols},
        };
    }
    cy_status status = cy_safetensors_header(&header, entries, end - first, "{\"format\":\"pt\"}");
    if (status == CY_OK) {
        const cy_safetensors_entry *last = &entries[end - first - 1];
        status = cy_file_writer_open(&writer, path, last->offset + last->bytes, 0);
    }
    if (status == CY_OK) status = cy_file_writer_add(writer, header.bytes, header.length);
    for (int i = first; status == CY_OK && i < end; i++)
        status = stream_tensor(out, writer, i);
    const cy_status closed = cy_file_writer_close(writer, status == CY_OK);
    if (status == CY_OK) status = closed;
    cy_text_free(&header);
    cy_memory_free(memory);
    return status;
}

// The index after the last tensor of the shard that begins with `first`.
static int shard_end(const exporter *out, int first)
{
    uint64_t bytes = bytes_of(out, first);
    int end = first + 1;
    while (end < out->count && bytes + bytes_of(out, end) <= out->options->shard_bytes) {
        bytes += bytes_of(out, end++);
    }
    return end;
}

static cy_status write_weights(exporter *out)
{
    int shards = 0;
    for (int first = 0; first < out->count; first = shard_end(out, first))
        shards++;
    int shard = 0;
    for (int first = 0, end; first < out->count; first = end) {
        char name[64] = "model.safetensors";
        char *path = NULL;
        end = shard_end(out, first);
        shard++;
        if (shards > 1) {
            snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors", shard, shards);
        }
        CY_TRY(cy_folder_join(&path, out->folder, name));
        const cy_status status = write_shard(out, first, end, path);
        cy_memory_free(path);
        CY_TRY(status);
        for (int i = first; i < end; i++) {
            out->total += bytes_of(out, i);
            if (json_object_set_new(out->weight_map, out->tensors[i].name, json_string(name)) !=
                0) {
                return CY_FAIL(CY_ERR_MEMORY, "no memory for the index of %s", out->folder);
            }
        }
    }
    if (shards == 1) return CY_OK;
    return write_json(out->folder, "model.safetensors.index.json",
        json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)out->total, "weight_map",
            out->weight_map));
}

static cy_status write_all(exporter *out)
{
    cy_text json = {0};
    void *buffer = NULL;
    CY_TRY(cy_memory_alloc(&buffer, (size_t)STREAM_ELEMENTS, sizeof(double)));
    out->buffer = buffer;
    out->weight_map = json_object(); // NULL: the first tensor that is set in it fails
    cy_status status = cy_model_shape_to_config(&json, &out->source->model, dtype_of(out, 0));
    if (status == CY_OK) status = write_text(out->folder, "config.json", &json);
    if (status == CY_OK) status = write_weights(out);
    if (status == CY_OK) status = write_texts(out->source, out->folder);
    cy_text_free(&json);
    json_decref(out->weight_map);
    cy_memory_free(buffer);
    return status;
}

// Sets the model's end token to that of the tokenizer, which ends the texts of a model trained
// here. An imported model names its own.
static cy_status find_end_token(cy_checkpoint *source)
{
    char *path = NULL;
    if (source->is_hf || source->model.eos >= 0) return CY_OK;
    CY_TRY(cy_folder_join(&path, source->path, "tokenizer.json"));
    cy_tokenizer *tokenizer = NULL;
    bool there = false;
    cy_status status = cy_path_find(&there, path);
    if (there) status = cy_tokenizer_open(&tokenizer, path);
    if (tokenizer != NULL) source->model.eos = cy_tokenizer_end_token(tokenizer);
    cy_tokenizer_close(tokenizer);
    cy_memory_free(path);
    return status;
}

cy_status cy_checkpoint_export(const char *from, const char *to, const cy_export_options *options)
{
    cy_checkpoint source;
    cy_pending_folder place;
    cy_global_tensor *tensors = NULL;
    exporter out = {.source = &source, .options = options};
    CY_TRY(cy_pending_folder_open(&place, to));
    cy_status status = cy_checkpoint_open_pinned(&source, from);
    if (status != CY_OK) return cy_pending_folder_close(&place, status);
    if (!source.has_model) {
        status = CY_FAIL(CY_ERR_REQUEST, "%s does not say what model it is of", from);
    }
    if (status == CY_OK) status = find_end_token(&source);
    if (status == CY_OK) status = cy_checkpoint_weights_of(&tensors, &out.count, &source.model);
    if (status == CY_OK) status = cy_checkpoint_check_tensors(&source, tensors, out.count);
    cy_checkpoint_traffic traffic = {0};
    if (status == CY_OK) {
        status = cy_checkpoint_verify(&source, CY_TENSOR_ADAM_M, cy_group_self(), &traffic);
    }
    out.folder = place.making;
    out.tensors = tensors;
    if (status == CY_OK) status = cy_pending_folder_make(&place);
    if (status == CY_OK) status = write_all(&out);
    cy_memory_free(tensors);
    cy_checkpoint_close(&source);
    return cy_pending_folder_close(&place, status);
}
