// The account of a folder: files page by page, folders change by change (see model.h).
#include "disk/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct name_list {
    struct name_entry {
        char *name; // owned
        model_node *node;
    } * list; // owned, [count]
    int count, room;
} name_list;

struct model_node {
    model_node *next; // of all nodes
    bool folder;
    disk_bytes *now;      // a file: what a program reads
    disk_bytes *forced;   // what is on the disk
    unsigned char *dirty; // owned, [dirty_room]: pages written since the last fsync
    size_t dirty_room;
    name_list names;        // a folder: what a program sees
    name_list forced_names; // what is on the disk
    name_list left_names;   // what a crash leaves
};

// A change of names that no fsync has forced out yet.
typedef struct change {
    enum { CHANGE_ADD, CHANGE_REMOVE, CHANGE_RENAME, CHANGE_EXCHANGE } kind;
    model_node *folder, *to_folder;
    char name[256], to_name[256];
    model_node *node, *to_node;
    bool done;
} change;

static struct {
    model_node *all, *root;
    change *changes; // owned, [count]
    int count, room;
} model;

uint64_t disk_draw(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t disk_draw_below(uint64_t *state, uint64_t limit)
{
    return disk_draw(state) % limit;
}

// ---- names

static model_node *look_up(const name_list *names, const char *name)
{
    for (int i = 0; i < names->count; i++) {
        if (strcmp(names->list[i].name, name) == 0) return names->list[i].node;
    }
    return NULL;
}

static void set_name(name_list *names, const char *name, model_node *node)
{
    for (int i = 0; i < names->count; i++) {
        if (strcmp(names->list[i].name, name) != 0) continue;
        names->list[i].node = node;
        return;
    }
    if (names->count == names->room) {
        names->room = 2 * names->room + 8;
        names->list = disk_memory(names->list, (size_t)names->room * sizeof(names->list[0]));
    }
    char *copy = disk_memory(NULL, strlen(name) + 1);
    memcpy(copy, name, strlen(name) + 1);
    names->list[names->count].name = copy;
    names->list[names->count++].node = node;
}

// Only where the name is that node's.
static void drop_name(name_list *names, const char *name, const model_node *node)
{
    for (int i = 0; i < names->count; i++) {
        if (strcmp(names->list[i].name, name) != 0 || names->list[i].node != node) continue;
        free(names->list[i].name);
        names->list[i] = names->list[--names->count];
        return;
    }
}

static void free_names(name_list *names)
{
    for (int i = 0; i < names->count; i++)
        free(names->list[i].name);
    free(names->list);
    *names = (name_list){0};
}

static void copy_names(name_list *to, const name_list *from)
{
    free_names(to);
    for (int i = 0; i < from->count; i++)
        set_name(to, from->list[i].name, from->list[i].node);
}

static model_node *new_node(bool folder)
{
    model_node *node = disk_memory(NULL, sizeof(model_node));
    *node = (model_node){.next = model.all, .folder = folder};
    if (!folder) {
        node->now = disk_bytes_new(0);
        node->forced = disk_bytes_new(0);
    }
    model.all = node;
    return node;
}

// The folder that holds the last part of a path, which goes into `name`.
static model_node *parent_of(const char *path, char name[256])
{
    model_node *at = model.root;
    for (;;) {
        const char *slash = strchr(path, '/');
        const size_t length = slash != NULL ? (size_t)(slash - path) : strlen(path);
        if (length >= 256) abort();
        memcpy(name, path, length);
        name[length] = '\0';
        if (slash == NULL) return at;
        if (length > 0) at = look_up(&at->names, name);
        if (at == NULL || !at->folder) return NULL;
        path = slash + 1;
    }
}

model_node *model_find(const char *path)
{
    char name[256];
    if (path[0] == '\0') return model.root;
    const model_node *parent = parent_of(path, name);
    if (parent == NULL) return NULL;
    return look_up(&parent->names, name);
}

bool model_is_folder(const model_node *node)
{
    return node->folder;
}

// ---- changes of names

// kind: 0 what the program sees, 1 the disk, 2 what a crash leaves.
static name_list *names_of(model_node *folder, int kind)
{
    return kind == 0 ? &folder->names : kind == 1 ? &folder->forced_names : &folder->left_names;
}

static void apply(const change *c, int kind)
{
    name_list *names = names_of(c->folder, kind);
    switch (c->kind) {
    case CHANGE_ADD:
        set_name(names, c->name, c->node);
        break;
    case CHANGE_REMOVE:
        drop_name(names, c->name, c->node);
        break;
    case CHANGE_RENAME:
        drop_name(names, c->name, c->node);
        set_name(names_of(c->to_folder, kind), c->to_name, c->node);
        break;
    case CHANGE_EXCHANGE:
        set_name(names, c->name, c->to_node);
        set_name(names_of(c->to_folder, kind), c->to_name, c->node);
        break;
    }
}

static void add_change(const change *c)
{
    if (model.count == model.room) {
        model.room = 2 * model.room + 64;
        model.changes = disk_memory(model.changes, (size_t)model.room * sizeof(change));
    }
    apply(c, 0);
    model.changes[model.count++] = *c;
}

// Of one path, or of two.
static change start_change(const char *path, const char *to)
{
    change c = {0};
    c.folder = parent_of(path, c.name);
    if (c.folder == NULL) abort();
    c.node = look_up(&c.folder->names, c.name);
    if (to == NULL) return c;
    c.to_folder = parent_of(to, c.to_name);
    if (c.to_folder == NULL) abort();
    c.to_node = look_up(&c.to_folder->names, c.to_name);
    return c;
}

void model_make(const char *path, bool folder)
{
    change c = start_change(path, NULL);
    c.kind = CHANGE_ADD;
    c.node = new_node(folder);
    add_change(&c);
}

void model_link(const char *from, const char *to)
{
    change c = start_change(to, NULL);
    c.kind = CHANGE_ADD;
    c.node = model_find(from);
    if (c.node == NULL) abort();
    add_change(&c);
}

void model_rename(const char *from, const char *to)
{
    change c = start_change(from, to);
    c.kind = CHANGE_RENAME;
    if (c.node == NULL) abort();
    add_change(&c);
}

void model_exchange(const char *one, const char *other)
{
    change c = start_change(one, other);
    c.kind = CHANGE_EXCHANGE;
    if (c.node == NULL || c.to_node == NULL) abort();
    add_change(&c);
}

void model_remove(const char *path)
{
    change c = start_change(path, NULL);
    c.kind = CHANGE_REMOVE;
    if (c.node == NULL) abort();
    add_change(&c);
}

// ---- bytes

// Before a file's bytes change: they may be shared with what is forced, or with an image.
static void own_bytes(model_node *file, size_t count)
{
    if (file->now->users == 1 && file->now->count == count) return;
    disk_bytes *copy = disk_bytes_new(count);
    memcpy(copy->bytes, file->now->bytes, count < file->now->count ? count : file->now->count);
    disk_bytes_leave(file->now);
    file->now = copy;
}

static void mark(model_node *file, size_t first, size_t end)
{
    const size_t pages = (end + MODEL_PAGE - 1) / MODEL_PAGE;
    if (pages > file->dirty_room) {
        const size_t room = 2 * pages + 4;
        file->dirty = disk_memory(file->dirty, room);
        memset(file->dirty + file->dirty_room, 0, room - file->dirty_room);
        file->dirty_room = room;
    }
    for (size_t page = first / MODEL_PAGE; page < pages; page++)
        file->dirty[page] = 1;
}

void model_write(model_node *file, const void *bytes, size_t count, size_t offset)
{
    const size_t end = offset + count;
    if (count == 0) return;
    own_bytes(file, end > file->now->count ? end : file->now->count);
    memcpy(file->now->bytes + offset, bytes, count);
    mark(file, offset, end);
}

void model_resize(model_node *file, size_t bytes)
{
    const size_t before = file->now->count;
    if (bytes == before) return;
    own_bytes(file, bytes);
    mark(file, bytes < before ? bytes : before, bytes < before ? before : bytes);
}

size_t model_size(const model_node *file)
{
    return file->folder ? 0 : file->now->count;
}

// ---- forcing to the disk

static void sync_folder(model_node *folder)
{
    for (int i = 0; i < model.count; i++) {
        change *c = &model.changes[i];
        if (c->done || (c->folder != folder && c->to_folder != folder)) continue;
        apply(c, 1);
        c->done = true;
    }
}

static void forget_dirty(model_node *file)
{
    if (file->dirty_room > 0) memset(file->dirty, 0, file->dirty_room);
}

void model_sync(model_node *node)
{
    if (node->folder) {
        sync_folder(node);
        return;
    }
    // What an fsync that failed has lost stays lost: only dirty pages are written.
    const size_t pages = (node->now->count + MODEL_PAGE - 1) / MODEL_PAGE;
    disk_bytes *next = disk_bytes_new(node->now->count);
    const size_t old = node->forced->count;
    memcpy(next->bytes, node->forced->bytes, old < next->count ? old : next->count);
    for (size_t page = 0; page < pages; page++) {
        const size_t first = page * MODEL_PAGE;
        const size_t left = node->now->count - first;
        if (page >= node->dirty_room || !node->dirty[page]) continue;
        memcpy(
            next->bytes + first, node->now->bytes + first, left < MODEL_PAGE ? left : MODEL_PAGE);
    }
    disk_bytes_leave(node->forced);
    node->forced = next;
    forget_dirty(node);
}

// What a file holds after a crash: each dirty page, or sector of it, from before or after.
static disk_bytes *left_of(const model_node *file, uint64_t *random, int mode)
{
    const disk_bytes *now = file->now, *forced = file->forced;
    if (mode == 0) {
        file->forced->users++;
        return file->forced;
    }
    const bool grown = mode == 1 || disk_draw_below(random, 2) == 0;
    disk_bytes *left = disk_bytes_new(grown ? now->count : forced->count);
    const size_t kept = forced->count < left->count ? forced->count : left->count;
    memcpy(left->bytes, forced->bytes, kept);
    const bool torn = mode == 2 && disk_draw_below(random, 4) == 0;
    const size_t unit = torn ? MODEL_SECTOR : MODEL_PAGE;
    for (size_t first = 0; first < left->count && first < now->count; first += unit) {
        const size_t page = first / MODEL_PAGE;
        if (page >= file->dirty_room || !file->dirty[page]) continue;
        if (mode == 2 && disk_draw_below(random, 2) == 0) continue;
        size_t end = first + unit < now->count ? first + unit : now->count;
        if (end > left->count) end = left->count;
        memcpy(left->bytes + first, now->bytes + first, end - first);
    }
    return left;
}

void model_sync_failed(model_node *node, uint64_t seed)
{
    uint64_t random = seed;
    if (node->folder) { // the file system tries again with the next fsync
        for (int i = 0; i < model.count; i++) {
            change *c = &model.changes[i];
            if (c->done || (c->folder != node && c->to_folder != node)) continue;
            if (disk_draw_below(&random, 2) == 0) break;
            apply(c, 1);
            c->done = true;
        }
        return;
    }
    disk_bytes *left = left_of(node, &random, 2);
    disk_bytes_leave(node->forced);
    node->forced = left;
    forget_dirty(node);
}

// ---- what a crash leaves

static void add_left(disk_image *image, const model_node *folder, const char *path,
    uint64_t *random, int mode, int depth)
{
    char name[1024];
    if (depth > 16) abort();
    for (int i = 0; i < folder->left_names.count; i++) {
        const model_node *node = folder->left_names.list[i].node;
        disk_join(name, sizeof(name), path, folder->left_names.list[i].name);
        if (node->folder) {
            disk_image_add(image, name, NULL);
            add_left(image, node, name, random, mode, depth + 1);
        } else {
            disk_bytes *bytes = left_of(node, random, mode);
            disk_image_add(image, name, bytes);
            disk_bytes_leave(bytes);
        }
    }
}

disk_image *model_left(uint64_t seed, const char **mode)
{
    static const char *const modes[4][3] = {
        {"nothing more, no page more", "no name more, all pages", "no name more, some pages"},
        {"all names, no page more", "everything", "all names, some pages"},
        {"the first names, no page more", "the first names, all pages",
            "the first names, some pages"},
        {"some names, no page more", "some names, all pages", "some names, some pages"}};
    uint64_t random = seed;
    const int names = (int)disk_draw_below(&random, 4);
    const int bytes = (int)disk_draw_below(&random, 3);
    int first = model.count;
    if (names == 0) first = 0;
    if (names == 2) first = (int)disk_draw_below(&random, (uint64_t)model.count + 1);
    for (model_node *node = model.all; node != NULL; node = node->next)
        copy_names(&node->left_names, &node->forced_names);
    for (int i = 0; i < first; i++) {
        if (model.changes[i].done) continue;
        if (names == 3 && disk_draw_below(&random, 2) == 0) continue;
        apply(&model.changes[i], 2);
    }
    disk_image *image = disk_memory(NULL, sizeof(disk_image));
    *image = (disk_image){0};
    add_left(image, model.root, "", &random, bytes, 0);
    disk_image_sort(image);
    *mode = modes[names][bytes];
    return image;
}

// ---- filling

void model_clear(void)
{
    while (model.all != NULL) {
        model_node *node = model.all;
        model.all = node->next;
        disk_bytes_leave(node->now);
        disk_bytes_leave(node->forced);
        free(node->dirty);
        free_names(&node->names);
        free_names(&node->forced_names);
        free_names(&node->left_names);
        free(node);
    }
    free(model.changes);
    model.changes = NULL;
    model.count = model.room = 0;
    model.root = NULL;
}

void model_fill(const disk_image *image)
{
    model_clear();
    model.root = new_node(true);
    for (int i = 0; i < image->count; i++) { // a folder comes before what is in it
        char name[256];
        const disk_entry *entry = &image->entries[i];
        model_node *parent = parent_of(entry->path, name);
        if (parent == NULL) abort();
        model_node *node = new_node(entry->folder);
        if (!entry->folder) {
            disk_bytes_leave(node->now);
            disk_bytes_leave(node->forced);
            node->now = node->forced = entry->bytes;
            entry->bytes->users += 2;
        }
        set_name(&parent->names, name, node);
        set_name(&parent->forced_names, name, node);
    }
}
