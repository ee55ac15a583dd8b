// Opens a Hugging Face folder as a checkpoint of weights: config.json and safetensors headers.

#define _GNU_SOURCE
#include "checkpoint/hf/hf.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "model/shape.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#define INDEX_NAME      "model.safetensors.index.json"
#define SINGLE_NAME     "model.safetensors"
#define INDEX_BYTES_MAX ((size_t)64 << 20)

static cy_status find(bool *there, const char *folder, const char *name)
{
    char *path = NULL;
    *there = false;
    CY_TRY(cy_folder_join(&path, folder, name));
    const cy_status status = cy_path_find(there, path);
    cy_memory_free(path);
    return status;
}

// True for tensors in the files that are no parameters: tables of the rotary embedding, and the
// second name of a tied embedding.
static bool is_no_parameter(const cy_checkpoint *checkpoint, const char *name)
{
    static const char table[] = ".rotary_emb.inv_freq";
    const size_t length = strlen(name);
    if (length >= sizeof(table) && strcmp(name + length - sizeof(table) + 1, table) == 0)
        return true;
    return checkpoint->model.tied && strcmp(name, "lm_head.weight") == 0;
}

static cy_status shape_of(
    cy_global_tensor *tensor, const cy_safetensors_entry *entry, const char *path)
{
    if (entry->dimensions > 2 || entry->bytes == 0) {
        return CY_FAIL(CY_ERR_UNSUPPORTED, "%s: tensor %s: %d dimensions, %" PRIu64 " bytes", path,
            entry->name, entry->dimensions, entry->bytes);
    }
    tensor->kind = CY_TENSOR_WEIGHT;
    tensor->dtype = entry->dtype;
    tensor->dimensions = entry->dimensions == 2 ? 2 : 1;
    tensor->rows = entry->dimensions == 2 ? entry->dims[0] : 1;
    tensor->cols = entry->dimensions == 0 ? 1 : entry->dims[entry->dimensions - 1];
    return CY_OK;
}

typedef struct table_capacity {
    size_t files, tensors;
} table_capacity;

static cy_status add_tensor(cy_checkpoint *checkpoint, table_capacity *capacity,
    const cy_safetensors_entry *entry, const char *path)
{
    void *tensors = checkpoint->tensors;
    cy_stored_tensor stored = {.piece_count = 1};
    CY_TRY(shape_of(&stored.tensor, entry, path));
    CY_TRY(cy_memory_grow(&tensors, &capacity->tensors, (size_t)checkpoint->tensor_count + 1,
        sizeof(cy_stored_tensor)));
    checkpoint->tensors = tensors;
    char *name = NULL;
    CY_TRY(cy_memory_copy_text(&name, entry->name));
    stored.tensor.name = name;
    checkpoint->tensors[checkpoint->tensor_count++] = stored;
    return CY_OK;
}

// Adds a safetensors file and its tensors to the table, and reads its header. assign_pieces sets
// the tensors' shards once their number is known; until then `pieces` is NULL.
static cy_status add_file(
    cy_checkpoint *checkpoint, table_capacity *capacity, const char *name, cy_safetensors *header)
{
    char *path = NULL;
    void *files = checkpoint->files;
    CY_TRY(cy_memory_grow(
        &files, &capacity->files, (size_t)checkpoint->file_count + 1, sizeof(cy_checkpoint_file)));
    checkpoint->files = files;
    CY_TRY(cy_folder_join(&path, checkpoint->path, name));
    cy_status status = cy_safetensors_open(header, path);
    if (status == CY_OK) {
        cy_checkpoint_file *file = &checkpoint->files[checkpoint->file_count++];
        *file = (cy_checkpoint_file){
            .bytes = header->file_bytes, .head_bytes = header->data_first, .fd = -1};
        status = cy_memory_copy_text(&file->name, name);
    }
    for (int i = 0; status == CY_OK && i < header->count; i++) {
        if (is_no_parameter(checkpoint, header->entries[i].name)) continue;
        status = add_tensor(checkpoint, capacity, &header->entries[i], path);
    }
    cy_memory_free(path);
    return status;
}

// Sets the shards of the tensors [first, count) of the table, which file number `file` holds.
static void assign_pieces(
    cy_checkpoint *checkpoint, int first, int count, int file, const cy_safetensors *header)
{
    int entry = 0;
    for (int i = first; i < count; i++) {
        cy_stored_tensor *stored = &checkpoint->tensors[i];
        while (strcmp(header->entries[entry].name, stored->tensor.name) != 0)
            entry++;
        const cy_global_tensor *tensor = &stored->tensor;
        checkpoint->pieces[i] = (cy_stored_shard){
            .piece =
                {
                    .rectangle = {0, tensor->rows, 0, tensor->cols},
                    .count = tensor->rows * tensor->cols,
                    .dtype = tensor->dtype,
                    .stride = tensor->cols,
                },
            .file = file,
            .offset = header->entries[entry].offset,
        };
        stored->pieces = &checkpoint->pieces[i];
    }
}

// Reads the headers of the named files, [count].
static cy_status add_files(cy_checkpoint *checkpoint, const char *const *names, int count)
{
    table_capacity capacity = {0};
    void *memory = NULL;
    CY_TRY(cy_memory_alloc(&memory, (size_t)count, sizeof(cy_safetensors) + sizeof(int)));
    cy_safetensors *headers = memory;
    int *firsts = (int *)(headers + count);
    cy_status status = CY_OK;
    for (int i = 0; status == CY_OK && i < count; i++) {
        firsts[i] = checkpoint->tensor_count;
        status = add_file(checkpoint, &capacity, names[i], &headers[i]);
    }
    void *pieces = NULL;
    if (status == CY_OK) {
        status =
            cy_memory_alloc(&pieces, (size_t)checkpoint->tensor_count, sizeof(cy_stored_shard));
    }
    if (status == CY_OK) {
        checkpoint->pieces = pieces;
        checkpoint->piece_count = checkpoint->tensor_count;
        for (int i = 0; i < count; i++) {
            const int end = i + 1 < count ? firsts[i + 1] : checkpoint->tensor_count;
            assign_pieces(checkpoint, firsts[i], end, i, &headers[i]);
        }
    }
    for (int i = 0; i < count; i++)
        cy_safetensors_close(&headers[i]);
    cy_memory_free(memory);
    return status;
}

// Adds a file of an index that none of its tensors has named before; `seen` is a set of names.
static cy_status add_name(
    json_t *seen, const char **names, int *count, const char *name, const char *index_path)
{
    if (json_object_get(seen, name) != NULL) return CY_OK;
    if (json_object_set_new_nocheck(seen, name, json_true()) != 0) {
        return CY_FAIL(CY_ERR_MEMORY, "%s: no memory for its files", index_path);
    }
    names[(*count)++] = name;
    return CY_OK;
}

// Lists the distinct files of an index, in its order.
static cy_status index_files(const char **names, int *count, json_t *map, const char *index_path)
{
    const char *tensor;
    json_t *value;
    json_t *seen = json_object();
    cy_status status =
        seen != NULL ? CY_OK : CY_FAIL(CY_ERR_MEMORY, "%s: no memory for its files", index_path);
    if (status != CY_OK) return status;
    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);
        const bool is_wrong =
            name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL;
        status = is_wrong ? CY_FAIL(CY_ERR_CORRUPT, "%s: weight_map: %s does not name a file here",
                                index_path, tensor)
                          : add_name(seen, names, count, name, index_path);
        if (status != CY_OK) break;
    }
    json_decref(seen);
    return status;
}

#define SHOWN_MISSING 8

// Fails where files are missing, and names them.
static cy_status check_present(
    const cy_checkpoint *checkpoint, const char *const *names, int count, const char *index_path)
{
    cy_text missing = {0};
    cy_status status = CY_OK;
    int found = 0;
    for (int i = 0; i < count && status == CY_OK; i++) {
        bool there = false;
        status = find(&there, checkpoint->path, names[i]);
        if (status != CY_OK || there) continue;
        if (found++ < SHOWN_MISSING) status = cy_text_add(&missing, " %s", names[i]);
    }
    if (status == CY_OK && found > SHOWN_MISSING) {
        status = cy_text_add(&missing, " and %d more", found - SHOWN_MISSING);
    }
    if (status == CY_OK && found > 0) {
        status = CY_FAIL(
            CY_ERR_CORRUPT, "%s names files that are missing:%s", index_path, missing.bytes);
    }
    cy_text_free(&missing);
    return status;
}

// Checks that every tensor of the index is in the file that the index names.
static cy_status check_index(cy_checkpoint *checkpoint, json_t *map, const char *index_path)
{
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value)
    {
        if (is_no_parameter(checkpoint, name)) continue;
        const cy_stored_tensor *stored = cy_checkpoint_find(checkpoint, CY_TENSOR_WEIGHT, name);
        const char *file = stored != NULL ? checkpoint->files[stored->pieces[0].file].name : "";
        if (strcmp(file, json_string_value(value)) != 0) {
            return CY_FAIL(CY_ERR_CORRUPT, "%s: tensor %s is not in %s", index_path, name,
                json_string_value(value));
        }
    }
    return CY_OK;
}

static cy_status open_map(cy_checkpoint *checkpoint, json_t *map, const char *index_path)
{
    void *memory = NULL;
    int count = 0;
    CY_TRY(cy_memory_alloc(&memory, json_object_size(map), sizeof(char *)));
    const char **names = memory;
    cy_status status = index_files(names, &count, map, index_path);
    if (status == CY_OK) status = check_present(checkpoint, names, count, index_path);
    if (status == CY_OK) status = add_files(checkpoint, names, count);
    if (status == CY_OK) status = cy_checkpoint_finalize(checkpoint, checkpoint->path, false);
    if (status == CY_OK) status = check_index(checkpoint, map, index_path);
    cy_memory_free(memory);
    return status;
}

static cy_status open_index(cy_checkpoint *checkpoint)
{
    char *path = NULL;
    cy_text text = {0};
    json_error_t error;
    CY_TRY(cy_folder_join(&path, checkpoint->path, INDEX_NAME));
    cy_status status = cy_file_read(&text, path, INDEX_BYTES_MAX);
    if (status == CY_OK) {
        json_t *root = json_loadb(text.bytes, text.length, JSON_REJECT_DUPLICATES, &error);
        json_t *map = json_object_get(root, "weight_map");
        if (root == NULL) {
            status = CY_FAIL(CY_ERR_CORRUPT, "%s: line %d, column %d: %s", path, error.line,
                error.column, error.text);
        } else if (json_object_size(map) == 0) {
            status = CY_FAIL(CY_ERR_CORRUPT, "%s: weight_map is missing or empty", path);
        } else {
            status = open_map(checkpoint, map, path);
        }
        json_decref(root);
    }
    cy_text_free(&text);
    cy_memory_free(path);
    return status;
}

cy_status cy_hf_open(cy_checkpoint *checkpoint)
{
    static const char *const single[] = {SINGLE_NAME};
    char *path = NULL;
    checkpoint->is_hf = true;
    CY_TRY(cy_folder_join(&path, checkpoint->path, "config.json"));
    const cy_status status = cy_model_shape_read(&checkpoint->model, path);
    cy_memory_free(path);
    CY_TRY(status);
    checkpoint->has_model = true;
    bool there = false, pickled = false;
    CY_TRY(find(&there, checkpoint->path, INDEX_NAME));
    if (there) return open_index(checkpoint);
    CY_TRY(find(&there, checkpoint->path, SINGLE_NAME));
    if (there) {
        CY_TRY(add_files(checkpoint, single, 1));
        return cy_checkpoint_finalize(checkpoint, checkpoint->path, false);
    }
    CY_TRY(find(&pickled, checkpoint->path, "pytorch_model.bin"));
    if (!pickled) CY_TRY(find(&pickled, checkpoint->path, "pytorch_model.bin.index.json"));
    const cy_status failure = CY_FAIL(
        CY_ERR_IO, "%s: neither " SINGLE_NAME " nor " INDEX_NAME " is there", checkpoint->path);
    if (pickled) {
        cy_error_set_hint(
            "pytorch_model.bin is a program, not data: save the model as safetensors");
    }
    return failure;
}
