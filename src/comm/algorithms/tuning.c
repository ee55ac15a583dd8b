// Choosing algorithms by measuring them on a group.

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "comm/algorithm.h"
#include "comm/backend.h"

// Samples of an all_reduce, and of one that takes longer than TUNE_LONG_S.
#define TUNE_SAMPLES      5
#define TUNE_LONG_SAMPLES 3
#define TUNE_LONG_S       1e-3

// All_reduces of a sample: as many as take TUNE_BATCH_S, within this limit.
#define TUNE_BATCH   16
#define TUNE_BATCH_S 50e-6

#define TUNE_STEP 8 // from one size to the next

bool cy_algorithm_keeps_order(cy_algorithm algorithm, int ranks)
{
    if (ranks == 2) return true; // two operands have one order
    return algorithm == CY_ALGORITHM_NATIVE || algorithm == CY_ALGORITHM_TREE ||
        algorithm == CY_ALGORITHM_DOUBLING;
}

// Seconds of an all_reduce, of `batch` one after the other.
static cy_status time_batch(
    double *seconds, cy_group *group, cy_queue *queue, cy_view data, int batch)
{
    CY_TRY(cy_group_barrier(group));
    const double start = cy_clock_s();
    for (int i = 0; i < batch; i++)
        CY_TRY(cy_group_all_reduce(group, queue, data, CY_SUM));
    *seconds = (cy_clock_s() - start) / batch;
    return CY_OK;
}

// How often a size is timed: samples of so many one after the other.
typedef struct tuning {
    int batch;
    int samples;
} tuning;

// Short ones are timed many at a time. All ranks choose alike, by what the slowest algorithm takes
// on the slowest rank.
static cy_status choose_tuning(
    tuning *chosen, cy_group *const *groups, cy_queue *queue, cy_view data)
{
    double slowest = 0.0;
    for (int a = 0; a < CY_ALGORITHMS; a++) {
        double seconds = 0.0;
        if (groups[a] == NULL) continue;
        CY_TRY(time_batch(&seconds, groups[a], queue, data, 1)); // the first one takes its memory
        CY_TRY(time_batch(&seconds, groups[a], queue, data, 1));
        if (seconds > slowest) slowest = seconds;
    }
    CY_TRY(cy_group_all_reduce(
        groups[CY_ALGORITHM_NATIVE], queue, cy_view_of(&slowest, CY_F64, 1, 1), CY_MAX));
    const double wanted = TUNE_BATCH_S / (slowest + 1e-9);
    chosen->batch = wanted < 1.0 ? 1 : wanted > TUNE_BATCH ? TUNE_BATCH : (int)wanted;
    chosen->samples = slowest > TUNE_LONG_S ? TUNE_LONG_SAMPLES : TUNE_SAMPLES;
    return CY_OK;
}

// Medians of all algorithms. They take turns, so that what else the machine does in the meantime
// slows all of them alike.
static cy_status time_algorithms(
    double *seconds, cy_group *const *groups, cy_queue *queue, cy_view data)
{
    double times[CY_ALGORITHMS][TUNE_SAMPLES];
    tuning chosen = {1, 1};
    CY_TRY(choose_tuning(&chosen, groups, queue, data));
    for (int i = 0; i < chosen.samples; i++) {
        for (int a = 0; a < CY_ALGORITHMS; a++) {
            if (groups[a] == NULL) continue;
            CY_TRY(time_batch(&times[a][i], groups[a], queue, data, chosen.batch));
        }
    }
    for (int a = 0; a < CY_ALGORITHMS; a++)
        seconds[a] = groups[a] == NULL ? 0.0 : cy_median(times[a], chosen.samples);
    return CY_OK;
}

// Whether all have spent the time that was given: every rank gets the same answer.
static cy_status is_over(bool *over, cy_group *group, cy_queue *queue, double until_s)
{
    double late = cy_clock_s() > until_s;
    CY_TRY(cy_group_all_reduce(group, queue, cy_view_of(&late, CY_F64, 1, 1), CY_MAX));
    *over = late > 0.0;
    return CY_OK;
}

static cy_status measure_sizes(cy_algorithm_times *times, cy_group *const *groups, cy_queue *queue,
    float *data, size_t bytes_max, double budget_s)
{
    const double until_s = cy_clock_s() + budget_s;
    bool over = false;
    for (int s = 0; s < CY_ALGORITHM_SIZES && !over; s++) {
        const size_t bytes = (size_t)cy_algorithm_size(s);
        if (s > 0 && bytes > bytes_max) break;
        const cy_view view = cy_view_of(data, CY_F32, 1, (int64_t)(bytes / sizeof(float)));
        CY_TRY(time_algorithms(times->seconds[s], groups, queue, view));
        CY_TRY(is_over(&over, groups[CY_ALGORITHM_NATIVE], queue, until_s));
    }
    return CY_OK;
}

int64_t cy_algorithm_size(int index)
{
    if (index == CY_ALGORITHM_SIZES - 1) return INT64_C(64) << 20;
    int64_t bytes = TUNE_STEP;
    for (int i = 0; i < index; i++)
        bytes *= TUNE_STEP;
    return bytes;
}

cy_status cy_algorithm_measure(
    cy_algorithm_times *times, cy_group *group, cy_queue *queue, size_t bytes_max, double budget_s)
{
    *times = (cy_algorithm_times){0};
    const cy_traffic before = group->counters;
    cy_group *groups[CY_ALGORITHMS] = {[CY_ALGORITHM_NATIVE] = group};
    cy_status status = CY_OK;
    void *data = NULL;
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS && status == CY_OK; a++) {
        // The server is never the fastest.
        if (a == CY_ALGORITHM_SERVER || a == CY_ALGORITHM_HIERARCHICAL) continue;
        if (!cy_algorithm_keeps_order((cy_algorithm)a, group->size)) continue;
        const cy_algorithm_options options = {
            .table = cy_algorithm_always((cy_algorithm)a), .keep_inside = true};
        status = cy_algorithm_open(&groups[a], group, &options);
    }
    const int64_t largest = cy_algorithm_size(CY_ALGORITHM_SIZES - 1);
    const size_t room = bytes_max < (size_t)largest ? bytes_max : (size_t)largest;
    if (status == CY_OK) status = cy_memory_alloc(&data, room + 8, 1);
    if (status == CY_OK) status = measure_sizes(times, groups, queue, data, room, budget_s);
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS; a++)
        cy_group_close(groups[a]);
    cy_memory_free(data);
    group->counters = before; // what a run sends is counted, not this
    return status;
}

cy_algorithm_table cy_algorithm_from_times(const cy_algorithm_times *times)
{
    cy_algorithm_table made = {0};
    for (int s = 0; s < CY_ALGORITHM_SIZES; s++) {
        const double *seconds = times->seconds[s];
        if (seconds[CY_ALGORITHM_NATIVE] <= 0.0) break; // no time was left for it
        cy_algorithm best = CY_ALGORITHM_NATIVE;
        for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS; a++) {
            // A difference of less than a twentieth may be chance.
            const double limit = seconds[best] * (best == CY_ALGORITHM_NATIVE ? 0.95 : 1.0);
            if (seconds[a] > 0.0 && seconds[a] < limit) best = (cy_algorithm)a;
        }
        if (made.count == 0 || made.rows[made.count - 1].algorithm != best) {
            made.rows[made.count++].algorithm = best;
        }
        // About half way to the next size, as sizes multiply.
        made.rows[made.count - 1].bytes = cy_algorithm_size(s) * 3;
    }
    if (made.count == 0) return cy_algorithm_always(CY_ALGORITHM_NATIVE);
    made.rows[made.count - 1].bytes = INT64_MAX;
    return made;
}
