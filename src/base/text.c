#include "base/text.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static cy_status reserve(cy_text *text, size_t extra)
{
    void *block = text->bytes;
    CY_TRY(cy_memory_grow(&block, &text->capacity, text->length + extra + 1, 1));
    text->bytes = block;
    return CY_OK;
}

cy_status cy_text_add(cy_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) return CY_FAIL(CY_ERR_REQUEST, "a text could not be formatted");
    CY_TRY(reserve(text, (size_t)length));
    va_start(arguments, format);
    vsnprintf(text->bytes + text->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)length;
    return CY_OK;
}

cy_status cy_text_add_bytes(cy_text *text, const void *bytes, size_t count)
{
    CY_TRY(reserve(text, count));
    if (count > 0) memcpy(text->bytes + text->length, bytes, count);
    text->length += count;
    text->bytes[text->length] = '\0';
    return CY_OK;
}

// Bytes of the UTF-8 character at the start of bytes [count], or 0 where there is none.
static size_t character_length(const unsigned char *bytes, size_t count)
{
    static const unsigned char least_second[] = {[0xe0 - 0xe0] = 0xa0, [0xf0 - 0xe0] = 0x90};
    static const unsigned char most_second[] = {[0xed - 0xe0] = 0x9f, [0xf4 - 0xe0] = 0x8f};
    const unsigned char first = bytes[0];
    if (first < 0x80) return 1;
    const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || length > count) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) return 0;
    }
    // Longer forms than needed, surrogates, and numbers beyond the last character.
    const size_t row = first >= 0xe0 ? (size_t)(first - 0xe0) : sizeof(least_second);
    if (row < sizeof(least_second) && bytes[1] < least_second[row]) return 0;
    if (row < sizeof(most_second) && most_second[row] != 0 && bytes[1] > most_second[row]) {
        return 0;
    }
    return length;
}

cy_status cy_text_add_json_string(cy_text *text, const char *bytes, size_t count)
{
    const unsigned char *at = (const unsigned char *)bytes;
    CY_TRY(cy_text_add_bytes(text, "\"", 1));
    for (size_t i = 0; i < count;) {
        const size_t length = character_length(at + i, count - i);
        if (length == 0) {
            CY_TRY(cy_text_add_bytes(text, "\xef\xbf\xbd", 3));
            i++;
            continue;
        }
        if (at[i] == '"' || at[i] == '\\') {
            CY_TRY(cy_text_add(text, "\\%c", at[i]));
        } else if (at[i] < 0x20) {
            CY_TRY(cy_text_add(text, "\\u%04x", at[i]));
        } else {
            CY_TRY(cy_text_add_bytes(text, at + i, length));
        }
        i += length;
    }
    return cy_text_add_bytes(text, "\"", 1);
}

const char *cy_list_items(const cy_text *lines, int count)
{
    return count == 1 ? lines->bytes + strlen("\n  -") : lines->bytes;
}

void cy_text_free(cy_text *text)
{
    cy_memory_free(text->bytes);
    *text = (cy_text){0};
}
