// observe/tensorboard.h: writes scalars to TensorBoard's event files.
//
// A file is a sequence of records: length, its checksum, a protocol buffer, its checksum (CRC-32C,
// masked as TensorFlow's record format does). Each scalar is one record, which an asynchronous
// writer (async_writer.h) appends. One thread uses a file.

#ifndef CY_OBSERVE_TENSORBOARD_H
#define CY_OBSERVE_TENSORBOARD_H

#include "observe/async_writer.h"

#include <stdint.h>

typedef struct cy_event_file {
    cy_async_writer *writer; // borrowed; NULL when closed
    int target;              // the file's number there
    cy_text record;          // owned; keeps its room, so a scalar allocates nothing
} cy_event_file;

// Makes FOLDER/events.out.tfevents.<seconds>.<host>; where that name is taken, it adds a number.
CY_MUST_CHECK cy_status cy_event_file_open(
    cy_event_file *file, cy_async_writer *writer, const char *folder);
void cy_event_file_close(cy_event_file *file);

// wall_time_s counts seconds since 1970.
CY_MUST_CHECK cy_status cy_event_file_scalar(
    cy_event_file *file, double wall_time_s, int64_t step, const char *tag, float value);

// The checksum of the format, for tests: CRC-32C of bytes [count], not masked.
uint32_t cy_crc32c(const void *bytes, size_t count);

#endif
