#define _GNU_SOURCE
#include "base/folder_lock.h"

#include "base/io.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

// The words are for people only: the lock holds without them.
static void sign(int fd)
{
    char owner[300], host[200] = "";
    gethostname(host, sizeof(host) - 1);
    const int length = snprintf(owner, sizeof(owner), "process %ld on %s\n", (long)getpid(), host);
    const bool told = cy_io_truncate(fd, 0) == 0 && cy_io_pwrite(fd, owner, (size_t)length, 0) > 0;
    (void)told;
}

static cy_status refuse(int fd, const char *folder, const cy_folder_lock_kind *use)
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
        status = refuse(fd, folder, use);
    } else {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "lock %s", path.bytes);
    }
    if (status != CY_OK && fd >= 0) cy_io_close(fd);
    cy_text_free(&path);
    return status;
}
