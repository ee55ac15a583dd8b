#define _GNU_SOURCE
#include "base/pending_folder.h"

#include "base/file.h"
#include "base/io.h"
#include "base/folder_lock.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

static void free_place(cy_pending_folder *place)
{
    cy_memory_free(place->place);
    cy_memory_free(place->parent);
    cy_memory_free(place->making);
    *place = (cy_pending_folder){.lock = -1};
}

static cy_status split(cy_pending_folder *place, const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0 || (length == 1 && path[0] == '/')) {
        return CY_FAIL(CY_ERR_REQUEST, "\"%s\" is not a place for a folder", path);
    }
    cy_text text = {0};
    CY_TRY(cy_text_add(&text, "%.*s", (int)length, path));
    place->place = text.bytes;
    const char *slash = strrchr(place->place, '/');
    const char *name = slash != NULL ? slash + 1 : place->place;
    const int head = slash == NULL ? 0 : slash == place->place ? 1 : (int)(slash - place->place);
    cy_text parent = {0};
    CY_TRY(cy_text_add(&parent, "%.*s", head, place->place));
    if (head == 0) CY_TRY(cy_text_add(&parent, "."));
    place->parent = parent.bytes;
    cy_text making = {0};
    CY_TRY(cy_text_add(
        &making, "%s/.%s.%016" PRIx64 ".tmp", place->parent, name, cy_file_unique_number()));
    place->making = making.bytes;
    return CY_OK;
}

cy_status cy_pending_folder_open(cy_pending_folder *out, const char *path)
{
    cy_pending_folder place = {.lock = -1};
    bool there = false, empty = false;
    cy_status status = split(&place, path);
    if (status == CY_OK) status = cy_path_find(&there, place.place);
    if (status == CY_OK) status = cy_path_find_empty_folder(&empty, place.place);
    if (status == CY_OK && there && !empty) {
        status =
            CY_FAIL(CY_ERR_REQUEST, "%s is there already: it is not written over", place.place);
        cy_error_set_hint("name a new folder, or remove that one");
    }
    if (status == CY_OK) {
        *out = place;
    } else {
        free_place(&place);
    }
    return status;
}

// ---- what dead attempts left

#define LOCK_NAME ".making"

static const cy_folder_lock_kind making_lock = {
    .file = LOCK_NAME, .doing = "is made in", .hint = "try again"};

// Whether the folder's lock was taken and is free again. One that has no owner's name in it is
// about to be taken; a folder without one is about to be renamed.
static bool is_dead(const char *folder)
{
    cy_text path = {0};
    char owner[2];
    bool dead = false;
    if (cy_text_add(&path, "%s/" LOCK_NAME, folder) != CY_OK) return false;
    const int fd = cy_io_open(path.bytes, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        dead = cy_io_lock(fd, LOCK_EX | LOCK_NB) == 0 && cy_io_pread(fd, owner, 1, 0) == 1;
        cy_io_close(fd);
    }
    cy_text_free(&path);
    return dead;
}

// Of a name such as .NAME.0123456789abcdef.tmp.
static bool is_attempt(const char *entry, const char *name)
{
    const size_t length = strlen(name);
    if (entry[0] != '.' || strncmp(entry + 1, name, length) != 0) return false;
    const char *number = entry + 1 + length;
    return number[0] == '.' && strspn(number + 1, "0123456789abcdef") == 16 &&
        strcmp(number + 17, ".tmp") == 0;
}

static cy_status sweep(const cy_pending_folder *place)
{
    const char *slash = strrchr(place->place, '/');
    const char *name = slash != NULL ? slash + 1 : place->place;
    DIR *entries = cy_io_open_folder(place->parent);
    if (entries == NULL) return CY_FAIL_ERRNO(CY_ERR_IO, "open folder %s", place->parent);
    const char *entry = NULL;
    cy_status status = cy_folder_next(&entry, entries, place->parent);
    while (status == CY_OK && entry != NULL) {
        cy_text path = {0};
        if (is_attempt(entry, name)) {
            status = cy_text_add(&path, "%s/%s", place->parent, entry);
            if (status == CY_OK && is_dead(path.bytes)) status = cy_folder_remove(path.bytes);
        }
        cy_text_free(&path);
        if (status == CY_OK) status = cy_folder_next(&entry, entries, place->parent);
    }
    closedir(entries);
    return status;
}

// ---- making and naming

cy_status cy_pending_folder_make(cy_pending_folder *place)
{
    CY_TRY(cy_folder_make(place->parent));
    CY_TRY(sweep(place));
    if (cy_io_make_folder(place->making) != 0) {
        return CY_FAIL_ERRNO(CY_ERR_IO, "make folder %s", place->making);
    }
    return cy_folder_lock_acquire(&place->lock, place->making, &making_lock);
}

static cy_status give_name(const cy_pending_folder *place)
{
    cy_text path = {0};
    CY_TRY(cy_text_add(&path, "%s/" LOCK_NAME, place->making));
    cy_status status = CY_OK;
    if (cy_io_unlink(path.bytes) != 0 && errno != ENOENT) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "remove %s", path.bytes);
    }
    cy_text_free(&path);
    CY_TRY(status);
    // Before the folder has its name, its files have theirs.
    CY_TRY(cy_folder_sync(place->making));
    if (cy_io_rename(place->making, place->place) == 0) {
        status = cy_folder_sync(place->parent);
        // A loss of power could still undo this rename, so the folder gets its old name back and
        // the caller an error. The folder is whole under either name.
        if (status != CY_OK && cy_io_rename(place->place, place->making) != 0) {
            cy_error_prefix("%s is there: ", place->place);
        }
        return status;
    }
    const bool taken = errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
    if (!taken) {
        return CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", place->making, place->place);
    }
    status = CY_FAIL(CY_ERR_REQUEST, "%s is there by now: it is not written over", place->place);
    cy_error_set_hint("name a new folder, or remove that one");
    return status;
}

// Keeps the words of the failure that was recorded.
static cy_status remove_made(const cy_pending_folder *place, cy_status status)
{
    char text[4096], hint[1024];
    snprintf(text, sizeof(text), "%s", cy_error_text());
    snprintf(hint, sizeof(hint), "%s", cy_error_hint());
    bool there = false;
    cy_status removed = cy_path_find(&there, place->making);
    // The name is gone from the disk, too, before any file is.
    if (there) removed = cy_folder_sync(place->parent);
    if (there && removed == CY_OK) removed = cy_folder_remove(place->making);
    const char *stays = removed != CY_OK ? " (and what was written could not be removed)" : "";
    status = CY_FAIL(status, "%s%s", text, stays);
    if (hint[0] != '\0') cy_error_set_hint("%s", hint);
    return status;
}

cy_status cy_pending_folder_close(cy_pending_folder *place, cy_status status)
{
    if (status == CY_OK) status = give_name(place);
    if (status != CY_OK) status = remove_made(place, status);
    if (place->lock >= 0) cy_io_close(place->lock);
    free_place(place);
    return status;
}
