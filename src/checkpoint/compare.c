// Compares a checkpoint with what a model needs, and the tensors of two checkpoints.

#define _GNU_SOURCE
#include "base/memory.h"
#include "checkpoint/manifest.h"
#include "model/shape.h"

#include <inttypes.h>
#include <math.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

// ---- a checkpoint and a model

// An error text holds no longer list. In a longer one, lines that differ only in their layer are
// folded.
#define LIST_BYTES 3000

// Lines that differ only in the number of their layer, for consecutive layers.
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

static int compare_bytes(const char *a, long a_length, const char *b, long b_length)
{
    if (a_length != b_length) return a_length < b_length ? -1 : 1;
    return memcmp(a, b, (size_t)a_length);
}

static long rest_length(const fold *f)
{
    return f->line + f->length - f->rest;
}

// Orders folds by their last layer and by their text without the layer, to find the one that a line
// continues.
static int by_what_follows(const void *left, const void *right)
{
    const fold *a = left;
    const fold *b = right;
    if (a->last != b->last) return a->last < b->last ? -1 : 1;
    const int heads = compare_bytes(a->line, a->head, b->line, b->head);
    if (heads != 0) return heads;
    return compare_bytes(a->rest, rest_length(a), b->rest, rest_length(b));
}

static cy_status add_fold(cy_text *out, const fold *f)
{
    if (f->first == f->last) return cy_text_add(out, "\n%.*s", f->length, f->line);
    return cy_text_add(out, "\n%.*s{%ld..%ld}%.*s", f->head, f->line, f->first, f->last,
        (int)(f->line + f->length - f->rest), f->rest);
}

// Frees nothing: the folds of the tree are elements of an array.
static void keep_fold(void *f)
{
    (void)f;
}

// Adds a line to the fold that it continues, or as a new fold. `ends` is a tree of the folds that
// have a layer.
static cy_status fold_line(fold *folds, int *count, void **ends, fold next)
{
    fold before = next;
    before.last = next.first - 1;
    fold **found = next.first > 0 ? tfind(&before, ends, by_what_follows) : NULL;
    fold *f = &folds[*count];
    if (found != NULL) {
        f = *found;
        tdelete(f, ends, by_what_follows);
        f->last = next.last;
    } else {
        *f = next;
        ++*count;
    }
    if (f->first >= 0 && tsearch(f, ends, by_what_follows) == NULL) {
        return CY_FAIL(CY_ERR_MEMORY, "no memory for a list of %d differences", *count);
    }
    return CY_OK;
}

// "model.layers.0.x: missing there", "model.layers.1.x: ..." become "model.layers.{0..1}.x: ...".
static cy_status fold_layers(cy_text *lines)
{
    void *memory = NULL, *ends = NULL;
    int count = 0;
    size_t line_count = 0;
    for (const char *at = lines->bytes; *at != '\0'; at++)
        line_count += *at == '\n';
    cy_text folded = {0};
    CY_TRY(cy_memory_alloc(&memory, line_count, sizeof(fold)));
    fold *folds = memory;
    cy_status status = CY_OK;
    for (const char *at = lines->bytes; status == CY_OK && *at == '\n';) {
        const int length = (int)strcspn(at + 1, "\n");
        status = fold_line(folds, &count, &ends, split_line(at + 1, length));
        at += 1 + length;
    }
    for (int i = 0; status == CY_OK && i < count; i++)
        status = add_fold(&folded, &folds[i]);
    tdestroy(ends, keep_fold);
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

static int by_kind_and_name(const void *left, const void *right)
{
    const cy_global_tensor *a = *(const cy_global_tensor *const *)left;
    const cy_global_tensor *b = *(const cy_global_tensor *const *)right;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    return strcmp(a->name, b->name);
}

// Lists the stored tensors of the kinds that occur in `tensors` which `tensors` does not name.
static cy_status list_unknown(cy_text *lines, int *wrong, const cy_checkpoint *checkpoint,
    const cy_global_tensor *tensors, int count)
{
    void *memory = NULL;
    bool kinds[CY_TENSOR_KINDS] = {false};
    CY_TRY(cy_memory_alloc(&memory, (size_t)count + 1, sizeof(cy_global_tensor *)));
    const cy_global_tensor **sorted = memory;
    for (int i = 0; i < count; i++) {
        kinds[tensors[i].kind] = true;
        sorted[i] = &tensors[i];
    }
    qsort(memory, (size_t)count, sizeof(*sorted), by_kind_and_name);
    cy_status status = CY_OK;
    for (int i = 0; status == CY_OK && i < checkpoint->tensor_count; i++) {
        const cy_global_tensor *there = &checkpoint->tensors[i].tensor;
        char label[256];
        if (!kinds[there->kind]) continue;
        if (bsearch(&there, memory, (size_t)count, sizeof(*sorted), by_kind_and_name)) continue;
        ++*wrong;
        cy_tensor_full_name(label, sizeof(label), there);
        status = cy_text_add(lines, "\n  - %s: %s: unknown here",
            file_of(checkpoint, &checkpoint->tensors[i]), label);
    }
    cy_memory_free(memory);
    return status;
}

cy_status cy_checkpoint_check_tensors(
    const cy_checkpoint *checkpoint, const cy_global_tensor *tensors, int count)
{
    cy_text lines = {0};
    int wrong = 0;
    cy_status status = CY_OK;
    for (int i = 0; status == CY_OK && i < count; i++)
        status = compare_tensor(&lines, &wrong, checkpoint, &tensors[i]);
    if (status == CY_OK) status = list_unknown(&lines, &wrong, checkpoint, tensors, count);
    if (status == CY_OK && lines.length > LIST_BYTES) status = fold_layers(&lines);
    if (status == CY_OK && wrong > 0) {
        status = CY_FAIL(CY_ERR_CORRUPT, "%s: %d of its tensors differ from what its model has:%s",
            checkpoint->path, wrong, cy_list_items(&lines, wrong));
    }
    cy_text_free(&lines);
    return status;
}

cy_status cy_checkpoint_check_model(const cy_checkpoint *checkpoint, const cy_model_shape *model)
{
    cy_text lines = {0};
    int wrong = 0;
    if (!checkpoint->has_model) return CY_OK;
    cy_status status = cy_model_shape_differences(&lines, &wrong, &checkpoint->model, model);
    if (status == CY_OK && wrong > 0) {
        status = CY_FAIL(CY_ERR_REQUEST, "%s is of another model: %d difference%s:%s",
            checkpoint->path, wrong, wrong == 1 ? "" : "s", cy_list_items(&lines, wrong));
    }
    cy_text_free(&lines);
    return status;
}

// ---- two checkpoints

#define PART_ELEMENTS ((int64_t)1 << 19)

double cy_tensor_difference_relative(const cy_tensor_difference *difference)
{
    if (difference->equal) return 0.0;
    return difference->distance / difference->norm;
}

static cy_status read_part(cy_checkpoint *checkpoint, const cy_global_tensor *tensor, int64_t first,
    int64_t count, double *values)
{
    cy_checkpoint_traffic traffic = {0};
    const cy_rectangle whole = {.rows = tensor->rows, .cols = tensor->cols};
    const cy_tensor_shard piece = cy_tensor_shard_of_range(0, whole, first, count, values, CY_F64);
    return cy_checkpoint_load(checkpoint, tensor, &piece, 1, &traffic);
}

static void add_part(cy_tensor_difference *sums, const double *a, const double *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const double distance = a[i] - b[i];
        sums->norm += a[i] * a[i];
        sums->distance += distance * distance;
    }
    if (memcmp(a, b, (size_t)count * sizeof(*a)) != 0) sums->equal = false;
}

cy_status cy_checkpoint_compare(cy_tensor_difference *difference, cy_checkpoint *one,
    cy_checkpoint *other, const cy_global_tensor *tensor)
{
    void *memory = NULL;
    const int64_t count = tensor->rows * tensor->cols;
    const int64_t most = count < PART_ELEMENTS ? count : PART_ELEMENTS;
    CY_TRY(cy_memory_alloc(&memory, (size_t)(2 * most), sizeof(double)));
    double *a = memory, *b = a + most;
    cy_tensor_difference sums = {.equal = true};
    cy_status status = CY_OK;
    for (int64_t first = 0; status == CY_OK && first < count; first += most) {
        const int64_t some = count - first < most ? count - first : most;
        status = read_part(one, tensor, first, some, a);
        if (status == CY_OK) status = read_part(other, tensor, first, some, b);
        if (status == CY_OK) add_part(&sums, a, b, some);
    }
    cy_memory_free(memory);
    sums.norm = sqrt(sums.norm);
    sums.distance = sqrt(sums.distance);
    if (status == CY_OK) *difference = sums;
    return status;
}
