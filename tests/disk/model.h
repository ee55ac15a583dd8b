// disk/model.h: what a program sees of a folder, and what of it has reached the disk.
//
// Paths are relative to the folder, without a slash in front. One thread at a time calls the
// model. The real call has succeeded before the model records it, so an error here aborts.

#ifndef CY_TESTS_DISK_MODEL_H
#define CY_TESTS_DISK_MODEL_H

#include "disk/disk.h"

#define MODEL_PAGE   ((size_t)4096)
#define MODEL_SECTOR ((size_t)512)

typedef struct model_node model_node;

void model_clear(void);
void model_fill(const disk_image *image);
model_node *model_find(const char *path);
bool model_is_folder(const model_node *node);

// A new file or folder, or the name of one. What had the name before loses it.
void model_make(const char *path, bool folder);
void model_link(const char *from, const char *to);
void model_rename(const char *from, const char *to);
void model_exchange(const char *one, const char *other);
void model_remove(const char *path);

void model_write(model_node *file, const void *bytes, size_t count, size_t offset);
void model_resize(model_node *file, size_t bytes);
size_t model_size(const model_node *file);

void model_sync(model_node *node);
// An fsync that failed: some of what was to be forced has reached the disk, and the rest of a file
// counts as written all the same, as Linux has it: a later fsync does not force it.
void model_sync_failed(model_node *node, uint64_t seed);

disk_image *model_left(uint64_t seed, const char **mode);

uint64_t disk_draw(uint64_t *state); // splitmix64
uint64_t disk_draw_below(uint64_t *state, uint64_t limit);

// ---- images, for model.c

typedef struct disk_bytes {
    int users;
    size_t count;
    char *bytes; // owned
} disk_bytes;

typedef struct disk_entry {
    char *path; // owned
    bool folder;
    disk_bytes *bytes; // shared; NULL: a folder
} disk_entry;

struct disk_image {
    disk_entry *entries; // owned, [count], sorted by path
    int count, room;
};

disk_bytes *disk_bytes_new(size_t count); // zeros
void disk_bytes_leave(disk_bytes *bytes);
void disk_image_add(disk_image *image, const char *path, disk_bytes *bytes); // shares the bytes
void disk_image_sort(disk_image *image);
void *disk_memory(void *old, size_t bytes); // realloc that aborts
// FOLDER/NAME, or NAME where the folder is "", into [bytes]; aborts where it does not fit.
void disk_join(char *path, size_t bytes, const char *folder, const char *name);

#endif
