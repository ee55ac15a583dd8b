// Builds texts, prints numbers as JSON has them, and finds the known name nearest to another.
#include "base/text.h"

#include "base/memory.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

// The length of the UTF-8 character at the start of bytes [count]; 0 where there is none.
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
    // Overlong forms, surrogates, and numbers beyond the last character.
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

// ---- numbers

void cy_number_set_point(char *printed)
{
    char *out = printed;
    for (const char *c = printed; *c != '\0'; c++) {
        const bool plain = (*c >= '0' && *c <= '9') || *c == '-' || *c == '+' || *c == 'e';
        const bool again =
            !plain && out > printed && out[-1] == '.'; // a decimal mark of several bytes
        if (!again) *out++ = plain ? *c : '.';
    }
    *out = '\0';
}

cy_json_text cy_json_number(double value, int digits)
{
    cy_json_text text;
    if (!isfinite(value)) return (cy_json_text){"null"};
    snprintf(text.bytes, sizeof(text.bytes), "%.*g", digits, value);
    cy_number_set_point(text.bytes);
    return text;
}

cy_json_text cy_json_number_shortest(double value)
{
    cy_json_text text;
    if (!isfinite(value)) return (cy_json_text){"null"};
    if (value == 0 && signbit(value))
        return (cy_json_text){"-0.0"}; // printing as a whole number would drop the sign
    if (value == nearbyint(value) && fabs(value) < 1e15) {
        snprintf(text.bytes, sizeof(text.bytes), "%.0f", value);
        return text;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text.bytes, sizeof(text.bytes), "%.*g", digits, value);
        if (strtod(text.bytes, NULL) == value) break;
    }
    cy_number_set_point(text.bytes);
    return text;
}

// ---- the nearest name

#define LONGEST 63

static int letter(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

int cy_edit_distance(const char *a, const char *b)
{
    const size_t rows = strlen(a);
    const size_t cols = strlen(b);
    if (rows > LONGEST || cols > LONGEST) return strcmp(a, b) == 0 ? 0 : LONGEST;

    // Three rows of the table of prefixes: a swap of neighbours needs the row two above.
    int table[3][LONGEST + 1] = {{0}};
    for (size_t j = 0; j <= cols; j++)
        table[0][j] = (int)j;
    for (size_t i = 1; i <= rows; i++) {
        int *row = table[i % 3];
        const int *above = table[(i - 1) % 3];
        const int *two_above = table[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= cols; j++) {
            const int cost = letter(a[i - 1]) != letter(b[j - 1]);
            row[j] = least(least(above[j] + 1, row[j - 1] + 1), above[j - 1] + cost);
            const int is_swap = i > 1 && j > 1 && letter(a[i - 1]) == letter(b[j - 2]) &&
                letter(a[i - 2]) == letter(b[j - 1]);
            if (is_swap) row[j] = least(row[j], two_above[j - 2] + 1);
        }
    }
    return table[rows % 3][cols];
}

// Whether each word of `name` (parts between `_` and `-`) is in `in`: "num_layers" in
// "num_hidden_layers". Words of fewer than three letters do not count.
static int has_words(const char *in, const char *name)
{
    int found = 0;
    while (*name != '\0') {
        const size_t length = strcspn(name, "_-");
        char word[LONGEST + 1];
        if (length >= 3 && length <= LONGEST) {
            memcpy(word, name, length);
            word[length] = '\0';
            if (strstr(in, word) == NULL) return 0;
            found += (int)length;
        }
        name += length;
        if (*name != '\0') name++;
    }
    return found >= 4;
}

// Whether two names differ too much; `longer` is the length of the longer one.
static int is_far(int distance, size_t longer)
{
    return distance > 2 && (size_t)distance * 5 > longer * 2;
}

const char *cy_nearest(const char *name, const char *const *names, size_t count)
{
    const char *best = NULL;
    int best_distance = 0;
    const size_t length = strlen(name);
    if (length > LONGEST) return NULL;
    for (size_t i = 0; i < count; i++) {
        const size_t other = strlen(names[i]);
        const size_t longer = other > length ? other : length;
        const int words = has_words(names[i], name);
        // The distance is at least the difference of the lengths, which excludes most names.
        if (!words && is_far((int)(longer - (other < length ? other : length)), longer)) continue;
        int distance = cy_edit_distance(name, names[i]);
        // A shortened name ("layers" for "num_hidden_layers") counts as at most two changes.
        if (words) distance = least(distance, 2);
        if (is_far(distance, longer) || (size_t)distance >= longer) continue;
        if (best == NULL || distance < best_distance) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}
