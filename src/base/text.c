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

void cy_text_free(cy_text *text)
{
    cy_memory_free(text->bytes);
    *text = (cy_text){0};
}
