#include "parallel/pipeline/ticks.h"

#include "base/assert.h"
#include "base/memory.h"

#define NOT_YET INT64_MAX

typedef struct state {
    const cy_schedule *schedule; // borrowed
    cy_ticks *flow;              // borrowed
    int64_t *forward;            // owned, [segments, microbatches]: ends, or NOT_YET
    int64_t *input;              // owned, [segments, microbatches]
    int64_t *clock;              // owned, [stages]
    size_t *next;                // owned, [stages]: the action at which the rank stands
} state;

int64_t cy_action_ticks(cy_action_kind kind)
{
    if (!cy_action_is_compute(kind)) return 0;
    return kind == CY_ACTION_BACKWARD ? 2 : 1;
}

// The tick at which everything that an action needs from its own or another rank is there, and the
// segment that has to deliver it.
static int64_t ready_at(const state *s, int rank, cy_action action, int *from)
{
    const int64_t count = s->schedule->microbatches;
    const int segment = cy_schedule_segment(s->schedule, rank, action.chunk);
    const int64_t own = segment * count + action.microbatch;
    *from = segment;
    if (action.kind == CY_ACTION_FORWARD) {
        if (segment == 0) return 0;
        *from = segment - 1;
        return s->forward[own - count];
    }
    if (action.kind == CY_ACTION_BACKWARD_WEIGHT) return s->input[own];
    if (s->forward[own] == NOT_YET) return NOT_YET;
    if (segment == cy_schedule_segments(s->schedule) - 1) return s->forward[own];
    *from = segment + 1;
    return s->input[own + count];
}

// Runs one rank as far as it gets; true when that was at least one action.
static bool advance(state *s, int rank)
{
    const cy_action_list *list = &s->schedule->ranks[rank];
    const size_t before = s->next[rank];
    for (; s->next[rank] < list->count; s->next[rank]++) {
        const cy_action action = list->actions[s->next[rank]];
        if (cy_action_is_compute(action.kind)) {
            int from;
            const int64_t ready = ready_at(s, rank, action, &from);
            if (ready == NOT_YET) break;
            const int64_t start = ready > s->clock[rank] ? ready : s->clock[rank];
            s->clock[rank] = start + cy_action_ticks(action.kind);
            const int64_t cell = cy_schedule_segment(s->schedule, rank, action.chunk) *
                    (int64_t)s->schedule->microbatches +
                action.microbatch;
            if (action.kind == CY_ACTION_FORWARD) s->forward[cell] = s->clock[rank];
            if (action.kind == CY_ACTION_BACKWARD || action.kind == CY_ACTION_BACKWARD_INPUT) {
                s->input[cell] = s->clock[rank];
            }
        }
        s->flow->end[s->flow->first[rank] + s->next[rank]] = s->clock[rank];
    }
    if (s->clock[rank] > s->flow->ticks) s->flow->ticks = s->clock[rank];
    return s->next[rank] > before;
}

static bool stands_still(const state *s, int rank)
{
    return s->next[rank] < s->schedule->ranks[rank].count;
}

static cy_action standing_at(const state *s, int rank)
{
    CY_ASSERT(stands_still(s, rank));
    return s->schedule->ranks[rank].actions[s->next[rank]];
}

// Who a rank that stands still waits for.
static int waits_for(const state *s, int rank)
{
    int from;
    (void)ready_at(s, rank, standing_at(s, rank), &from);
    return cy_schedule_segment_rank(s->schedule, from);
}

// Every rank that stands still waits for one that stands still too (a rank that is at its end has
// delivered all), so following them ends in a circle.
static cy_status fail_with_circle(const state *s, int rank)
{
    for (int i = 0; i < s->schedule->stages; i++)
        rank = waits_for(s, rank);
    cy_text text = {0};
    cy_status status = CY_OK;
    int at = rank;
    do {
        char buffer[CY_ACTION_TEXT_BYTES];
        const int other = waits_for(s, at);
        status = cy_text_add(&text, "%srank %d waits at %s for rank %d", at == rank ? "" : ", ", at,
            cy_action_text(buffer, s->schedule, standing_at(s, at)), other);
        at = other;
    } while (status == CY_OK && at != rank);
    if (status == CY_OK) {
        status = CY_FAIL(CY_ERR_REQUEST, "the schedule has a cycle: %s", text.bytes);
    }
    cy_text_free(&text);
    return status;
}

static cy_status run(state *s)
{
    const int stages = s->schedule->stages;
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < stages; rank++)
            moved = advance(s, rank) || moved;
        // Backwards run the other way: going back over the ranks saves rounds.
        for (int rank = stages - 1; rank >= 0; rank--)
            moved = advance(s, rank) || moved;
    }
    for (int rank = 0; rank < stages; rank++) {
        if (stands_still(s, rank)) return fail_with_circle(s, rank);
    }
    return CY_OK;
}

static cy_status take(void **pointer, size_t count, size_t size)
{
    return cy_memory_alloc(pointer, count > 0 ? count : 1, size);
}

cy_status cy_ticks_run(cy_ticks *flow, const cy_schedule *schedule)
{
    const size_t stages = (size_t)schedule->stages;
    const size_t cells = (size_t)cy_schedule_segments(schedule) * (size_t)schedule->microbatches;
    size_t actions = 0;
    for (size_t rank = 0; rank < stages; rank++)
        actions += schedule->ranks[rank].count;
    enum { END, FIRST, FORWARD, INPUT, CLOCK, NEXT, BLOCKS };
    void *blocks[BLOCKS] = {0};
    const size_t counts[BLOCKS] = {actions, stages, cells, cells, stages, stages};

    cy_status status = CY_OK;
    for (int i = 0; i < BLOCKS && status == CY_OK; i++) {
        status = take(&blocks[i], counts[i], sizeof(int64_t));
    }
    if (status == CY_OK) {
        cy_ticks made = {.end = blocks[END], .first = blocks[FIRST]};
        state s = {
            .schedule = schedule,
            .flow = &made,
            .forward = blocks[FORWARD],
            .input = blocks[INPUT],
            .clock = blocks[CLOCK],
            .next = blocks[NEXT],
        };
        for (size_t i = 0; i < cells; i++)
            s.forward[i] = s.input[i] = NOT_YET;
        for (size_t rank = 1; rank < stages; rank++) {
            made.first[rank] = made.first[rank - 1] + schedule->ranks[rank - 1].count;
        }
        status = run(&s);
        if (status == CY_OK) *flow = made;
    }
    for (int i = status == CY_OK ? FORWARD : END; i < BLOCKS; i++)
        cy_memory_free(blocks[i]);
    return status;
}

void cy_ticks_close(cy_ticks *flow)
{
    cy_memory_free(flow->end);
    cy_memory_free(flow->first);
    *flow = (cy_ticks){0};
}
