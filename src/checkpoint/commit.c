#define _GNU_SOURCE
#include "checkpoint/commit.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "checkpoint/checksum.h"
#include "checkpoint/folder.h"
#include "checkpoint/rank_files.h"
#include "checkpoint/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPIED_BYTES_MAX ((size_t)1 << 30)

static cy_status check_object(const char *json, const char *what)
{
    json_error_t error;
    if (json == NULL) return CY_OK;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &error);
    const bool object = json_is_object(root);
    const char *text = root == NULL ? error.text : "something else";
    json_decref(root);
    if (object) return CY_OK;
    return CY_FAIL(CY_ERR_REQUEST, "the %s of a checkpoint is not a JSON object: %s", what, text);
}

cy_status cy_commit_begin(const cy_save *save, const char *folder, const char *pending)
{
    CY_TRY(check_object(save->config_json, "configuration"));
    CY_TRY(check_object(save->state_json, "state"));
    CY_TRY(check_object(save->identity_json, "identity"));
    CY_TRY(
        cy_folder_remove_renamed(folder, pending)); // of a save that failed and could not clean up
    if (cy_io_make_folder(pending) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "make folder %s", pending);
    return CY_OK;
}

// Writes a file into the checkpoint and its table.
static cy_status add_file(cy_checkpoint *table, const cy_extra_file *saved, const char *folder)
{
    cy_text text = {0};
    char *path = NULL;
    if (saved->source != NULL) CY_TRY(cy_file_read(&text, saved->source, COPIED_BYTES_MAX));
    const char *bytes = saved->source != NULL ? text.bytes : saved->bytes;
    const size_t count = saved->source != NULL ? text.length : saved->byte_count;
    cy_status status = cy_folder_join(&path, folder, saved->name);
    if (status == CY_OK) status = cy_file_write_unsynced(path, bytes, count);
    if (status == CY_OK) {
        cy_checkpoint_file *file = &table->files[table->file_count++];
        *file = (cy_checkpoint_file){.bytes = count, .fd = -1};
        status = cy_checkpoint_file_head(file, bytes, count);
        if (status == CY_OK) status = cy_memory_copy_text(&file->name, saved->name);
    }
    cy_text_free(&text);
    cy_memory_free(path);
    return status;
}

cy_status cy_commit_manifest(const cy_save *save, const char *pending, int ranks)
{
    cy_checkpoint table = {0};
    cy_text json = {0};
    char *path = NULL;
    cy_status status = cy_rank_files_collect(&table, save, pending, ranks);
    for (int i = 0; status == CY_OK && i < save->file_count; i++) {
        status = add_file(&table, &save->files[i], pending);
    }
    if (status == CY_OK && save->config_json != NULL) {
        status = cy_memory_copy_text(&table.config_json, save->config_json);
    }
    if (status == CY_OK && save->state_json != NULL) {
        status = cy_memory_copy_text(&table.state_json, save->state_json);
    }
    if (status == CY_OK && save->identity_json != NULL) {
        status = cy_memory_copy_text(&table.identity_json, save->identity_json);
    }
    table.step = save->step;
    table.tokens = save->tokens;
    if (save->model != NULL) {
        table.model = *save->model;
        table.has_model = true;
    }
    if (status == CY_OK) status = cy_checkpoint_to_json(&json, &table);
    if (status == CY_OK) status = cy_folder_join(&path, pending, CY_MANIFEST_NAME);
    if (status == CY_OK) status = cy_file_write_unsynced(path, json.bytes, json.length);
    cy_memory_free(path);
    cy_text_free(&json);
    cy_checkpoint_close(&table);
    for (int i = 0; status == CY_OK && i < ranks; i++) {
        char *part = NULL;
        status = cy_rank_files_part_path(&part, pending, i);
        if (status == CY_OK && cy_io_unlink(part) != 0) {
            status = CY_FAIL_ERRNO(CY_ERR_IO, "remove %s", part);
        }
        cy_memory_free(part);
    }
    if (status == CY_OK) status = cy_folder_sync(pending);
    return status;
}

// The names are on the disk, or as they were before: `swapped` says that the two were exchanged.
static cy_status sync_names(
    const char *folder, const char *pending, const char *target, bool swapped)
{
    const cy_status status = cy_folder_sync(folder);
    if (status == CY_OK) return CY_OK;
    // Both folders are whole, so that either may have the name.
    const int undone = swapped ? cy_io_exchange(pending, target) : cy_io_rename(target, pending);
    if (undone != 0) cy_error_prefix("%s is there, on the disk perhaps not: ", target);
    return status;
}

// On a file system that cannot exchange names.
static cy_status rename_twice(
    const char *folder, const char *pending, const char *target, const char *old)
{
    CY_TRY(cy_folder_remove_renamed(folder, old));
    if (cy_io_rename(target, old) != 0) {
        return CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", target, old);
    }
    if (cy_io_rename(pending, target) != 0) {
        const cy_status status = CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", pending, target);
        if (cy_io_rename(old, target) != 0) cy_error_prefix("%s has lost its name: ", target);
        return status;
    }
    return cy_folder_sync(folder);
}

cy_status cy_commit_rename(
    const char *folder, const char *pending, const char *target, const char *old)
{
    bool there = false;
    CY_TRY(cy_path_find(&there, target));
    if (!there) {
        if (cy_io_rename(pending, target) == 0) return sync_names(folder, pending, target, false);
        return CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", pending, target);
    }
    if (cy_io_exchange(pending, target) == 0) return sync_names(folder, pending, target, true);
    if (errno == EINVAL || errno == ENOSYS) return rename_twice(folder, pending, target, old);
    return CY_FAIL_ERRNO(CY_ERR_IO, "exchange %s and %s", pending, target);
}
