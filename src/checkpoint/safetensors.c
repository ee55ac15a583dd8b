// Reads and checks the header of a safetensors file, and makes one.

#define _GNU_SOURCE
#include "checkpoint/safetensors.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- reading

static const struct {
    const char *name;
    cy_dtype dtype;
} dtypes[] = {
    {"F32", CY_F32},
    {"F64", CY_F64},
    {"BF16", CY_BF16},
    {"F16", CY_F16},
    {"I32", CY_I32},
    {"I64", CY_I64},
    {"U8", CY_U8},
};
#define DTYPE_COUNT (sizeof(dtypes) / sizeof(dtypes[0]))

const char *cy_safetensors_dtype_name(cy_dtype dtype)
{
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    }
    return NULL;
}

static cy_status read_dtype(
    cy_safetensors_entry *entry, const char *path, const char *name, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text == NULL) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: tensor %s: dtype is missing or not a text", path, name);
    }
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, text) == 0) {
            entry->dtype = dtypes[i].dtype;
            return CY_OK;
        }
    }
    return CY_FAIL(CY_ERR_CORRUPT,
        "%s: tensor %s: dtype %.16s is not one of F64, F32, F16, BF16, I64, I32, U8", path, name,
        text);
}

// Reads the shape and computes the number of bytes.
static cy_status read_shape(
    cy_safetensors_entry *entry, const char *path, const char *name, const json_t *value)
{
    if (!json_is_array(value)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: tensor %s: shape is missing or not a list", path, name);
    }
    const size_t dimensions = json_array_size(value);
    if (dimensions > CY_SAFETENSORS_DIMENSIONS) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: tensor %s: %zu dimensions, at most %d are read", path,
            name, dimensions, CY_SAFETENSORS_DIMENSIONS);
    }
    uint64_t bytes = cy_dtype_size(entry->dtype);
    for (size_t i = 0; i < dimensions; i++) {
        const json_t *dim = json_array_get(value, i);
        const json_int_t length = json_integer_value(dim);
        if (!json_is_integer(dim) || length < 0) {
            return CY_FAIL(CY_ERR_CORRUPT,
                "%s: tensor %s: dimension %zu of its shape is not a count", path, name, i);
        }
        entry->dims[i] = length;
        if (length > 0 && bytes > (uint64_t)INT64_MAX / (uint64_t)length) {
            return CY_FAIL(
                CY_ERR_CORRUPT, "%s: tensor %s: a shape of more than 2^63 bytes", path, name);
        }
        bytes *= (uint64_t)length;
    }
    entry->dimensions = (int)dimensions;
    entry->bytes = bytes;
    return CY_OK;
}

static cy_status read_range(cy_safetensors_entry *entry, const cy_safetensors *file,
    const char *path, const char *name, const json_t *value)
{
    const json_t *from = json_array_get(value, 0);
    const json_t *to = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(from) || !json_is_integer(to) ||
        json_integer_value(from) < 0 || json_integer_value(to) < json_integer_value(from)) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: tensor %s: data_offsets is not a list of two ascending counts", path, name);
    }
    const uint64_t begin = (uint64_t)json_integer_value(from);
    const uint64_t end = (uint64_t)json_integer_value(to);
    const uint64_t room = file->file_bytes - file->data_first;
    if (end > room) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: tensor %s ends at byte %" PRIu64 " of the data, the file holds %" PRIu64, path,
            name, end, room);
    }
    if (end - begin != entry->bytes) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: tensor %s: %" PRIu64 " bytes of data, its shape needs %" PRIu64, path, name,
            end - begin, entry->bytes);
    }
    entry->offset = file->data_first + begin;
    return CY_OK;
}

static cy_status read_entry(
    cy_safetensors *file, const char *path, const char *name, const json_t *value)
{
    if (!json_is_object(value)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: tensor %s is not an object", path, name);
    }
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)cy_memory_writable(value), key, member)
    {
        if (strcmp(key, "dtype") == 0 || strcmp(key, "shape") == 0) continue;
        if (strcmp(key, "data_offsets") == 0) continue;
        return CY_FAIL(CY_ERR_CORRUPT, "%s: tensor %s: unknown key %s", path, name, key);
    }
    cy_safetensors_entry *entry = &file->entries[file->count];
    CY_TRY(read_dtype(entry, path, name, json_object_get(value, "dtype")));
    CY_TRY(read_shape(entry, path, name, json_object_get(value, "shape")));
    CY_TRY(read_range(entry, file, path, name, json_object_get(value, "data_offsets")));
    CY_TRY(cy_memory_copy_text(&entry->name, name));
    file->count++;
    return CY_OK;
}

static cy_status read_metadata(cy_safetensors *file, const char *path, json_t *value)
{
    const char *key;
    json_t *member;
    if (!json_is_object(value)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: __metadata__ is not an object", path);
    }
    json_object_foreach(value, key, member)
    {
        if (!json_is_string(member)) {
            return CY_FAIL(CY_ERR_CORRUPT, "%s: __metadata__: %s is not a text", path, key);
        }
    }
    cy_text text = {0};
    const cy_status status = cy_json_add(&text, json_incref(value), JSON_COMPACT);
    if (status != CY_OK) {
        cy_text_free(&text);
        return status;
    }
    file->metadata = text.bytes;
    return CY_OK;
}

static int by_offset(const void *left, const void *right)
{
    const cy_safetensors_entry *a = left;
    const cy_safetensors_entry *b = right;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

// Checks that the tensors follow each other without gap or overlap and fill the file.
static cy_status check_layout(cy_safetensors *file, const char *path)
{
    if (file->count > 0) {
        qsort(file->entries, (size_t)file->count, sizeof(*file->entries), by_offset);
    }
    uint64_t next = file->data_first;
    for (int i = 0; i < file->count; i++) {
        const cy_safetensors_entry *entry = &file->entries[i];
        if (entry->offset < next) {
            return CY_FAIL(CY_ERR_CORRUPT, "%s: tensors %s and %s overlap by %" PRIu64 " bytes",
                path, file->entries[i - 1].name, entry->name, next - entry->offset);
        }
        if (entry->offset > next) {
            return CY_FAIL(CY_ERR_CORRUPT,
                "%s: %" PRIu64 " bytes before tensor %s belong to no tensor", path,
                entry->offset - next, entry->name);
        }
        next = entry->offset + entry->bytes;
    }
    if (next != file->file_bytes) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: %" PRIu64 " bytes after the last tensor%s%s", path,
            file->file_bytes - next, file->count > 0 ? " " : "",
            file->count > 0 ? file->entries[file->count - 1].name : "");
    }
    return CY_OK;
}

static uint64_t read_length(const unsigned char *bytes)
{
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | bytes[i];
    return length;
}

static cy_status check_length(const char *path, uint64_t length, uint64_t file_bytes)
{
    if (length > CY_SAFETENSORS_HEADER_MAX) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: a header of %" PRIu64 " bytes, at most %" PRIu64
            " are read: not a safetensors file",
            path, length, CY_SAFETENSORS_HEADER_MAX);
    }
    if (length > file_bytes - 8) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: a header of %" PRIu64 " bytes in a file of %" PRIu64 " bytes", path, length,
            file_bytes);
    }
    return CY_OK;
}

static cy_status read_members(cy_safetensors *file, const char *path, json_t *root)
{
    const char *name;
    json_t *value;
    void *entries = NULL;
    CY_TRY(cy_memory_alloc(&entries, json_object_size(root), sizeof(cy_safetensors_entry)));
    file->entries = entries;
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, "__metadata__") == 0) {
            CY_TRY(read_metadata(file, path, value));
        } else {
            CY_TRY(read_entry(file, path, name, value));
        }
    }
    return check_layout(file, path);
}

cy_status cy_safetensors_parse(
    cy_safetensors *out, const char *path, const void *bytes, size_t count, uint64_t file_bytes)
{
    if (file_bytes < 8 || count < 8) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: %" PRIu64 " bytes cannot hold a safetensors header",
            path, file_bytes);
    }
    const uint64_t length = read_length(bytes);
    CY_TRY(check_length(path, length, file_bytes));
    CY_ASSERT(count - 8 >= length);

    const char *text = (const char *)bytes + 8;
    if (length == 0 || text[0] != '{') {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: the header does not begin with {", path);
    }
    json_error_t error;
    json_t *root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: header, byte %d: %s", path, error.position, error.text);
    }
    cy_safetensors file = {.data_first = 8 + length, .file_bytes = file_bytes};
    const cy_status status = read_members(&file, path, root);
    json_decref(root);
    if (status != CY_OK) {
        cy_safetensors_close(&file);
        return status;
    }
    *out = file;
    return CY_OK;
}

// Reads `count` bytes from the start of a file.
static cy_status read_start(int fd, const char *path, void *bytes, size_t count)
{
    size_t done = 0;
    while (done < count) {
        const ssize_t got = cy_io_pread(fd, (char *)bytes + done, count - done, (int64_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "read %s", path);
        if (got == 0) return CY_FAIL(CY_ERR_CORRUPT, "%s: shorter than it was", path);
        done += (size_t)got;
    }
    return CY_OK;
}

cy_status cy_safetensors_open(cy_safetensors *file, const char *path)
{
    unsigned char start[8];
    struct stat info;
    void *header = NULL;
    cy_status status;

    int fd = -1;
    CY_TRY(cy_file_open(&fd, path));
    if (cy_io_fstat(fd, &info) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "stat %s", path);
        goto close_fd;
    }
    const uint64_t file_bytes = (uint64_t)info.st_size;
    if (file_bytes < sizeof(start)) {
        status = CY_FAIL(CY_ERR_CORRUPT, "%s: %" PRIu64 " bytes cannot hold a safetensors header",
            path, file_bytes);
        goto close_fd;
    }
    status = read_start(fd, path, start, sizeof(start));
    if (status != CY_OK) goto close_fd;
    const uint64_t length = read_length(start);
    status = check_length(path, length, file_bytes);
    if (status != CY_OK) goto close_fd;
    status = cy_memory_alloc(&header, (size_t)length + 8, 1);
    if (status != CY_OK) goto close_fd;
    status = read_start(fd, path, header, (size_t)length + 8);
    if (status == CY_OK) {
        status = cy_safetensors_parse(file, path, header, (size_t)length + 8, file_bytes);
    }
    cy_memory_free(header);
close_fd:
    cy_io_close(fd);
    return status;
}

void cy_safetensors_close(cy_safetensors *file)
{
    for (int i = 0; i < file->count; i++)
        cy_memory_free(file->entries[i].name);
    cy_memory_free(file->entries);
    cy_memory_free(file->metadata);
    *file = (cy_safetensors){0};
}

const cy_safetensors_entry *cy_safetensors_find(const cy_safetensors *file, const char *name)
{
    for (int i = 0; i < file->count; i++) {
        if (strcmp(file->entries[i].name, name) == 0) return &file->entries[i];
    }
    return NULL;
}

// ---- writing

#define DATA_ALIGN 64

cy_status cy_safetensors_name_to_json(json_t **value, const char *name, const char *what)
{
    json_t *string = cy_json_string(name, strlen(name));
    if (string != NULL && strcmp(json_string_value(string), name) != 0) {
        json_decref(string);
        return CY_FAIL(CY_ERR_REQUEST, "%s is not UTF-8", what);
    }
    *value = string;
    return CY_OK;
}

static cy_status add_entry(cy_text *text, cy_safetensors_entry *entry, uint64_t offset)
{
    const char *dtype = cy_safetensors_dtype_name(entry->dtype);
    CY_ASSERT(dtype != NULL);
    json_t *name = NULL;
    CY_TRY(cy_safetensors_name_to_json(&name, entry->name, "a tensor's name"));
    json_t *shape = json_array();
    uint64_t bytes = cy_dtype_size(entry->dtype);
    for (int i = 0; i < entry->dimensions; i++) {
        cy_json_append(&shape, json_integer(entry->dims[i]));
        bytes *= (uint64_t)entry->dims[i];
    }
    entry->offset = offset; // counts from the data until the header's length is known
    entry->bytes = bytes;
    json_t *tensor = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", shape,
        "data_offsets", (json_int_t)offset, (json_int_t)(offset + bytes));
    cy_status status = cy_json_add(text, name, JSON_COMPACT);
    if (status == CY_OK) status = cy_text_add(text, ":");
    if (status == CY_OK) return cy_json_add(text, tensor, JSON_COMPACT);
    json_decref(tensor);
    return status;
}

// Entry by entry: a header of many tensors would take much more memory as one value.
cy_status cy_safetensors_header(
    cy_text *header, cy_safetensors_entry *entries, int count, const char *metadata)
{
    char length_bytes[8] = {0};
    CY_ASSERT(header->length == 0);
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
    const size_t ragged = header->length % DATA_ALIGN;
    if (ragged > 0) CY_TRY(cy_text_add(header, "%*s", (int)(DATA_ALIGN - ragged), ""));

    const uint64_t total = header->length;
    for (int i = 0; i < 8; i++)
        header->bytes[i] = (char)((total - 8) >> (8 * i));
    for (int i = 0; i < count; i++)
        entries[i].offset += total;
    return CY_OK;
}
