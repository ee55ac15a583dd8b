// Writes files and folders for the user without replacing what is not an output, and locks folders.
#define _GNU_SOURCE
#include "base/output.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL 64

const cy_output_kind cy_output_svg = {
    .name = "a picture",
    .marks = {{.begins = "<svg xmlns=\"http://www.w3.org/2000/svg\"",
        .holds = "\n" CY_OUTPUT_SVG_COMMENT "\n",
        .ends = "</svg>\n"}},
};

// The first and the last bytes of a file.
typedef struct ends {
    const char *head; // [head_count]
    size_t head_count;
    const char *tail; // [tail_count]
    size_t tail_count;
} ends;

static bool has_signature(const cy_output_signature *mark, const ends *file)
{
    if (mark->begins == NULL && mark->holds == NULL && mark->ends == NULL) return false;
    if (mark->begins != NULL) {
        const size_t length = strlen(mark->begins);
        if (file->head_count < length || memcmp(file->head, mark->begins, length) != 0)
            return false;
    }
    if (mark->ends != NULL) {
        const size_t length = strlen(mark->ends);
        CY_ASSERT(length <= TAIL);
        if (file->tail_count < length) return false;
        if (memcmp(file->tail + file->tail_count - length, mark->ends, length) != 0) return false;
    }
    return mark->holds == NULL ||
        memmem(file->head, file->head_count, mark->holds, strlen(mark->holds)) != NULL;
}

static bool is_of_kind(const cy_output_kind *kind, const ends *file)
{
    for (int i = 0; i < CY_OUTPUT_SIGNATURES; i++) {
        if (has_signature(&kind->marks[i], file)) return true;
    }
    return false;
}

// Reads up to `count` bytes at `offset`; fewer at the end of the file.
static cy_status read_at(
    size_t *got_out, int fd, const char *path, char *to, size_t count, off_t offset)
{
    size_t got = 0;
    while (got < count) {
        const ssize_t some = cy_io_pread(fd, to + got, count - got, offset + (off_t)got);
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "read %s", path);
        if (some == 0) break;
        got += (size_t)some;
    }
    *got_out = got;
    return CY_OK;
}

// Compares the ends of a regular file, opened at `fd`, with the marks of a kind.
static cy_status look_into(bool *own, int fd, const char *path, const cy_output_kind *kind)
{
    char head[CY_OUTPUT_HEAD], tail[TAIL];
    struct stat info;
    if (cy_io_fstat(fd, &info) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "stat %s", path);
    const off_t last = info.st_size > TAIL ? info.st_size - TAIL : 0;
    ends file = {.head = head, .tail = tail};
    CY_TRY(read_at(&file.head_count, fd, path, head, sizeof(head), 0));
    CY_TRY(read_at(&file.tail_count, fd, path, tail, sizeof(tail), last));
    *own = S_ISREG(info.st_mode) && is_of_kind(kind, &file);
    return CY_OK;
}

static const char *what_stands(mode_t mode)
{
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISLNK(mode)) return "a symbolic link";
    if (S_ISREG(mode)) return NULL;
    return S_ISFIFO(mode) || S_ISSOCK(mode) ? "a pipe" : "a device";
}

static cy_status refuse(const char *path, const cy_output_kind *kind, const char *stands)
{
    const cy_status status = stands != NULL
        ? CY_FAIL(CY_ERR_REQUEST, "%s is %s: it is not replaced by %s", path, stands, kind->name)
        : CY_FAIL(CY_ERR_REQUEST,
              "%s is there and is not %s that cyclotron wrote: it is not replaced", path,
              kind->name);
    cy_error_set_hint("name another file%s", stands != NULL ? "" : ", or remove that one");
    return status;
}

// *there: a file that may be replaced exists. Fails where one exists that may not.
static cy_status look_at_place(bool *there, const char *path, const cy_output_kind *kind)
{
    struct stat info;
    *there = false;
    if (path[0] == '\0') return CY_FAIL(CY_ERR_REQUEST, "\"\" is not a place for a file");
    if (cy_io_lstat(path, &info) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return CY_OK; // the write reports what is wrong
        return CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", path);
    }
    const char *stands = what_stands(info.st_mode);
    if (stands != NULL) return refuse(path, kind, stands);
    const int fd = cy_io_open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        if (errno == ENOENT) return CY_OK; // it was removed meanwhile
        return CY_FAIL_ERRNO(CY_ERR_IO, "open %s, which would be replaced", path);
    }
    const cy_status status = look_into(there, fd, path, kind);
    cy_io_close(fd);
    CY_TRY(status);
    return *there ? CY_OK : refuse(path, kind, NULL);
}

cy_status cy_output_check(const char *path, const cy_output_kind *kind)
{
    bool there;
    return look_at_place(&there, path, kind);
}

// Renames. Where no file was there and one was made meanwhile, it is not replaced: *taken is true.
static cy_status move(bool *taken, const char *from, const char *to, bool there)
{
    *taken = false;
    if (!there && cy_io_rename_noreplace(from, to) == 0) return CY_OK;
    if (!there && errno == EEXIST) {
        *taken = true;
        return CY_OK;
    }
    // Some file systems support only the plain call.
    if (!there && errno != EINVAL && errno != ENOSYS) {
        return CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", from, to);
    }
    if (cy_io_rename(from, to) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", from, to);
    return CY_OK;
}

cy_status cy_output_write(
    const char *path, const cy_output_kind *kind, const void *bytes, size_t count)
{
    const size_t tail = count < TAIL ? count : TAIL;
    const ends made = {bytes, count < CY_OUTPUT_HEAD ? count : CY_OUTPUT_HEAD,
        (const char *)bytes + (count - tail), tail};
    CY_ASSERT(is_of_kind(kind, &made)); // otherwise the next run could not replace it
    bool there, taken = false;
    CY_TRY(look_at_place(&there, path, kind));
    cy_text beside = {0};
    cy_status status = cy_file_write_temporary(&beside, path, bytes, count);
    if (status == CY_OK) {
        do {
            status = look_at_place(&there, path, kind);
            if (status == CY_OK) status = move(&taken, beside.bytes, path, there);
        } while (status == CY_OK && taken);
        if (status != CY_OK) {
            cy_io_unlink(beside.bytes);
        } else {
            status = cy_folder_sync_above(path);
        }
    }
    cy_text_free(&beside);
    return status;
}

// ---- locks of folders

// Writes the owner into the lock file. It is only for messages: the lock holds without it.
static void sign(int fd)
{
    char owner[300], host[200] = "";
    gethostname(host, sizeof(host) - 1);
    const int length = snprintf(owner, sizeof(owner), "process %ld on %s\n", (long)getpid(), host);
    const bool told = cy_io_truncate(fd, 0) == 0 && cy_io_pwrite(fd, owner, (size_t)length, 0) > 0;
    (void)told;
}

static cy_status refuse_lock(int fd, const char *folder, const cy_folder_lock_kind *use)
{
    char owner[300] = "";
    const ssize_t got = cy_io_pread(fd, owner, sizeof(owner) - 1, 0);
    owner[got > 0 ? strcspn(owner, "\n") : 0] = '\0';
    const cy_status status = CY_FAIL(CY_ERR_REQUEST, "another run %s %s: %s", use->doing, folder,
        owner[0] != '\0' ? owner : "it is locked");
    cy_error_set_hint("%s", use->hint);
    return status;
}

cy_status cy_folder_lock_acquire(int *fd_out, const char *folder, const cy_folder_lock_kind *use)
{
    cy_text path = {0};
    CY_TRY(cy_text_add(&path, "%s/%s", folder, use->file));
    cy_status status = CY_OK;
    const int fd = cy_io_open(path.bytes, O_RDWR | O_CREAT | O_CLOEXEC);
    if (fd < 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "create %s", path.bytes);
    } else if (cy_io_lock(fd, LOCK_EX) == 0) {
        sign(fd);
        *fd_out = fd;
    } else if (errno == EWOULDBLOCK) {
        status = refuse_lock(fd, folder, use);
    } else {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "lock %s", path.bytes);
    }
    if (status != CY_OK && fd >= 0) cy_io_close(fd);
    cy_text_free(&path);
    return status;
}

cy_status cy_folder_lock_is_held(bool *held, int fd, const char *path)
{
    struct stat own, named;
    *held = false;
    if (cy_io_fstat(fd, &own) != 0) {
        return CY_FAIL_ERRNO(CY_ERR_IO, "look at %s, which is open", path);
    }
    if (cy_io_stat(path, &named) == 0) {
        *held = own.st_dev == named.st_dev && own.st_ino == named.st_ino;
        return CY_OK;
    }
    if (errno == ENOENT || errno == ENOTDIR) return CY_OK;
    return CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", path);
}

// ---- pending folders

static void free_place(cy_pending_folder *place)
{
    cy_memory_free(place->place);
    cy_memory_free(place->parent);
    cy_memory_free(place->making);
    *place = (cy_pending_folder){.lock = -1};
}

// How many bytes of the final name the name of a pending folder repeats. The final name may have
// the maximal length, so these are at most NAME_PART, and whole characters.
#define NAME_PART ((size_t)120)

static size_t repeated_part(const char *name)
{
    size_t length = strlen(name);
    if (length <= NAME_PART) return length;
    length = NAME_PART;
    while (length > 0 && (name[length] & 0xc0) == 0x80)
        length--;
    return length;
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
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return CY_FAIL(CY_ERR_REQUEST, "\"%s\" is not a place for a folder", path);
    }
    const int head = slash == NULL ? 0 : slash == place->place ? 1 : (int)(slash - place->place);
    cy_text parent = {0};
    CY_TRY(cy_text_add(&parent, "%.*s", head, place->place));
    if (head == 0) CY_TRY(cy_text_add(&parent, "."));
    place->parent = parent.bytes;
    cy_text making = {0};
    CY_TRY(cy_text_add(&making, "%s/.%.*s.%016" PRIx64 ".tmp", place->parent,
        (int)repeated_part(name), name, cy_file_unique_number()));
    place->making = making.bytes;
    return CY_OK;
}

// A rename replaces an empty folder, but not one where a file system is mounted.
static cy_status check_replaceable(const cy_pending_folder *place)
{
    struct stat there, parent;
    if (cy_io_lstat(place->place, &there) != 0) {
        return CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", place->place);
    }
    if (cy_io_stat(place->parent, &parent) != 0) {
        return CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", place->parent);
    }
    if (there.st_dev == parent.st_dev) return CY_OK;
    const cy_status status = CY_FAIL(CY_ERR_REQUEST,
        "%s is where a file system is mounted: a folder that is made cannot take its place",
        place->place);
    cy_error_set_hint("name a folder in it");
    return status;
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
    if (status == CY_OK && there) status = check_replaceable(&place);
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

// Whether the writer of the folder is dead: its lock was held and is free again. A lock file
// without an owner's name is about to be locked; a folder without a lock file is about to be
// renamed.
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

// Whether an entry is a temporary name such as .NAME.0123456789abcdef.tmp.
static bool is_attempt(const char *entry, const char *name)
{
    const size_t length = repeated_part(name);
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
    // The names of the files are on the disk before the folder has its final name.
    CY_TRY(cy_folder_sync(place->making));
    if (cy_io_rename(place->making, place->place) == 0) {
        status = cy_folder_sync(place->parent);
        // A loss of power could still undo this rename, so the folder is renamed back and the call
        // fails. The folder is complete under either name.
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

// Keeps the text of the failure that was recorded.
static cy_status remove_made(const cy_pending_folder *place, cy_status status)
{
    char text[4096], hint[1024];
    snprintf(text, sizeof(text), "%s", cy_error_text());
    snprintf(hint, sizeof(hint), "%s", cy_error_hint());
    bool there = false;
    cy_status removed = cy_path_find(&there, place->making);
    // The final name is removed from the disk before any file is.
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
