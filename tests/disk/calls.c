// The calls of src/base/io.c, each made for real, told to the model, and met by a plan's fault.
#define CY_TESTS_DISK_CALLS
#include "disk/under_io.h"

#include "base/clock.h"
#include "disk/model.h"

#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FDS_MOST    4096
#define PLACES_MOST 20000
#define SLOW_NS     INT64_C(7200000000000) // two hours: more than checkpoint.timeout_s

const char *const disk_fault_names[DISK_FAULT_KINDS] = {
    "eio", "full", "eintr", "short", "slow", "dying", "crash", "eio_then_crash"};

static const char *const call_names[DISK_CALLS] = {"open", "read", "write", "resize", "fsync",
    "hint", "close", "lock", "rename", "link", "remove", "mkdir", "stat", "list"};

typedef struct open_file {
    bool open;
    bool appends;
    bool written;
    char path[512];
    model_node *node; // NULL: a file that had lost its name before it was opened
} open_file;

// A call on its way: what it will be told to do.
typedef struct call {
    disk_call what;
    char path[512]; // below the folder; ours says whether it is there
    bool ours;
    bool fails; // with errno
    bool part;  // a part only
    bool late;
    bool last; // power is lost when it has been made
} call;

static struct {
    pthread_mutex_t lock;
    char root[256];
    size_t root_length;
    open_file files[FDS_MOST];
    bool running;
    bool planned, dead, full, dying;
    disk_plan plan;
    disk_result result;
    disk_place *places; // owned, [count]
    int count;
    _Atomic int64_t clock_ns; // how much later than it is
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- the clock, in the place of src/base/clock.c

int64_t cy_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + atomic_load(&disk.clock_ns);
}

double cy_clock_s(void)
{
    return (double)cy_clock_ns() * 1e-9;
}

// ---- opening and closing the disk

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

void disk_open(const char *root)
{
    disk.root_length = (size_t)snprintf(disk.root, sizeof(disk.root), "%s/disk.XXXXXX", root);
    if (disk.root_length >= sizeof(disk.root) || mkdtemp(disk.root) == NULL) {
        perror(root);
        exit(2);
    }
    disk.places = disk_memory(NULL, PLACES_MOST * sizeof(disk_place));
    const disk_image empty = {0};
    model_fill(&empty);
}

void disk_close(void)
{
    nftw(disk.root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    model_clear();
    free(disk.places);
    disk.places = NULL;
}

const char *disk_root(void)
{
    return disk.root;
}

const char *disk_call_name(disk_call what)
{
    return call_names[what];
}

// ---- which call it is

static void add_path(call *c, const char *path)
{
    if (strncmp(path, disk.root, disk.root_length) != 0) return;
    path += disk.root_length;
    if (*path != '/' && *path != '\0') return;
    while (*path == '/')
        path++;
    snprintf(c->path, sizeof(c->path), "%s", path);
    for (size_t n = strlen(c->path); n > 0 && c->path[n - 1] == '/'; n--)
        c->path[n - 1] = '\0';
    c->ours = true;
}

// FOLDER/NAME where the name is relative to a folder that is open.
static call call_at(disk_call what, int folder, const char *path)
{
    call c = {.what = what};
    if (path[0] == '/' || folder == AT_FDCWD) {
        add_path(&c, path);
    } else if (folder >= 0 && folder < FDS_MOST && disk.files[folder].open) {
        disk_join(c.path, sizeof(c.path), disk.files[folder].path, path);
        c.ours = true;
    }
    return c;
}

static call call_on(disk_call what, int fd)
{
    call c = {.what = what};
    if (fd < 0 || fd >= FDS_MOST || !disk.files[fd].open) return c;
    memcpy(c.path, disk.files[fd].path, sizeof(c.path));
    c.ours = true;
    return c;
}

// Names of 16 random digits are alike, and those with the second in them.
static uint32_t hash_of(const char *path)
{
    uint32_t hash = 2166136261u;
    for (const char *at = path; *at != '\0'; at++) {
        const size_t digits = strspn(at, "0123456789abcdef");
        const bool any = digits == 16 || digits == 10;
        if (any) at += digits - 1;
        hash = (hash ^ (unsigned char)(any ? '#' : *at)) * 16777619u;
    }
    return hash;
}

static void add_place(disk_place *place, const call *c, size_t bytes, bool makes)
{
    *place = (disk_place){
        .call = c->what, .path_hash = hash_of(c->path), .splits = bytes > 1, .makes = makes};
    for (int i = 0; i < disk.count; i++) {
        const disk_place *before = &disk.places[i];
        place->ordinal += before->call == place->call && before->path_hash == place->path_hash;
    }
    const char *slash = strrchr(c->path, '/');
    const char *name = slash != NULL ? slash + 1 : c->path;
    snprintf(
        place->name, sizeof(place->name), "%.63s", name[0] == '\0' ? "the folder of all" : name);
    if (disk.count < PLACES_MOST) disk.places[disk.count++] = *place;
}

static bool is_at(const disk_place *place, const disk_place *wanted)
{
    return place->call == wanted->call && place->path_hash == wanted->path_hash &&
        place->ordinal == wanted->ordinal;
}

// ---- what happens to it

static void note(const call *c, int error)
{
    disk_result *result = &disk.result;
    if (result->faults++ == 0) {
        result->call = c->what;
        memcpy(result->path, c->path, sizeof(result->path));
    }
    if (result->error == 0) result->error = error;
}

static void fail(call *c, int error)
{
    note(c, error);
    c->fails = true;
    errno = error;
}

static void meet_crash(call *c)
{
    note(c, 0);
    disk.result.crashed = true;
    disk.dead = !disk.plan.after;
    c->last = disk.plan.after;
    c->fails = disk.dead;
    errno = EIO;
}

static void meet_plan(call *c, const disk_place *place)
{
    const disk_plan *plan = &disk.plan;
    const bool here = is_at(place, &plan->at);
    const bool moves = c->what == DISK_READ || c->what == DISK_WRITE || c->what == DISK_SYNC;
    switch (plan->kind) {
    case DISK_EIO:
        if (here) fail(c, EIO);
        break;
    case DISK_FULL:
        if (here) disk.full = true;
        if (disk.full && (here || plan->stays) && place->makes) fail(c, ENOSPC);
        break;
    case DISK_EINTR:
        if (here) fail(c, EINTR);
        break;
    case DISK_SHORT:
        if (here) note(c, 0);
        c->part = here;
        break;
    case DISK_SLOW:
        if (here) note(c, 0);
        c->late = here;
        break;
    case DISK_DYING:
        if (here) disk.dying = true;
        if (disk.dying && moves) fail(c, EIO);
        break;
    case DISK_CRASH:
        if (here) meet_crash(c);
        break;
    case DISK_EIO_THEN_CRASH:
        if (here) fail(c, EIO);
        if (!here && disk.result.faults > 0 && is_at(place, &plan->crash_at)) meet_crash(c);
        break;
    case DISK_FAULT_KINDS:
        break;
    }
}

// Takes the lock. True: the call is to be made, or a part of it.
static bool begin(call *c, size_t bytes, bool makes)
{
    pthread_mutex_lock(&disk.lock);
    if (!c->ours || !disk.running) return true;
    if (disk.dead) {
        c->fails = true;
        errno = EIO;
        return false;
    }
    disk_place place;
    add_place(&place, c, bytes, makes);
    if (disk.planned) meet_plan(c, &place);
    return !c->fails;
}

static void end(const call *c)
{
    const int error = errno;
    if (c->last) disk.dead = true;
    pthread_mutex_unlock(&disk.lock);
    if (c->late) {
        atomic_fetch_add(&disk.clock_ns, SLOW_NS);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    errno = error;
}

static size_t part_of(const call *c, size_t count)
{
    if (!c->part || count < 2) return count;
    // Often at a page, which is what a full disk or a signal cuts at.
    if (disk.plan.part % 2 == 0 && count > MODEL_PAGE)
        return (1 + disk.plan.part / 2 % (count / MODEL_PAGE)) * MODEL_PAGE % count + 1;
    return 1 + disk.plan.part / 2 % (count - 1);
}

void disk_begin(const disk_plan *plan)
{
    for (int i = 0; i < FDS_MOST; i++)
        disk.files[i].open = false; // of an earlier run: what they were is gone
    disk.count = 0;
    disk.result = (disk_result){0};
    disk.planned = plan != NULL;
    if (plan != NULL) disk.plan = *plan;
    disk.dead = disk.full = disk.dying = false;
    disk.running = true;
}

void disk_end(disk_result *result)
{
    disk.running = false;
    *result = disk.result;
}

const disk_place *disk_places(int *count)
{
    *count = disk.count;
    return disk.places;
}

disk_image *disk_image_left(uint64_t seed, const char **mode)
{
    return model_left(seed, mode);
}

// ---- files

static void register_file(int fd, const call *c, int flags)
{
    if (fd < 0 || fd >= FDS_MOST) return;
    open_file *file = &disk.files[fd];
    *file = (open_file){.open = c->ours, .appends = (flags & O_APPEND) != 0};
    if (!c->ours) return;
    memcpy(file->path, c->path, sizeof(file->path));
    file->node = model_find(c->path);
    if (file->node == NULL && (flags & O_CREAT) != 0) {
        model_make(c->path, false);
        file->node = model_find(c->path);
    } else if (file->node != NULL && (flags & O_TRUNC) != 0) {
        model_resize(file->node, 0);
    }
}

int disk_do_open(int folder, const char *path, int flags, mode_t mode)
{
    pthread_mutex_lock(&disk.lock);
    // Where O_DIRECT is refused the program opens the file without it.
    call c = call_at((flags & O_DIRECT) != 0 ? DISK_HINT : DISK_OPEN, folder, path);
    pthread_mutex_unlock(&disk.lock);
    int fd = -1;
    // A file system in memory may know nothing of O_DIRECT; what the program does with it is the
    // same. Opening to write what is there already takes no room.
    if (begin(&c, 0, (flags & O_CREAT) != 0)) {
        fd = openat(folder, path, c.ours ? flags & ~O_DIRECT : flags, mode);
        if (fd >= 0) register_file(fd, &c, flags);
    }
    end(&c);
    return fd;
}

int disk_do_close(int fd)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_on(DISK_CLOSE, fd);
    pthread_mutex_unlock(&disk.lock);
    begin(&c, 0, false);
    if (fd >= 0 && fd < FDS_MOST) disk.files[fd] = (open_file){0};
    const int error = errno;
    const int closed = close(fd); // a close that fails has closed, too
    if (c.fails) errno = error;
    end(&c);
    return c.fails ? -1 : closed;
}

static ssize_t do_read(int fd, void *bytes, size_t count, off_t offset)
{
    return offset < 0 ? read(fd, bytes, count) : pread(fd, bytes, count, offset);
}

ssize_t disk_do_read(int fd, void *bytes, size_t count, off_t offset)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_on(DISK_READ, fd);
    pthread_mutex_unlock(&disk.lock);
    ssize_t got = -1;
    if (begin(&c, count, false)) got = do_read(fd, bytes, part_of(&c, count), offset);
    end(&c);
    return got;
}

ssize_t disk_do_readv(int fd, const struct iovec *parts, int count, off_t offset)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_on(DISK_READ, fd);
    pthread_mutex_unlock(&disk.lock);
    ssize_t got = -1;
    int first = 0;
    while (first + 1 < count && parts[first].iov_len == 0)
        first++;
    const struct iovec *part = &parts[first];
    if (begin(&c, part->iov_len, false)) {
        got = c.part ? pread(fd, part->iov_base, part_of(&c, part->iov_len), offset)
                     : preadv(fd, parts, count, offset);
    }
    end(&c);
    return got;
}

// Where the next write without an offset goes. The lock is held.
static off_t place_of(int fd, const open_file *file)
{
    return file->appends ? (off_t)model_size(file->node) : lseek(fd, 0, SEEK_CUR);
}

static ssize_t do_write(const call *c, int fd, const void *bytes, size_t count, off_t offset)
{
    open_file *file = c->ours ? &disk.files[fd] : NULL;
    const bool known = file != NULL && file->node != NULL;
    const off_t at = !known || offset >= 0 ? offset : place_of(fd, file);
    const ssize_t put = offset < 0 ? write(fd, bytes, count) : pwrite(fd, bytes, count, offset);
    if (put > 0 && known) model_write(file->node, bytes, (size_t)put, (size_t)at);
    return put;
}

ssize_t disk_do_write(int fd, const void *bytes, size_t count, off_t offset)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_on(DISK_WRITE, fd);
    pthread_mutex_unlock(&disk.lock);
    ssize_t put = -1;
    if (begin(&c, count, true)) put = do_write(&c, fd, bytes, part_of(&c, count), offset);
    end(&c);
    return put;
}

ssize_t disk_do_writev(int fd, const struct iovec *parts, int count)
{
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += parts[i].iov_len;
    char *all = disk_memory(NULL, total);
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        memcpy(all + at, parts[i].iov_base, parts[i].iov_len);
        at += parts[i].iov_len;
    }
    const ssize_t put = disk_do_write(fd, all, total, -1);
    const int error = errno;
    free(all);
    errno = error;
    return put;
}

int disk_do_resize(int fd, off_t bytes, bool allocate)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_on(DISK_RESIZE, fd);
    pthread_mutex_unlock(&disk.lock);
    int done = -1;
    if (begin(&c, 0, allocate)) {
        done = allocate ? fallocate(fd, 0, 0, bytes) : ftruncate(fd, bytes);
        model_node *node = done == 0 && c.ours ? disk.files[fd].node : NULL;
        if (node != NULL && (!allocate || model_size(node) < (size_t)bytes))
            model_resize(node, (size_t)bytes);
    }
    end(&c);
    return done;
}

int disk_do_sync(int fd)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_on(DISK_SYNC, fd);
    pthread_mutex_unlock(&disk.lock);
    int done = -1;
    const bool made = begin(&c, 0, true);
    model_node *node = c.ours ? disk.files[fd].node : NULL;
    if (!c.ours) {
        done = fsync(fd);
    } else if (made) {
        if (node != NULL) model_sync(node);
        done = 0;
    } else if (node != NULL && disk.running && !disk.dead) {
        model_sync_failed(node, disk.plan.part);
    }
    end(&c);
    return done;
}

int disk_do_begin_sync(int fd, off_t offset, off_t bytes)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_on(DISK_HINT, fd);
    pthread_mutex_unlock(&disk.lock);
    int done = -1;
    if (begin(&c, 0, false)) done = sync_file_range(fd, offset, bytes, SYNC_FILE_RANGE_WRITE);
    end(&c);
    return done;
}

int disk_do_lock(int fd, int operation)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_on(DISK_LOCK, fd);
    pthread_mutex_unlock(&disk.lock);
    const int done = begin(&c, 0, false) ? flock(fd, operation) : -1;
    end(&c);
    return done;
}

void *disk_do_map(size_t bytes, int protection, int flags, int fd, off_t offset)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_on(DISK_HINT, fd);
    pthread_mutex_unlock(&disk.lock);
    void *map = MAP_FAILED;
    if (begin(&c, 0, false)) map = mmap(NULL, bytes, protection, flags, fd, offset);
    end(&c);
    return map;
}

// ---- names

int disk_do_rename(const char *from, const char *to, unsigned flags)
{
    call c = call_at(DISK_RENAME, AT_FDCWD, from), other = call_at(DISK_RENAME, AT_FDCWD, to);
    int done = -1;
    if (begin(&c, 0, true)) {
        done = renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
        if (done == 0 && c.ours && (flags & RENAME_EXCHANGE) != 0) {
            model_exchange(c.path, other.path);
        } else if (done == 0 && c.ours) {
            model_rename(c.path, other.path);
        }
    }
    end(&c);
    return done;
}

int disk_do_link(const char *from, const char *to)
{
    call c = call_at(DISK_LINK, AT_FDCWD, to), source = call_at(DISK_LINK, AT_FDCWD, from);
    int done = -1;
    if (begin(&c, 0, true)) {
        done = linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW);
        if (done == 0 && c.ours) model_link(source.path, c.path);
    }
    end(&c);
    return done;
}

static int remove_name(call *c, int folder, const char *path, int flags)
{
    int done = -1;
    if (begin(c, 0, false)) {
        done = unlinkat(folder, path, flags);
        if (done == 0 && c->ours) model_remove(c->path);
    }
    end(c);
    return done;
}

int disk_do_unlink(int folder, const char *path)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_at(DISK_REMOVE, folder, path);
    pthread_mutex_unlock(&disk.lock);
    return remove_name(&c, folder, path, 0);
}

int disk_do_rmdir(const char *path)
{
    call c = call_at(DISK_REMOVE, AT_FDCWD, path);
    return remove_name(&c, AT_FDCWD, path, AT_REMOVEDIR);
}

int disk_do_mkdir(const char *path, mode_t mode)
{
    call c = call_at(DISK_MAKE, AT_FDCWD, path);
    int done = -1;
    if (begin(&c, 0, true)) {
        done = mkdir(path, mode);
        if (done == 0 && c.ours) model_make(c.path, true);
    }
    end(&c);
    return done;
}

// ---- looking

int disk_do_stat(const char *path, struct stat *info, bool link)
{
    call c = call_at(DISK_LOOK, AT_FDCWD, path);
    int done = -1;
    if (begin(&c, 0, false)) done = link ? lstat(path, info) : stat(path, info);
    end(&c);
    return done;
}

int disk_do_fstat(int fd, struct stat *info)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_on(DISK_LOOK, fd);
    pthread_mutex_unlock(&disk.lock);
    const int done = begin(&c, 0, false) ? fstat(fd, info) : -1;
    end(&c);
    return done;
}

int disk_do_access(const char *path, int mode)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_at(DISK_LOOK, AT_FDCWD, path);
    pthread_mutex_unlock(&disk.lock);
    const int done = begin(&c, 0, false) ? access(path, mode) : -1;
    end(&c);
    return done;
}

DIR *disk_do_opendir(const char *path)
{
    call c = call_at(DISK_LIST, AT_FDCWD, path);
    DIR *folder = NULL;
    if (begin(&c, 0, false)) {
        folder = opendir(path);
        if (folder != NULL) register_file(dirfd(folder), &c, 0);
    }
    end(&c);
    return folder;
}

struct dirent *disk_do_readdir(DIR *folder)
{
    pthread_mutex_lock(&disk.lock);
    call c = call_on(DISK_LIST, dirfd(folder));
    pthread_mutex_unlock(&disk.lock);
    struct dirent *entry = NULL;
    if (begin(&c, 0, false)) {
        errno = 0;
        entry = readdir(folder);
    }
    end(&c);
    return entry;
}
