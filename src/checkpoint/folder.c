#define _GNU_SOURCE
#include "checkpoint/folder.h"

#include "base/file.h"
#include "base/lock.h"
#include "base/memory.h"

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
    DIR *entries = opendir(folder);
    if (entries == NULL) return 0;
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;)
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

cy_status cy_folder_steps(int64_t **steps, int *count, const char *folder)
{
    DIR *entries = opendir(folder);
    if (entries == NULL) return CY_FAIL_ERRNO(CY_ERR_IO, "open folder %s", folder);
    void *list = NULL;
    size_t capacity = 0;
    int found = 0;
    cy_status status = cy_memory_grow(&list, &capacity, 8, sizeof(int64_t));
    const struct dirent *entry;
    while (status == CY_OK && (entry = readdir(entries)) != NULL) {
        char *manifest = NULL;
        char name[300];
        const int64_t step = step_of(entry->d_name);
        if (step < 0) continue;
        snprintf(name, sizeof(name), "%s/manifest.json", entry->d_name);
        status = cy_folder_join(&manifest, folder, name);
        if (status != CY_OK) break;
        const bool complete = cy_path_exists(manifest);
        cy_memory_free(manifest);
        if (!complete) continue;
        status = cy_memory_grow(&list, &capacity, (size_t)found + 1, sizeof(int64_t));
        if (status == CY_OK) ((int64_t *)list)[found++] = step;
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

cy_status cy_folder_remove(const char *path)
{
    DIR *entries = opendir(path);
    if (entries == NULL && errno == ENOENT) return CY_OK;
    if (entries == NULL) return CY_FAIL_ERRNO(CY_ERR_IO, "open folder %s", path);
    const struct dirent *entry;
    while ((entry = readdir(entries)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (unlinkat(dirfd(entries), entry->d_name, 0) != 0 && errno != ENOENT) {
            const cy_status status = CY_FAIL_ERRNO(CY_ERR_IO, "remove %s/%s", path, entry->d_name);
            closedir(entries);
            return status;
        }
    }
    closedir(entries);
    if (rmdir(path) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "remove folder %s", path);
    return CY_OK;
}

cy_status cy_folder_sweep(int *count, const char *folder)
{
    DIR *entries = opendir(folder);
    if (entries == NULL) return CY_FAIL_ERRNO(CY_ERR_IO, "open folder %s", folder);
    cy_status status = CY_OK;
    *count = 0;
    const struct dirent *entry;
    while (status == CY_OK && (entry = readdir(entries)) != NULL) {
        char *path = NULL;
        if (strncmp(entry->d_name, "." STEP_PREFIX, strlen("." STEP_PREFIX)) != 0) continue;
        status = cy_folder_join(&path, folder, entry->d_name);
        if (status == CY_OK) status = cy_folder_remove(path);
        if (status == CY_OK) ++*count;
        cy_memory_free(path);
    }
    closedir(entries);
    return status;
}

cy_status cy_folder_sync(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "open folder %s", path);
    cy_status status = CY_OK;
    // Some file systems cannot force a folder, and say so.
    if (fsync(fd) != 0 && errno != EINVAL) status = CY_FAIL_ERRNO(CY_ERR_IO, "fsync %s", path);
    close(fd);
    return status;
}

cy_status cy_folder_lock(int *fd, const char *folder)
{
    static const cy_folder_use saving = {
        .file = ".lock",
        .doing = "saves its checkpoints in",
        .hint = "give each run a checkpoint.save_dir of its own",
    };
    return cy_folder_hold(fd, folder, &saving);
}
