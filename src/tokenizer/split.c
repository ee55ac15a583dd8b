#include "tokenizer/split.h"

#include "base/assert.h"
#include "base/memory.h"

#include <string.h>

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LINES(digits)                                                                              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits                     \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const char *cy_split_pattern(cy_split_kind kind)
{
    switch (kind) {
    case CY_SPLIT_GPT2:
        return GPT2;
    case CY_SPLIT_LLAMA3:
        return LINES("{1,3}");
    case CY_SPLIT_QWEN2:
        return LINES("");
    case CY_SPLIT_REGEX:
    case CY_SPLIT_LITERAL:
    case CY_SPLIT_DIGITS:
    case CY_SPLIT_DIGIT_RUNS:
    case CY_SPLIT_SPACE_IN_FRONT:
        return NULL;
    }
    return NULL;
}

cy_status cy_splitter_open(cy_splitter *splitter)
{
    void *block = NULL;
    CY_TRY(cy_memory_take(&block, CY_UNICODE_POINTS + 1, 1));
    *splitter = (cy_splitter){.classes = block};
    cy_unicode_expand(splitter->classes, cy_unicode_classes, cy_unicode_classes_count);
    return CY_OK;
}

void cy_splitter_close(cy_splitter *splitter)
{
    for (int i = 0; i < splitter->count; i++) {
        cy_regex_free(splitter->steps[i].code);
        cy_memory_free(splitter->steps[i].literal);
    }
    cy_memory_free(splitter->classes);
    *splitter = (cy_splitter){0};
}

static cy_status add(cy_splitter *splitter, cy_split_step step)
{
    if (splitter->count == CY_SPLIT_STEPS_MAX) {
        return CY_FAIL(CY_ERR_UNSUPPORTED, "pre_tokenizer: more than %d steps", CY_SPLIT_STEPS_MAX);
    }
    splitter->steps[splitter->count++] = step;
    return CY_OK;
}

cy_status cy_splitter_add(
    cy_splitter *splitter, cy_split_kind kind, cy_split_behavior behavior, bool invert)
{
    CY_ASSERT(kind != CY_SPLIT_REGEX && kind != CY_SPLIT_LITERAL);
    CY_ASSERT(cy_split_pattern(kind) != NULL || behavior == CY_SPLIT_ISOLATED);
    return add(splitter, (cy_split_step){.kind = kind, .behavior = behavior, .invert = invert});
}

cy_status cy_splitter_add_regex(cy_splitter *splitter, const char *pattern,
    cy_split_behavior behavior, bool invert, bool general)
{
    const cy_split_kind known[] = {CY_SPLIT_GPT2, CY_SPLIT_LLAMA3, CY_SPLIT_QWEN2};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && !general; i++) {
        if (strcmp(pattern, cy_split_pattern(known[i])) == 0) {
            return cy_splitter_add(splitter, known[i], behavior, invert);
        }
    }
    cy_split_step step = {.kind = CY_SPLIT_REGEX, .behavior = behavior, .invert = invert};
    CY_TRY(cy_regex_compile(&step.code, pattern));
    const cy_status status = add(splitter, step);
    if (status != CY_OK) cy_regex_free(step.code);
    return status;
}

cy_status cy_splitter_add_literal(
    cy_splitter *splitter, const char *literal, cy_split_behavior behavior, bool invert)
{
    cy_split_step step = {.kind = CY_SPLIT_LITERAL, .behavior = behavior, .invert = invert};
    CY_TRY(cy_memory_copy_text(&step.literal, literal));
    const cy_status status = add(splitter, step);
    if (status != CY_OK) cy_memory_free(step.literal);
    return status;
}

bool cy_splitter_cuts_at_lines(const cy_splitter *splitter)
{
    bool cuts = false;
    for (int i = 0; i < splitter->count; i++) {
        const cy_split_step *step = &splitter->steps[i];
        const bool digits = step->kind == CY_SPLIT_DIGITS || step->kind == CY_SPLIT_DIGIT_RUNS;
        if (cy_split_scanner(step->kind) == NULL) return false;
        if (step->behavior != CY_SPLIT_ISOLATED) return false;
        cuts = cuts || !digits;
    }
    return cuts;
}

// One walk over a text: the matches of a step are put together with what is between them.
typedef struct walk {
    const cy_splitter *splitter;
    cy_split_scratch *scratch;
    int step;
    const unsigned char *text; // borrowed
    size_t bytes;
    cy_split_emit emit;
    void *context;
    size_t seen;  // end of the last match
    size_t first; // of a piece that may still grow
    size_t end;
    bool holds;    // there is such a piece
    bool matching; // it ends in a match
} walk;

static void cut(const cy_splitter *splitter, cy_split_scratch *scratch, int step,
    const unsigned char *text, size_t bytes, cy_split_emit emit, void *context);

static void pass(walk *w, size_t first, size_t end)
{
    if (first == end) return;
    cut(w->splitter, w->scratch, w->step + 1, w->text + first, end - first, w->emit, w->context);
}

static void release(walk *w)
{
    if (w->holds) pass(w, w->first, w->end);
    w->holds = false;
}

// Takes the next stretch of the text, a match or not, by the step's behaviour.
static void take(walk *w, size_t first, size_t end, bool match)
{
    const cy_split_step *step = &w->splitter->steps[w->step];
    if (first == end) return;
    if (step->invert) match = !match;
    bool join = false; // with what is held
    switch (step->behavior) {
    case CY_SPLIT_REMOVED:
        if (!match) pass(w, first, end);
        return;
    case CY_SPLIT_ISOLATED:
        pass(w, first, end);
        return;
    case CY_SPLIT_MERGED_WITH_PREVIOUS:
        join = match && !w->matching;
        break;
    case CY_SPLIT_MERGED_WITH_NEXT:
        join = !match && w->matching;
        break;
    case CY_SPLIT_CONTIGUOUS:
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

static void fail(cy_split_scratch *scratch, cy_status status)
{
    if (scratch->status == CY_OK) scratch->status = status;
}

// The piece with a space before it, unless one is there.
static void put_space(const cy_splitter *splitter, cy_split_scratch *scratch, int step,
    const unsigned char *text, size_t bytes, cy_split_emit emit, void *context)
{
    if (text[0] == ' ') {
        cut(splitter, scratch, step + 1, text, bytes, emit, context);
        return;
    }
    cy_text *in_front = &scratch->in_front;
    in_front->length = 0;
    cy_status status = cy_text_add_bytes(in_front, " ", 1);
    if (status == CY_OK) status = cy_text_add_bytes(in_front, text, bytes);
    if (status != CY_OK) {
        fail(scratch, status);
        return;
    }
    cut(splitter, scratch, step + 1, (const unsigned char *)in_front->bytes, bytes + 1, emit,
        context);
}

static void cut(const cy_splitter *splitter, cy_split_scratch *scratch, int step,
    const unsigned char *text, size_t bytes, cy_split_emit emit, void *context)
{
    if (step == splitter->count) {
        emit(context, text, bytes);
        return;
    }
    const cy_split_step *now = &splitter->steps[step];
    if (now->kind == CY_SPLIT_SPACE_IN_FRONT) {
        put_space(splitter, scratch, step, text, bytes, emit, context);
        return;
    }
    const cy_scan scan = cy_split_scanner(now->kind);
    const bool last = step + 1 == splitter->count;
    if (scan != NULL && now->behavior == CY_SPLIT_ISOLATED) {
        for (size_t at = 0; at < bytes;) {
            const size_t length = scan(splitter->classes, text + at, bytes - at);
            if (last) {
                emit(context, text + at, length);
            } else {
                cut(splitter, scratch, step + 1, text + at, length, emit, context);
            }
            at += length;
        }
        return;
    }
    walk w = {.splitter = splitter,
        .scratch = scratch,
        .step = step,
        .text = text,
        .bytes = bytes,
        .emit = emit,
        .context = context};
    if (now->kind == CY_SPLIT_REGEX) {
        const cy_status status = cy_regex_search(now->code, scratch, text, bytes, found, &w);
        if (status != CY_OK) fail(scratch, status);
    } else if (now->kind == CY_SPLIT_LITERAL) {
        find_literal(&w, now->literal);
    } else {
        CY_ASSERT(scan != NULL);
        for (size_t at = 0; at < bytes;) {
            const size_t length = scan(splitter->classes, text + at, bytes - at);
            found(&w, at, at + length);
            at += length;
        }
    }
    take(&w, w.seen, bytes, false);
    release(&w);
}

cy_status cy_split(const cy_splitter *splitter, cy_split_scratch *scratch,
    const unsigned char *text, size_t bytes, cy_split_emit emit, void *context)
{
    scratch->status = CY_OK;
    if (bytes > 0) cut(splitter, scratch, 0, text, bytes, emit, context);
    return scratch->status;
}
