// Names, lists, locks and sweeps folders of checkpoints.

#define _GNU_SOURCE
#include "checkpoint/folder.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/output.h"
#include "checkpoint/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_PREFIX "step-"

cy_status cy_folder_join(char **path, const char *folder, const char *name)
{
    cy_text text = {0};
    const size_t length = strlen(folder);
    const bool slash = length > 0 && folder[length - 1] == '/';
    CY_TRY(cy_text_add(&text, "%s%s%s", folder, slash ? "" : "/", name));
    *path = text.bytes;
    return CY_OK;
}

cy_status cy_folder_step_path(
    char **path, const char *folder, const char *prefix, int64_t step, const char *suffix)
{
    char name[64];
    snprintf(name, sizeof(name), "%s" STEP_PREFIX "%08" PRId64 "%s", prefix, step, suffix);
    return cy_folder_join(path, folder, name);
}

// The step of a name such as step-00000100, or -1.
static int64_t step_of(const char *name)
{
    if (strncmp(name, STEP_PREFIX, strlen(STEP_PREFIX)) != 0) return -1;
    const char *digits = name + strlen(STEP_PREFIX);
    const size_t length = strlen(digits);
    if (length < 8 || length > 18 || strspn(digits, "0123456789") != length) return -1;
    return strtoll(digits, NULL, 10);
}

int cy_folder_step_names(const char *folder)
{
    int count = 0;
    DIR *entries = cy_io_open_folder(folder);
    if (entries == NULL) return 0;
    for (const struct dirent *entry; (entry = cy_io_next_entry(entries)) != NULL;)
        count += step_of(entry->d_name) >= 0;
    closedir(entries);
    return count;
}

static int by_step(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left;
    const int64_t b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

// Whether an entry of a folder is a complete checkpoint, and its step.
static cy_status is_checkpoint(bool *whole, int64_t *step, const char *folder, const char *entry)
{
    char *manifest = NULL;
    char name[300];
    *whole = false;
    *step = step_of(entry);
    if (*step < 0) return CY_OK;
    snprintf(name, sizeof(name), "%s/" CY_MANIFEST_NAME, entry);
    CY_TRY(cy_folder_join(&manifest, folder, name));
    const cy_status status = cy_path_find(whole, manifest);
    cy_memory_free(manifest);
    return status;
}

cy_status cy_folder_steps(int64_t **steps, int *count, const char *folder)
{
    DIR *entries = cy_io_open_folder(folder);
    if (entries == NULL) return CY_FAIL_ERRNO(CY_ERR_IO, "open folder %s", folder);
    void *list = NULL;
    size_t capacity = 0;
    int found = 0;
    const char *entry = NULL;
    cy_status status = cy_memory_grow(&list, &capacity, 8, sizeof(int64_t));
    if (status == CY_OK) status = cy_folder_next(&entry, entries, folder);
    while (status == CY_OK && entry != NULL) {
        bool whole = false;
        int64_t step = -1;
        status = is_checkpoint(&whole, &step, folder, entry);
        if (status == CY_OK && whole) {
            status = cy_memory_grow(&list, &capacity, (size_t)found + 1, sizeof(int64_t));
            if (status == CY_OK) ((int64_t *)list)[found++] = step;
        }
        if (status == CY_OK) status = cy_folder_next(&entry, entries, folder);
    }
    closedir(entries);
    if (status != CY_OK) {
        cy_memory_free(list);
        return status;
    }
    qsort(list, (size_t)found, sizeof(int64_t), by_step);
    *steps = list;
    *count = found;
    return CY_OK;
}

static cy_status check_link(const char *folder, const char *name)
{
    char *path = NULL;
    struct stat link;
    bool there = true;
    CY_TRY(cy_folder_join(&path, folder, name));
    cy_status status = CY_OK;
    if (cy_io_lstat(path, &link) == 0 && S_ISLNK(link.st_mode)) status = cy_path_find(&there, path);
    if (!there) {
        status = CY_FAIL(CY_ERR_IO,
            "%s is a symbolic link that leads nowhere: it may be the newest checkpoint", path);
        cy_error_set_hint("mount the disk that it leads to, or remove the link");
    }
    cy_memory_free(path);
    return status;
}

cy_status cy_folder_check_links(const char *folder, int64_t step)
{
    DIR *entries = cy_io_open_folder(folder);
    if (entries == NULL) return CY_FAIL_ERRNO(CY_ERR_IO, "open folder %s", folder);
    const char *entry = NULL;
    cy_status status = cy_folder_next(&entry, entries, folder);
    while (status == CY_OK && entry != NULL) {
        if (step_of(entry) > step) status = check_link(folder, entry);
        if (status == CY_OK) status = cy_folder_next(&entry, entries, folder);
    }
    closedir(entries);
    return status;
}

cy_status cy_folder_remove_renamed(const char *folder, const char *path)
{
    struct stat info;
    if (cy_io_lstat(path, &info) != 0) {
        return errno == ENOENT ? CY_OK : CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", path);
    }
    CY_TRY(cy_folder_sync(folder));
    return cy_folder_remove(path);
}

cy_status cy_folder_sweep(int *count, const char *folder)
{
    DIR *entries = cy_io_open_folder(folder);
    if (entries == NULL) return CY_FAIL_ERRNO(CY_ERR_IO, "open folder %s", folder);
    *count = 0;
    const char *entry = NULL;
    cy_status status = cy_folder_next(&entry, entries, folder);
    while (status == CY_OK && entry != NULL) {
        char *path = NULL;
        if (strncmp(entry, "." STEP_PREFIX, strlen("." STEP_PREFIX)) == 0) {
            status = cy_folder_join(&path, folder, entry);
            if (status == CY_OK) status = cy_folder_remove_renamed(folder, path);
            if (status == CY_OK) ++*count;
            cy_memory_free(path);
        }
        if (status == CY_OK) status = cy_folder_next(&entry, entries, folder);
    }
    closedir(entries);
    return status;
}

cy_status cy_folder_lock(int *fd, const char *folder)
{
    static const cy_folder_lock_kind saving = {
        .file = CY_FOLDER_LOCK_NAME,
        .doing = "saves its checkpoints in",
        .hint = "give each run a checkpoint.save_dir of its own",
    };
    return cy_folder_lock_acquire(fd, folder, &saving);
}
