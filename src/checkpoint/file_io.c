// Writes and reads the files of a checkpoint, past the page cache where the file system can.

#define _GNU_SOURCE
#include "checkpoint/file_io.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "checkpoint/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// ---- reading past the page cache

#define PAGES_AT_ONCE 256

void cy_direct_open(cy_direct_file *file, const char *path, uint64_t bytes)
{
    *file = (cy_direct_file){.fd = -1, .bytes = bytes};
    if (bytes == 0) return;
    const int fd = cy_io_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
    if (fd < 0) return;
    void *map = cy_io_map(bytes, MAP_SHARED, fd);
    if (map == MAP_FAILED) {
        cy_io_close(fd);
        return;
    }
    file->fd = fd;
    file->map = map;
}

void cy_direct_close(cy_direct_file *file)
{
    if (file->fd < 0) return;
    cy_io_unmap(file->map, file->bytes);
    cy_io_close(file->fd);
    *file = (cy_direct_file){.fd = -1};
}

uint64_t cy_direct_block_offset(uint64_t offset)
{
    return offset / CY_DIRECT_ALIGN * CY_DIRECT_ALIGN;
}

uint64_t cy_direct_block_bytes(uint64_t offset, uint64_t bytes)
{
    return cy_direct_block_offset(offset + bytes + CY_DIRECT_ALIGN - 1) -
        cy_direct_block_offset(offset);
}

bool cy_direct_is_cached(const cy_direct_file *file, uint64_t offset, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t end = offset + bytes;
    CY_ASSERT(end <= file->bytes);
    for (uint64_t at = offset / page * page; at < end; at += PAGES_AT_ONCE * page) {
        unsigned char present[PAGES_AT_ONCE];
        const uint64_t some = end - at < PAGES_AT_ONCE * page ? end - at : PAGES_AT_ONCE * page;
        if (mincore((char *)file->map + at, some, present) != 0) return false;
        for (uint64_t i = 0; i < (some + page - 1) / page; i++) {
            if ((present[i] & 1) == 0) return false;
        }
    }
    return true;
}

bool cy_direct_read(const cy_direct_file *file, char *memory, uint64_t offset, uint64_t bytes)
{
    const uint64_t first = cy_direct_block_offset(offset);
    const uint64_t wanted = offset + bytes - first;
    const uint64_t hull = cy_direct_block_bytes(offset, bytes);
    CY_ASSERT((uintptr_t)memory % CY_DIRECT_ALIGN == 0);
    for (uint64_t done = 0; done < wanted;) {
        const ssize_t got =
            cy_io_pread(file->fd, memory + done, hull - done, (int64_t)(first + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (uint64_t)got;
        // Only the end of the file may cut a block, and then all wanted bytes have been read.
        if (done < wanted && done % CY_DIRECT_ALIGN != 0) return false;
    }
    return true;
}

#define BLOCK_BYTES ((size_t)1 << 20)
#define FLUSH_BYTES ((uint64_t)16 << 20) // the disk starts on these while the next are written

struct cy_file_writer {
    char *path; // owned
    int fd;
    uint64_t total;
    uint64_t added;

    // Past the page cache. Block i % blocks holds the bytes from i * BLOCK_BYTES on.
    char *memory;    // owned, [blocks, BLOCK_BYTES]; NULL: through the page cache
    int blocks;      // one more than threads: the caller fills or writes one
    int64_t current; // the block that is filled, counted from the start of the file
    size_t filled;   // bytes of it
    pthread_t threads[CY_FILE_WRITER_BLOCKS_MAX];
    int thread_count;

    pthread_mutex_t lock; // guards what follows
    pthread_cond_t changed;
    int64_t submitted;                    // blocks that may be written
    int64_t begun;                        // blocks that a thread took
    bool idle[CY_FILE_WRITER_BLOCKS_MAX]; // nothing in it waits to be written
    bool closing;
    cy_status status; // of the first failure, with its text
    char text[1024];
};

// ---- writing

static cy_status write_at(cy_file_writer *out, const char *bytes, size_t count, uint64_t offset)
{
    while (count > 0) {
        const ssize_t put = cy_io_pwrite(out->fd, bytes, count, (int64_t)offset);
        if (put < 0 && errno == EINTR) continue;
        const int flags = put < 0 && errno == EINVAL ? fcntl(out->fd, F_GETFL) : 0;
        if (put < 0 && flags > 0 && (flags & O_DIRECT) != 0) {
            // The file system wants another alignment than CY_DIRECT_ALIGN: write through the page
            // cache.
            if (fcntl(out->fd, F_SETFL, flags & ~O_DIRECT) == 0) continue;
            errno = EINVAL;
        }
        if (put < 0) {
            return CY_FAIL_ERRNO(CY_ERR_IO, "write %s at byte %" PRIu64 " of %" PRIu64, out->path,
                offset, out->total);
        }
        bytes += put;
        count -= (size_t)put;
        offset += (uint64_t)put;
    }
    return CY_OK;
}

// ---- the threads

static void note_failure(cy_file_writer *out, cy_status status)
{
    if (out->status != CY_OK) return;
    out->status = status;
    snprintf(out->text, sizeof(out->text), "%s", cy_error_text());
}

static void *write_blocks(void *context)
{
    cy_file_writer *out = context;
    pthread_mutex_lock(&out->lock);
    for (;;) {
        while (out->begun == out->submitted && !out->closing)
            pthread_cond_wait(&out->changed, &out->lock);
        if (out->begun == out->submitted) break;
        const int64_t block = out->begun++;
        const int at = (int)(block % out->blocks);
        const bool failed = out->status != CY_OK;
        pthread_mutex_unlock(&out->lock);
        const cy_status status = failed ? CY_OK
                                        : write_at(out, out->memory + (size_t)at * BLOCK_BYTES,
                                              BLOCK_BYTES, (uint64_t)block * BLOCK_BYTES);
        pthread_mutex_lock(&out->lock);
        if (status != CY_OK) note_failure(out, status);
        out->idle[at] = true;
        pthread_cond_broadcast(&out->changed);
    }
    pthread_mutex_unlock(&out->lock);
    return NULL;
}

static cy_status start_threads(cy_file_writer *out)
{
    for (; out->thread_count < out->blocks - 1; out->thread_count++) {
        if (cy_thread_start(&out->threads[out->thread_count], write_blocks, out) != 0) {
            return CY_FAIL(CY_ERR_MEMORY, "thread %d of %d could not be started",
                out->thread_count + 1, out->blocks - 1);
        }
    }
    return CY_OK;
}

static void stop_threads(cy_file_writer *out)
{
    pthread_mutex_lock(&out->lock);
    out->closing = true;
    pthread_cond_broadcast(&out->changed);
    pthread_mutex_unlock(&out->lock);
    cy_activity_begin(CY_ACTIVITY_WAIT, out->path, -1);
    for (int i = 0; i < out->thread_count; i++)
        pthread_join(out->threads[i], NULL);
    cy_activity_end();
    out->thread_count = 0;
}

// Writes the full block, or leaves it to a thread. On return the next block may be filled.
static cy_status submit(cy_file_writer *out)
{
    const int at = (int)(out->current % out->blocks);
    if (out->thread_count == 0) {
        CY_TRY(write_at(out, out->memory + (size_t)at * BLOCK_BYTES, BLOCK_BYTES,
            (uint64_t)out->current * BLOCK_BYTES));
        out->current++;
        out->filled = 0;
        return CY_OK;
    }
    pthread_mutex_lock(&out->lock);
    out->idle[at] = false;
    out->submitted++;
    out->current++;
    out->filled = 0;
    pthread_cond_broadcast(&out->changed);
    const int next = (int)(out->current % out->blocks);
    cy_activity_begin(CY_ACTIVITY_WAIT, out->path, -1);
    while (!out->idle[next])
        pthread_cond_wait(&out->changed, &out->lock);
    cy_activity_end();
    const cy_status status = out->status;
    pthread_mutex_unlock(&out->lock);
    return status == CY_OK ? CY_OK : CY_FAIL(status, "%s", out->text);
}

// ---- opening, adding, closing

static cy_status create(cy_file_writer *out, bool direct)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    out->fd = direct ? cy_io_open(out->path, flags | O_DIRECT) : -1;
    direct = out->fd >= 0;
    // Where it was refused for another reason, the next open fails and names it.
    if (!direct) out->fd = cy_io_open(out->path, flags);
    if (out->fd < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "create %s", out->path);
    if (cy_io_allocate(out->fd, (int64_t)out->total) != 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS) {
        return CY_FAIL_ERRNO(
            CY_ERR_IO, "no room for %" PRIu64 " bytes of %s", out->total, out->path);
    }
    if (!direct) return CY_OK;
    void *memory = NULL;
    CY_TRY(cy_memory_map(&memory, (size_t)out->blocks * BLOCK_BYTES));
    out->memory = memory;
    return start_threads(out);
}

cy_status cy_file_writer_open(cy_file_writer **writer, const char *path, uint64_t total, int blocks)
{
    void *memory = NULL;
    CY_ASSERT(total > 0);
    CY_ASSERT(blocks >= 0 && blocks <= CY_FILE_WRITER_BLOCKS_MAX);
    CY_TRY(cy_memory_alloc(&memory, 1, sizeof(cy_file_writer)));
    cy_file_writer *out = memory;
    *out = (cy_file_writer){
        .fd = -1,
        .total = total,
        .blocks = blocks,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
    };
    for (int i = 0; i < CY_FILE_WRITER_BLOCKS_MAX; i++)
        out->idle[i] = true;
    cy_status status = cy_memory_copy_text(&out->path, path);
    // A file of less than a block gains nothing by it.
    if (status == CY_OK) status = create(out, blocks > 0 && total >= BLOCK_BYTES);
    if (status == CY_OK) {
        *writer = out;
    } else {
        const cy_status closed = cy_file_writer_close(out, false);
        CY_ASSERT(closed == CY_OK);
    }
    return status;
}

static cy_status add_plainly(cy_file_writer *out, const char *bytes, size_t count)
{
    const uint64_t before = out->added / FLUSH_BYTES;
    CY_TRY(write_at(out, bytes, count, out->added));
    out->added += count;
    // Only a hint to begin early: the fsync at the end is what counts.
    const uint64_t after = out->added / FLUSH_BYTES;
    if (after > before) {
        (void)cy_io_begin_sync(
            out->fd, (int64_t)(before * FLUSH_BYTES), (int64_t)((after - before) * FLUSH_BYTES));
    }
    return CY_OK;
}

cy_status cy_file_writer_add(cy_file_writer *out, const void *bytes, size_t count)
{
    CY_ASSERT(count <= out->total - out->added);
    const char *from = bytes;
    if (out->memory == NULL) return add_plainly(out, from, count);
    while (count > 0) {
        const size_t room = BLOCK_BYTES - out->filled;
        const size_t some = count < room ? count : room;
        char *block = out->memory + (size_t)(out->current % out->blocks) * BLOCK_BYTES;
        memcpy(block + out->filled, from, some);
        out->filled += some;
        out->added += some;
        from += some;
        count -= some;
        if (out->filled == BLOCK_BYTES) CY_TRY(submit(out));
    }
    return CY_OK;
}

// Writes the last block: its whole disk blocks past the page cache, the rest through it. Then
// forces the file to disk.
static cy_status finish(cy_file_writer *out)
{
    stop_threads(out);
    if (out->status != CY_OK) return CY_FAIL(out->status, "%s", out->text);
    if (out->added != out->total) {
        return CY_FAIL(CY_ERR_REQUEST, "%s: %" PRIu64 " of %" PRIu64 " bytes were written",
            out->path, out->added, out->total);
    }
    if (out->memory != NULL) {
        const char *block = out->memory + (size_t)(out->current % out->blocks) * BLOCK_BYTES;
        const uint64_t offset = (uint64_t)out->current * BLOCK_BYTES;
        const size_t whole = (size_t)cy_direct_block_offset(out->filled);
        CY_TRY(write_at(out, block, whole, offset));
        const int flags = fcntl(out->fd, F_GETFL);
        if (flags < 0 || fcntl(out->fd, F_SETFL, flags & ~O_DIRECT) != 0) {
            return CY_FAIL_ERRNO(CY_ERR_IO, "change how %s is written", out->path);
        }
        CY_TRY(write_at(out, block + whole, out->filled - whole, offset + whole));
    }
    if (cy_io_sync(out->fd) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "fsync %s", out->path);
    return CY_OK;
}

cy_status cy_file_writer_close(cy_file_writer *out, bool keep)
{
    if (out == NULL) return CY_OK;
    cy_status status = keep ? finish(out) : CY_OK;
    stop_threads(out);
    if (out->fd >= 0 && cy_io_close(out->fd) != 0 && keep && status == CY_OK) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "close %s", out->path);
    }
    cy_memory_unmap(out->memory, (size_t)out->blocks * BLOCK_BYTES);
    pthread_mutex_destroy(&out->lock);
    pthread_cond_destroy(&out->changed);
    cy_memory_free(out->path);
    cy_memory_free(out);
    return status;
}

// ---- reading byte ranges of a checkpoint's files

cy_status cy_bytes_open(int *fd, cy_checkpoint *checkpoint, int file)
{
    cy_checkpoint_file *entry = &checkpoint->files[file];
    if (entry->fd < 0) {
        char *path = NULL;
        CY_TRY(cy_folder_join(&path, checkpoint->path, entry->name));
        const cy_status status = cy_file_open(&entry->fd, path);
        cy_memory_free(path);
        CY_TRY(status);
    }
    *fd = entry->fd;
    return CY_OK;
}

cy_status cy_bytes_open_all(cy_checkpoint *checkpoint)
{
    for (int i = 0; i < checkpoint->file_count; i++) {
        int fd = -1;
        CY_TRY(cy_bytes_open(&fd, checkpoint, i));
        if (cy_fd_is_scarce(fd)) break; // the others are opened when they are read
    }
    return CY_OK;
}

cy_status cy_bytes_read(
    cy_checkpoint *checkpoint, int file, uint64_t offset, struct iovec *parts, int count)
{
    int fd = -1;
    CY_TRY(cy_bytes_open(&fd, checkpoint, file));
    while (count > 0) {
        if (parts->iov_len == 0) {
            parts++;
            count--;
            continue;
        }
        const ssize_t got = cy_io_preadv(fd, parts, count, (int64_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            return CY_FAIL_ERRNO(CY_ERR_IO, "read %s/%s at byte %" PRIu64, checkpoint->path,
                checkpoint->files[file].name, offset);
        }
        if (got == 0) {
            return CY_FAIL(CY_ERR_CORRUPT, "%s/%s ends at byte %" PRIu64 ": it was longer",
                checkpoint->path, checkpoint->files[file].name, offset);
        }
        offset += (uint64_t)got;
        size_t left = (size_t)got;
        while (count > 0 && left >= parts->iov_len) {
            left -= parts->iov_len;
            parts++;
            count--;
        }
        if (left > 0) {
            parts->iov_base = (char *)parts->iov_base + left;
            parts->iov_len -= left;
        }
    }
    return CY_OK;
}

void cy_bytes_prefetch(const cy_checkpoint *checkpoint, int file, uint64_t offset, uint64_t bytes)
{
    const int fd = checkpoint->files[file].fd;
    if (fd >= 0) posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
}
