#define _GNU_SOURCE
#include "checkpoint/safetensors.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA_ALIGN 64

// A tensor's name as a JSON text.
static cy_status add_quoted(cy_text *text, const char *name)
{
    json_t *value = json_string(name);
    char *quoted = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    if (quoted == NULL) return CY_FAIL(CY_ERR_REQUEST, "a tensor's name is not UTF-8");
    const cy_status status = cy_text_add(text, "%s", quoted);
    free(quoted);
    return status;
}

static cy_status add_entry(cy_text *text, cy_safetensors_entry *entry, uint64_t offset)
{
    const char *dtype = cy_safetensors_dtype_name(entry->dtype);
    CY_ASSERT(dtype != NULL);
    CY_TRY(add_quoted(text, entry->name));
    CY_TRY(cy_text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", dtype));
    uint64_t bytes = cy_dtype_size(entry->dtype);
    for (int i = 0; i < entry->dimensions; i++) {
        CY_TRY(cy_text_add(text, "%s%" PRId64, i > 0 ? "," : "", entry->dims[i]));
        bytes *= (uint64_t)entry->dims[i];
    }
    entry->offset = offset; // counts from the data until the header's length is known
    entry->bytes = bytes;
    return cy_text_add(
        text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset, offset + bytes);
}

cy_status cy_safetensors_header(
    cy_text *header, cy_safetensors_entry *entries, int count, const char *metadata)
{
    char length_bytes[8] = {0};
    const size_t start = header->length;
    CY_TRY(cy_text_add_bytes(header, length_bytes, sizeof(length_bytes)));
    CY_TRY(cy_text_add(header, "{"));
    if (metadata != NULL) {
        CY_TRY(cy_text_add(header, "\"__metadata__\":%s%s", metadata, count > 0 ? "," : ""));
    }
    uint64_t offset = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0) CY_TRY(cy_text_add(header, ","));
        CY_TRY(add_entry(header, &entries[i], offset));
        offset += entries[i].bytes;
    }
    CY_TRY(cy_text_add(header, "}"));
    const size_t ragged = (header->length - start) % DATA_ALIGN;
    if (ragged > 0) CY_TRY(cy_text_add(header, "%*s", (int)(DATA_ALIGN - ragged), ""));

    const uint64_t total = header->length - start;
    for (int i = 0; i < 8; i++)
        header->bytes[start + (size_t)i] = (char)((total - 8) >> (8 * i));
    for (int i = 0; i < count; i++)
        entries[i].offset += total;
    return CY_OK;
}

cy_status cy_safetensors_writer_open(
    cy_safetensors_writer *writer, const char *path, cy_text header, uint64_t total)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "create %s", path);
    // A full disk shows here, before anything is written; not every file system can tell.
    if (fallocate(fd, 0, 0, (off_t)total) != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
        const cy_status status =
            CY_FAIL_ERRNO(CY_ERR_IO, "no room for %" PRIu64 " bytes of %s", total, path);
        close(fd);
        return status;
    }
    *writer = (cy_safetensors_writer){.fd = fd, .path = path, .total = total};
    const cy_status status = cy_safetensors_writer_add(writer, header.bytes, header.length);
    if (status != CY_OK) {
        close(fd);
        *writer = (cy_safetensors_writer){.fd = -1};
    }
    return status;
}

cy_status cy_safetensors_writer_add(cy_safetensors_writer *writer, const void *bytes, size_t count)
{
    CY_ASSERT(count <= writer->total - writer->written);
    const char *at = bytes;
    size_t left = count;
    while (left > 0) {
        const ssize_t put = write(writer->fd, at, left);
        if (put < 0) {
            if (errno == EINTR) continue;
            return CY_FAIL_ERRNO(CY_ERR_IO, "write %s at byte %" PRIu64 " of %" PRIu64,
                writer->path, writer->written, writer->total);
        }
        at += put;
        left -= (size_t)put;
        writer->written += (uint64_t)put;
    }
    return CY_OK;
}

cy_status cy_safetensors_writer_close(cy_safetensors_writer *writer, bool keep)
{
    cy_status status = CY_OK;
    if (writer->fd < 0) return CY_OK;
    if (keep && writer->written != writer->total) {
        status = CY_FAIL(CY_ERR_REQUEST, "%s: %" PRIu64 " of %" PRIu64 " bytes were written",
            writer->path, writer->written, writer->total);
    } else if (keep && fsync(writer->fd) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "fsync %s", writer->path);
    }
    if (close(writer->fd) != 0 && keep && status == CY_OK) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "close %s", writer->path);
    }
    writer->fd = -1;
    return status;
}
