// Reads documents out of text files: .txt and .jsonl, also compressed as .gz or .zst.

#define _GNU_SOURCE
#include "data/document.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "tokenizer/unicode.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

// ---- files, compressed or not

#define INPUT_BYTES ((size_t)1 << 18)

typedef enum stream_kind {
    STREAM_PLAIN,
    STREAM_GZIP,
    STREAM_ZSTD,
} stream_kind;

// The bytes of a file from beginning to end, decompressed where its name ends in .gz or .zst.
typedef struct byte_stream {
    char *path; // owned
    int fd;
    stream_kind kind;
    unsigned char *input; // owned, [INPUT_BYTES]: compressed bytes
    size_t input_at;
    size_t input_count;
    int64_t position;
    struct stat opened; // of a regular file; all zero for other files, whose end is not known
    z_stream gzip;
    bool gzip_open;
    ZSTD_DStream *zstd; // owned
    bool within;        // a compressed frame has begun and not ended
    bool ended;         // the file has no more bytes
} byte_stream;

static bool ends_in(const char *path, const char *ending)
{
    const size_t length = strlen(path), wanted = strlen(ending);
    return length >= wanted && strcmp(path + length - wanted, ending) == 0;
}

static void close_stream(byte_stream *stream)
{
    if (stream == NULL) return;
    if (stream->gzip_open) inflateEnd(&stream->gzip);
    ZSTD_freeDStream(stream->zstd);
    if (stream->fd >= 0) cy_io_close(stream->fd);
    cy_memory_free(stream->input);
    cy_memory_free(stream->path);
    cy_memory_free(stream);
}

static cy_status open_decoder(byte_stream *stream)
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

static cy_status look_at(struct stat *info, const byte_stream *stream)
{
    if (cy_io_fstat(stream->fd, info) == 0) return CY_OK;
    return CY_FAIL_ERRNO(CY_ERR_IO, "stat %s", stream->path);
}

static cy_status note_file(byte_stream *stream)
{
    struct stat info;
    CY_TRY(look_at(&info, stream));
    if (S_ISREG(info.st_mode)) stream->opened = info;
    return CY_OK;
}

static cy_status open_stream(byte_stream **stream, const char *path)
{
    byte_stream *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    made->fd = -1;
    cy_status status = cy_memory_copy_text(&made->path, path);
    if (status == CY_OK) status = CY_ALLOC(&made->input, INPUT_BYTES);
    if (status != CY_OK) goto close;
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
    close_stream(made);
    return status;
}

// At the end: what was read is one text only if nothing was written meanwhile.
static cy_status check_unchanged(const byte_stream *stream)
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

static cy_status read_file(byte_stream *stream, void *bytes, size_t room, size_t *count)
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

static cy_status refill_input(byte_stream *stream)
{
    stream->input_at = 0;
    return read_file(stream, stream->input, INPUT_BYTES, &stream->input_count);
}

// Calls the decompressor once; *count is the number of bytes that it wrote.
static cy_status inflate_gzip(byte_stream *stream, void *bytes, size_t room, size_t *count)
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

static cy_status inflate_zstd(byte_stream *stream, void *bytes, size_t room, size_t *count)
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

// Reads up to `room` bytes; *count is 0 only at the end. A file that ends within compressed data,
// or before the length that it had when it was opened, is CY_ERR_CORRUPT.
static cy_status read_stream(byte_stream *stream, void *bytes, size_t room, size_t *count)
{
    if (room > (size_t)1 << 30) room = (size_t)1 << 30;
    if (stream->kind == STREAM_PLAIN) return read_file(stream, bytes, room, count);
    for (;;) {
        // The decompressor gives out what it holds before it gets more.
        if (stream->within || stream->input_at < stream->input_count) {
            *count = 0;
            CY_TRY(stream->kind == STREAM_GZIP ? inflate_gzip(stream, bytes, room, count)
                                               : inflate_zstd(stream, bytes, room, count));
            if (*count > 0) return CY_OK;
        }
        if (stream->input_at < stream->input_count) continue;
        CY_TRY(refill_input(stream));
        if (!stream->ended) continue;
        *count = 0;
        if (!stream->within) return CY_OK;
        return CY_FAIL(CY_ERR_CORRUPT, "%s: ends within compressed data, at byte %lld",
            stream->path, (long long)stream->position);
    }
}

// ---- documents

#define CHUNK_BYTES ((size_t)1 << 20)

// Limits, because a compressed file of some kilobytes can hold a line of gigabytes, which would be
// in memory several times.
#define LINE_LIMIT  ((size_t)64 << 20)
#define WHOLE_LIMIT ((size_t)4 << 30) // of a text that may not be cut

struct cy_document_reader {
    byte_stream *stream;    // owned
    char *path;             // owned
    char *field;            // owned
    const uint8_t *classes; // borrowed or NULL
    bool lines;             // .jsonl
    cy_text buffer;         // from `at` on: bytes that were read and are not passed on yet
    size_t at;
    int64_t line;
    size_t line_bytes; // of .txt: since the last newline that was read
    bool ended;        // the stream is at its end
    bool done;         // the last document was passed on
};

// The place of the ending `name` in a path [length], or NULL.
static const char *ending(const char *path, size_t length, const char *name)
{
    const size_t wanted = strlen(name);
    if (length < wanted || strncmp(path + length - wanted, name, wanted) != 0) return NULL;
    return path + length - wanted;
}

static cy_status look_at_name(cy_document_reader *reader, const char *path)
{
    static const char *const others[] = {".parquet", ".arrow", ".zip", ".xz", ".bz2", ".7z",
        ".json", ".csv", ".bin", ".idx", ".tokens", ".npy", ".safetensors", ".pdf"};
    size_t length = strlen(path);
    const char *packed = ending(path, length, ".gz");
    if (packed == NULL) packed = ending(path, length, ".zst");
    if (packed != NULL) length = (size_t)(packed - path);
    reader->lines = ending(path, length, ".jsonl") != NULL;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (ending(path, length, others[i]) == NULL) continue;
        const cy_status status =
            CY_FAIL(CY_ERR_REQUEST, "%s: %s files are not read as text", path, others[i]);
        cy_error_set_hint("convert it to .txt or .jsonl, which may be compressed as .gz or .zst");
        return status;
    }
    return CY_OK;
}

cy_status cy_document_open(
    cy_document_reader **reader, const char *path, const cy_document_options *options)
{
    cy_document_reader *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    made->classes = options->classes;
    cy_status status = look_at_name(made, path);
    if (status == CY_OK) status = cy_memory_copy_text(&made->path, path);
    if (status == CY_OK) {
        status =
            cy_memory_copy_text(&made->field, options->field != NULL ? options->field : "text");
    }
    if (status == CY_OK) status = open_stream(&made->stream, path);
    if (status != CY_OK) {
        cy_document_close(made);
        return status;
    }
    *reader = made;
    return CY_OK;
}

void cy_document_close(cy_document_reader *reader)
{
    if (reader == NULL) return;
    close_stream(reader->stream);
    cy_text_free(&reader->buffer);
    cy_memory_free(reader->path);
    cy_memory_free(reader->field);
    cy_memory_free(reader);
}

int64_t cy_document_position(const cy_document_reader *reader)
{
    return reader->stream->position;
}

// Reads more into the buffer, behind the bytes that are not passed on yet.
static cy_status read_more(cy_document_reader *reader)
{
    cy_text *buffer = &reader->buffer;
    if (reader->at > 0) {
        memmove(buffer->bytes, buffer->bytes + reader->at, buffer->length - reader->at);
        buffer->length -= reader->at;
        reader->at = 0;
    }
    void *block = buffer->bytes;
    const size_t wanted = buffer->length + CHUNK_BYTES / 4;
    CY_TRY(cy_memory_grow(&block, &buffer->capacity, wanted, 1));
    buffer->bytes = block;
    size_t count = 0;
    CY_TRY(read_stream(
        reader->stream, buffer->bytes + buffer->length, buffer->capacity - buffer->length, &count));
    const char *read = buffer->bytes + buffer->length;
    const char *newline = count > 0 ? memrchr(read, '\n', count) : NULL;
    reader->line_bytes =
        newline != NULL ? (size_t)(read + count - newline) - 1 : reader->line_bytes + count;
    buffer->length += count;
    reader->ended = count == 0;
    return CY_OK;
}

// ---- text

// Finds the last place in s [count] where a text may be cut, or 0: behind a newline that has no
// space on either side. The last 4 bytes may be an incomplete character.
static size_t last_cut(const uint8_t *classes, const unsigned char *s, size_t count)
{
    for (size_t at = count > 4 ? count - 4 : 0; at > 1; at--) {
        if (s[at - 1] != '\n') continue;
        uint32_t before, after;
        cy_utf8_decode_before(&before, s, at - 1);
        cy_utf8_decode(&after, s + at, count - at);
        const int kept_apart = CY_CHAR_SPACE | CY_CHAR_NFC_MAYBE;
        if (!(classes[before] & CY_CHAR_SPACE) && !(classes[after] & kept_apart)) return at;
    }
    return 0;
}

static cy_status next_text(cy_document_reader *reader, cy_text *text, cy_document_state *state)
{
    size_t cut = 0;
    size_t wanted = CHUNK_BYTES;
    const size_t most = reader->classes != NULL ? LINE_LIMIT : WHOLE_LIMIT;
    if (reader->done) {
        *state = CY_DOCUMENT_NONE;
        return CY_OK;
    }
    for (;;) {
        while (!reader->ended && reader->buffer.length - reader->at < wanted) {
            CY_TRY(read_more(reader));
            if (reader->line_bytes > LINE_LIMIT) {
                return CY_FAIL(
                    CY_ERR_CORRUPT, "%s: a line of more than %zu bytes", reader->path, LINE_LIMIT);
            }
        }
        const size_t left = reader->buffer.length - reader->at;
        if (reader->ended && (left < 2 * CHUNK_BYTES || reader->classes == NULL)) {
            cut = left;
        } else if (reader->classes != NULL) {
            const size_t looked_at = left < wanted ? left : wanted;
            cut = last_cut(reader->classes,
                (const unsigned char *)reader->buffer.bytes + reader->at, looked_at);
        }
        if (cut > 0 || reader->ended) break;
        if (wanted > most) {
            return CY_FAIL(CY_ERR_CORRUPT,
                "%s: more than %zu bytes without a place to cut the text", reader->path, most);
        }
        wanted *= 2;
    }
    if (cut == 0) cut = reader->buffer.length - reader->at;
    if (cut > 0) CY_TRY(cy_text_add_bytes(text, reader->buffer.bytes + reader->at, cut));
    reader->at += cut;
    reader->done = reader->ended && reader->at == reader->buffer.length;
    *state = reader->done ? CY_DOCUMENT_ENDS : CY_DOCUMENT_GOES_ON;
    return CY_OK;
}

// ---- lines of JSON

static cy_status add_field(
    const cy_document_reader *reader, cy_text *text, const char *line, size_t bytes)
{
    json_error_t error;
    if (reader->line == 1 && bytes >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3; // the byte order mark that some editors write
        bytes -= 3;
    }
    json_t *root = json_loadb(line, bytes, JSON_ALLOW_NUL, &error);
    if (root == NULL) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: line %" PRId64 ", column %d: %s", reader->path,
            reader->line, error.column, error.text);
    }
    const json_t *value = json_object_get(root, reader->field);
    cy_status status;
    if (!json_is_string(value)) {
        status = CY_FAIL(CY_ERR_CORRUPT, "%s: line %" PRId64 ": no text in the field \"%s\"",
            reader->path, reader->line, reader->field);
        cy_error_set_hint("'cyclotron data prepare --field=NAME' takes another field for the text");
    } else {
        status = cy_text_add_bytes(text, json_string_value(value), json_string_length(value));
    }
    json_decref(root);
    return status;
}

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r' && line[i] != '\n') return false;
    }
    return true;
}

// Brings a line to the front of the buffer: *bytes, without its end. False at the end of the file.
static cy_status find_line(cy_document_reader *reader, size_t *bytes, bool *found)
{
    size_t searched = 0;
    for (;;) {
        const size_t left = reader->buffer.length - reader->at;
        const char *first = left > 0 ? reader->buffer.bytes + reader->at : NULL;
        const char *end = left > searched ? memchr(first + searched, '\n', left - searched) : NULL;
        if (end != NULL || reader->ended) {
            *bytes = end != NULL ? (size_t)(end - first) : left;
            *found = end != NULL || left > 0;
            return CY_OK;
        }
        if (left > LINE_LIMIT) {
            return CY_FAIL(CY_ERR_CORRUPT, "%s: line %" PRId64 " has more than %zu bytes",
                reader->path, reader->line + 1, LINE_LIMIT);
        }
        searched = left;
        CY_TRY(read_more(reader));
    }
}

static cy_status next_line(cy_document_reader *reader, cy_text *text, cy_document_state *state)
{
    for (;;) {
        size_t bytes = 0;
        bool found = false;
        CY_TRY(find_line(reader, &bytes, &found));
        if (!found) {
            *state = CY_DOCUMENT_NONE;
            return CY_OK;
        }
        const char *line = reader->buffer.bytes + reader->at;
        reader->line++;
        reader->at += bytes;
        if (reader->at < reader->buffer.length) reader->at++; // the newline
        if (is_blank(line, bytes)) continue;
        CY_TRY(add_field(reader, text, line, bytes));
        *state = CY_DOCUMENT_ENDS;
        return CY_OK;
    }
}

cy_status cy_document_next(cy_document_reader *reader, cy_text *text, cy_document_state *state)
{
    return reader->lines ? next_line(reader, text, state) : next_text(reader, text, state);
}
