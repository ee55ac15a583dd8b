// cyclotron checkpoint compare: measures how far two checkpoints of one model lie apart.

#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"
#include "observe/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct values {
    bool json;
    bool tensors;
    double within;
} values;

static const cy_option options[] = {
    {"within", CY_OPTION_NUMBER, offsetof(values, within), .low = 0, .high = 1e300,
        .initial = "1e300", .doc = "fail where a weight is further apart", .word = "BOUND"},
    {"tensors", CY_OPTION_FLAG, offsetof(values, tensors), .doc = "list every tensor"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print JSON only, with every tensor"},
};

static const cy_usage usage = {
    .name = "checkpoint compare",
    .positional = "DIR OTHER",
    .least = 2,
    .most = 2,
    .doc = "Tells how far the tensors of two checkpoints of one model lie apart, in the 2-norm of\n"
           "each, as a share of the first one's.",
    .more = "Whatever the meshes that wrote them; Hugging Face folders will do. In JSON, "
            "difference is\n"
            "that of the weights, and equal is true where all tensors have the same bits.",
    .options = options,
    .option_count = CY_COUNT(options),
};

// The differences of the tensors of one kind.
typedef struct summary {
    int count;
    int equal;
    double worst;
    const char *name; // borrowed: of the tensor that is furthest apart
} summary;

typedef struct comparison {
    const values *given;
    cy_checkpoint one, other;
    summary kinds[CY_TENSOR_KINDS];
    bool left_out[CY_TENSOR_KINDS]; // `one` has them, `other` none
    json_t *list;                   // owned: an object for each tensor, for --json
    cy_text lines;                  // a line for each tensor, for --tensors
} comparison;

static cy_status add_tensor(
    comparison *all, const cy_global_tensor *tensor, const cy_tensor_difference *difference)
{
    char label[256];
    const double relative = cy_tensor_difference_relative(difference);
    summary *kind = &all->kinds[tensor->kind];
    kind->count++;
    kind->equal += difference->equal;
    // A NaN counts as the largest difference.
    if (kind->name == NULL || !(relative <= kind->worst || isnan(kind->worst))) {
        kind->worst = relative;
        kind->name = tensor->name;
    }
    if (all->given->json) {
        cy_json_append(&all->list,
            json_pack("{s:s, s:o, s:o, s:b}", "kind", cy_tensor_kind_name(tensor->kind), "name",
                cy_json_string(tensor->name, strlen(tensor->name)), "difference",
                cy_json_real(relative), "equal", difference->equal));
        return CY_OK;
    }
    if (!all->given->tensors) return CY_OK;
    cy_tensor_full_name(label, sizeof(label), tensor);
    return cy_text_add(
        &all->lines, "  %-60s %9.2e%s\n", label, relative, difference->equal ? " equal" : "");
}

static cy_status compare(comparison *all)
{
    void *memory = NULL;
    CY_TRY(cy_memory_alloc(&memory, (size_t)all->one.tensor_count, sizeof(cy_global_tensor)));
    cy_global_tensor *tensors = memory;
    // A checkpoint of weights alone, such as a Hugging Face folder, has no moments to compare.
    bool has[CY_TENSOR_KINDS] = {[CY_TENSOR_WEIGHT] = true};
    for (int i = 0; i < all->other.tensor_count; i++)
        has[all->other.tensors[i].tensor.kind] = true;
    int count = 0;
    for (int i = 0; i < all->one.tensor_count; i++) {
        const cy_global_tensor *tensor = &all->one.tensors[i].tensor;
        all->left_out[tensor->kind] = !has[tensor->kind];
        if (has[tensor->kind]) tensors[count++] = *tensor;
    }
    cy_status status = cy_checkpoint_check_tensors(&all->other, tensors, count);
    for (int i = 0; status == CY_OK && i < count; i++) {
        cy_tensor_difference difference;
        status = cy_checkpoint_compare(&difference, &all->one, &all->other, &tensors[i]);
        if (status == CY_OK) status = add_tensor(all, &tensors[i], &difference);
    }
    cy_memory_free(memory);
    return status;
}

static cy_status print_json(comparison *all)
{
    const summary *weights = &all->kinds[CY_TENSOR_WEIGHT];
    int count = 0, equal = 0;
    for (int i = 0; i < CY_TENSOR_KINDS; i++) {
        count += all->kinds[i].count;
        equal += all->kinds[i].equal;
    }
    json_t *list = all->list;
    all->list = NULL;
    return cy_report_json(json_pack("{s:o, s:b, s:o}", "difference", cy_json_real(weights->worst),
                              "equal", equal == count, "tensors", list),
        JSON_COMPACT);
}

static void print_lines(const comparison *all)
{
    for (int i = 0; i < CY_TENSOR_KINDS; i++) {
        const summary *kind = &all->kinds[i];
        const char *name = cy_tensor_kind_name((cy_tensor_kind)i);
        if (all->left_out[i]) printf("%-10s  none in %s\n", name, all->other.path);
        if (kind->count == 0) continue;
        printf("%-10s  %d of %d tensors equal; furthest %.2e, %s\n", name, kind->equal, kind->count,
            kind->worst, kind->name);
    }
    if (all->lines.bytes != NULL) fputs(all->lines.bytes, stdout);
}

static cy_status run(comparison *all, const char *const *paths)
{
    CY_TRY(cy_checkpoint_open_located(&all->one, paths[0]));
    CY_TRY(cy_checkpoint_open_located(&all->other, paths[1]));
    CY_TRY(compare(all));
    if (all->given->json) CY_TRY(print_json(all));
    if (!all->given->json) print_lines(all);
    const summary *weights = &all->kinds[CY_TENSOR_WEIGHT];
    if (weights->count > 0 && !(weights->worst <= all->given->within)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s of %s and of %s are %.2e apart, allowed are %.2e",
            weights->name, all->one.path, all->other.path, weights->worst, all->given->within);
    }
    return CY_OK;
}

int cy_command_checkpoint_compare(int argc, char **argv)
{
    values given;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &given, &usage, argc, argv);
    if (status == CY_RUN_COMMAND) {
        comparison all = {.given = &given, .list = json_array()};
        status = cy_report_output(cy_report_status(run(&all, arguments.positional)));
        json_decref(all.list);
        cy_text_free(&all.lines);
        cy_checkpoint_close(&all.one);
        cy_checkpoint_close(&all.other);
    }
    cy_arguments_free(&arguments);
    return status;
}
