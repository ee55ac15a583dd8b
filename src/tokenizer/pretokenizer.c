// Cuts text into words by the steps of a pre_tokenizer. The split patterns of the known families
// are scanned by hand-written code: a scanner returns the length of the match of its pattern at the
// start of a text. Every character begins a match, so there are no gaps.

#include "tokenizer/pretokenizer.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

// ---- scanners of the known families

#define KIND (CY_CHAR_LETTER | CY_CHAR_NUMBER | CY_CHAR_SPACE)

static inline int kind_at(
    const uint8_t *classes, const unsigned char *text, size_t at, size_t bytes, size_t *length)
{
    uint32_t point;
    *length = cy_utf8_decode(&point, text + at, bytes - at);
    return classes[point] & KIND;
}

// Returns the end of a run of characters of one kind that has reached `at`.
static inline size_t run_end(
    const uint8_t *classes, const unsigned char *text, size_t at, size_t bytes, int kind)
{
    while (at < bytes) {
        if (text[at] < 0x80) {
            if ((classes[text[at]] & KIND) != kind) return at;
            at++;
            continue;
        }
        size_t length;
        if (kind_at(classes, text, at, bytes, &length) != kind) return at;
        at += length;
    }
    return at;
}

// \s+(?!\S)|\s+ : all of a run of spaces at the end of the text, else all but its last character.
static size_t spaces(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    size_t at = 0, last = 0, length = 0;
    while (at < bytes && kind_at(classes, text, at, bytes, &length) == CY_CHAR_SPACE) {
        last = at;
        at += length;
    }
    return at == bytes || last == 0 ? at : last;
}

// 's|'t|'re|'ve|'m|'ll|'d : the length of a match, or 0.
static inline size_t contraction(const unsigned char *text, size_t bytes)
{
    if (bytes < 2) return 0;
    const unsigned char a = text[1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (bytes < 3) return 0;
    const unsigned char b = text[2];
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

// The same in any case; the long s counts as an s.
static inline size_t contraction_any_case(const unsigned char *text, size_t bytes)
{
    if (bytes < 2) return 0;
    if (bytes >= 3 && text[1] == 0xc5 && text[2] == 0xbf) return 3;
    const unsigned char lower[3] = {
        text[0], (unsigned char)(text[1] | 0x20), (unsigned char)(bytes > 2 ? text[2] | 0x20 : 0)};
    return contraction(lower, bytes < 3 ? bytes : 3);
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
static size_t scan_gpt2(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    size_t length;
    if (text[0] == '\'') {
        const size_t found = contraction(text, bytes);
        if (found > 0) return found;
    }
    const size_t skip = text[0] == ' ' && bytes > 1 ? 1 : 0;
    const int kind = kind_at(classes, text, skip, bytes, &length);
    if (kind == CY_CHAR_SPACE) return spaces(classes, text, bytes);
    return run_end(classes, text, skip + length, bytes, kind);
}

static bool is_newline(unsigned char c)
{
    return c == '\r' || c == '\n';
}

// \s*[\r\n]+|\s+(?!\S)|\s+
static size_t spaces_with_lines(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    const size_t end = run_end(classes, text, 0, bytes, CY_CHAR_SPACE);
    for (size_t at = end; at > 0; at--) {
        if (is_newline(text[at - 1])) return at;
    }
    return spaces(classes, text, bytes);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
static inline size_t scan_lines(
    const uint8_t *classes, const unsigned char *text, size_t bytes, int digits)
{
    size_t length, next_length = 0;
    const int kind = kind_at(classes, text, 0, bytes, &length);
    if (kind == CY_CHAR_LETTER) return run_end(classes, text, length, bytes, CY_CHAR_LETTER);
    if (kind == CY_CHAR_NUMBER) {
        size_t at = length;
        for (int i = 1; i < digits && at < bytes; i++) {
            if (kind_at(classes, text, at, bytes, &next_length) != CY_CHAR_NUMBER) break;
            at += next_length;
        }
        return at;
    }
    if (text[0] == '\'') {
        const size_t found = contraction_any_case(text, bytes);
        if (found > 0) return found;
    }
    int next = -1;
    if (length < bytes) next = kind_at(classes, text, length, bytes, &next_length);
    if (next == CY_CHAR_LETTER && !is_newline(text[0])) {
        return run_end(classes, text, length + next_length, bytes, CY_CHAR_LETTER);
    }
    if (kind == CY_CHAR_SPACE && !(text[0] == ' ' && next == 0)) {
        return spaces_with_lines(classes, text, bytes);
    }
    size_t at = run_end(classes, text, length, bytes, 0);
    while (at < bytes && is_newline(text[at]))
        at++;
    return at;
}

static size_t scan_llama3(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    return scan_lines(classes, text, bytes, 3);
}

static size_t scan_qwen2(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    return scan_lines(classes, text, bytes, 1);
}

static size_t digits_end(
    const uint8_t *classes, const unsigned char *text, size_t at, size_t bytes, bool numeric)
{
    while (at < bytes) {
        uint32_t point;
        const size_t length = cy_utf8_decode(&point, text + at, bytes - at);
        if (((classes[point] & CY_CHAR_NUMERIC) != 0) != numeric) break;
        at += length;
    }
    return at;
}

static size_t scan_digit_runs(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    uint32_t point;
    const size_t length = cy_utf8_decode(&point, text, bytes);
    return digits_end(classes, text, length, bytes, (classes[point] & CY_CHAR_NUMERIC) != 0);
}

static size_t scan_digits(const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    uint32_t point;
    const size_t length = cy_utf8_decode(&point, text, bytes);
    if (classes[point] & CY_CHAR_NUMERIC) return length;
    return digits_end(classes, text, length, bytes, false);
}

cy_scan cy_pretokenizer_scanner(cy_pretokenizer_kind kind)
{
    switch (kind) {
    case CY_PRETOKENIZER_GPT2:
        return scan_gpt2;
    case CY_PRETOKENIZER_LLAMA3:
        return scan_llama3;
    case CY_PRETOKENIZER_QWEN2:
        return scan_qwen2;
    case CY_PRETOKENIZER_DIGITS:
        return scan_digits;
    case CY_PRETOKENIZER_DIGIT_RUNS:
        return scan_digit_runs;
    case CY_PRETOKENIZER_REGEX:
    case CY_PRETOKENIZER_LITERAL:
    case CY_PRETOKENIZER_ADD_PREFIX_SPACE:
        return NULL;
    }
    return NULL;
}

// ---- steps

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LINES(digits)                                                                              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits                     \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const char *cy_pretokenizer_pattern(cy_pretokenizer_kind kind)
{
    switch (kind) {
    case CY_PRETOKENIZER_GPT2:
        return GPT2;
    case CY_PRETOKENIZER_LLAMA3:
        return LINES("{1,3}");
    case CY_PRETOKENIZER_QWEN2:
        return LINES("");
    case CY_PRETOKENIZER_REGEX:
    case CY_PRETOKENIZER_LITERAL:
    case CY_PRETOKENIZER_DIGITS:
    case CY_PRETOKENIZER_DIGIT_RUNS:
    case CY_PRETOKENIZER_ADD_PREFIX_SPACE:
        return NULL;
    }
    return NULL;
}

cy_status cy_pretokenizer_open(cy_pretokenizer *pretokenizer)
{
    cy_pretokenizer made = {0};
    CY_TRY(CY_ALLOC(&made.classes, CY_UNICODE_POINTS + 1));
    *pretokenizer = made;
    cy_unicode_classify(pretokenizer->classes);
    return CY_OK;
}

void cy_pretokenizer_close(cy_pretokenizer *pretokenizer)
{
    for (int i = 0; i < pretokenizer->count; i++) {
        cy_regex_free(pretokenizer->steps[i].code);
        cy_memory_free(pretokenizer->steps[i].literal);
    }
    cy_memory_free(pretokenizer->classes);
    *pretokenizer = (cy_pretokenizer){0};
}

static cy_status add(cy_pretokenizer *pretokenizer, cy_pretokenizer_step step)
{
    if (pretokenizer->count == CY_PRETOKENIZER_STEPS_MAX) {
        return CY_FAIL(
            CY_ERR_UNSUPPORTED, "pre_tokenizer: more than %d steps", CY_PRETOKENIZER_STEPS_MAX);
    }
    pretokenizer->steps[pretokenizer->count++] = step;
    return CY_OK;
}

cy_status cy_pretokenizer_add(cy_pretokenizer *pretokenizer, cy_pretokenizer_kind kind,
    cy_pretokenizer_behavior behavior, bool invert)
{
    CY_ASSERT(kind != CY_PRETOKENIZER_REGEX && kind != CY_PRETOKENIZER_LITERAL);
    CY_ASSERT(cy_pretokenizer_pattern(kind) != NULL || behavior == CY_PRETOKENIZER_ISOLATED);
    return add(
        pretokenizer, (cy_pretokenizer_step){.kind = kind, .behavior = behavior, .invert = invert});
}

cy_status cy_pretokenizer_add_regex(cy_pretokenizer *pretokenizer, const char *pattern,
    cy_pretokenizer_behavior behavior, bool invert, bool general)
{
    const cy_pretokenizer_kind known[] = {
        CY_PRETOKENIZER_GPT2, CY_PRETOKENIZER_LLAMA3, CY_PRETOKENIZER_QWEN2};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && !general; i++) {
        if (strcmp(pattern, cy_pretokenizer_pattern(known[i])) == 0) {
            return cy_pretokenizer_add(pretokenizer, known[i], behavior, invert);
        }
    }
    cy_pretokenizer_step step = {
        .kind = CY_PRETOKENIZER_REGEX, .behavior = behavior, .invert = invert};
    CY_TRY(cy_regex_compile(&step.code, pattern));
    const cy_status status = add(pretokenizer, step);
    if (status != CY_OK) cy_regex_free(step.code);
    return status;
}

cy_status cy_pretokenizer_add_literal(cy_pretokenizer *pretokenizer, const char *literal,
    cy_pretokenizer_behavior behavior, bool invert)
{
    cy_pretokenizer_step step = {
        .kind = CY_PRETOKENIZER_LITERAL, .behavior = behavior, .invert = invert};
    CY_TRY(cy_memory_copy_text(&step.literal, literal));
    const cy_status status = add(pretokenizer, step);
    if (status != CY_OK) cy_memory_free(step.literal);
    return status;
}

bool cy_pretokenizer_cuts_at_lines(const cy_pretokenizer *pretokenizer)
{
    bool cuts = false;
    for (int i = 0; i < pretokenizer->count; i++) {
        const cy_pretokenizer_step *step = &pretokenizer->steps[i];
        const bool digits =
            step->kind == CY_PRETOKENIZER_DIGITS || step->kind == CY_PRETOKENIZER_DIGIT_RUNS;
        if (cy_pretokenizer_scanner(step->kind) == NULL) return false;
        if (step->behavior != CY_PRETOKENIZER_ISOLATED) return false;
        cuts = cuts || !digits;
    }
    return cuts;
}

// One walk of a step over a text: its matches, and the text between them, become pieces.
typedef struct walk {
    const cy_pretokenizer *pretokenizer;
    cy_pretokenizer_scratch *scratch;
    int step;
    const unsigned char *text; // borrowed
    size_t bytes;
    cy_pretokenizer_emit emit;
    void *context;
    size_t seen;  // end of the last match
    size_t first; // of a held piece, which may still grow
    size_t end;
    bool holds;    // a piece is held
    bool matching; // the held piece ends in a match
} walk;

static void cut(const cy_pretokenizer *pretokenizer, cy_pretokenizer_scratch *scratch, int step,
    const unsigned char *text, size_t bytes, cy_pretokenizer_emit emit, void *context);

static void pass(walk *w, size_t first, size_t end)
{
    if (first == end) return;
    cut(w->pretokenizer, w->scratch, w->step + 1, w->text + first, end - first, w->emit,
        w->context);
}

static void release(walk *w)
{
    if (w->holds) pass(w, w->first, w->end);
    w->holds = false;
}

// Handles the next part of the text, a match or not, by the step's behaviour.
static void take(walk *w, size_t first, size_t end, bool match)
{
    const cy_pretokenizer_step *step = &w->pretokenizer->steps[w->step];
    if (first == end) return;
    if (step->invert) match = !match;
    bool join = false; // with the held piece
    switch (step->behavior) {
    case CY_PRETOKENIZER_REMOVED:
        if (!match) pass(w, first, end);
        return;
    case CY_PRETOKENIZER_ISOLATED:
        pass(w, first, end);
        return;
    case CY_PRETOKENIZER_MERGED_WITH_PREVIOUS:
        join = match && !w->matching;
        break;
    case CY_PRETOKENIZER_MERGED_WITH_NEXT:
        join = !match && w->matching;
        break;
    case CY_PRETOKENIZER_CONTIGUOUS:
        join = match == w->matching;
        break;
    }
    if (w->holds && join) {
        w->end = end;
    } else {
        release(w);
        w->first = first;
        w->end = end;
        w->holds = true;
    }
    w->matching = match;
}

static void found(void *context, size_t first, size_t end)
{
    walk *w = context;
    take(w, w->seen, first, false);
    take(w, first, end, true);
    w->seen = end;
}

static void find_literal(walk *w, const char *literal)
{
    const size_t length = strlen(literal);
    for (size_t at = 0; length > 0 && at + length <= w->bytes;) {
        if (memcmp(w->text + at, literal, length) == 0) {
            found(w, at, at + length);
            at += length;
        } else {
            at++;
        }
    }
}

static void fail(cy_pretokenizer_scratch *scratch, cy_status status)
{
    if (scratch->status == CY_OK) scratch->status = status;
}

// Passes on the piece with a space before it, unless it begins with one.
static void add_prefix_space(const cy_pretokenizer *pretokenizer, cy_pretokenizer_scratch *scratch,
    int step, const unsigned char *text, size_t bytes, cy_pretokenizer_emit emit, void *context)
{
    if (text[0] == ' ') {
        cut(pretokenizer, scratch, step + 1, text, bytes, emit, context);
        return;
    }
    cy_text *prefixed = &scratch->prefixed;
    prefixed->length = 0;
    cy_status status = cy_text_add_bytes(prefixed, " ", 1);
    if (status == CY_OK) status = cy_text_add_bytes(prefixed, text, bytes);
    if (status != CY_OK) {
        fail(scratch, status);
        return;
    }
    cut(pretokenizer, scratch, step + 1, (const unsigned char *)prefixed->bytes, bytes + 1, emit,
        context);
}

static void cut(const cy_pretokenizer *pretokenizer, cy_pretokenizer_scratch *scratch, int step,
    const unsigned char *text, size_t bytes, cy_pretokenizer_emit emit, void *context)
{
    if (step == pretokenizer->count) {
        emit(context, text, bytes);
        return;
    }
    const cy_pretokenizer_step *now = &pretokenizer->steps[step];
    if (now->kind == CY_PRETOKENIZER_ADD_PREFIX_SPACE) {
        add_prefix_space(pretokenizer, scratch, step, text, bytes, emit, context);
        return;
    }
    const cy_scan scan = cy_pretokenizer_scanner(now->kind);
    const bool last = step + 1 == pretokenizer->count;
    if (scan != NULL && now->behavior == CY_PRETOKENIZER_ISOLATED) {
        for (size_t at = 0; at < bytes;) {
            const size_t length = scan(pretokenizer->classes, text + at, bytes - at);
            if (last) {
                emit(context, text + at, length);
            } else {
                cut(pretokenizer, scratch, step + 1, text + at, length, emit, context);
            }
            at += length;
        }
        return;
    }
    walk w = {.pretokenizer = pretokenizer,
        .scratch = scratch,
        .step = step,
        .text = text,
        .bytes = bytes,
        .emit = emit,
        .context = context};
    if (now->kind == CY_PRETOKENIZER_REGEX) {
        const cy_status status = cy_regex_search(now->code, scratch, text, bytes, found, &w);
        if (status != CY_OK) fail(scratch, status);
    } else if (now->kind == CY_PRETOKENIZER_LITERAL) {
        find_literal(&w, now->literal);
    } else {
        CY_ASSERT(scan != NULL);
        for (size_t at = 0; at < bytes;) {
            const size_t length = scan(pretokenizer->classes, text + at, bytes - at);
            found(&w, at, at + length);
            at += length;
        }
    }
    take(&w, w.seen, bytes, false);
    release(&w);
}

cy_status cy_pretokenize(const cy_pretokenizer *pretokenizer, cy_pretokenizer_scratch *scratch,
    const unsigned char *text, size_t bytes, cy_pretokenizer_emit emit, void *context)
{
    scratch->status = CY_OK;
    if (bytes > 0) cut(pretokenizer, scratch, 0, text, bytes, emit, context);
    return scratch->status;
}
