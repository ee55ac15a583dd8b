// Generates the compute actions of each pipeline engine: afab, 1f1b, interleaved and zero_bubble.

#include "parallel/pipeline/build.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdint.h>

// ---- afab: all forwards, then all backwards: GPipe (Huang et al., arXiv:1811.06965)
//
// The backwards run in the order of the forwards, so that gradients are added up in the order in
// which one rank alone would add them.

cy_status cy_schedule_build_afab(cy_schedule *schedule)
{
    for (int rank = 0; rank < schedule->stages; rank++) {
        for (int m = 0; m < schedule->microbatches; m++) {
            CY_TRY(cy_schedule_add_compute(schedule, rank, CY_ACTION_FORWARD, m, 0));
        }
        for (int m = 0; m < schedule->microbatches; m++) {
            CY_TRY(cy_schedule_add_compute(schedule, rank, CY_ACTION_BACKWARD, m, 0));
        }
    }
    return CY_OK;
}

// ---- 1f1b: one forward, one backward: PipeDream-Flush (Narayanan et al., arXiv:2006.09503,
// arXiv:2104.04473)
//
// A rank first runs as many forwards as there are ranks after it, then alternates, then drains: it
// never holds more than stages - rank activations, and waits no longer than GPipe does.

cy_status cy_schedule_build_1f1b(cy_schedule *schedule)
{
    const int count = schedule->microbatches;
    for (int rank = 0; rank < schedule->stages; rank++) {
        const int after = schedule->stages - rank - 1;
        const int warmup = after < count ? after : count;
        for (int m = 0; m < warmup; m++) {
            CY_TRY(cy_schedule_add_compute(schedule, rank, CY_ACTION_FORWARD, m, 0));
        }
        for (int m = warmup; m < count; m++) {
            CY_TRY(cy_schedule_add_compute(schedule, rank, CY_ACTION_FORWARD, m, 0));
            CY_TRY(cy_schedule_add_compute(schedule, rank, CY_ACTION_BACKWARD, m - warmup, 0));
        }
        for (int m = count - warmup; m < count; m++) {
            CY_TRY(cy_schedule_add_compute(schedule, rank, CY_ACTION_BACKWARD, m, 0));
        }
    }
    return CY_OK;
}

// ---- interleaved: several chunks a rank, taken in turn (Narayanan et al., arXiv:2104.04473)
//
// Microbatches go through the chunks in groups of `stages`: a group passes the first chunk of all
// ranks, then the second, and so on, so that the ranks are full after a chunk's time instead of a
// stage's. Where the stages do not divide the microbatches, groups are larger by as little as they
// can be: a smaller one would leave ranks waiting between its chunks.

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

// ---- zero_bubble: backward in two parts, so that weight gradients fill what would be a bubble
//
// Qi et al., "Zero bubble pipeline parallelism" (arXiv:2401.10241: ZB-H1) and "Pipeline parallelism
// with controllable memory" (arXiv:2405.15362: ZB-V, two chunks a rank placed as a V, so that rank
// 0 holds both ends of the model).
//
// Each rank has a fixed order of forwards and input gradients (below). All ranks then play it in
// unit ticks: a rank that cannot do its next one, because the message is not there or its stashes
// are at the limit, does an open weight gradient instead. The limit is what 1f1b's first rank
// holds: as many microbatches as there are ranks, counted until their weight gradient is done.

#define ZERO_BUBBLE_CHUNKS 2 // at most

typedef struct step {
    bool forward;
    int chunk;
} step;

// One rank while its order is made and played.
typedef struct player {
    step *order; // owned, [2 * microbatches * chunks]
    int count;
    int next;
    int forwards[ZERO_BUBBLE_CHUNKS]; // done so far
    int inputs[ZERO_BUBBLE_CHUNKS];
    int weights[ZERO_BUBBLE_CHUNKS];
} player;

// Ticks at which a microbatch's forward and input gradient through a segment end; INT64_MAX before.
typedef struct table {
    int64_t *forward; // owned, [segments, microbatches]
    int64_t *input;   // owned, [segments, microbatches]
} table;

static void order_forward(player *p, int chunk, int microbatches)
{
    if (p->forwards[chunk] == microbatches) return;
    if (chunk == 1 && p->forwards[1] == p->forwards[0]) return;
    p->order[p->count++] = (step){.forward = true, .chunk = chunk};
    p->forwards[chunk]++;
}

// Input gradients come back through the last chunk first.
static void order_input(player *p, int chunk, int chunks)
{
    if (p->inputs[chunk] == p->forwards[chunk]) return;
    if (chunk + 1 < chunks && p->inputs[chunk] == p->inputs[chunk + 1]) return;
    p->order[p->count++] = (step){.forward = false, .chunk = chunk};
    p->inputs[chunk]++;
}

// ZB-H1: 1f1b's order.
static void order_h1(player *p, int ranks_from_here, int microbatches)
{
    for (int i = 0; i < ranks_from_here; i++)
        order_forward(p, 0, microbatches);
    while (p->inputs[0] < microbatches) {
        order_input(p, 0, 1);
        order_forward(p, 0, microbatches);
    }
}

// ZB-V: forwards of the first chunk until its second one can begin here, the two in turn until the
// first gradient comes, forward and gradient of the second chunk until those of the first follow,
// then all four in turn.
static void order_v(player *p, int rank, int ranks_from_here, int microbatches)
{
    for (int i = 0; i < 2 * ranks_from_here - 1; i++)
        order_forward(p, 0, microbatches);
    for (int i = 0; i < rank; i++) {
        order_forward(p, 1, microbatches);
        order_forward(p, 0, microbatches);
    }
    for (int i = 0; i < ranks_from_here; i++) {
        order_forward(p, 1, microbatches);
        order_input(p, 1, 2);
    }
    while (p->inputs[0] < microbatches) {
        order_forward(p, 0, microbatches);
        order_input(p, 0, 2);
        order_forward(p, 1, microbatches);
        order_input(p, 1, 2);
    }
}

static int live_stashes(const player *p, int chunks)
{
    int live = 0;
    for (int c = 0; c < chunks; c++)
        live += p->forwards[c] - p->weights[c];
    return live;
}

static bool step_possible(
    const cy_schedule *schedule, const table *ends, const player *p, int rank, int64_t tick)
{
    const step next = p->order[p->next];
    const int segments = cy_schedule_segments(schedule);
    const int segment = cy_schedule_segment(schedule, rank, next.chunk);
    const int64_t count = schedule->microbatches;
    if (next.forward) {
        if (live_stashes(p, schedule->chunks) >= cy_schedule_segments(schedule)) return false;
        return segment == 0 ||
            ends->forward[(segment - 1) * count + p->forwards[next.chunk]] <= tick;
    }
    const int m = p->inputs[next.chunk];
    if (ends->forward[segment * count + m] > tick) return false;
    return segment == segments - 1 || ends->input[(segment + 1) * count + m] <= tick;
}

// The chunk with most weight gradients open, or -1.
static int open_weight(const player *p, int chunks)
{
    int best = -1, most = 0;
    for (int c = 0; c < chunks; c++) {
        const int open = p->inputs[c] - p->weights[c];
        if (open > 0 && open >= most) {
            best = c;
            most = open;
        }
    }
    return best;
}

static cy_status play_tick(cy_schedule *schedule, table *ends, player *p, int rank, int64_t tick)
{
    const int64_t count = schedule->microbatches;
    if (p->next < p->count && step_possible(schedule, ends, p, rank, tick)) {
        const step next = p->order[p->next++];
        const int64_t row = cy_schedule_segment(schedule, rank, next.chunk) * count;
        int *done = next.forward ? p->forwards : p->inputs;
        const int m = done[next.chunk]++;
        // It ends with this tick: who looks at tick + 1 sees it, others in this tick do not.
        (next.forward ? ends->forward : ends->input)[row + m] = tick + 1;
        return cy_schedule_add_compute(schedule, rank,
            next.forward ? CY_ACTION_FORWARD : CY_ACTION_BACKWARD_INPUT, m, next.chunk);
    }
    const int chunk = open_weight(p, schedule->chunks);
    if (chunk < 0) return CY_OK;
    return cy_schedule_add_compute(
        schedule, rank, CY_ACTION_BACKWARD_WEIGHT, p->weights[chunk]++, chunk);
}

static cy_status play(cy_schedule *schedule, player *players, table *ends)
{
    const int64_t cells = (int64_t)cy_schedule_segments(schedule) * schedule->microbatches;
    for (int64_t i = 0; i < cells; i++)
        ends->forward[i] = ends->input[i] = INT64_MAX;
    const size_t wanted = (size_t)schedule->microbatches * (size_t)schedule->chunks * 3;
    // One microbatch alone takes 3 ticks a segment; no order is slower than one after another.
    const int64_t limit = 3 * cells + 1;
    for (int64_t tick = 0; tick <= limit; tick++) {
        bool done = true;
        for (int rank = 0; rank < schedule->stages; rank++) {
            CY_TRY(play_tick(schedule, ends, &players[rank], rank, tick));
            done = done && schedule->ranks[rank].count == wanted;
        }
        if (done) return CY_OK;
    }
    CY_ASSERT(!"the order of a zero-bubble schedule does not end");
    return CY_OK;
}

static cy_status make_orders(cy_schedule *schedule, player *players)
{
    const size_t steps = 2 * (size_t)schedule->microbatches * (size_t)schedule->chunks;
    for (int rank = 0; rank < schedule->stages; rank++) {
        player *p = &players[rank];
        CY_TRY(CY_ALLOC(&p->order, steps));
        const int from_here = schedule->stages - rank;
        if (schedule->chunks == 1) {
            order_h1(p, from_here, schedule->microbatches);
        } else {
            order_v(p, rank, from_here, schedule->microbatches);
        }
        CY_ASSERT((size_t)p->count == steps);
        for (int c = 0; c < schedule->chunks; c++)
            p->forwards[c] = p->inputs[c] = 0;
    }
    return CY_OK;
}

cy_status cy_schedule_build_zero_bubble(cy_schedule *schedule)
{
    CY_ASSERT(schedule->chunks <= ZERO_BUBBLE_CHUNKS);
    const size_t cells = (size_t)cy_schedule_segments(schedule) * (size_t)schedule->microbatches;
    player *players = NULL;
    table ends = {0};
    cy_status status = CY_ALLOC(&players, (size_t)schedule->stages);
    if (status == CY_OK) status = CY_ALLOC(&ends.forward, cells);
    if (status == CY_OK) status = CY_ALLOC(&ends.input, cells);
    if (status == CY_OK) status = make_orders(schedule, players);
    if (status == CY_OK) status = play(schedule, players, &ends);
    for (int rank = 0; players != NULL && rank < schedule->stages; rank++)
        cy_memory_free(players[rank].order);
    cy_memory_free(players);
    cy_memory_free(ends.forward);
    cy_memory_free(ends.input);
    return status;
}
