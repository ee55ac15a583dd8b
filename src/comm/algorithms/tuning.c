// Choosing algorithms by measuring them on a group.

#include "base/clock.h"
#include "base/numbers.h"
#include "comm/algorithm.h"
#include "comm/backend.h"

#include <string.h>

// Rounds in which all algorithms take turns, and of those that take longer than TUNE_LONG_S.
#define TUNE_ROUNDS      7
#define TUNE_LONG_ROUNDS 5
#define TUNE_LONG_S      1e-3

// All_reduces of a turn: as many as take TUNE_BATCH_S, within this limit.
#define TUNE_BATCH   16
#define TUNE_BATCH_S 100e-6

// Times of the fastest at the first look.
#define TUNE_FAR_BEHIND 2.0

#define TUNE_STEP 8 // from one size to the next

bool cy_algorithm_keeps_order(cy_algorithm algorithm, int ranks)
{
    if (ranks == 2) return true; // two operands have one order
    return algorithm == CY_ALGORITHM_NATIVE || algorithm == CY_ALGORITHM_TREE ||
        algorithm == CY_ALGORITHM_DOUBLING;
}

// Seconds of an all_reduce, of `batch` one after the other. The first one is not timed: it finds
// the data in the caches where the algorithm before it has left them.
static cy_status time_batch(
    double *seconds, cy_group *group, cy_queue *queue, cy_view data, int batch)
{
    CY_TRY(cy_group_barrier(group));
    CY_TRY(cy_group_all_reduce(group, queue, data, CY_SUM));
    const double start = cy_clock_s();
    for (int i = 0; i < batch; i++)
        CY_TRY(cy_group_all_reduce(group, queue, data, CY_SUM));
    *seconds = (cy_clock_s() - start) / batch;
    return CY_OK;
}

// How a size is timed: rounds, all_reduces of each turn, and which algorithms take part.
typedef struct tuning {
    int batch;
    int rounds;
    bool takes_part[CY_ALGORITHMS];
} tuning;

// Looks at every algorithm once: short ones are timed many at a time, and one that is far behind is
// not timed again. `seconds` gets what it took, the same on all ranks, which so choose alike.
static cy_status choose_tuning(
    tuning *chosen, double *seconds, cy_group *const *groups, cy_queue *queue, cy_view data)
{
    for (int a = 0; a < CY_ALGORITHMS; a++) {
        seconds[a] = 0.0;
        if (groups[a] == NULL) continue;
        CY_TRY(
            time_batch(&seconds[a], groups[a], queue, data, 1)); // the first one takes its memory
        CY_TRY(time_batch(&seconds[a], groups[a], queue, data, 1));
    }
    CY_TRY(cy_group_all_reduce(
        groups[CY_ALGORITHM_NATIVE], queue, cy_view_of(seconds, CY_F64, 1, CY_ALGORITHMS), CY_MAX));
    double fastest = seconds[CY_ALGORITHM_NATIVE], slowest = 0.0;
    for (int a = 0; a < CY_ALGORITHMS; a++) {
        if (groups[a] != NULL && seconds[a] < fastest) fastest = seconds[a];
    }
    for (int a = 0; a < CY_ALGORITHMS; a++) {
        chosen->takes_part[a] = groups[a] != NULL &&
            (a == CY_ALGORITHM_NATIVE || seconds[a] < TUNE_FAR_BEHIND * fastest);
        if (chosen->takes_part[a] && seconds[a] > slowest) slowest = seconds[a];
    }
    const double wanted = TUNE_BATCH_S / (slowest + 1e-9);
    chosen->batch = wanted < 1.0 ? 1 : wanted > TUNE_BATCH ? TUNE_BATCH : (int)wanted;
    chosen->rounds = slowest > TUNE_LONG_S ? TUNE_LONG_ROUNDS : TUNE_ROUNDS;
    return CY_OK;
}

// Seconds of all algorithms, the same on all ranks. What else happens on the machine slows a whole
// round, so each algorithm is compared with the native one within its round: the times are those of
// the native one, times the median of these quotients.
static cy_status time_algorithms(
    double *seconds, cy_group *const *groups, cy_queue *queue, cy_view data)
{
    double times[CY_ALGORITHMS][TUNE_ROUNDS] = {{0.0}};
    tuning chosen = {0};
    CY_TRY(choose_tuning(&chosen, seconds, groups, queue, data));
    for (int i = 0; i < chosen.rounds; i++) {
        for (int a = 0; a < CY_ALGORITHMS; a++) {
            if (!chosen.takes_part[a]) continue;
            CY_TRY(time_batch(&times[a][i], groups[a], queue, data, chosen.batch));
        }
    }
    // An all_reduce takes as long as on the slowest rank.
    CY_TRY(cy_group_all_reduce(groups[CY_ALGORITHM_NATIVE], queue,
        cy_view_of(times, CY_F64, CY_ALGORITHMS, TUNE_ROUNDS), CY_MAX));
    double native[TUNE_ROUNDS];
    memcpy(native, times[CY_ALGORITHM_NATIVE], sizeof(native));
    const double typical = cy_median(times[CY_ALGORITHM_NATIVE], chosen.rounds);
    for (int a = 0; a < CY_ALGORITHMS; a++) {
        for (int i = 0; i < chosen.rounds; i++)
            times[a][i] = a == CY_ALGORITHM_NATIVE ? 1.0 : times[a][i] / native[i];
        if (chosen.takes_part[a]) seconds[a] = typical * cy_median(times[a], chosen.rounds);
    }
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
        if (bytes > bytes_max) break;
        const int64_t count = (int64_t)(bytes / sizeof(float));
        const cy_view view = cy_view_of(data, CY_F32, 1, count);
        // Pages must exist, and lines of zeros move faster than data.
        for (int64_t i = 0; i < count; i++)
            data[i] = (float)(1 + i % 7);
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

cy_status cy_algorithm_measure(cy_algorithm_times *times, cy_group *group, cy_queue *queue,
    float *data, size_t bytes, double budget_s)
{
    *times = (cy_algorithm_times){0};
    const cy_traffic before = group->counters;
    cy_group *groups[CY_ALGORITHMS] = {[CY_ALGORITHM_NATIVE] = group};
    cy_status status = CY_OK;
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS && status == CY_OK; a++) {
        // The server is never the fastest.
        if (a == CY_ALGORITHM_SERVER || a == CY_ALGORITHM_HIERARCHICAL) continue;
        if (!cy_algorithm_keeps_order((cy_algorithm)a, group->size)) continue;
        const cy_algorithm_options options = {
            .table = cy_algorithm_always((cy_algorithm)a), .keep_inside = true};
        status = cy_algorithm_open(&groups[a], group, &options);
    }
    if (status == CY_OK) status = measure_sizes(times, groups, queue, data, bytes, budget_s);
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS; a++)
        cy_group_close(groups[a]);
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
