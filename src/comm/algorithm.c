#include "comm/algorithm.h"

#include "base/clock.h"
#include "base/memory.h"
#include "comm/backend.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[CY_ALGORITHMS] = {
    [CY_ALGORITHM_NATIVE] = "native",
    [CY_ALGORITHM_RING] = "ring",
    [CY_ALGORITHM_TREE] = "tree",
    [CY_ALGORITHM_DOUBLING] = "doubling",
    [CY_ALGORITHM_HIERARCHICAL] = "hierarchical",
    [CY_ALGORITHM_SERVER] = "server",
};

const char *cy_algorithm_name(cy_algorithm algorithm)
{
    return names[algorithm];
}

cy_status cy_algorithm_from_name(cy_algorithm *algorithm, const char *name)
{
    for (int i = 0; i < CY_ALGORITHMS; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *algorithm = (cy_algorithm)i;
        return CY_OK;
    }
    const cy_status status = CY_FAIL(CY_ERR_REQUEST, "algorithm \"%s\" is none", name);
    cy_error_set_hint("auto, native, ring, tree, doubling, hierarchical or server");
    return status;
}

cy_algorithm_table cy_algorithm_always(cy_algorithm algorithm)
{
    return (cy_algorithm_table){.count = 1, .rows = {{INT64_MAX, algorithm}}};
}

cy_algorithm_table cy_algorithm_default(void)
{
    return (cy_algorithm_table){
        .count = 3,
        .rows = {{4096, CY_ALGORITHM_DOUBLING}, {262144, CY_ALGORITHM_TREE},
            {INT64_MAX, CY_ALGORITHM_RING}},
    };
}

cy_algorithm cy_algorithm_choose(const cy_algorithm_table *table, size_t bytes)
{
    int row = 0;
    while (row < table->count - 1 && (int64_t)bytes > table->rows[row].bytes)
        row++;
    return table->rows[row].algorithm;
}

// ---- the choice by measuring

#define TUNE_REPEATS 5

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// Median seconds of an all_reduce with one algorithm.
static cy_status time_algorithm(cy_group *group, cy_queue *queue, cy_view data, double *seconds)
{
    double times[TUNE_REPEATS];
    for (int i = -1; i < TUNE_REPEATS; i++) {
        CY_TRY(cy_group_barrier(group));
        const double start = cy_clock_s();
        CY_TRY(cy_group_all_reduce(group, queue, data, CY_SUM));
        if (i >= 0) times[i] = cy_clock_s() - start;
    }
    qsort(times, TUNE_REPEATS, sizeof(times[0]), ascending);
    *seconds = times[TUNE_REPEATS / 2];
    return CY_OK;
}

static cy_status best_at(cy_algorithm *best, cy_group *const *groups, cy_queue *queue, cy_view data)
{
    double least = 0.0;
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS; a++) {
        if (groups[a] == NULL) continue;
        double seconds = 0.0;
        CY_TRY(time_algorithm(groups[a], queue, data, &seconds));
        if (a == CY_ALGORITHM_RING || seconds < least) {
            least = seconds;
            *best = (cy_algorithm)a;
        }
    }
    // Clocks differ between ranks, the choice must not.
    int32_t verdict = (int32_t)*best;
    cy_group *ring = groups[CY_ALGORITHM_RING];
    CY_TRY(cy_group_broadcast(ring, queue, cy_view_of(&verdict, CY_I32, 1, 1), 0));
    *best = (cy_algorithm)verdict;
    return CY_OK;
}

cy_status cy_algorithm_tune(
    cy_algorithm_table *table, cy_group *inside, cy_queue *queue, int node_ranks, size_t bytes_max)
{
    cy_group *groups[CY_ALGORITHMS] = {0};
    const bool nodes = node_ranks > 1 && node_ranks < inside->size;
    cy_status status = CY_OK;
    void *data = NULL;
    cy_algorithm_table made = {0};
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS && status == CY_OK; a++) {
        if (a == CY_ALGORITHM_HIERARCHICAL && !nodes) continue;
        const cy_algorithm_options options = {
            .table = cy_algorithm_always((cy_algorithm)a),
            .node_ranks = nodes ? node_ranks : 0,
            .keep_inside = true,
        };
        status = cy_algorithm_open(&groups[a], inside, &options);
    }
    if (status == CY_OK) status = cy_memory_take(&data, bytes_max / 4 + 1, sizeof(float));
    for (size_t bytes = 8; bytes <= bytes_max && status == CY_OK; bytes *= 4) {
        cy_algorithm best = CY_ALGORITHM_RING;
        status = best_at(&best, groups, queue, cy_view_of(data, CY_F32, 1, (int64_t)(bytes / 4)));
        // Half way to the next size, as sizes multiply.
        const int last = made.count - 1;
        if (last < 0 || made.rows[last].algorithm != best) {
            made.rows[made.count].algorithm = best;
            made.count++;
        }
        made.rows[made.count - 1].bytes = (int64_t)bytes * 2;
    }
    for (int a = 0; a < CY_ALGORITHMS; a++)
        cy_group_close(groups[a]);
    cy_memory_free(data);
    if (status != CY_OK) return status;
    made.rows[made.count - 1].bytes = INT64_MAX;
    *table = made;
    return CY_OK;
}
