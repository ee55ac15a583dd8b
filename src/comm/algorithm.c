#include "comm/algorithm.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "comm/backend.h"

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

// ---- the choice by formulas

static double message_s(const cy_link *link, double bytes)
{
    return link->latency_s + (link->bytes_per_s > 0.0 ? bytes / link->bytes_per_s : 0.0);
}

static int log2_up(int ranks)
{
    int rounds = 0;
    while (1 << rounds < ranks)
        rounds++;
    return rounds;
}

// The slowest message of a round in which partners are `distance` ranks apart. All numbers are
// powers of two, so partners that are less than a node apart stay in it.
static const cy_link *link_of(const cy_links *links, int distance)
{
    return distance < links->node_ranks ? &links->inside : &links->between;
}

double cy_algorithm_seconds(cy_algorithm algorithm, const cy_links *links, double bytes)
{
    const double ranks = links->ranks;
    const double node = links->node_ranks;
    const double nodes = ranks / node;
    const double rounds = log2_up(links->ranks);
    const bool power = 1 << log2_up(links->ranks) == links->ranks;
    // A round ends with its slowest message.
    const cy_link *slowest = nodes > 1.0 ? &links->between : &links->inside;
    switch (algorithm) {
    case CY_ALGORITHM_NATIVE:
    case CY_ALGORITHM_RING:
        return 2.0 * (ranks - 1.0) * message_s(slowest, bytes / ranks);
    case CY_ALGORITHM_TREE: {
        if (!power) return 2.0 * rounds * message_s(slowest, bytes);
        double seconds = 0.0; // halves to the farthest partner, quarters to the next, ...
        double part = bytes / 2.0;
        for (int distance = links->ranks / 2; distance > 0; distance /= 2) {
            seconds += 2.0 * message_s(link_of(links, distance), part);
            part /= 2.0;
        }
        return seconds;
    }
    case CY_ALGORITHM_DOUBLING: {
        // Ranks beyond a power of two hand their data to another first and get the sum at the end.
        if (!power) return (rounds + 1.0) * message_s(slowest, bytes);
        double seconds = 0.0;
        for (int distance = 1; distance < links->ranks; distance *= 2)
            seconds += message_s(link_of(links, distance), bytes);
        return seconds;
    }
    case CY_ALGORITHM_HIERARCHICAL:
        return 2.0 * (node - 1.0) * message_s(&links->inside, bytes / node) +
            2.0 * (nodes - 1.0) * message_s(&links->between, bytes / ranks);
    case CY_ALGORITHM_SERVER:
        return 2.0 * message_s(slowest, bytes); // at the least: the server's messages take turns
    }
    return 0.0;
}

cy_algorithm_table cy_algorithm_for(const cy_links *links)
{
    cy_algorithm_table made = {0};
    for (int64_t bytes = 8; made.count < CY_ALGORITHM_ROWS && bytes < INT64_C(1) << 36;
         bytes *= 2) {
        cy_algorithm best = CY_ALGORITHM_RING;
        for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHM_SERVER; a++) {
            if (a == CY_ALGORITHM_HIERARCHICAL && links->node_ranks == links->ranks) continue;
            if (a == CY_ALGORITHM_HIERARCHICAL && links->node_ranks == 1) continue;
            if (cy_algorithm_seconds((cy_algorithm)a, links, (double)bytes) <
                cy_algorithm_seconds(best, links, (double)bytes)) {
                best = (cy_algorithm)a;
            }
        }
        if (made.count == 0 || made.rows[made.count - 1].algorithm != best) {
            made.rows[made.count++].algorithm = best;
        }
        made.rows[made.count - 1].bytes = bytes;
    }
    made.rows[made.count - 1].bytes = INT64_MAX;
    return made;
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
    *seconds = cy_median(times, TUNE_REPEATS);
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
