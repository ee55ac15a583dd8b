#define _GNU_SOURCE
#include "data/document.h"

#include "base/memory.h"
#include "data/stream.h"
#include "tokenizer/unicode.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)1 << 20)

// A compressed file of some kilobytes can hold gigabytes of one line, which would all be in memory
// at once, several times over.
#define LINE_LIMIT  ((size_t)64 << 20)
#define WHOLE_LIMIT ((size_t)4 << 30) // of a text that may not be cut

struct cy_document_reader {
    cy_stream *stream;      // owned
    char *path;             // owned
    char *field;            // owned
    const uint8_t *classes; // borrowed or NULL
    bool lines;             // .jsonl
    cy_text buffer;         // read and not handed out: from `at`
    size_t at;
    int64_t line;
    size_t line_bytes; // of .txt: since the last newline that was read
    bool ended;        // the stream is at its end
    bool done;         // the last document was handed out
};

// Where the ending `.name` stands in a path, or NULL.
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
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(cy_document_reader)));
    cy_document_reader *made = block;
    made->classes = options->classes;
    cy_status status = look_at_name(made, path);
    if (status == CY_OK) status = cy_memory_copy_text(&made->path, path);
    if (status == CY_OK) {
        status =
            cy_memory_copy_text(&made->field, options->field != NULL ? options->field : "text");
    }
    if (status == CY_OK) status = cy_stream_open(&made->stream, path);
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
    cy_stream_close(reader->stream);
    cy_text_free(&reader->buffer);
    cy_memory_free(reader->path);
    cy_memory_free(reader->field);
    cy_memory_free(reader);
}

int64_t cy_document_position(const cy_document_reader *reader)
{
    return cy_stream_position(reader->stream);
}

// Reads more into the buffer, behind what is still to be handed out.
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
    CY_TRY(cy_stream_read(
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

// The last place in s [count] where a text may be cut, or 0: behind a newline with a character
// that is no space on either side. The last 4 bytes may be half a character.
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
        line += 3; // some editors begin with a mark
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

// A line without its end: *bytes of it at the front of the buffer. False at the end of the file.
static cy_status find_line(cy_document_reader *reader, size_t *bytes, bool *found)
{
    size_t searched = 0;
    for (;;) {
        const size_t left = reader->buffer.length - reader->at;
        const char *first = reader->buffer.bytes + reader->at;
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
