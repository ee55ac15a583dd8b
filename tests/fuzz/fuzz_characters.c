// Whatever bytes come, what goes out is UTF-8, and the same in one piece as in two.

#include "fuzz.h"

#include "infer/generate.h"

#include <stdlib.h>
#include <string.h>

static void feed(cy_text *out, const uint8_t *data, size_t size, size_t cut)
{
    cy_utf8_stream characters = {0};
    if (cy_utf8_stream_add(&characters, out, data, cut) != CY_OK) abort();
    if (cy_utf8_stream_add(&characters, out, data + cut, size - cut) != CY_OK) abort();
    if (cy_utf8_stream_finish(&characters, out) != CY_OK) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cy_text whole = {0}, parts = {0}, again = {0};
    feed(&whole, data, size, size);
    feed(&parts, data, size, size / 2);
    if (whole.length != parts.length) abort();
    if (whole.length > 0) {
        if (memcmp(whole.bytes, parts.bytes, whole.length) != 0) abort();
        // What is valid passes unchanged.
        feed(&again, (const uint8_t *)whole.bytes, whole.length, 1);
        if (again.length != whole.length) abort();
    }
    cy_text_free(&whole);
    cy_text_free(&parts);
    cy_text_free(&again);
    return 0;
}
