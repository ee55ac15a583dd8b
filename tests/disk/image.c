// Images of a folder: taken from a real one, written into it, and compared.
#define _GNU_SOURCE
#include "disk/model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void *disk_memory(void *old, size_t bytes)
{
    void *block = realloc(old, bytes + 1);
    if (block == NULL) abort();
    return block;
}

void disk_join(char *path, size_t bytes, const char *folder, const char *name)
{
    const char *slash = folder[0] == '\0' ? "" : "/";
    const int length = snprintf(path, bytes, "%s%s%s", folder, slash, name);
    if (length < 0 || (size_t)length >= bytes) abort();
}

disk_bytes *disk_bytes_new(size_t count)
{
    disk_bytes *made = disk_memory(NULL, sizeof(disk_bytes));
    *made = (disk_bytes){.users = 1, .count = count, .bytes = disk_memory(NULL, count)};
    memset(made->bytes, 0, count + 1);
    return made;
}

void disk_bytes_leave(disk_bytes *bytes)
{
    if (bytes == NULL || --bytes->users > 0) return;
    free(bytes->bytes);
    free(bytes);
}

void disk_image_add(disk_image *image, const char *path, disk_bytes *bytes)
{
    if (image->count == image->room) {
        image->room = 2 * image->room + 16;
        image->entries = disk_memory(image->entries, (size_t)image->room * sizeof(disk_entry));
    }
    char *copy = disk_memory(NULL, strlen(path) + 1);
    memcpy(copy, path, strlen(path) + 1);
    if (bytes != NULL) bytes->users++;
    image->entries[image->count++] =
        (disk_entry){.path = copy, .folder = bytes == NULL, .bytes = bytes};
}

static int by_path(const void *one, const void *other)
{
    return strcmp(((const disk_entry *)one)->path, ((const disk_entry *)other)->path);
}

void disk_image_sort(disk_image *image)
{
    if (image->count > 0) qsort(image->entries, (size_t)image->count, sizeof(disk_entry), by_path);
}

void disk_image_free(disk_image *image)
{
    if (image == NULL) return;
    for (int i = 0; i < image->count; i++) {
        free(image->entries[i].path);
        disk_bytes_leave(image->entries[i].bytes);
    }
    free(image->entries);
    free(image);
}

static disk_bytes *read_file(const char *path, size_t count)
{
    disk_bytes *bytes = disk_bytes_new(count);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) abort();
    for (size_t got = 0; got < count;) {
        const ssize_t some = read(fd, bytes->bytes + got, count - got);
        if (some <= 0) abort();
        got += (size_t)some;
    }
    close(fd);
    return bytes;
}

static void take_folder(disk_image *image, const char *below)
{
    char path[2048], name[1024];
    disk_join(path, sizeof(path), disk_root(), below);
    DIR *folder = opendir(path);
    if (folder == NULL) abort();
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        disk_join(name, sizeof(name), below, entry->d_name);
        disk_join(path, sizeof(path), disk_root(), name);
        if (lstat(path, &info) != 0) abort();
        if (S_ISDIR(info.st_mode)) {
            disk_image_add(image, name, NULL);
            take_folder(image, name);
        } else {
            disk_bytes *bytes = read_file(path, (size_t)info.st_size);
            disk_image_add(image, name, bytes);
            disk_bytes_leave(bytes);
        }
    }
    closedir(folder);
}

disk_image *disk_image_take(void)
{
    disk_image *image = disk_memory(NULL, sizeof(disk_image));
    *image = (disk_image){0};
    take_folder(image, "");
    disk_image_sort(image);
    return image;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    return at->level > 0 ? remove(path) : 0;
}

static void write_file(const char *path, const disk_bytes *bytes)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) abort();
    for (size_t put = 0; put < bytes->count;) {
        const ssize_t some = write(fd, bytes->bytes + put, bytes->count - put);
        if (some <= 0) abort();
        put += (size_t)some;
    }
    close(fd);
}

void disk_image_put(const disk_image *image)
{
    char path[2048];
    if (nftw(disk_root(), remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0) abort();
    for (int i = 0; i < image->count; i++) {
        const disk_entry *entry = &image->entries[i];
        disk_join(path, sizeof(path), disk_root(), entry->path);
        if (entry->folder) {
            if (mkdir(path, 0777) != 0) abort();
        } else {
            write_file(path, entry->bytes);
        }
    }
    model_fill(image);
}

// ---- comparing

static bool same(const disk_entry *one, const disk_entry *other)
{
    if (one->folder || other->folder) return one->folder == other->folder;
    return one->bytes == other->bytes ||
        (one->bytes->count == other->bytes->count &&
            memcmp(one->bytes->bytes, other->bytes->bytes, one->bytes->count) == 0);
}

int disk_image_differences(const disk_image *one, const disk_image *other,
    bool (*ignore)(const char *path), char *which, size_t bytes)
{
    int count = 0;
    for (int i = 0, j = 0; i < one->count || j < other->count;) {
        const disk_entry *a = i < one->count ? &one->entries[i] : NULL;
        const disk_entry *b = j < other->count ? &other->entries[j] : NULL;
        const int order = a == NULL ? 1 : b == NULL ? -1 : strcmp(a->path, b->path);
        const char *path = a != NULL && order <= 0 ? a->path : b != NULL ? b->path : "";
        const bool differ = order != 0 || !same(a, b);
        i += order <= 0;
        j += order >= 0;
        if (!differ || (ignore != NULL && ignore(path))) continue;
        if (count++ > 0) continue;
        snprintf(which, bytes, "%s %s", path,
            order < 0       ? "is not wanted"
                : order > 0 ? "is missing"
                            : "has other bytes");
    }
    return count;
}

disk_image *disk_image_below(const disk_image *image, const char *folder)
{
    disk_image *below = disk_memory(NULL, sizeof(disk_image));
    const size_t length = strlen(folder);
    *below = (disk_image){0};
    for (int i = 0; i < image->count; i++) {
        const disk_entry *entry = &image->entries[i];
        if (strncmp(entry->path, folder, length) != 0 || entry->path[length] != '/') continue;
        disk_image_add(below, entry->path + length + 1, entry->bytes);
    }
    disk_image_sort(below);
    return below;
}

int disk_image_count(const disk_image *image)
{
    return image->count;
}

const char *disk_image_bytes(const disk_image *image, const char *path, size_t *count)
{
    for (int i = 0; i < image->count; i++) {
        const disk_entry *entry = &image->entries[i];
        if (entry->folder || strcmp(entry->path, path) != 0) continue;
        *count = entry->bytes->count;
        return entry->bytes->bytes;
    }
    return NULL;
}

const char *disk_image_find(
    const disk_image *image, const char *folder, const char *begin, int index, size_t *count)
{
    char path[512];
    disk_join(path, sizeof(path), folder, begin);
    for (int i = 0; i < image->count; i++) {
        const disk_entry *entry = &image->entries[i];
        if (entry->folder || strncmp(entry->path, path, strlen(path)) != 0) continue;
        if (index-- > 0) continue;
        *count = entry->bytes->count;
        return entry->bytes->bytes;
    }
    return NULL;
}
