#define _GNU_SOURCE
#include "data/shard.h"

#include "base/assert.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
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
    // Divide the size we measured: multiplying the count we were told could overflow.
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

cy_status cy_shard_open(cy_shard *shard, const char *path)
{
    cy_shard made = {0};
    CY_TRY(cy_mapping_open(&made.mapping, path));
    cy_status status = CY_OK;
    if (made.mapping.count < sizeof(made.header)) {
        status =
            CY_FAIL(CY_ERR_CORRUPT, "%s: %zu bytes cannot hold a header", path, made.mapping.count);
    } else {
        memcpy(&made.header, made.mapping.bytes, sizeof(made.header));
        made.tokens = made.mapping.bytes + sizeof(made.header);
        status = check_header(&made.header, path, made.mapping.count);
    }
    if (status != CY_OK) {
        cy_mapping_close(&made.mapping);
        return status;
    }
    *shard = made;
    return CY_OK;
}

void cy_shard_close(cy_shard *shard)
{
    cy_mapping_close(&shard->mapping);
    *shard = (cy_shard){0};
}

void cy_shard_read(const cy_shard *shard, int32_t *out, int64_t first, int64_t count)
{
    CY_ASSERT(first >= 0 && count >= 0);
    CY_ASSERT((uint64_t)(first + count) <= shard->header.token_count);
    if (shard->header.token_bytes == 2) {
        const unsigned char *from = shard->tokens + 2 * first;
        for (int64_t i = 0; i < count; i++) {
            uint16_t token;
            memcpy(&token, from + 2 * i, 2);
            out[i] = token;
        }
    } else {
        memcpy(out, shard->tokens + 4 * first, (size_t)count * 4);
    }
}

uint64_t cy_shard_check(uint64_t check, const unsigned char *bytes, size_t count)
{
    // A sum of what stands at each place of 4 bytes would miss exchanges; this one does not.
    for (size_t i = 0; i + 2 <= count; i += 2) {
        uint16_t part;
        memcpy(&part, bytes + i, 2);
        check = (check ^ (part + 1u)) * 0x9e3779b97f4a7c15u;
        check ^= check >> 29;
    }
    return check;
}

cy_status cy_shard_verify(const cy_shard *shard, const char *path)
{
    const size_t bytes = (size_t)shard->header.token_count * shard->header.token_bytes;
    const uint64_t check = cy_shard_check(0, shard->tokens, bytes);
    if (check != shard->header.check) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: the tokens have check %016" PRIx64 ", the header says %016" PRIx64, path, check,
            shard->header.check);
    }
    for (int64_t i = 0; i < (int64_t)shard->header.token_count; i++) {
        int32_t token;
        cy_shard_read(shard, &token, i, 1);
        if ((uint32_t)token >= shard->header.vocab_size) {
            return CY_FAIL(CY_ERR_CORRUPT,
                "%s: token %" PRId64 " is %" PRId32 ", the vocabulary has %" PRIu32, path, i, token,
                shard->header.vocab_size);
        }
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
    void *block = NULL;
    CY_TRY(cy_memory_take(&block, BUFFER_BYTES, 1));
    made.buffer = block;
    cy_status status = cy_memory_copy_text(&made.path, path);
    if (status != CY_OK) goto free_buffer;
    made.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (made.fd < 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "create %s", path);
        goto free_path;
    }
    // The header comes last; until then a reader finds no magic here.
    if (lseek(made.fd, sizeof(made.header), SEEK_SET) < 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "seek in %s", path);
        close(made.fd);
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
        const ssize_t put = write(writer->fd, bytes, count);
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
    if (writer->fd >= 0) close(writer->fd);
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
    if (status == CY_OK && fsync(writer->fd) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "fsync %s", writer->path);
    }
    close_writer(writer);
    return status;
}

void cy_shard_abandon(cy_shard_writer *writer)
{
    if (writer->path != NULL) unlink(writer->path);
    close_writer(writer);
}
