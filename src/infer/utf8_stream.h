// infer/utf8_stream.h: decoded bytes as whole characters, as they come.
//
// A token's bytes may end in the middle of a character. This hands on whole UTF-8 characters
// and holds back at most three bytes until the rest has come. Bytes that can never become a
// character are replaced by U+FFFD, one for each longest beginning of a character that was cut off
// (Unicode, "Substitution of maximal subparts"), so what comes out is always valid UTF-8, and is
// the same however the bytes were cut into pieces. Plain data; one thread uses it.

#ifndef CY_INFER_UTF8_STREAM_H
#define CY_INFER_UTF8_STREAM_H

#include "base/text.h"

// Start from a zeroed struct.
typedef struct cy_utf8_stream {
    unsigned char held[4]; // [held_count]: the beginning of a character
    int held_count;
} cy_utf8_stream;

// Appends to `out` the characters that bytes [count] complete.
CY_MUST_CHECK cy_status cy_utf8_stream_add(
    cy_utf8_stream *characters, cy_text *out, const void *bytes, size_t count);

// The end: what is still held will not be completed.
CY_MUST_CHECK cy_status cy_utf8_stream_finish(cy_utf8_stream *characters, cy_text *out);

#endif
