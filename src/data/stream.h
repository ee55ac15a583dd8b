// data/stream.h: the bytes of a file from its beginning to its end, decompressed where its name
// ends in .gz or .zst.

#ifndef CY_DATA_STREAM_H
#define CY_DATA_STREAM_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct cy_stream cy_stream;

// *stream is owned by the caller.
CY_MUST_CHECK cy_status cy_stream_open(cy_stream **stream, const char *path);
void cy_stream_close(cy_stream *stream);

// Up to `room` bytes; *count is 0 at the end only. A file that ends within compressed data, or that
// was cut or written to since it was opened, is CY_ERR_CORRUPT.
CY_MUST_CHECK cy_status cy_stream_read(cy_stream *stream, void *bytes, size_t room, size_t *count);

// Bytes of the file itself that were read so far.
int64_t cy_stream_position(const cy_stream *stream);

#endif
