// Writes scalars as records of TensorBoard's event files.
#define _GNU_SOURCE
#include "observe/tensorboard.h"

#include "base/io.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Field numbers and wire types of the protocol buffers Event, Summary and Summary.Value.
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_VERSION = 3,
    EVENT_SUMMARY = 5,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5,
};

#define CRC32C_POLYNOMIAL 0x82f63b78u // Castagnoli's, bits reversed
#define CRC_MASK_DELTA    0xa282ead8u
#define TRIES_MAX         1000
#define BACKLOG_BYTES     ((size_t)1 << 20)

uint32_t cy_crc32c(const void *bytes, size_t count)
{
    // Bit by bit: a record has some fifty bytes.
    const unsigned char *at = bytes;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < count; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (CRC32C_POLYNOMIAL & (0u - (crc & 1u)));
    }
    return ~crc;
}

static uint32_t masked(const void *bytes, size_t count)
{
    const uint32_t crc = cy_crc32c(bytes, count);
    return ((crc >> 15) | (crc << 17)) + CRC_MASK_DELTA;
}

static cy_status add_varint(cy_text *text, uint64_t value)
{
    unsigned char bytes[10];
    size_t count = 0;
    do {
        bytes[count] = (unsigned char)(value & 0x7fu);
        value >>= 7;
        if (value != 0) bytes[count] |= 0x80u;
        count++;
    } while (value != 0);
    return cy_text_add_bytes(text, bytes, count);
}

static cy_status add_key(cy_text *text, int field, int wire)
{
    return add_varint(text, (uint64_t)(field << 3 | wire));
}

// Copied as they are: the format is little-endian, and so are the machines.
static cy_status add_double(cy_text *text, int field, double value)
{
    CY_TRY(add_key(text, field, WIRE_64));
    return cy_text_add_bytes(text, &value, sizeof(value));
}

static cy_status add_field_bytes(cy_text *text, int field, const void *bytes, size_t count)
{
    CY_TRY(add_key(text, field, WIRE_BYTES));
    CY_TRY(add_varint(text, count));
    return cy_text_add_bytes(text, bytes, count);
}

// Adds the length and the checksums around the event in the record, which has room for the length
// before it.
static cy_status end_record(cy_text *record)
{
    const size_t head = sizeof(uint64_t) + sizeof(uint32_t);
    const uint64_t length = record->length - head;
    const uint32_t length_crc = masked(&length, sizeof(length));
    memcpy(record->bytes, &length, sizeof(length));
    memcpy(record->bytes + sizeof(length), &length_crc, sizeof(length_crc));
    const uint32_t crc = masked(record->bytes + head, (size_t)length);
    return cy_text_add_bytes(record, &crc, sizeof(crc));
}

static cy_status start_record(cy_text *record, double wall_time_s)
{
    static const char room[sizeof(uint64_t) + sizeof(uint32_t)];
    record->length = 0;
    CY_TRY(cy_text_add_bytes(record, room, sizeof(room)));
    return add_double(record, EVENT_WALL_TIME, wall_time_s);
}

// Makes an empty file under a name that is free.
static cy_status create(cy_text *path, const char *folder)
{
    char host[256] = "localhost";
    (void)gethostname(host, sizeof(host) - 1); // where it fails, the name has no host
    const long long now = (long long)time(NULL);
    for (int i = 0; i < TRIES_MAX; i++) {
        path->length = 0;
        CY_TRY(cy_text_add(path, "%s/events.out.tfevents.%lld.%s", folder, now, host));
        if (i > 0) CY_TRY(cy_text_add(path, ".%d", i));
        const int fd = cy_io_open(path->bytes, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC);
        if (fd >= 0) {
            cy_io_close(fd);
            return CY_OK;
        }
        if (errno != EEXIST) return CY_FAIL_ERRNO(CY_ERR_IO, "create %s", path->bytes);
    }
    return CY_FAIL(CY_ERR_IO, "%s: %d event files of this second", folder, TRIES_MAX);
}

static cy_status open_parts(cy_event_file *file, cy_text *path, const char *folder)
{
    static const char version[] = "brain.Event:2";
    cy_text *header = &file->record;
    CY_TRY(start_record(header, (double)time(NULL)));
    CY_TRY(add_field_bytes(header, EVENT_VERSION, version, sizeof(version) - 1));
    CY_TRY(end_record(header));
    CY_TRY(create(path, folder));
    const cy_async_target target = {
        .name = path->bytes,
        .path = path->bytes,
        .header = header->bytes,
        .header_bytes = header->length,
        .backlog_bytes = BACKLOG_BYTES,
    };
    return cy_async_writer_add(file->writer, &file->target, &target);
}

cy_status cy_event_file_open(cy_event_file *file, cy_async_writer *writer, const char *folder)
{
    cy_text path = {0};
    *file = (cy_event_file){.writer = writer};
    const cy_status status = open_parts(file, &path, folder);
    cy_text_free(&path);
    if (status != CY_OK) cy_event_file_close(file);
    return status;
}

void cy_event_file_close(cy_event_file *file)
{
    cy_text_free(&file->record);
    *file = (cy_event_file){0};
}

cy_status cy_event_file_scalar(
    cy_event_file *file, double wall_time_s, int64_t step, const char *tag, float value)
{
    // Inner messages are preceded by their lengths: value = key, tag, key, 4 bytes.
    const size_t tag_bytes = strlen(tag);
    const size_t value_bytes = 2 + tag_bytes + 1 + sizeof(value);
    if (value_bytes >= 120) {
        return CY_FAIL(CY_ERR_REQUEST, "a tag of %zu bytes is too long", tag_bytes);
    }
    cy_text *record = &file->record;
    CY_TRY(start_record(record, wall_time_s));
    CY_TRY(add_key(record, EVENT_STEP, WIRE_VARINT));
    CY_TRY(add_varint(record, (uint64_t)step));
    CY_TRY(add_key(record, EVENT_SUMMARY, WIRE_BYTES));
    CY_TRY(add_varint(record, value_bytes + 2));
    CY_TRY(add_key(record, SUMMARY_VALUE, WIRE_BYTES));
    CY_TRY(add_varint(record, value_bytes));
    CY_TRY(add_field_bytes(record, VALUE_TAG, tag, tag_bytes));
    CY_TRY(add_key(record, VALUE_SIMPLE, WIRE_32));
    CY_TRY(cy_text_add_bytes(record, &value, sizeof(value)));
    CY_TRY(end_record(record));
    cy_async_write(file->writer, file->target, record->bytes, record->length);
    return CY_OK;
}
