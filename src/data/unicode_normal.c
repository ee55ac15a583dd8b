// Canonical composition, by the rules of Unicode Standard Annex 15.

#include "data/unicode.h"

#include "base/memory.h"

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

static uint32_t pair_whole(uint64_t pair)
{
    return (uint32_t)(pair >> 42 & POINT_MASK);
}

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

static bool find_pair(uint64_t *pair, uint32_t whole)
{
    size_t low = 0, high = cy_unicode_pairs_count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const uint32_t here = pair_whole(cy_unicode_pairs[middle]);
        if (here == whole) {
            *pair = cy_unicode_pairs[middle];
            return true;
        }
        if (here < whole) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}

static cy_status add(run *r, uint32_t point)
{
    void *block = r->points;
    CY_TRY(cy_memory_grow(&block, &r->capacity, r->count + 1, sizeof(*r->points)));
    r->points = block;
    // Combining marks are kept in order of their class, equal ones in order of the text.
    const int class = combining_class(point);
    size_t at = r->count++;
    while (class > 0 && at > 0 && combining_class(r->points[at - 1]) > class) {
        r->points[at] = r->points[at - 1];
        at--;
    }
    r->points[at] = point;
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
    // The table is in order of the whole; a search of it all is for marks only, which are rare.
    const uint64_t wanted = (uint64_t)1 << 63 | (uint64_t)first << 21 | second;
    for (size_t i = 0; i < cy_unicode_pairs_count; i++) {
        if ((cy_unicode_pairs[i] & ~((uint64_t)POINT_MASK << 42)) == wanted) {
            return pair_whole(cy_unicode_pairs[i]);
        }
    }
    return 0;
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
        if (classes[point] & CY_CHAR_MOVES) return at;
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
            if (at > moving && !(classes[point] & CY_CHAR_MOVES)) break;
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
