// Several chunks a rank, taken in turn (Narayanan et al., arXiv:2104.04473).
//
// Microbatches go through the chunks in groups of `stages`: a group passes the first chunk of all
// ranks, then the second, and so on, so that the ranks are full after a chunk's time instead of a
// stage's. Where the stages do not divide the microbatches, groups are larger by as little as they
// can be: a smaller one would leave ranks waiting between its chunks.

#include "parallel/pipeline/build.h"

#include "base/status.h"

typedef struct place {
    int microbatch;
    int chunk;
} place;

// Groups: as many of at least `stages` microbatches as there can be, the larger ones first.
typedef struct groups {
    int count;
    int size;   // of the smaller ones
    int larger; // how many have one microbatch more
} groups;

static groups make_groups(const cy_schedule *schedule)
{
    const int whole = schedule->microbatches / schedule->stages;
    const int count = whole > 0 ? whole : 1;
    return (groups){
        .count = count,
        .size = schedule->microbatches / count,
        .larger = schedule->microbatches % count,
    };
}

// The pass-th pass of a rank through one of its chunks: forwards take the chunks in ascending
// order, backwards in descending order.
static place place_of(const cy_schedule *schedule, int pass, bool forward)
{
    const groups g = make_groups(schedule);
    const int chunks = schedule->chunks;
    const int larger_passes = g.larger * (g.size + 1) * chunks;
    const bool larger = pass < larger_passes;
    const int size = larger ? g.size + 1 : g.size;
    const int from = larger ? pass : pass - larger_passes;
    const int first = (larger ? 0 : g.larger * (g.size + 1)) + from / (size * chunks) * size;
    const int chunk = from % (size * chunks) / size;
    return (place){
        .microbatch = first + from % size,
        .chunk = forward ? chunk : chunks - 1 - chunk,
    };
}

// Forwards before the first backward: two for each rank behind this one (a forward there and a
// backward from there pass in between), and a group for each chunk but the last.
static int warmup_passes(const cy_schedule *schedule, int rank)
{
    const groups g = make_groups(schedule);
    const int group = g.larger > 0 ? g.size + 1 : g.size;
    const int passes = schedule->microbatches * schedule->chunks;
    const int behind = schedule->stages - 1 - rank;
    // With one chunk this is 1f1b, where a forward and a backward pass in turn.
    const int warmup = schedule->chunks == 1 ? behind : 2 * behind + (schedule->chunks - 1) * group;
    return warmup < passes ? warmup : passes;
}

static cy_status add_pass(cy_schedule *schedule, int rank, cy_action_kind kind, int pass)
{
    const place at = place_of(schedule, pass, kind == CY_ACTION_FORWARD);
    return cy_schedule_add_compute(schedule, rank, kind, at.microbatch, at.chunk);
}

cy_status cy_schedule_build_interleaved(cy_schedule *schedule)
{
    const int passes = schedule->microbatches * schedule->chunks;
    for (int rank = 0; rank < schedule->stages; rank++) {
        const int warmup = warmup_passes(schedule, rank);
        for (int i = 0; i < warmup; i++) {
            CY_TRY(add_pass(schedule, rank, CY_ACTION_FORWARD, i));
        }
        for (int i = warmup; i < passes; i++) {
            CY_TRY(add_pass(schedule, rank, CY_ACTION_FORWARD, i));
            CY_TRY(add_pass(schedule, rank, CY_ACTION_BACKWARD, i - warmup));
        }
        for (int i = passes - warmup; i < passes; i++) {
            CY_TRY(add_pass(schedule, rank, CY_ACTION_BACKWARD, i));
        }
    }
    return CY_OK;
}
