// Opens and closes checkpoints, and finds the newest one in a folder.

#define _GNU_SOURCE
#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "checkpoint/file_io.h"
#include "checkpoint/folder.h"
#include "checkpoint/hf/hf.h"
#include "checkpoint/manifest.h"
#include "model/shape.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// How often a folder is listed, and a checkpoint opened, while a run retires what was found. Each
// repeat means that the run has saved another checkpoint.
#define LISTINGS_MAX 8
#define RETIRED_MAX  16

// Checks that every file of the table exists with its size. The failure names all that do not.
static cy_status check_files(const cy_checkpoint *checkpoint)
{
    cy_text wrong = {0};
    int count = 0;
    cy_status status = CY_OK;
    for (int i = 0; status == CY_OK && i < checkpoint->file_count; i++) {
        struct stat info;
        char *path = NULL;
        const cy_checkpoint_file *file = &checkpoint->files[i];
        status = cy_folder_join(&path, checkpoint->path, file->name);
        if (status != CY_OK) break;
        if (cy_io_stat(path, &info) != 0) {
            count++;
            status = cy_text_add(&wrong, "\n  - %s %s", file->name,
                errno == ENOENT || errno == ENOTDIR ? "is missing" : strerror(errno));
        } else if ((uint64_t)info.st_size != file->bytes) {
            count++;
            status =
                cy_text_add(&wrong, "\n  - %s has %" PRId64 " bytes, was written with %" PRIu64,
                    file->name, (int64_t)info.st_size, file->bytes);
        }
        cy_memory_free(path);
    }
    if (status == CY_OK && count > 0) {
        status = CY_FAIL(CY_ERR_CORRUPT, "%s: %d of its files are not as they were:%s",
            checkpoint->path, count, cy_list_items(&wrong, count));
    }
    cy_text_free(&wrong);
    return status;
}

static cy_status open_own(cy_checkpoint *checkpoint, const char *path, const char *manifest)
{
    cy_text text = {0};
    CY_TRY(cy_file_read(&text, manifest, CY_MANIFEST_BYTES_MAX));
    cy_status status =
        cy_checkpoint_from_json(checkpoint, text.bytes, text.length, manifest, false);
    cy_text_free(&text);
    CY_TRY(status);
    status = cy_memory_copy_text(&checkpoint->path, path);
    if (status == CY_OK) status = check_files(checkpoint);
    return status;
}

// Fails where the config.json is that of a run's folder, which has the sections of a configuration,
// and says where the run's checkpoints are. Accepts any other config.json.
static cy_status refuse_run(const char *path, const char *config)
{
    cy_text text = {0};
    json_error_t error;
    const char *saves = "";
    CY_TRY(cy_file_read(&text, config, CY_MANIFEST_BYTES_MAX));
    json_t *root = json_loadb(text.bytes, text.length, 0, &error);
    const bool run = json_is_object(json_object_get(root, "training")) &&
        json_is_object(json_object_get(root, "checkpoint")) &&
        json_object_get(root, "model_type") == NULL;
    cy_status status = CY_OK;
    if (run) {
        (void)json_unpack(root, "{s:{s:s}}", "checkpoint", "save_dir", &saves);
        status = CY_FAIL(CY_ERR_REQUEST, "%s is the folder of a run, not a checkpoint", path);
        if (saves[0] != '\0') {
            cy_error_set_hint("the run saves its checkpoints in %s: give that folder", saves);
        } else {
            cy_error_set_hint("the run saves no checkpoints: it has no checkpoint.save_dir");
        }
    }
    json_decref(root);
    cy_text_free(&text);
    return status;
}

cy_status cy_checkpoint_open(cy_checkpoint *checkpoint, const char *path)
{
    cy_checkpoint opened = {0};
    char *manifest = NULL, *config = NULL;
    cy_status status = cy_folder_join(&manifest, path, CY_MANIFEST_NAME);
    if (status == CY_OK) status = cy_folder_join(&config, path, "config.json");
    if (status != CY_OK) goto free_names;
    bool own = false, is_hf = false, folder = false;
    status = cy_path_find(&own, manifest);
    if (status == CY_OK) status = cy_path_find(&is_hf, config);
    if (status == CY_OK) status = cy_path_find_folder(&folder, path);
    if (status != CY_OK) {
        goto free_names;
    } else if (own) {
        status = open_own(&opened, path, manifest);
    } else if (is_hf) {
        status = refuse_run(path, config);
        if (status == CY_OK) status = cy_memory_copy_text(&opened.path, path);
        if (status == CY_OK) status = cy_hf_open(&opened);
    } else if (!folder) {
        status = CY_FAIL(CY_ERR_REQUEST, "%s is not a folder", path);
    } else {
        status = CY_FAIL(CY_ERR_REQUEST,
            "%s is no checkpoint: neither " CY_MANIFEST_NAME " nor config.json is there", path);
    }
    if (status == CY_OK) {
        *checkpoint = opened;
    } else {
        cy_checkpoint_close(&opened);
    }
free_names:
    cy_memory_free(manifest);
    cy_memory_free(config);
    return status;
}

void cy_checkpoint_close(cy_checkpoint *checkpoint)
{
    for (int i = 0; i < checkpoint->file_count; i++) {
        cy_checkpoint_file *file = &checkpoint->files[i];
        if (file->fd >= 0) cy_io_close(file->fd);
        cy_memory_free(file->name);
        cy_memory_free(file->checksums);
    }
    for (int i = 0; i < checkpoint->tensor_count; i++) {
        cy_memory_free(cy_memory_writable(checkpoint->tensors[i].tensor.name));
    }
    for (int64_t i = 0; i < checkpoint->piece_count; i++) {
        cy_memory_free(checkpoint->pieces[i].checksums);
    }
    cy_memory_free(checkpoint->files);
    cy_memory_free(checkpoint->tensors);
    cy_memory_free(checkpoint->pieces);
    cy_memory_free(checkpoint->path);
    cy_memory_free(checkpoint->config_json);
    cy_memory_free(checkpoint->state_json);
    cy_memory_free(checkpoint->identity_json);
    *checkpoint = (cy_checkpoint){0};
}

// The newest complete step of a folder, or -1. While a run saves there, a listing may miss the new
// checkpoint and name an old one that is gone when its manifest is looked for; then it lists again.
static cy_status find_newest(int64_t *newest, const char *folder)
{
    *newest = -1;
    for (int tries = 0; tries < LISTINGS_MAX && *newest < 0; tries++) {
        int64_t *steps = NULL;
        int count = 0;
        CY_TRY(cy_folder_steps(&steps, &count, folder));
        if (count > 0) *newest = steps[count - 1];
        cy_memory_free(steps);
    }
    return cy_folder_check_links(folder, *newest);
}

cy_status cy_checkpoint_locate(char **path, const char *given)
{
    char *manifest = NULL, *config = NULL;
    int64_t newest = -1;
    bool folder = false, own = false, is_hf = false;
    CY_TRY(cy_path_find_folder(&folder, given));
    if (!folder) return CY_FAIL(CY_ERR_REQUEST, "%s is not a folder", given);
    CY_TRY(cy_folder_join(&manifest, given, CY_MANIFEST_NAME));
    cy_status status = cy_path_find(&own, manifest);
    cy_memory_free(manifest);
    CY_TRY(status);
    if (own) return cy_memory_copy_text(path, given);
    // Checkpoints come first: a run folder has a config.json too.
    CY_TRY(find_newest(&newest, given));
    if (newest >= 0) return cy_folder_step_path(path, given, "", newest, "");
    CY_TRY(cy_folder_join(&config, given, "config.json"));
    status = cy_path_find(&is_hf, config);
    if (is_hf) status = refuse_run(given, config);
    cy_memory_free(config);
    CY_TRY(status);
    if (is_hf) return cy_memory_copy_text(path, given);
    const int unfinished = cy_folder_step_names(given);
    if (unfinished > 0) {
        return CY_FAIL(CY_ERR_REQUEST,
            "%s holds no checkpoint: its %d step-N folder%s no " CY_MANIFEST_NAME, given,
            unfinished, unfinished == 1 ? " has" : "s have");
    }
    return CY_FAIL(CY_ERR_REQUEST,
        "%s holds no checkpoint: no " CY_MANIFEST_NAME ", no step-N folder, no config.json", given);
}

// ---- reading beside a run that saves

// The device and inode of the folder at a path; zeros where there is none.
static cy_status identify(uint64_t id[2], const char *path)
{
    struct stat info;
    id[0] = id[1] = 0;
    if (cy_io_stat(path, &info) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return CY_OK;
        return CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", path);
    }
    id[0] = (uint64_t)info.st_dev;
    id[1] = (uint64_t)info.st_ino;
    return CY_OK;
}

// Calls the reader. *stays: the same folder was at `path` before and after, so that a failure is
// not due to a run that retired it.
static cy_status read_one(
    bool *stays, const char *path, cy_checkpoint_reader *reader, void *context)
{
    struct stat info;
    uint64_t before[2];
    *stays = true;
    CY_TRY(identify(before, path));
    const cy_status status = reader(context, path);
    if (status == CY_OK) return CY_OK;
    *stays = before[1] != 0 && cy_io_stat(path, &info) == 0 && before[0] == (uint64_t)info.st_dev &&
        before[1] == (uint64_t)info.st_ino;
    return status;
}

cy_status cy_checkpoint_read_newest(const char *given, cy_checkpoint_reader *reader, void *context)
{
    cy_status status = CY_OK;
    for (int tries = 0; tries < RETIRED_MAX; tries++) {
        char *path = NULL;
        bool stays;
        CY_TRY(cy_checkpoint_locate(&path, given));
        status = read_one(&stays, path, reader, context);
        cy_memory_free(path);
        if (status == CY_OK || stays) return status;
    }
    if (cy_error_hint()[0] == '\0') {
        cy_error_set_hint("a run retires checkpoints there faster than this reads them: a larger "
                          "checkpoint.keep_last, or a copy, gives it time");
    }
    return status;
}

cy_status cy_checkpoint_open_pinned(cy_checkpoint *checkpoint, const char *path)
{
    CY_TRY(cy_checkpoint_open(checkpoint, path));
    const cy_status status = cy_bytes_open_all(checkpoint);
    if (status != CY_OK) cy_checkpoint_close(checkpoint);
    return status;
}

static cy_status open_pinned(void *context, const char *path)
{
    return cy_checkpoint_open_pinned(context, path);
}

cy_status cy_checkpoint_open_located(cy_checkpoint *checkpoint, const char *given)
{
    return cy_checkpoint_read_newest(given, open_pinned, checkpoint);
}
