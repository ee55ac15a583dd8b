// Backward in two parts, so that weight gradients fill what would be a bubble.
//
// Qi et al., "Zero bubble pipeline parallelism" (arXiv:2401.10241: ZB-H1) and "Pipeline parallelism
// with controllable memory" (arXiv:2405.15362: ZB-V, two chunks a rank placed as a V, so that rank
// 0 holds both ends of the model).
//
// Each rank has a fixed order of forwards and input gradients (below). All ranks then play it in
// unit ticks: a rank that cannot do its next one, because the message is not there or its stashes
// are at the limit, does an open weight gradient instead. The limit is what 1f1b's first rank
// holds: as many microbatches as there are ranks, counted until their weight gradient is done.

#include "parallel/pipeline/build.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdint.h>

#define CHUNKS 2 // at most

typedef struct step {
    bool forward;
    int chunk;
} step;

// One rank while its order is made and played.
typedef struct player {
    step *order; // owned, [2 * microbatches * chunks]
    int count;
    int next;
    int forwards[CHUNKS]; // done so far
    int inputs[CHUNKS];
    int weights[CHUNKS];
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
        void *order = NULL;
        CY_TRY(cy_memory_alloc(&order, steps, sizeof(step)));
        p->order = order;
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
    CY_ASSERT(schedule->chunks <= CHUNKS);
    const size_t cells = (size_t)cy_schedule_segments(schedule) * (size_t)schedule->microbatches;
    void *players = NULL, *forward = NULL, *input = NULL;
    cy_status status = cy_memory_alloc(&players, (size_t)schedule->stages, sizeof(player));
    if (status == CY_OK) status = cy_memory_alloc(&forward, cells, sizeof(int64_t));
    if (status == CY_OK) status = cy_memory_alloc(&input, cells, sizeof(int64_t));
    if (status == CY_OK) status = make_orders(schedule, players);
    if (status == CY_OK) {
        table ends = {.forward = forward, .input = input};
        status = play(schedule, players, &ends);
    }
    for (int rank = 0; players != NULL && rank < schedule->stages; rank++) {
        cy_memory_free(((player *)players)[rank].order);
    }
    cy_memory_free(players);
    cy_memory_free(forward);
    cy_memory_free(input);
    return status;
}
