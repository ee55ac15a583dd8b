#include "tokenizer/pretokenizer.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

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
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, CY_UNICODE_POINTS + 1, 1));
    *pretokenizer = (cy_pretokenizer){.classes = block};
    cy_unicode_expand(pretokenizer->classes, cy_unicode_classes, cy_unicode_classes_count);
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

// One walk over a text: the matches of a step are put together with what is between them.
typedef struct walk {
    const cy_pretokenizer *pretokenizer;
    cy_pretokenizer_scratch *scratch;
    int step;
    const unsigned char *text; // borrowed
    size_t bytes;
    cy_pretokenizer_emit emit;
    void *context;
    size_t seen;  // end of the last match
    size_t first; // of a piece that may still grow
    size_t end;
    bool holds;    // there is such a piece
    bool matching; // it ends in a match
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

// Takes the next stretch of the text, a match or not, by the step's behaviour.
static void take(walk *w, size_t first, size_t end, bool match)
{
    const cy_pretokenizer_step *step = &w->pretokenizer->steps[w->step];
    if (first == end) return;
    if (step->invert) match = !match;
    bool join = false; // with what is held
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

// The piece with a space before it, unless one is there.
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
