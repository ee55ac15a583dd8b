// Writes lines to files and to the console from a thread of its own (see async_writer.h).
#define _GNU_SOURCE
#include "observe/async_writer.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RETRY_S 0.5

// Stands before each record in the ring.
typedef struct record_head {
    uint64_t number; // over all targets: the order of writing
    uint64_t count;  // bytes that follow
} record_head;

typedef struct target {
    char *name;   // owned
    char *path;   // owned; NULL: the caller owns fd
    char *folder; // owned: the folder of path
    int fd;
    char *header; // owned, [header_bytes]
    size_t header_bytes;
    bool header_due; // the file may lack its header, or a part of it
    char *ring;      // owned, [capacity]
    size_t capacity;
    size_t first, used; // where the oldest record begins, and the bytes of all records
    size_t written;     // bytes of the oldest record that a short write has written
    int64_t dropped, dropped_told;
    int64_t failures, failures_told; // how often writing began to fail
    bool failing, failing_told;
    char error[512]; // of the last failure
    bool wrote;
    int force_error; // errno of the fsync at the end; 0: it succeeded
    double retry_s;
    atomic_bool broken;
} target;

struct cy_async_writer {
    pthread_mutex_t lock;
    pthread_cond_t work; // there is a record to write, or the thread is to end
    pthread_cond_t done; // a record was written, or the thread has ended
    pthread_t thread;
    target targets[CY_ASYNC_TARGETS_MAX];
    int count;
    cy_async_keeper keeper; // its functions are NULL where there is none
    uint64_t next_number;
    bool closing, ended, joined;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct timespec instant(double seconds)
{
    const time_t whole = (time_t)seconds;
    return (struct timespec){.tv_sec = whole, .tv_nsec = (long)((seconds - (double)whole) * 1e9)};
}

// ---- the ring

// Copies between the ring, from byte `at` behind its oldest byte, and `bytes`.
static void ring_put(target *to, size_t at, const void *bytes, size_t count)
{
    const size_t begin = (to->first + at) % to->capacity;
    const size_t whole = to->capacity - begin < count ? to->capacity - begin : count;
    memcpy(to->ring + begin, bytes, whole);
    memcpy(to->ring, (const char *)bytes + whole, count - whole);
}

static void ring_get(const target *from, size_t at, void *bytes, size_t count)
{
    const size_t begin = (from->first + at) % from->capacity;
    const size_t whole = from->capacity - begin < count ? from->capacity - begin : count;
    memcpy(bytes, from->ring + begin, whole);
    memcpy((char *)bytes + whole, from->ring, count - whole);
}

static record_head oldest(const target *from)
{
    record_head head;
    ring_get(from, 0, &head, sizeof(head));
    return head;
}

static void drop_oldest(target *from)
{
    const size_t bytes = sizeof(record_head) + (size_t)oldest(from).count;
    from->first = (from->first + bytes) % from->capacity;
    from->used -= bytes;
    from->written = 0;
}

static void drop_all(target *from)
{
    while (from->used > 0) {
        drop_oldest(from);
        from->dropped++;
    }
}

// ---- writing, by the thread, without the lock: no other thread removes records from the ring

// Writes the header of an empty file, or the part of it that is missing.
static bool write_header(target *to)
{
    struct stat info;
    if (!to->header_due) return true;
    if (cy_io_fstat(to->fd, &info) != 0) return false;
    while (info.st_size < (off_t)to->header_bytes) {
        const ssize_t put =
            cy_io_write(to->fd, to->header + info.st_size, to->header_bytes - (size_t)info.st_size);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        info.st_size += put;
    }
    to->header_due = false;
    return true;
}

static bool open_file(target *to)
{
    const int fd = cy_io_open(to->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    if (to->fd >= 0) cy_io_close(to->fd);
    to->fd = fd;
    to->header_due = to->header_bytes > 0;
    return write_header(to);
}

// Opens the file again where its name is gone or names another file.
static bool stay_at_path(target *to)
{
    struct stat there, here;
    if (to->path == NULL) return true;
    if (to->fd >= 0) {
        if (cy_io_fstat(to->fd, &here) != 0) return false;
        const bool named = cy_io_stat(to->path, &there) == 0;
        if (!named && errno != ENOENT && errno != ENOTDIR) return false;
        if (named && there.st_dev == here.st_dev && there.st_ino == here.st_ino) {
            return write_header(to);
        }
    }
    to->written = 0;
    if (cy_folder_make(to->folder) != CY_OK) {
        if (errno == 0) errno = EIO;
        return false;
    }
    return open_file(to);
}

// Waits until a stream that another process has made non-blocking takes bytes again.
static bool await_room(const target *to)
{
    struct pollfd stream = {.fd = to->fd, .events = POLLOUT};
    return to->path == NULL && (poll(&stream, 1, -1) >= 0 || errno == EINTR);
}

// Writes the oldest record, or the rest of it. False, with errno, where that fails.
static bool write_bytes(target *to, size_t count)
{
    if (!stay_at_path(to)) return false;
    while (to->written < count) {
        const size_t begin = (to->first + sizeof(record_head) + to->written) % to->capacity;
        const size_t left = count - to->written;
        const size_t whole = to->capacity - begin < left ? to->capacity - begin : left;
        const struct iovec parts[2] = {{.iov_base = to->ring + begin, .iov_len = whole},
            {.iov_base = to->ring, .iov_len = left - whole}};
        const ssize_t put = cy_io_writev(to->fd, parts, left > whole ? 2 : 1);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EAGAIN && await_room(to)) continue;
        if (put < 0) return false;
        to->written += (size_t)put;
        to->wrote = true;
    }
    return true;
}

typedef struct write_result {
    bool good;
    int number; // errno
    char error[sizeof(((target *)0)->error)];
} write_result;

// The same in a folder that is kept.
static void write_record(
    write_result *result, const cy_async_keeper *keeper, target *to, size_t count)
{
    const bool kept =
        to->path == NULL || keeper->keep == NULL || keeper->keep(keeper->context) == CY_OK;
    *result = (write_result){0};
    errno = 0;
    result->good = kept && write_bytes(to, count);
    result->number = errno;
    if (result->good) return;
    snprintf(result->error, sizeof(result->error), "%s",
        kept ? strerror(result->number) : cy_error_text());
}

// ---- the thread

// Finds the target with the oldest record among those that may be tried; NULL: none. *until is the
// time at which a failing one will be tried again.
static target *next_target(cy_async_writer *writer, double now, double *until)
{
    target *next = NULL;
    for (int i = 0; i < writer->count; i++) {
        target *at = &writer->targets[i];
        if (at->used == 0) continue;
        if (at->failing && now < at->retry_s && !writer->closing) {
            if (*until == 0 || at->retry_s < *until) *until = at->retry_s;
        } else if (next == NULL || oldest(at).number < oldest(next).number) {
            next = at;
        }
    }
    return next;
}

// Notes the result of one write, under the lock.
static void note_result(cy_async_writer *writer, target *at, const write_result *result)
{
    if (result->good) {
        drop_oldest(at);
        at->failing = false;
        return;
    }
    const bool gone = at->path == NULL && (result->number == EPIPE || result->number == EIO);
    if (gone) atomic_store(&at->broken, true);
    memcpy(at->error, result->error, sizeof(at->error));
    if (gone || writer->closing) drop_all(at);
    if (gone) return;
    if (!at->failing) at->failures++;
    at->failing = true;
    at->retry_s = now_s() + RETRY_S;
}

// Forces the written bytes, and the names of new files, to the disk. Without the lock.
static int force_one(const target *at)
{
    if (at->path == NULL || at->fd < 0 || !at->wrote) return 0;
    if (cy_io_sync(at->fd) != 0) return errno;
    errno = 0;
    if (cy_folder_sync(at->folder) == CY_OK) return 0;
    return errno != 0 ? errno : EIO;
}

static void force_all(cy_async_writer *writer)
{
    for (int i = 0; i < writer->count; i++) {
        pthread_mutex_unlock(&writer->lock);
        const int error = force_one(&writer->targets[i]);
        pthread_mutex_lock(&writer->lock);
        writer->targets[i].force_error = error;
    }
}

static void *run(void *context)
{
    cy_async_writer *writer = context;
    pthread_mutex_lock(&writer->lock);
    for (;;) {
        double until = 0;
        target *at = next_target(writer, now_s(), &until);
        if (at != NULL) {
            const size_t count = (size_t)oldest(at).count;
            pthread_mutex_unlock(&writer->lock);
            write_result result;
            write_record(&result, &writer->keeper, at, count);
            pthread_mutex_lock(&writer->lock);
            note_result(writer, at, &result);
            pthread_cond_broadcast(&writer->done);
        } else if (writer->closing) {
            break;
        } else if (until > 0) {
            const struct timespec when = instant(until);
            pthread_cond_timedwait(&writer->work, &writer->lock, &when);
        } else {
            pthread_cond_wait(&writer->work, &writer->lock);
        }
    }
    force_all(writer);
    writer->ended = true;
    pthread_cond_broadcast(&writer->done);
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

// ---- calls

cy_status cy_async_writer_open(cy_async_writer **writer)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(cy_async_writer)));
    cy_async_writer *made = block;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->work, &monotonic);
    pthread_cond_init(&made->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int error = cy_thread_start(&made->thread, run, made);
    if (error != 0) {
        made->joined = true;
        cy_async_writer_close(made);
        errno = error;
        return CY_FAIL_ERRNO(CY_ERR_MEMORY, "start the thread that writes logs");
    }
    *writer = made;
    return CY_OK;
}

void cy_async_writer_keep(cy_async_writer *writer, const cy_async_keeper *keeper)
{
    CY_ASSERT(writer->keeper.keep == NULL);
    pthread_mutex_lock(&writer->lock);
    writer->keeper = *keeper;
    pthread_mutex_unlock(&writer->lock);
}

static void free_target(target *at)
{
    if (at->path != NULL && at->fd >= 0) cy_io_close(at->fd);
    cy_memory_free(at->name);
    cy_memory_free(at->path);
    cy_memory_free(at->folder);
    cy_memory_free(at->header);
    cy_memory_free(at->ring);
}

static cy_status fill_target(target *at, const cy_async_target *wanted)
{
    void *ring = NULL;
    CY_TRY(cy_memory_copy_text(&at->name, wanted->name));
    CY_TRY(cy_memory_alloc(&ring, wanted->backlog_bytes, 1));
    at->ring = ring;
    at->capacity = wanted->backlog_bytes;
    if (wanted->path == NULL) return CY_OK;
    CY_TRY(CY_ALLOC(&at->header, wanted->header_bytes));
    if (wanted->header_bytes > 0) memcpy(at->header, wanted->header, wanted->header_bytes);
    at->header_bytes = wanted->header_bytes;
    CY_TRY(cy_memory_copy_text(&at->path, wanted->path));
    CY_TRY(cy_memory_copy_text(&at->folder, wanted->path));
    char *slash = strrchr(at->folder, '/');
    if (slash == NULL) at->folder[0] = '.'; // a path has at least one character
    const size_t length = slash == NULL || slash == at->folder ? 1 : (size_t)(slash - at->folder);
    at->folder[length] = '\0';
    if (!open_file(at)) return CY_FAIL_ERRNO(CY_ERR_IO, "open %s", at->path);
    return CY_OK;
}

cy_status cy_async_writer_add(cy_async_writer *writer, int *number, const cy_async_target *wanted)
{
    CY_ASSERT(writer->count < CY_ASYNC_TARGETS_MAX);
    CY_ASSERT(wanted->path == NULL || wanted->path[0] != '\0');
    target made = {.fd = wanted->path == NULL ? wanted->fd : -1};
    const cy_status status = fill_target(&made, wanted);
    if (status != CY_OK) {
        free_target(&made);
        return status;
    }
    pthread_mutex_lock(&writer->lock);
    writer->targets[writer->count] = made;
    *number = writer->count++;
    pthread_mutex_unlock(&writer->lock);
    return CY_OK;
}

void cy_async_write(cy_async_writer *writer, int number, const void *bytes, size_t count)
{
    pthread_mutex_lock(&writer->lock);
    CY_ASSERT(0 <= number && number < writer->count);
    target *to = &writer->targets[number];
    const record_head head = {.number = writer->next_number, .count = count};
    if (atomic_load(&to->broken) || to->capacity - to->used < sizeof(head) + count) {
        to->dropped++;
    } else {
        writer->next_number++;
        ring_put(to, to->used, &head, sizeof(head));
        ring_put(to, to->used + sizeof(head), bytes, count);
        to->used += sizeof(head) + count;
        pthread_cond_signal(&writer->work);
    }
    pthread_mutex_unlock(&writer->lock);
}

// Counts waiting records; without `failing`, not those of targets that cannot be written now.
static bool some_wait(const cy_async_writer *writer, bool failing)
{
    for (int i = 0; i < writer->count; i++) {
        const target *at = &writer->targets[i];
        if (at->used > 0 && (failing || !at->failing)) return true;
    }
    return false;
}

bool cy_async_flush(cy_async_writer *writer, double seconds)
{
    const struct timespec until = instant(now_s() + seconds);
    pthread_mutex_lock(&writer->lock);
    int error = 0;
    cy_activity_begin(CY_ACTIVITY_WAIT, "the thread that writes logs", -1);
    while (some_wait(writer, false) && error == 0)
        error = pthread_cond_timedwait(&writer->done, &writer->lock, &until);
    cy_activity_end();
    const bool all = !some_wait(writer, true);
    pthread_mutex_unlock(&writer->lock);
    return all;
}

// Reports what is new about one target; `final`: nothing more will be tried. Where memory for the
// text runs out, nothing is reported.
static cy_status report_of(target *at, bool final, cy_text *line)
{
    const int64_t dropped = at->dropped - at->dropped_told;
    const bool failed = at->failures > at->failures_told;
    if (atomic_load(&at->broken)) return CY_OK; // its reader knows
    if (at->force_error != 0 && final) {
        const int error = at->force_error;
        at->force_error = 0;
        return cy_text_add(line, "%s could not be forced to the disk: %s: lines may be lost",
            at->name, strerror(error));
    }
    if (at->failing && final && dropped > 0) {
        at->dropped_told = at->dropped;
        at->failing_told = true;
        return cy_text_add(
            line, "%s: %s: %lld lines were lost", at->name, at->error, (long long)dropped);
    }
    if (at->failing && !at->failing_told) {
        at->failing_told = true;
        at->failures_told = at->failures;
        return cy_text_add(line, "%s cannot be written: %s; its lines are kept and tried again",
            at->name, at->error);
    }
    if (at->failing || (!at->failing_told && !failed && dropped == 0)) return CY_OK;
    at->dropped_told = at->dropped;
    at->failures_told = at->failures;
    if (at->failing_told || failed) {
        // The failure began and ended between two reports, so its cause is reported here.
        if (!at->failing_told)
            CY_TRY(cy_text_add(line, "%s was not written: %s; ", at->name, at->error));
        at->failing_told = false;
        CY_TRY(cy_text_add(line, "%s can be written again", at->name));
        if (dropped == 0) return cy_text_add(line, "; no line was lost");
        return cy_text_add(line, "; %lld lines were lost", (long long)dropped);
    }
    return cy_text_add(line, "%s was not written fast enough: %lld lines were dropped", at->name,
        (long long)dropped);
}

bool cy_async_take_report(cy_async_writer *writer, cy_text *line)
{
    pthread_mutex_lock(&writer->lock);
    cy_status status = CY_OK;
    for (int i = 0; i < writer->count && line->length == 0 && status == CY_OK; i++)
        status = report_of(&writer->targets[i], writer->closing, line);
    pthread_mutex_unlock(&writer->lock);
    return status == CY_OK && line->length > 0;
}

bool cy_async_is_broken(const cy_async_writer *writer, int number)
{
    return atomic_load(&writer->targets[number].broken);
}

bool cy_async_has_failed(cy_async_writer *writer, int number)
{
    pthread_mutex_lock(&writer->lock);
    const bool failed = writer->targets[number].failures > 0;
    pthread_mutex_unlock(&writer->lock);
    return failed;
}

int64_t cy_async_dropped(cy_async_writer *writer, int number)
{
    pthread_mutex_lock(&writer->lock);
    const int64_t dropped = writer->targets[number].dropped;
    pthread_mutex_unlock(&writer->lock);
    return dropped;
}

bool cy_async_writer_finish(cy_async_writer *writer, double seconds)
{
    const struct timespec until = instant(now_s() + seconds);
    pthread_mutex_lock(&writer->lock);
    writer->closing = true;
    pthread_cond_signal(&writer->work);
    int error = 0;
    cy_activity_begin(CY_ACTIVITY_WAIT, "the thread that writes logs", -1);
    while (!writer->ended && error == 0)
        error = pthread_cond_timedwait(&writer->done, &writer->lock, &until);
    cy_activity_end();
    const bool ended = writer->ended;
    if (!ended) {
        for (int i = 0; i < writer->count; i++) {
            // The thread is writing a record of one of them, which may still arrive.
            for (size_t at = 0; at < writer->targets[i].used;) {
                record_head head;
                ring_get(&writer->targets[i], at, &head, sizeof(head));
                at += sizeof(head) + (size_t)head.count;
                writer->targets[i].dropped++;
            }
        }
    }
    pthread_mutex_unlock(&writer->lock);
    if (!ended) {
        pthread_detach(writer->thread);
        return false;
    }
    pthread_join(writer->thread, NULL);
    writer->joined = true;
    return true;
}

void cy_async_writer_close(cy_async_writer *writer)
{
    if (writer == NULL || !writer->joined) return; // its thread may still use it
    for (int i = 0; i < writer->count; i++)
        free_target(&writer->targets[i]);
    if (writer->keeper.close != NULL) writer->keeper.close(writer->keeper.context);
    pthread_cond_destroy(&writer->done);
    pthread_cond_destroy(&writer->work);
    pthread_mutex_destroy(&writer->lock);
    cy_memory_free(writer);
}
