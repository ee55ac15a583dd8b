#define _GNU_SOURCE
#include "base/memory.h"
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// An error holds no longer list; a longer one is folded.
#define LIST_BYTES 3000

// Lines that differ only in the number of their layer, for layers that follow each other.
typedef struct fold {
    const char *line; // borrowed: the first of them
    int head, length; // of the line: up to the number, and in all
    const char *rest; // borrowed: after the number
    long first, last;
} fold;

static fold split_line(const char *line, int length)
{
    static const char mark[] = ".layers.";
    fold f = {.line = line, .length = length, .rest = line, .first = -1, .last = -1};
    const char *layer = memmem(line, (size_t)length, mark, sizeof(mark) - 1);
    if (layer == NULL) return f;
    char *end = NULL;
    f.head = (int)(layer - line) + (int)sizeof(mark) - 1;
    f.first = f.last = strtol(line + f.head, &end, 10);
    f.rest = end;
    return f;
}

static bool follows(const fold *f, const fold *next)
{
    if (f->first < 0 || next->first != f->last + 1 || next->head != f->head) return false;
    const long rest = f->line + f->length - f->rest;
    return memcmp(f->line, next->line, (size_t)f->head) == 0 &&
        next->line + next->length - next->rest == rest &&
        memcmp(f->rest, next->rest, (size_t)rest) == 0;
}

static cy_status add_fold(cy_text *out, const fold *f)
{
    if (f->first == f->last) return cy_text_add(out, "\n%.*s", f->length, f->line);
    return cy_text_add(out, "\n%.*s{%ld..%ld}%.*s", f->head, f->line, f->first, f->last,
        (int)(f->line + f->length - f->rest), f->rest);
}

// "model.layers.0.x: missing there", "model.layers.1.x: ..." become "model.layers.{0..1}.x: ...".
static cy_status fold_layers(cy_text *lines)
{
    void *memory = NULL;
    size_t capacity = 0;
    int count = 0;
    cy_text folded = {0};
    cy_status status = CY_OK;
    for (const char *at = lines->bytes; status == CY_OK && *at == '\n';) {
        const int length = (int)strcspn(at + 1, "\n");
        const fold next = split_line(at + 1, length);
        fold *folds = memory;
        int i = 0;
        while (i < count && !follows(&folds[i], &next))
            i++;
        if (i < count) {
            folds[i].last = next.last;
        } else {
            status = cy_memory_grow(&memory, &capacity, (size_t)count + 1, sizeof(fold));
            if (status == CY_OK) ((fold *)memory)[count++] = next;
        }
        at += 1 + length;
    }
    for (int i = 0; status == CY_OK && i < count; i++) {
        status = add_fold(&folded, (const fold *)memory + i);
    }
    cy_memory_free(memory);
    cy_text_free(lines);
    *lines = folded;
    return status;
}

// The file that holds a tensor, or the first of several.
static const char *file_of(const cy_checkpoint *checkpoint, const cy_stored_tensor *stored)
{
    return checkpoint->files[stored->pieces[0].file].name;
}

static cy_status compare_tensor(
    cy_text *lines, int *count, const cy_checkpoint *checkpoint, const cy_global_tensor *tensor)
{
    char label[256];
    const cy_stored_tensor *stored = cy_checkpoint_find(checkpoint, tensor->kind, tensor->name);
    cy_tensor_full_name(label, sizeof(label), tensor);
    if (stored == NULL) {
        ++*count;
        return cy_text_add(lines, "\n  - %s: missing there", label);
    }
    const cy_global_tensor *there = &stored->tensor;
    if (there->rows == tensor->rows && there->cols == tensor->cols) return CY_OK;
    ++*count;
    return cy_text_add(lines,
        "\n  - %s: %s: there %" PRId64 " x %" PRId64 ", here %" PRId64 " x %" PRId64,
        file_of(checkpoint, stored), label, there->rows, there->cols, tensor->rows, tensor->cols);
}

cy_status cy_checkpoint_check_tensors(
    const cy_checkpoint *checkpoint, const cy_global_tensor *tensors, int count)
{
    cy_text lines = {0};
    int wrong = 0;
    bool kinds[CY_TENSOR_KINDS] = {false};
    cy_status status = CY_OK;
    for (int i = 0; status == CY_OK && i < count; i++) {
        kinds[tensors[i].kind] = true;
        status = compare_tensor(&lines, &wrong, checkpoint, &tensors[i]);
    }
    for (int i = 0; status == CY_OK && i < checkpoint->tensor_count; i++) {
        const cy_global_tensor *there = &checkpoint->tensors[i].tensor;
        char label[256];
        bool known = !kinds[there->kind];
        for (int j = 0; !known && j < count; j++) {
            known = tensors[j].kind == there->kind && strcmp(tensors[j].name, there->name) == 0;
        }
        if (known) continue;
        wrong++;
        cy_tensor_full_name(label, sizeof(label), there);
        status = cy_text_add(&lines, "\n  - %s: %s: unknown here",
            file_of(checkpoint, &checkpoint->tensors[i]), label);
    }
    if (status == CY_OK && lines.length > LIST_BYTES) status = fold_layers(&lines);
    if (status == CY_OK && wrong > 0) {
        status = CY_FAIL(CY_ERR_CORRUPT, "%s: %d of its tensors differ from what its model has:%s",
            checkpoint->path, wrong, cy_list_items(&lines, wrong));
    }
    cy_text_free(&lines);
    return status;
}
