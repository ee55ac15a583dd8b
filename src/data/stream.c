#define _GNU_SOURCE
#include "data/stream.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define INPUT_BYTES ((size_t)1 << 18)

typedef enum stream_kind {
    STREAM_PLAIN,
    STREAM_GZIP,
    STREAM_ZSTD,
} stream_kind;

struct cy_stream {
    char *path; // owned
    int fd;
    stream_kind kind;
    unsigned char *input; // owned, [INPUT_BYTES]: compressed bytes
    size_t input_at;
    size_t input_count;
    int64_t position;
    struct stat opened; // of a regular file; all zero: of another one, whose end nobody knows
    z_stream gzip;
    bool gzip_open;
    ZSTD_DStream *zstd; // owned
    bool within;        // a compressed frame has begun and not ended
    bool ended;         // the file has no more bytes
};

static bool ends_in(const char *path, const char *ending)
{
    const size_t length = strlen(path), wanted = strlen(ending);
    return length >= wanted && strcmp(path + length - wanted, ending) == 0;
}

void cy_stream_close(cy_stream *stream)
{
    if (stream == NULL) return;
    if (stream->gzip_open) inflateEnd(&stream->gzip);
    ZSTD_freeDStream(stream->zstd);
    if (stream->fd >= 0) cy_io_close(stream->fd);
    cy_memory_free(stream->input);
    cy_memory_free(stream->path);
    cy_memory_free(stream);
}

static cy_status open_decoder(cy_stream *stream)
{
    if (ends_in(stream->path, ".gz")) {
        stream->kind = STREAM_GZIP;
        // 15 is the largest window; 16 more asks for gzip's header.
        if (inflateInit2(&stream->gzip, 15 + 16) != Z_OK) {
            return CY_FAIL(CY_ERR_MEMORY, "%s: no memory to decompress", stream->path);
        }
        stream->gzip_open = true;
    } else if (ends_in(stream->path, ".zst")) {
        stream->kind = STREAM_ZSTD;
        stream->zstd = ZSTD_createDStream();
        if (stream->zstd == NULL) {
            return CY_FAIL(CY_ERR_MEMORY, "%s: no memory to decompress", stream->path);
        }
    }
    return CY_OK;
}

static cy_status look_at(struct stat *info, const cy_stream *stream)
{
    if (cy_io_fstat(stream->fd, info) == 0) return CY_OK;
    return CY_FAIL_ERRNO(CY_ERR_IO, "stat %s", stream->path);
}

static cy_status note_file(cy_stream *stream)
{
    struct stat info;
    CY_TRY(look_at(&info, stream));
    if (S_ISREG(info.st_mode)) stream->opened = info;
    return CY_OK;
}

cy_status cy_stream_open(cy_stream **stream, const char *path)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(cy_stream)));
    cy_stream *made = block;
    made->fd = -1;
    cy_status status = cy_memory_copy_text(&made->path, path);
    if (status == CY_OK) status = cy_memory_alloc(&block, INPUT_BYTES, 1);
    if (status != CY_OK) goto close;
    made->input = block;
    bool folder = false;
    status = cy_path_find_folder(&folder, path);
    if (folder) status = CY_FAIL(CY_ERR_REQUEST, "%s is a folder, not a file", path);
    if (status == CY_OK) status = cy_file_open_stream(&made->fd, path);
    if (status == CY_OK) status = note_file(made);
    if (status == CY_OK) status = open_decoder(made);
    if (status != CY_OK) goto close;
    *stream = made;
    return CY_OK;

close:
    cy_stream_close(made);
    return status;
}

// At the end: what was read is one text only if nothing was written meanwhile.
static cy_status check_unchanged(const cy_stream *stream)
{
    struct stat now;
    const struct stat *then = &stream->opened;
    if (!S_ISREG(then->st_mode)) return CY_OK;
    CY_TRY(look_at(&now, stream));
    if (stream->position < then->st_size || now.st_size < then->st_size) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s ends at byte %lld, it had %lld when it was opened: it was cut while it was read",
            stream->path, (long long)stream->position, (long long)then->st_size);
    }
    if (now.st_size == then->st_size && now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == then->st_mtim.tv_nsec) {
        return CY_OK;
    }
    return CY_FAIL(CY_ERR_CORRUPT,
        "%s was written to while it was read: it has %lld bytes, it had %lld when it was opened",
        stream->path, (long long)now.st_size, (long long)then->st_size);
}

static cy_status read_some(cy_stream *stream, void *bytes, size_t room, size_t *count)
{
    for (;;) {
        const ssize_t got = cy_io_read(stream->fd, bytes, room);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "read %s", stream->path);
        *count = (size_t)got;
        stream->position += got;
        stream->ended = got == 0;
        return stream->ended ? check_unchanged(stream) : CY_OK;
    }
}

static cy_status refill(cy_stream *stream)
{
    stream->input_at = 0;
    return read_some(stream, stream->input, INPUT_BYTES, &stream->input_count);
}

// One call of the decompressor; *count is what came out.
static cy_status inflate_gzip(cy_stream *stream, void *bytes, size_t room, size_t *count)
{
    if (!stream->within) inflateReset(&stream->gzip); // a file may hold several members
    stream->within = true;
    stream->gzip.next_in = stream->input + stream->input_at;
    stream->gzip.avail_in = (uInt)(stream->input_count - stream->input_at);
    stream->gzip.next_out = bytes;
    stream->gzip.avail_out = (uInt)room;
    const int result = inflate(&stream->gzip, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: %s", stream->path,
            stream->gzip.msg != NULL ? stream->gzip.msg : "damaged");
    }
    stream->within = result != Z_STREAM_END;
    stream->input_at = stream->input_count - stream->gzip.avail_in;
    *count = room - stream->gzip.avail_out;
    return CY_OK;
}

static cy_status inflate_zstd(cy_stream *stream, void *bytes, size_t room, size_t *count)
{
    ZSTD_inBuffer in = {stream->input, stream->input_count, stream->input_at};
    ZSTD_outBuffer out = {bytes, room, 0};
    const size_t result = ZSTD_decompressStream(stream->zstd, &out, &in);
    if (ZSTD_isError(result)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: %s", stream->path, ZSTD_getErrorName(result));
    }
    stream->within = result != 0;
    stream->input_at = in.pos;
    *count = out.pos;
    return CY_OK;
}

cy_status cy_stream_read(cy_stream *stream, void *bytes, size_t room, size_t *count)
{
    if (room > (size_t)1 << 30) room = (size_t)1 << 30;
    if (stream->kind == STREAM_PLAIN) return read_some(stream, bytes, room, count);
    for (;;) {
        // What the decompressor still holds comes out before more goes in.
        if (stream->within || stream->input_at < stream->input_count) {
            *count = 0;
            CY_TRY(stream->kind == STREAM_GZIP ? inflate_gzip(stream, bytes, room, count)
                                               : inflate_zstd(stream, bytes, room, count));
            if (*count > 0) return CY_OK;
        }
        if (stream->input_at < stream->input_count) continue;
        CY_TRY(refill(stream));
        if (!stream->ended) continue;
        *count = 0;
        if (!stream->within) return CY_OK;
        return CY_FAIL(CY_ERR_CORRUPT, "%s: ends within compressed data, at byte %lld",
            stream->path, (long long)stream->position);
    }
}

int64_t cy_stream_position(const cy_stream *stream)
{
    return stream->position;
}
