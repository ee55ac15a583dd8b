// Measuring which algorithm each dimension of a run adds with, and saying so.

#include "train/algorithms.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

#define BUDGET_S 0.04 // of each dimension

// Dimensions that add tensors; what the others add is a few numbers.
enum { TP, DP, DIMENSIONS };

static const char *const dimensions[DIMENSIONS] = {"tp", "dp"};

// The largest message that a run of this model can have.
static size_t largest_message(const cy_rank *rank, const cy_config *config, int dimension)
{
    const cy_model_shape *shape = &config->shape;
    const double activations = (double)config->training.micro_batch_size *
        (double)config->training.seq_length * (double)shape->hidden * sizeof(float);
    const double parts = rank->mesh.size[CY_AXIS_TP] * rank->mesh.size[CY_AXIS_PP];
    const double layer = (double)shape->hidden * (double)(4 * shape->hidden + 3 * shape->ffn);
    const double gradient = 4.0 / parts *
        ((double)shape->layers * layer + (double)shape->vocab * (double)shape->hidden);
    const double bucket = config->distributed.bucket_mb * 0x1p20;
    const double bytes = dimension == TP ? activations : gradient < bucket ? gradient : bucket;
    return bytes < 0x1p40 ? (size_t)bytes : (size_t)1 << 40;
}

// The groups of a dimension, without those that are there twice.
static int groups_of(cy_engine_groups *groups, int dimension, cy_group **found[3])
{
    int count = 0;
    if (dimension == DP) {
        found[count++] = &groups->gradient;
        return count;
    }
    found[count++] = &groups->tp;
    if (groups->kv != groups->tp) found[count++] = &groups->kv;
    if (groups->norm != groups->world) found[count++] = &groups->norm;
    return count;
}

// On memory like an engine's.
static cy_status measure_group(cy_algorithm_times *times, cy_group *group, size_t bytes)
{
    const size_t most = (size_t)cy_algorithm_size(CY_ALGORITHM_SIZES - 1);
    const size_t room = bytes < 8 ? 8 : bytes < most ? bytes : most;
    void *data = NULL;
    CY_TRY(cy_memory_map(&data, room));
    const cy_status status = cy_algorithm_measure(times, group, NULL, data, room, BUDGET_S);
    cy_memory_unmap(data, room);
    return status;
}

static cy_status measure(const cy_rank *rank, const cy_config *config, cy_algorithm_times *times)
{
    const cy_engine_groups *groups = &rank->groups;
    cy_group *const measured[DIMENSIONS] = {groups->tp, groups->gradient};
    for (int d = 0; d < DIMENSIONS; d++) {
        times[d] = (cy_algorithm_times){0};
        if (cy_group_size(measured[d]) == 1) continue;
        CY_TRY(measure_group(&times[d], measured[d], largest_message(rank, config, d)));
    }
    // Groups of a dimension come to one choice: what is fastest in the slowest of them.
    const int64_t count = (int64_t)(DIMENSIONS * sizeof(*times) / sizeof(double));
    const cy_traffic none = cy_group_counters(groups->world);
    CY_TRY(cy_group_all_reduce(groups->world, NULL, cy_view_of(times, CY_F64, 1, count), CY_MAX));
    cy_group_set_counters(groups->world, none);
    return CY_OK;
}

static cy_status wrap(cy_group **group, const cy_algorithm_table *table)
{
    if (cy_group_size(*group) == 1) return CY_OK;
    const cy_algorithm_options options = {
        .table = *table, .native_others = true, .progress_thread = true};
    return cy_algorithm_open(group, *group, &options);
}

// "native", or "tp:tree<=1536,native;dp:native".
static cy_status write_choice(
    cy_text *text, const cy_rank *rank, const cy_algorithm_table *tables, bool *plain)
{
    *plain = true;
    cy_group *const measured[DIMENSIONS] = {rank->groups.tp, rank->groups.gradient};
    for (int d = 0; d < DIMENSIONS; d++) {
        if (cy_group_size(measured[d]) == 1) continue;
        *plain = *plain && cy_algorithm_is_native(&tables[d]);
        CY_TRY(cy_text_add(text, "%s%s:", text->length > 0 ? ";" : "", dimensions[d]));
        CY_TRY(cy_algorithm_table_write(text, &tables[d]));
    }
    return CY_OK;
}

static cy_status apply(cy_rank *rank, const cy_algorithm_table *tables)
{
    for (int d = 0; d < DIMENSIONS; d++) {
        cy_group **groups[3];
        if (cy_algorithm_is_native(&tables[d])) continue;
        const int count = groups_of(&rank->groups, d, groups);
        for (int g = 0; g < count; g++)
            CY_TRY(wrap(groups[g], &tables[d]));
    }
    return CY_OK;
}

cy_status cy_rank_choose_algorithms(cy_rank *rank, cy_config *config)
{
    char *name = config->distributed.algorithm;
    const size_t room = sizeof(config->distributed.algorithm);
    if (strcmp(name, "auto") != 0) return CY_OK;
    cy_algorithm_times times[DIMENSIONS];
    cy_algorithm_table tables[DIMENSIONS];
    CY_TRY(measure(rank, config, times));
    for (int d = 0; d < DIMENSIONS; d++)
        tables[d] = cy_algorithm_from_times(&times[d]);
    cy_text text = {0};
    bool plain = true;
    cy_status status = write_choice(&text, rank, tables, &plain);
    if (status == CY_OK && (plain || text.length >= room)) {
        snprintf(name, room, "%s", cy_algorithm_name(CY_ALGORITHM_NATIVE));
    } else if (status == CY_OK) {
        snprintf(name, room, "%s", text.bytes);
        status = apply(rank, tables);
    }
    cy_text_free(&text);
    return status;
}

cy_status cy_rank_describe_algorithms(const cy_rank *rank, cy_text *text)
{
    const char *name = rank->config->distributed.algorithm;
    if (strchr(name, ':') != NULL) return cy_text_add(text, "all_reduce: %s\n", name);
    if (strcmp(name, cy_algorithm_name(CY_ALGORITHM_HIERARCHICAL)) != 0) return CY_OK;
    const int nodes = rank->world == NULL ? 1 : cy_world_nodes(rank->world);
    if (nodes > 1) {
        return cy_text_add(
            text, "all_reduce: hierarchical, %d ranks on %d nodes\n", rank->mesh.world, nodes);
    }
    return cy_text_add(text,
        "all_reduce: distributed.algorithm hierarchical has nothing to do, all ranks are on one "
        "node: the backend's own is used\n");
}
