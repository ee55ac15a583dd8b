// Classifies characters for the pre-tokenizer and composes text to NFC, by utf8proc.

#include "tokenizer/unicode.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>
#include <utf8proc.h>

// ---- UTF-8

size_t cy_utf8_decode_before(uint32_t *point, const unsigned char *s, size_t end)
{
    for (size_t back = 1; back <= 4 && back <= end; back++) {
        if ((s[end - back] & 0xc0) == 0x80) continue;
        if (cy_utf8_decode(point, s + end - back, back) == back) return back;
        break;
    }
    *point = CY_UNICODE_INVALID;
    return 1;
}

size_t cy_utf8_encode(unsigned char *s, uint32_t point)
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)point, s);
}

// The alphabet of GPT-2, which all byte-level tokenizers share: printable characters of Latin-1
// spell themselves, U+0100 to U+0143 spell the 68 other bytes in order.
static bool stands_for_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
        (byte >= 0xae && byte <= 0xff);
}

uint32_t cy_char_of_byte(int byte)
{
    const uint32_t b = (uint32_t)byte;
    if (stands_for_itself(b)) return b;
    if (b <= 0x20) return 0x100 + b;
    if (b <= 0xa0) return 0x100 + 0x21 + (b - 0x7f);
    return 0x100 + 67; // 0xad, the soft hyphen
}

int cy_byte_of_char(uint32_t point)
{
    if (point < 0x100) return stands_for_itself(point) ? (int)point : -1;
    if (point <= 0x120) return (int)(point - 0x100);
    if (point <= 0x142) return (int)(point - 0x121 + 0x7f);
    return point == 0x143 ? 0xad : -1;
}

// ---- classes

enum {
    LETTER = CY_CHAR_LETTER | CY_CHAR_WORD,
    NUMBER = CY_CHAR_NUMBER | CY_CHAR_NUMERIC,
    DIGIT = NUMBER | CY_CHAR_WORD,
    SPACE = CY_CHAR_SPACE | CY_CHAR_STRIP,
};

static const uint8_t class_of_category[] = {
    [UTF8PROC_CATEGORY_LU] = LETTER,
    [UTF8PROC_CATEGORY_LL] = LETTER,
    [UTF8PROC_CATEGORY_LT] = LETTER,
    [UTF8PROC_CATEGORY_LM] = LETTER,
    [UTF8PROC_CATEGORY_LO] = LETTER,
    [UTF8PROC_CATEGORY_MN] = CY_CHAR_WORD,
    [UTF8PROC_CATEGORY_MC] = CY_CHAR_WORD,
    [UTF8PROC_CATEGORY_ME] = CY_CHAR_WORD,
    [UTF8PROC_CATEGORY_ND] = DIGIT,
    [UTF8PROC_CATEGORY_NL] = DIGIT,
    [UTF8PROC_CATEGORY_NO] = NUMBER,
    [UTF8PROC_CATEGORY_PC] = CY_CHAR_WORD,
    [UTF8PROC_CATEGORY_ZS] = SPACE,
    [UTF8PROC_CATEGORY_ZL] = SPACE,
    [UTF8PROC_CATEGORY_ZP] = SPACE,
    [UTF8PROC_CATEGORY_CO] = 0, // the last category
};

typedef struct exception {
    uint32_t first;
    uint32_t last;
    uint8_t class; // in addition to that of the category
} exception;

static const exception exceptions[] = {
    // Spaces that are control characters.
    {0x9, 0xd, SPACE},
    {0x85, 0x85, SPACE},
    // Joiners, and enclosed letters, which are symbols with the property Alphabetic.
    {0x200c, 0x200d, CY_CHAR_WORD},
    {0x24b6, 0x24e9, CY_CHAR_WORD},
    {0x1f130, 0x1f149, CY_CHAR_WORD},
    {0x1f150, 0x1f169, CY_CHAR_WORD},
    {0x1f170, 0x1f189, CY_CHAR_WORD},
    // Hangul vowels and final consonants, which NFC joins to the character before them.
    {0x1161, 0x1175, CY_CHAR_NFC_MAYBE},
    {0x11a8, 0x11c2, CY_CHAR_NFC_MAYBE},
};

// Characters of Unicode 15.1 to 17.0, which utf8proc may be too old to know.
// docs/decisions/unicode-from-utf8proc.md gives the reason.
static const exception later[] = {{0x897, 0x897, CY_CHAR_WORD}, {0x1c89, 0x1c8a, LETTER},
    {0xa7cb, 0xa7cd, LETTER}, {0xa7da, 0xa7dc, LETTER}, {0x105c0, 0x105f3, LETTER},
    {0x10d40, 0x10d49, DIGIT}, {0x10d4a, 0x10d65, LETTER}, {0x10d69, 0x10d6d, CY_CHAR_WORD},
    {0x10d6f, 0x10d85, LETTER}, {0x10ec2, 0x10ec4, LETTER}, {0x10efc, 0x10efc, CY_CHAR_WORD},
    {0x11380, 0x11389, LETTER}, {0x1138b, 0x1138b, LETTER}, {0x1138e, 0x1138e, LETTER},
    {0x11390, 0x113b5, LETTER}, {0x113b7, 0x113b7, LETTER}, {0x113b8, 0x113c0, CY_CHAR_WORD},
    {0x113c2, 0x113c2, CY_CHAR_WORD}, {0x113c5, 0x113c5, CY_CHAR_WORD},
    {0x113c7, 0x113ca, CY_CHAR_WORD}, {0x113cc, 0x113d0, CY_CHAR_WORD}, {0x113d1, 0x113d1, LETTER},
    {0x113d2, 0x113d2, CY_CHAR_WORD}, {0x113d3, 0x113d3, LETTER}, {0x113e1, 0x113e2, CY_CHAR_WORD},
    {0x116d0, 0x116e3, DIGIT}, {0x11bc0, 0x11be0, LETTER}, {0x11bf0, 0x11bf9, DIGIT},
    {0x11de0, 0x11de9, CY_CHAR_NUMERIC}, {0x11f5a, 0x11f5a, CY_CHAR_WORD},
    {0x13460, 0x143fa, LETTER}, {0x16100, 0x1611d, LETTER}, {0x1611e, 0x1612f, CY_CHAR_WORD},
    {0x16130, 0x16139, DIGIT}, {0x16d40, 0x16d6c, LETTER}, {0x16d70, 0x16d79, DIGIT},
    {0x16ff4, 0x16ff6, CY_CHAR_NUMERIC}, {0x18cff, 0x18cff, LETTER}, {0x1ccf0, 0x1ccf9, DIGIT},
    {0x1e5d0, 0x1e5ed, LETTER}, {0x1e5ee, 0x1e5ef, CY_CHAR_WORD}, {0x1e5f0, 0x1e5f0, LETTER},
    {0x1e5f1, 0x1e5fa, DIGIT}, {0x2ebf0, 0x2ee5d, LETTER}};

#define DECOMPOSED_MAX 8 // Unicode has at most 4

// Writes the canonical decomposition of a character into parts [DECOMPOSED_MAX]; returns how many.
static size_t decompose(int32_t *parts, uint32_t point)
{
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char((utf8proc_int32_t)point, parts, DECOMPOSED_MAX, options, &boundary);
    CY_ASSERT(count >= 1 && count <= DECOMPOSED_MAX);
    return (size_t)count;
}

// Composes points [count], which are decomposed and in canonical order, in place.
static size_t compose(int32_t *points, size_t count)
{
    const utf8proc_ssize_t left = utf8proc_normalize_utf32(
        points, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    CY_ASSERT(left >= 0 && (size_t)left <= count);
    return (size_t)left;
}

static void classify(uint8_t *classes, uint32_t point)
{
    const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)point);
    classes[point] |= class_of_category[property->category];
    if (property->combining_class != 0) classes[point] |= CY_CHAR_NFC_MAYBE;
    if (property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0) return;
    int32_t parts[DECOMPOSED_MAX];
    const size_t count = decompose(parts, point);
    const uint32_t last = (uint32_t)parts[count - 1];
    const bool composes = compose(parts, count) == 1 && parts[0] == (int32_t)point;
    classes[composes ? last : point] |= CY_CHAR_NFC_MAYBE;
}

static void add_exceptions(uint8_t *classes, const exception *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (uint32_t point = list[i].first; point <= list[i].last; point++)
            classes[point] |= list[i].class;
    }
}

void cy_unicode_classify(uint8_t *classes)
{
    // Planes 4 to 13 hold no characters; those of planes 15 and 16 are private and in no class.
    static const uint32_t planes[] = {0, 1, 2, 3, 14};
    for (size_t i = 0; i < sizeof(planes) / sizeof(planes[0]); i++) {
        for (uint32_t low = 0; low < 0x10000; low++)
            classify(classes, planes[i] << 16 | low);
    }
    add_exceptions(classes, exceptions, sizeof(exceptions) / sizeof(exceptions[0]));
    add_exceptions(classes, later, sizeof(later) / sizeof(later[0]));
}

// ---- canonical composition, by the rules of Unicode Standard Annex 15

// A starter and what follows it, up to a character that composition leaves alone.
typedef struct run {
    int32_t *points; // owned
    size_t count;
    size_t capacity;
} run;

static int combining_class(int32_t point)
{
    return utf8proc_get_property(point)->combining_class;
}

static cy_status add_decomposed(run *r, uint32_t point)
{
    void *block = r->points;
    const size_t wanted = r->count + DECOMPOSED_MAX;
    CY_TRY(cy_memory_grow(&block, &r->capacity, wanted, sizeof(*r->points)));
    r->points = block;
    r->count += decompose(r->points + r->count, point);
    return CY_OK;
}

// Sorts marks by their combining class and keeps the order of equal ones: a counting sort, because
// a text may be all marks. `sorted` has room for [count].
static void order_marks(int32_t *points, int32_t *sorted, size_t count)
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

// Puts the marks between each two starters into canonical order.
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
        if (moved && block == NULL) CY_TRY(cy_memory_alloc(&block, r->count, sizeof(int32_t)));
        if (moved) order_marks(r->points + first, block, end - first);
        first = end + 1;
    }
    cy_memory_free(block);
    return CY_OK;
}

static cy_status flush(cy_text *out, run *r)
{
    unsigned char bytes[4];
    CY_TRY(order(r));
    r->count = compose(r->points, r->count);
    for (size_t i = 0; i < r->count; i++) {
        CY_TRY(cy_text_add_bytes(out, bytes, cy_utf8_encode(bytes, (uint32_t)r->points[i])));
    }
    r->count = 0;
    return CY_OK;
}

// Finds the first character at or after `at` that composition may change, `bytes` where there is
// none. *before becomes the place of the character before it.
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
        // The character before the first one that may change takes part. The rest is copied.
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
                status = cy_text_add_bytes(out, text + at, 1); // it is the character before
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
