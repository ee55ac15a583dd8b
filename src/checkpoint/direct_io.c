#define _GNU_SOURCE
#include "checkpoint/direct_io.h"

#include "base/io.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
        // Only the end of the file may cut a block, and then all that is wanted is here.
        if (done < wanted && done % CY_DIRECT_ALIGN != 0) return false;
    }
    return true;
}
