// Canonical composition, by the rules of Unicode Standard Annex 15.

#include "tokenizer/unicode.h"

#include "base/memory.h"

#include <string.h>

#define HANGUL_FIRST  0xac00u
#define HANGUL_COUNT  11172u
#define HANGUL_LEAD   0x1100u
#define HANGUL_VOWEL  0x1161u
#define HANGUL_TAIL   0x11a7u
#define HANGUL_VOWELS 21u
#define HANGUL_TAILS  28u
#define LEADS         19u
#define POINT_MASK    0x1fffffu

// Characters of a text between two starters.
typedef struct run {
    uint32_t *points; // owned
    size_t count;
    size_t capacity;
} run;

static int combining_class(uint32_t point)
{
    size_t low = 0, high = cy_unicode_combining_count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (cy_unicode_combining[middle] >> 8 <= point) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? 0 : (int)(cy_unicode_combining[low - 1] & 0xff);
}

// The place of the first entry of a table in ascending order that is not below `least`.
static size_t find(const uint64_t *table, size_t count, uint64_t least)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (table[middle] < least) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool find_pair(uint64_t *pair, uint32_t whole)
{
    const size_t at = find(cy_unicode_pairs, cy_unicode_pairs_count, (uint64_t)whole << 42);
    if (at == cy_unicode_pairs_count || cy_unicode_pairs[at] >> 42 != whole) return false;
    *pair = cy_unicode_pairs[at];
    return true;
}

static cy_status add(run *r, uint32_t point)
{
    void *block = r->points;
    CY_TRY(cy_memory_grow(&block, &r->capacity, r->count + 1, sizeof(*r->points)));
    r->points = block;
    r->points[r->count++] = point;
    return CY_OK;
}

// Marks, of which most texts have one or two behind each other, in order of their class, equal ones
// in order of the text. `sorted` has room for [count].
static void order_marks(uint32_t *points, uint32_t *sorted, size_t count)
{
    size_t of_class[257] = {0};
    for (size_t i = 0; i < count; i++)
        of_class[combining_class(points[i]) + 1]++;
    for (int i = 0; i < 256; i++)
        of_class[i + 1] += of_class[i];
    for (size_t i = 0; i < count; i++)
        sorted[of_class[combining_class(points[i])]++] = points[i];
    memcpy(points, sorted, count * sizeof(*points));
}

// Every stretch of marks between two starters.
static cy_status order(run *r)
{
    void *block = NULL;
    for (size_t first = 0; first < r->count;) {
        size_t end = first;
        bool moved = false;
        for (int last = 0; end < r->count; end++) {
            const int class = combining_class(r->points[end]);
            if (class == 0) break;
            moved = moved || class < last;
            last = class;
        }
        if (moved && block == NULL) CY_TRY(cy_memory_alloc(&block, r->count, sizeof(uint32_t)));
        if (moved) order_marks(r->points + first, block, end - first);
        first = end + 1;
    }
    cy_memory_free(block);
    return CY_OK;
}

static cy_status add_decomposed(run *r, uint32_t point)
{
    if (point - HANGUL_FIRST < HANGUL_COUNT) {
        const uint32_t index = point - HANGUL_FIRST;
        CY_TRY(add(r, HANGUL_LEAD + index / (HANGUL_VOWELS * HANGUL_TAILS)));
        CY_TRY(add(r, HANGUL_VOWEL + index / HANGUL_TAILS % HANGUL_VOWELS));
        return index % HANGUL_TAILS == 0 ? CY_OK : add(r, HANGUL_TAIL + index % HANGUL_TAILS);
    }
    uint32_t rest[8]; // second parts, outermost first; no character nests deeper than 4
    int depth = 0;
    uint64_t pair;
    while (depth < 8 && find_pair(&pair, point)) {
        point = (uint32_t)(pair >> 21 & POINT_MASK);
        if ((pair & POINT_MASK) != 0) rest[depth++] = (uint32_t)(pair & POINT_MASK);
    }
    CY_TRY(add(r, point));
    while (depth > 0)
        CY_TRY(add(r, rest[--depth]));
    return CY_OK;
}

// The one character that two compose to, or 0.
static uint32_t composed(uint32_t first, uint32_t second)
{
    if (first - HANGUL_LEAD < LEADS && second - HANGUL_VOWEL < HANGUL_VOWELS) {
        return HANGUL_FIRST +
            ((first - HANGUL_LEAD) * HANGUL_VOWELS + second - HANGUL_VOWEL) * HANGUL_TAILS;
    }
    if (first - HANGUL_FIRST < HANGUL_COUNT && (first - HANGUL_FIRST) % HANGUL_TAILS == 0 &&
        second > HANGUL_TAIL && second - HANGUL_TAIL < HANGUL_TAILS) {
        return first + (second - HANGUL_TAIL);
    }
    const uint64_t wanted = (uint64_t)first << 21 | second;
    const size_t at = find(cy_unicode_composing, cy_unicode_composing_count, wanted << 21);
    if (at == cy_unicode_composing_count || cy_unicode_composing[at] >> 21 != wanted) return 0;
    return (uint32_t)(cy_unicode_composing[at] & POINT_MASK);
}

static void compose(run *r)
{
    size_t kept = 0;
    size_t starter = SIZE_MAX;
    int last_class = -1; // of what was kept behind the starter; -1: nothing
    for (size_t i = 0; i < r->count; i++) {
        const uint32_t point = r->points[i];
        const int class = combining_class(point);
        const bool reaches = starter != SIZE_MAX && (last_class < class || last_class < 0);
        const uint32_t whole = reaches ? composed(r->points[starter], point) : 0;
        if (whole != 0) {
            r->points[starter] = whole;
            continue;
        }
        if (class == 0) {
            starter = kept;
            last_class = -1;
        } else {
            last_class = class;
        }
        r->points[kept++] = point;
    }
    r->count = kept;
}

static cy_status flush(cy_text *out, run *r)
{
    unsigned char bytes[4];
    CY_TRY(order(r));
    compose(r);
    for (size_t i = 0; i < r->count; i++) {
        CY_TRY(cy_text_add_bytes(out, bytes, cy_utf8_encode(bytes, r->points[i])));
    }
    r->count = 0;
    return CY_OK;
}

// The first character at or after `at` that composition may change; bytes where there is none.
static size_t find_moving(
    const uint8_t *classes, const unsigned char *text, size_t at, size_t bytes, size_t *before)
{
    uint32_t point;
    while (at < bytes) {
        if (text[at] < 0x80) {
            *before = at++;
            continue;
        }
        const size_t length = cy_utf8_decode(&point, text + at, bytes - at);
        if (classes[point] & CY_CHAR_NFC_MAYBE) return at;
        *before = at;
        at += length;
    }
    return bytes;
}

bool cy_unicode_is_composed(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    size_t before = 0;
    return find_moving(classes, text, 0, bytes, &before) == bytes;
}

cy_status cy_unicode_compose(
    cy_text *out, const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    run r = {0};
    cy_status status = CY_OK;
    size_t at = 0;
    while (at < bytes && status == CY_OK) {
        // What stands right before a moving character takes part; all before that is copied.
        size_t first = at;
        size_t moving = find_moving(classes, text, at, bytes, &first);
        if (moving == bytes) first = bytes;
        status = cy_text_add_bytes(out, text + at, first - at);
        at = first;
        while (at < bytes && status == CY_OK) {
            uint32_t point;
            const size_t length = cy_utf8_decode(&point, text + at, bytes - at);
            if (at > moving && !(classes[point] & CY_CHAR_NFC_MAYBE)) break;
            if (point == CY_UNICODE_INVALID) {
                status = cy_text_add_bytes(out, text + at, 1); // only before the moving one
            } else {
                status = add_decomposed(&r, point);
            }
            at += length;
        }
        if (status == CY_OK) status = flush(out, &r);
    }
    cy_memory_free(r.points);
    return status;
}
