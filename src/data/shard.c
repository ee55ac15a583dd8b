// Reads, verifies and writes files of token ids.

#define _GNU_SOURCE
#include "data/shard.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 20)

_Static_assert(sizeof(cy_shard_header) == 64, "the header is 64 bytes in the file");

static cy_status check_header(const cy_shard_header *header, const char *path, size_t bytes)
{
    if (memcmp(header->magic, CY_SHARD_MAGIC, sizeof(header->magic)) != 0) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: not a token shard", path);
    }
    if (header->version != CY_SHARD_VERSION) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: version %" PRIu32 " of the format, this reads %u", path,
            header->version, CY_SHARD_VERSION);
    }
    if (header->token_bytes != 2 && header->token_bytes != 4) {
        return CY_FAIL(
            CY_ERR_CORRUPT, "%s: tokens of %" PRIu32 " bytes", path, header->token_bytes);
    }
    // Divides the measured size: multiplying the count in the header could overflow.
    const size_t token_bytes = bytes - sizeof(*header);
    if (token_bytes % header->token_bytes != 0 ||
        token_bytes / header->token_bytes != header->token_count) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: %zu bytes of tokens, the header says %" PRIu64 " tokens of %" PRIu32 " bytes",
            path, token_bytes, header->token_count, header->token_bytes);
    }
    if (header->vocab_size == 0 || header->vocab_size > INT32_MAX ||
        (header->token_bytes == 2 && header->vocab_size > 65536)) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: a vocabulary of %" PRIu32 " in tokens of %" PRIu32 " bytes", path,
            header->vocab_size, header->token_bytes);
    }
    return CY_OK;
}

cy_status cy_shard_is_file(bool *shard, const char *path)
{
    struct stat info;
    cy_input_file file;
    char magic[sizeof(CY_SHARD_MAGIC) - 1];
    *shard = false;
    if (cy_io_stat(path, &info) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return CY_OK;
        return CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", path);
    }
    if (!S_ISREG(info.st_mode)) return CY_OK;
    CY_TRY(cy_input_open(&file, path));
    cy_status status = CY_OK;
    if (file.bytes >= sizeof(magic)) {
        status = cy_input_read(&file, magic, 0, sizeof(magic));
        *shard = status == CY_OK && memcmp(magic, CY_SHARD_MAGIC, sizeof(magic)) == 0;
    }
    cy_input_close(&file);
    return status;
}

cy_status cy_shard_open(cy_shard *shard, const char *path)
{
    cy_shard made = {0};
    CY_TRY(cy_input_open(&made.file, path));
    cy_status status = CY_OK;
    if (made.file.bytes < sizeof(made.header)) {
        status = CY_FAIL(
            CY_ERR_CORRUPT, "%s: %" PRIu64 " bytes cannot hold a header", path, made.file.bytes);
    }
    if (status == CY_OK) {
        status = cy_input_read(&made.file, &made.header, 0, sizeof(made.header));
    }
    if (status == CY_OK) status = check_header(&made.header, path, (size_t)made.file.bytes);
    if (status != CY_OK) {
        cy_input_close(&made.file);
        return status;
    }
    *shard = made;
    return CY_OK;
}

void cy_shard_close(cy_shard *shard)
{
    cy_input_close(&shard->file);
    *shard = (cy_shard){0};
}

cy_status cy_shard_read(const cy_shard *shard, int32_t *out, int64_t first, int64_t count)
{
    CY_ASSERT(first >= 0 && count >= 0);
    CY_ASSERT((uint64_t)(first + count) <= shard->header.token_count);
    const size_t size = shard->header.token_bytes;
    const uint64_t offset = sizeof(shard->header) + (uint64_t)first * size;
    // Tokens of 2 bytes are read into the second half of `out` and widened from the front: a token
    // is never written over one that is not widened yet.
    char *to = (char *)out + (size_t)count * (sizeof(int32_t) - size);
    CY_TRY(cy_input_read(&shard->file, to, offset, (size_t)count * size));
    for (int64_t i = 0; size == 2 && i < count; i++) {
        uint16_t token;
        memcpy(&token, to + 2 * i, 2);
        out[i] = token;
    }
    return CY_OK;
}

uint64_t cy_shard_check(uint64_t check, const unsigned char *bytes, size_t count)
{
    // Depends on the order of the tokens, which a plain sum does not.
    for (size_t i = 0; i + 2 <= count; i += 2) {
        uint16_t part;
        memcpy(&part, bytes + i, 2);
        check = (check ^ (part + 1u)) * 0x9e3779b97f4a7c15u;
        check ^= check >> 29;
    }
    return check;
}

#define VERIFIED_AT_ONCE 8192

cy_status cy_shard_verify(const cy_shard *shard)
{
    unsigned char bytes[VERIFIED_AT_ONCE * 4];
    const size_t size = shard->header.token_bytes;
    uint64_t check = 0;
    int64_t bad = -1;
    uint32_t bad_token = 0;
    const int64_t count = (int64_t)shard->header.token_count;
    for (int64_t at = 0; at < count; at += VERIFIED_AT_ONCE) {
        const int64_t some = count - at < VERIFIED_AT_ONCE ? count - at : VERIFIED_AT_ONCE;
        const uint64_t offset = sizeof(shard->header) + (uint64_t)at * size;
        CY_TRY(cy_input_read(&shard->file, bytes, offset, (size_t)some * size));
        check = cy_shard_check(check, bytes, (size_t)some * size);
        for (int64_t i = 0; i < some && bad < 0; i++) {
            uint32_t token = 0; // little-endian, as the file is
            memcpy(&token, bytes + (size_t)i * size, size);
            if (token < shard->header.vocab_size) continue;
            bad = at + i;
            bad_token = token;
        }
    }
    if (check != shard->header.check) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: the tokens have check %016" PRIx64 ", the header says %016" PRIx64,
            shard->file.path, check, shard->header.check);
    }
    if (bad >= 0) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: token %" PRId64 " is %" PRId32 ", the vocabulary has %" PRIu32, shard->file.path,
            bad, (int32_t)bad_token, shard->header.vocab_size);
    }
    return CY_OK;
}

// ---- writing

cy_status cy_shard_create(cy_shard_writer *writer, const char *path, const cy_shard_header *header)
{
    CY_ASSERT(header->token_bytes == 2 || header->token_bytes == 4);
    cy_shard_writer made = {.fd = -1,
        .header = {.version = CY_SHARD_VERSION,
            .token_bytes = header->token_bytes,
            .tokenizer_hash = header->tokenizer_hash,
            .vocab_size = header->vocab_size,
            .end_token = header->end_token}};
    memcpy(made.header.magic, CY_SHARD_MAGIC, sizeof(made.header.magic));
    CY_TRY(CY_ALLOC(&made.buffer, BUFFER_BYTES));
    cy_status status = cy_memory_copy_text(&made.path, path);
    if (status != CY_OK) goto free_buffer;
    made.fd = cy_io_open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC);
    if (made.fd < 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "create %s", path);
        goto free_path;
    }
    // The header is written last; until then the file has no magic and readers reject it.
    if (lseek(made.fd, sizeof(made.header), SEEK_SET) < 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "seek in %s", path);
        cy_io_close(made.fd);
        goto free_path;
    }
    *writer = made;
    return CY_OK;

free_path:
    cy_memory_free(made.path);
free_buffer:
    cy_memory_free(made.buffer);
    return status;
}

static cy_status write_all(const cy_shard_writer *writer, const void *from, size_t count)
{
    const unsigned char *bytes = from;
    while (count > 0) {
        const ssize_t put = cy_io_write(writer->fd, bytes, count);
        if (put < 0) {
            if (errno == EINTR) continue;
            return CY_FAIL_ERRNO(CY_ERR_IO, "write %s", writer->path);
        }
        bytes += put;
        count -= (size_t)put;
    }
    return CY_OK;
}

static cy_status flush(cy_shard_writer *writer)
{
    CY_TRY(write_all(writer, writer->buffer, writer->buffered));
    writer->header.check = cy_shard_check(writer->header.check, writer->buffer, writer->buffered);
    writer->buffered = 0;
    return CY_OK;
}

cy_status cy_shard_add(
    cy_shard_writer *writer, const int32_t *tokens, size_t count, uint64_t text_bytes)
{
    const size_t size = writer->header.token_bytes;
    for (size_t i = 0; i < count; i++) {
        if ((uint32_t)tokens[i] >= writer->header.vocab_size) {
            return CY_FAIL(CY_ERR_REQUEST, "%s: token %" PRId32 " of a vocabulary of %" PRIu32,
                writer->path, tokens[i], writer->header.vocab_size);
        }
        if (writer->buffered == BUFFER_BYTES) CY_TRY(flush(writer));
        const uint16_t narrow = (uint16_t)tokens[i];
        unsigned char *to = writer->buffer + writer->buffered;
        if (size == 2) {
            memcpy(to, &narrow, 2);
        } else {
            memcpy(to, &tokens[i], 4);
        }
        writer->buffered += size;
    }
    writer->header.token_count += count;
    writer->header.text_bytes += text_bytes;
    return CY_OK;
}

static void close_writer(cy_shard_writer *writer)
{
    if (writer->fd >= 0) cy_io_close(writer->fd);
    cy_memory_free(writer->path);
    cy_memory_free(writer->buffer);
    *writer = (cy_shard_writer){.fd = -1};
}

cy_status cy_shard_finish(cy_shard_writer *writer)
{
    cy_status status = flush(writer);
    if (status == CY_OK && lseek(writer->fd, 0, SEEK_SET) < 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "seek in %s", writer->path);
    }
    if (status == CY_OK) status = write_all(writer, &writer->header, sizeof(writer->header));
    if (status == CY_OK && cy_io_sync(writer->fd) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "fsync %s", writer->path);
    }
    close_writer(writer);
    return status;
}

void cy_shard_abandon(cy_shard_writer *writer)
{
    if (writer->path != NULL) cy_io_unlink(writer->path);
    close_writer(writer);
}
