#include "parallel/pipeline/simulate.h"

#include "base/assert.h"
#include "base/memory.h"

#include <math.h>
#include <stdint.h>

#define NOTHING SIZE_MAX

typedef struct state {
    const cy_schedule *schedule;   // borrowed
    const cy_durations *durations; // borrowed
    cy_timeline *timeline;         // borrowed
    // When the activation of a microbatch enters a segment, and its gradient; NAN before that.
    double *activation; // owned, [segments, microbatches]
    double *gradient;   // owned, [segments, microbatches]
    // The item that brought it, for the critical path.
    size_t *activation_by; // owned, [segments, microbatches]
    size_t *gradient_by;   // owned, [segments, microbatches]
    double *link;          // owned, [segments, 2]: when a boundary's link is free, by direction
    double *clock;         // owned, [stages]
    size_t *next;          // owned, [stages]
    size_t *first;         // owned, [stages]: of a rank's items
    size_t *before;        // owned, [count]: the item that an item waited for, or NOTHING
} state;

static int64_t cell(const state *s, int segment, int microbatch)
{
    return (int64_t)segment * s->schedule->microbatches + microbatch;
}

static double duration(const state *s, int segment, cy_action_kind kind)
{
    const cy_durations *d = s->durations;
    const double scale = d->scale != NULL ? d->scale[segment] : 1.0;
    switch (kind) {
    case CY_ACTION_FORWARD:
        return d->forward * scale;
    case CY_ACTION_BACKWARD:
        return (d->backward_input + d->backward_weight) * scale;
    case CY_ACTION_BACKWARD_INPUT:
        return d->backward_input * scale;
    case CY_ACTION_BACKWARD_WEIGHT:
        return d->backward_weight * scale;
    case CY_ACTION_SEND_ACTIVATION:
    case CY_ACTION_RECV_ACTIVATION:
    case CY_ACTION_SEND_GRADIENT:
    case CY_ACTION_RECV_GRADIENT:
    case CY_ACTION_GATHER:
    case CY_ACTION_REDUCE:
    case CY_ACTION_RECOMPUTE:
    case CY_ACTION_OFFLOAD:
    case CY_ACTION_FETCH:
    case CY_ACTION_OPTIMIZER:
    case CY_ACTION_KINDS:
        break;
    }
    return 0.0;
}

static void deliver(state *s, int segment, int microbatch, bool gradient, double when, size_t by)
{
    const int64_t at = cell(s, segment, microbatch);
    (gradient ? s->gradient : s->activation)[at] = when;
    (gradient ? s->gradient_by : s->activation_by)[at] = by;
}

// What an action makes goes to the neighbour: at once on the same rank, else when it is sent. The
// item that made it is the compute action, which stands before the send.
static void hand_on(state *s, int rank, cy_action action, size_t item)
{
    const bool send = cy_action_is_transfer(action.kind);
    const bool gradient =
        action.kind != CY_ACTION_FORWARD && action.kind != CY_ACTION_SEND_ACTIVATION;
    const int segment = cy_schedule_segment(s->schedule, rank, action.chunk);
    const int to = gradient ? segment - 1 : segment + 1;
    if (to < 0 || to == cy_schedule_segments(s->schedule)) return;
    const bool same_rank = cy_schedule_segment_rank(s->schedule, to) == rank;
    if (same_rank == send) return;
    double when = s->clock[rank];
    if (send) {
        double *link = &s->link[2 * (gradient ? to : segment) + (gradient ? 1 : 0)];
        *link = (*link > when ? *link : when) + s->durations->message;
        when = *link + s->durations->latency;
        while (
            item > s->first[rank] && !cy_action_is_compute(s->timeline->items[item].action.kind)) {
            item--;
        }
    }
    deliver(s, to, action.microbatch, gradient, when, item);
}

// When what a compute action needs is there, and which item brought it.
static double needed_at(const state *s, int rank, cy_action action, size_t *by)
{
    const int segment = cy_schedule_segment(s->schedule, rank, action.chunk);
    const int64_t at = cell(s, segment, action.microbatch);
    *by = NOTHING;
    if (action.kind == CY_ACTION_FORWARD && segment > 0) {
        *by = s->activation_by[at];
        return s->activation[at];
    }
    const bool last = segment == cy_schedule_segments(s->schedule) - 1;
    const bool backward =
        action.kind == CY_ACTION_BACKWARD || action.kind == CY_ACTION_BACKWARD_INPUT;
    if (backward && !last) {
        *by = s->gradient_by[at];
        return s->gradient[at];
    }
    return 0.0;
}

static bool advance(state *s, int rank)
{
    const cy_action_list *list = &s->schedule->ranks[rank];
    const size_t start = s->next[rank];
    for (; s->next[rank] < list->count; s->next[rank]++) {
        const cy_action action = list->actions[s->next[rank]];
        const size_t item = s->first[rank] + s->next[rank];
        cy_timed_action *timed = &s->timeline->items[item];
        *timed = (cy_timed_action){.action = action, .rank = rank, .start = s->clock[rank]};
        s->before[item] = s->next[rank] > 0 ? item - 1 : NOTHING;
        if (cy_action_is_compute(action.kind)) {
            size_t by;
            const double ready = needed_at(s, rank, action, &by);
            if (isnan(ready)) break;
            if (ready > timed->start) {
                timed->start = ready;
                s->before[item] = by;
            }
            const int segment = cy_schedule_segment(s->schedule, rank, action.chunk);
            s->clock[rank] = timed->start + duration(s, segment, action.kind);
        }
        timed->end = s->clock[rank];
        const bool makes = action.kind == CY_ACTION_FORWARD || action.kind == CY_ACTION_BACKWARD ||
            action.kind == CY_ACTION_BACKWARD_INPUT || action.kind == CY_ACTION_SEND_ACTIVATION ||
            action.kind == CY_ACTION_SEND_GRADIENT;
        if (makes) hand_on(s, rank, action, item);
    }
    return s->next[rank] > start;
}

static void mark_critical_path(state *s)
{
    size_t at = NOTHING;
    for (size_t i = 0; i < s->timeline->count; i++) {
        if (at == NOTHING || s->timeline->items[i].end > s->timeline->items[at].end) at = i;
    }
    for (; at != NOTHING; at = s->before[at])
        s->timeline->items[at].critical = true;
}

static void run(state *s)
{
    const int64_t cells = (int64_t)cy_schedule_segments(s->schedule) * s->schedule->microbatches;
    for (int64_t i = 0; i < cells; i++)
        s->activation[i] = s->gradient[i] = (double)NAN;
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < s->schedule->stages; rank++)
            moved = advance(s, rank) || moved;
    }
    for (int rank = 0; rank < s->schedule->stages; rank++) {
        CY_ASSERT(s->next[rank] == s->schedule->ranks[rank].count);
    }
    mark_critical_path(s);
}

void cy_timeline_add_up(cy_timeline *timeline)
{
    timeline->end = timeline->span = timeline->busy = 0.0;
    double first = 0.0; // of the rank at hand
    int rank = -1;
    for (size_t i = 0; i < timeline->count; i++) {
        const cy_timed_action *item = &timeline->items[i];
        if (!cy_action_is_compute(item->action.kind)) continue;
        if (item->rank != rank) first = item->start;
        rank = item->rank;
        timeline->busy += item->end - item->start;
        if (item->end - first > timeline->span) timeline->span = item->end - first;
        if (item->end > timeline->end) timeline->end = item->end;
    }
    const double busy = timeline->busy / timeline->stages;
    timeline->bubble = timeline->span > 0.0 ? (timeline->span - busy) / timeline->span : 0.0;
    timeline->bubble_alone = timeline->end > 0.0 ? (timeline->end - busy) / timeline->end : 0.0;
}

cy_status cy_schedule_simulate(
    cy_timeline *timeline, const cy_schedule *schedule, const cy_durations *durations)
{
    const size_t stages = (size_t)schedule->stages;
    const size_t segments = (size_t)cy_schedule_segments(schedule);
    const size_t cells = segments * (size_t)schedule->microbatches;
    size_t count = 0;
    for (size_t rank = 0; rank < stages; rank++)
        count += schedule->ranks[rank].count;
    enum {
        ITEMS,
        ACTIVATION,
        GRADIENT,
        ACTIVATION_BY,
        GRADIENT_BY,
        LINK,
        CLOCK,
        NEXT,
        FIRST,
        BEFORE,
        BLOCKS
    };
    const size_t counts[BLOCKS] = {
        count, cells, cells, cells, cells, 2 * segments, stages, stages, stages, count};
    void *blocks[BLOCKS] = {0};
    cy_status status = CY_OK;
    for (int i = 0; i < BLOCKS && status == CY_OK; i++) {
        status = cy_memory_alloc(
            &blocks[i], counts[i], i == ITEMS ? sizeof(cy_timed_action) : sizeof(double));
    }
    if (status == CY_OK) {
        cy_timeline made = {
            .items = blocks[ITEMS],
            .count = count,
            .stages = schedule->stages,
            .microbatches = schedule->microbatches,
            .chunks = schedule->chunks,
        };
        state s = {
            .schedule = schedule,
            .durations = durations,
            .timeline = &made,
            .activation = blocks[ACTIVATION],
            .gradient = blocks[GRADIENT],
            .activation_by = blocks[ACTIVATION_BY],
            .gradient_by = blocks[GRADIENT_BY],
            .link = blocks[LINK],
            .clock = blocks[CLOCK],
            .next = blocks[NEXT],
            .first = blocks[FIRST],
            .before = blocks[BEFORE],
        };
        for (size_t rank = 1; rank < stages; rank++) {
            s.first[rank] = s.first[rank - 1] + schedule->ranks[rank - 1].count;
        }
        run(&s);
        cy_timeline_add_up(&made);
        *timeline = made;
    }
    for (int i = status == CY_OK ? ACTIVATION : ITEMS; i < BLOCKS; i++)
        cy_memory_free(blocks[i]);
    return status;
}

void cy_timeline_close(cy_timeline *timeline)
{
    cy_memory_free(timeline->items);
    *timeline = (cy_timeline){0};
}
