#include "tokenizer/added_vocabulary.h"

#include "base/memory.h"
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

void cy_added_free(cy_added_vocabulary *set)
{
    for (size_t i = 0; i < set->count; i++)
        cy_memory_free(set->tokens[i].text);
    cy_memory_free(set->tokens);
    *set = (cy_added_vocabulary){0};
}

cy_status cy_added_put(cy_added_vocabulary *set, const cy_added_token *token)
{
    void *block = set->tokens;
    CY_TRY(cy_memory_grow(&block, &set->capacity, set->count + 1, sizeof(*token)));
    set->tokens = block;
    set->tokens[set->count++] = *token;
    set->first[token->text[0]] = true;
    return CY_OK;
}

static int compare(const void *left, const void *right)
{
    const cy_added_token *a = left, *b = right;
    const size_t shorter = a->bytes < b->bytes ? a->bytes : b->bytes;
    const int order = memcmp(a->text, b->text, shorter);
    if (order != 0) return order;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

void cy_added_sort(cy_added_vocabulary *set)
{
    if (set->count > 1) qsort(set->tokens, set->count, sizeof(set->tokens[0]), compare);
}

// The longest token that text [bytes] begins with, or NULL: the range of tokens that agree with
// the text so far narrows byte by byte.
static const cy_added_token *longest(
    const cy_added_vocabulary *set, const unsigned char *text, size_t bytes)
{
    const cy_added_token *best = NULL;
    size_t low = 0, high = set->count;
    for (size_t depth = 0; low < high; depth++) {
        if (set->tokens[low].bytes == depth) best = &set->tokens[low++];
        if (depth == bytes) break;
        while (low < high && set->tokens[low].text[depth] < text[depth])
            low++;
        while (low < high && set->tokens[high - 1].text[depth] > text[depth])
            high--;
    }
    return best;
}

static bool word_before(const uint8_t *classes, const unsigned char *text, size_t at)
{
    if (at == 0) return false;
    uint32_t point;
    cy_utf8_decode_before(&point, text, at);
    return classes[point] & CY_CHAR_WORD;
}

static bool word_after(const uint8_t *classes, const unsigned char *text, size_t at, size_t bytes)
{
    if (at == bytes) return false;
    uint32_t point;
    cy_utf8_decode(&point, text + at, bytes - at);
    return classes[point] & CY_CHAR_WORD;
}

static size_t strip_before(
    const uint8_t *classes, const unsigned char *text, size_t at, size_t taken)
{
    while (at > taken) {
        uint32_t point;
        const size_t length = cy_utf8_decode_before(&point, text, at);
        if (!(classes[point] & CY_CHAR_STRIP)) break;
        at -= length;
    }
    return at > taken ? at : taken;
}

static size_t strip_after(
    const uint8_t *classes, const unsigned char *text, size_t at, size_t bytes)
{
    while (at < bytes) {
        uint32_t point;
        const size_t length = cy_utf8_decode(&point, text + at, bytes - at);
        if (!(classes[point] & CY_CHAR_STRIP)) break;
        at += length;
    }
    return at;
}

bool cy_added_next(const cy_added_vocabulary *set, cy_added_match *match, size_t *at, size_t taken,
    const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    if (set->count == 0) return false;
    for (size_t i = *at; i < bytes; i++) {
        if (!set->first[text[i]]) continue;
        const cy_added_token *token = longest(set, text + i, bytes - i);
        if (token == NULL) continue;
        const size_t end = i + token->bytes;
        *at = end;
        if (token->single_word &&
            (word_before(classes, text, i) || word_after(classes, text, end, bytes))) {
            i = end - 1; // it is passed over as a whole
            continue;
        }
        const size_t first = token->lstrip ? strip_before(classes, text, i, taken) : i;
        *match = (cy_added_match){.id = token->id,
            .first = first > taken ? first : taken,
            .end = token->rstrip ? strip_after(classes, text, end, bytes) : end};
        return true;
    }
    *at = bytes;
    return false;
}
