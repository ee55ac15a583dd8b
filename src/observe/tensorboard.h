// observe/tensorboard.h: scalars in TensorBoard's event files.
//
// A file is a sequence of records: length, its checksum, a protocol buffer, its checksum (CRC-32C,
// masked as TensorFlow's record format does). Each scalar is one record, written whole.
// One thread uses a file.

#ifndef CY_OBSERVE_TENSORBOARD_H
#define CY_OBSERVE_TENSORBOARD_H

#include "base/text.h"

#include <stdint.h>

typedef struct cy_events_file {
    int fd;         // owned; -1 when closed
    char *path;     // owned
    cy_text record; // owned; keeps its room, so a scalar allocates nothing
} cy_events_file;

// Makes FOLDER/events.out.tfevents.<seconds>.<host>; a file of that name gets a number behind it.
CY_MUST_CHECK cy_status cy_events_open(cy_events_file *file, const char *folder);
void cy_events_close(cy_events_file *file);

// wall_time_s counts seconds since 1970.
CY_MUST_CHECK cy_status cy_events_scalar(
    cy_events_file *file, double wall_time_s, int64_t step, const char *tag, float value);

// The checksum of the format, for tests: CRC-32C of bytes [count], not masked.
uint32_t cy_crc32c(const void *bytes, size_t count);

#endif
