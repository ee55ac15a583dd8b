// Imports a Hugging Face folder as a checkpoint, by copying its weights or by hard links to them.

#define _GNU_SOURCE
#include "checkpoint/hf/hf.h"

#include <cyclotron/tokenizer.h>

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/output.h"
#include "checkpoint/fetch.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save.h"
#include "model/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// ---- hard links

static cy_status link_file(const char *folder, const char *from_folder, const char *name)
{
    char *from = NULL, *to = NULL;
    CY_TRY(cy_folder_join(&from, from_folder, name));
    cy_status status = cy_folder_join(&to, folder, name);
    // A download cache holds symbolic links: cy_io_link links to the file, not to the link.
    if (status == CY_OK && cy_io_link(from, to) != 0) {
        const bool elsewhere = errno == EXDEV;
        status = CY_FAIL_ERRNO(elsewhere ? CY_ERR_REQUEST : CY_ERR_IO, "link %s to %s", from, to);
        if (elsewhere) {
            cy_error_set_hint(
                "the two are on different file systems: import a copy, without --link");
        }
    }
    cy_memory_free(from);
    cy_memory_free(to);
    return status;
}

static cy_status checksum_range(
    cy_checkpoint *source, const cy_chunks *chunks, const cy_chunk_range *range, char *buffer)
{
    void *memory = NULL;
    const int64_t count = cy_chunk_count(range->bytes);
    CY_TRY(cy_memory_alloc(&memory, (size_t)count, sizeof(uint64_t)));
    uint64_t *checksums = memory;
    if (range->piece == NULL) {
        source->files[range->file].checksums = checksums;
    } else {
        source->pieces[range->piece - source->pieces].checksums = checksums;
    }
    for (int64_t i = 0; i < count; i++) {
        const cy_chunk chunk = cy_chunks_at(chunks, range->first + i);
        struct iovec part = {.iov_base = buffer, .iov_len = chunk.bytes};
        CY_TRY(cy_bytes_read(source, range->file, chunk.offset, &part, 1));
        checksums[i] = cy_checksum(buffer, chunk.bytes);
    }
    return CY_OK;
}

// Computes all checksums, reading the files one after the other from start to end.
static cy_status checksum_files(cy_checkpoint *source)
{
    cy_chunks chunks;
    void *buffer = NULL;
    CY_TRY(cy_chunks_open(&chunks, source));
    cy_status status = cy_memory_alloc(&buffer, CY_CHUNK_BYTES, 1);
    for (int64_t i = 0; status == CY_OK && i < chunks.range_count; i++)
        status = checksum_range(source, &chunks, &chunks.ranges[i], buffer);
    cy_memory_free(buffer);
    cy_chunks_close(&chunks);
    return status;
}

// Gives the weights' files of `source`, a Hugging Face folder, a second name in `folder` (a hard
// link), reads them once for their checksums, which `source` then holds, and writes the part of
// rank 0, as cy_rank_files_write() does. CY_ERR_REQUEST where the two folders are on different file
// systems.
static cy_status link_files(cy_checkpoint *source, const char *folder)
{
    for (int i = 0; i < source->file_count; i++) {
        CY_TRY(link_file(folder, source->path, source->files[i].name));
    }
    CY_TRY(checksum_files(source));
    return cy_rank_files_write_part(source, folder, 0);
}

// ---- importing

cy_status cy_checkpoint_weights_of(
    cy_global_tensor **tensors, int *count, const cy_model_shape *shape)
{
    cy_manifest manifest;
    void *memory = NULL;
    CY_TRY(cy_manifest_open(&manifest, shape, cy_precision_of(CY_F32)));
    const size_t each = sizeof(cy_global_tensor) + sizeof(manifest.params[0].name);
    const cy_status status = cy_memory_alloc(&memory, (size_t)manifest.count, each);
    cy_global_tensor *list = memory;
    char *name = (char *)(list + manifest.count);
    for (int i = 0; status == CY_OK && i < manifest.count; i++) {
        const cy_param *param = &manifest.params[i];
        memcpy(name, param->name, sizeof(param->name));
        list[i] = (cy_global_tensor){
            .name = name,
            .kind = CY_TENSOR_WEIGHT,
            .dtype = param->dtype,
            .dimensions = param->dimensions,
            .rows = param->rows,
            .cols = param->cols,
        };
        name += sizeof(param->name);
    }
    if (status == CY_OK) {
        *tensors = list;
        *count = manifest.count;
    }
    cy_manifest_close(&manifest);
    return status;
}

// Lists the tensors of the folder, each as one shard that is read from there.
static void take_pieces(
    const cy_checkpoint *source, cy_global_tensor *tensors, cy_tensor_shard *pieces)
{
    for (int i = 0; i < source->tensor_count; i++) {
        tensors[i] = source->tensors[i].tensor;
        pieces[i] = source->tensors[i].pieces[0].piece;
        pieces[i].tensor = i;
    }
}

static const char *const copied[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
};
#define COPIED_COUNT     ((int)(sizeof(copied) / sizeof(copied[0])))
#define COPIED_BYTES_MAX ((size_t)1 << 30)

static cy_status find_copied(cy_extra_file *files, int *count, const char *folder)
{
    for (int i = 0; i < COPIED_COUNT; i++) {
        char *path = NULL;
        bool there = false;
        CY_TRY(cy_folder_join(&path, folder, copied[i]));
        const cy_status status = cy_path_find(&there, path);
        if (there) {
            files[(*count)++] = (cy_extra_file){.name = copied[i], .source = path};
        } else {
            cy_memory_free(path);
        }
        CY_TRY(status);
    }
    return CY_OK;
}

static cy_status check_json(const char *path)
{
    cy_text text = {0};
    json_error_t error;
    CY_TRY(cy_file_read(&text, path, COPIED_BYTES_MAX));
    json_t *root = json_loadb(text.bytes, text.length, JSON_REJECT_DUPLICATES, &error);
    const cy_status status = root != NULL ? CY_OK
                                          : CY_FAIL(CY_ERR_CORRUPT, "%s: line %d, column %d: %s",
                                                path, error.line, error.column, error.text);
    json_decref(root);
    cy_text_free(&text);
    return status;
}

static cy_status check_tokenizer(const char *path)
{
    cy_tokenizer *tokenizer = NULL;
    const cy_status status = cy_tokenizer_open(&tokenizer, path);
    if (status == CY_OK) {
        cy_tokenizer_close(tokenizer);
    } else if (status == CY_ERR_UNSUPPORTED) {
        cy_error_set_hint("without its tokenizer.json the folder is imported for its weights");
    }
    return status;
}

// Checks the copied files now, so that an unusable one does not fail at the first text.
static cy_status check_copied(const cy_extra_file *files, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(files[i].name, "tokenizer.json") == 0) {
            CY_TRY(check_tokenizer(files[i].source));
        } else if (strstr(files[i].name, ".json") != NULL) {
            CY_TRY(check_json(files[i].source));
        }
    }
    return CY_OK;
}

static cy_status write_import(
    cy_checkpoint *source, const cy_pending_folder *place, cy_save save, bool link)
{
    cy_extra_file files[COPIED_COUNT];
    void *memory[2] = {NULL, NULL};
    int64_t bytes = 0;
    int file_count = 0;
    const size_t count = (size_t)source->tensor_count;
    cy_status status = cy_memory_alloc(&memory[0], count, sizeof(cy_global_tensor));
    if (status == CY_OK) status = cy_memory_alloc(&memory[1], count, sizeof(cy_tensor_shard));
    if (status == CY_OK) take_pieces(source, memory[0], memory[1]);
    if (status == CY_OK) status = find_copied(files, &file_count, source->path);
    if (status == CY_OK) status = check_copied(files, file_count);
    save.tensors = memory[0];
    save.tensor_count = source->tensor_count;
    save.pieces = memory[1];
    save.piece_count = source->tensor_count;
    save.source = source;
    save.files = files;
    save.file_count = file_count;
    if (status == CY_OK) {
        status = link ? link_files(source, place->making)
                      : cy_rank_files_write(&bytes, &save, NULL, place->making, 0, 1);
    }
    if (status == CY_OK) status = cy_commit_manifest(&save, place->making, 1);
    for (int i = 0; i < file_count; i++)
        cy_memory_free(cy_memory_writable(files[i].source));
    for (int i = 0; i < 2; i++)
        cy_memory_free(memory[i]);
    return status;
}

cy_status cy_checkpoint_import(const char *from, const char *to, bool link)
{
    cy_checkpoint source;
    cy_pending_folder place;
    cy_global_tensor *needed = NULL;
    int count = 0;
    CY_TRY(cy_pending_folder_open(&place, to));
    cy_status status = cy_checkpoint_open(&source, from);
    if (status != CY_OK) goto close_place;
    if (!source.is_hf) {
        status = CY_FAIL(CY_ERR_REQUEST, "%s is a checkpoint already", from);
    }
    if (status == CY_OK) status = cy_checkpoint_weights_of(&needed, &count, &source.model);
    if (status == CY_OK) status = cy_checkpoint_check_tensors(&source, needed, count);
    const cy_save save = {.config_json = "{}", .state_json = "{}", .model = &source.model};
    if (status == CY_OK) status = cy_pending_folder_make(&place);
    if (status == CY_OK) status = write_import(&source, &place, save, link);
    cy_memory_free(needed);
    cy_checkpoint_close(&source);
close_place:
    return cy_pending_folder_close(&place, status);
}
