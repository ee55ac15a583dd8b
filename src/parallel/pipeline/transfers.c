// Inserts sends and receives between the compute actions of a schedule, and plays the compute
// actions in unit ticks.
//
// A send and its receive are one event. All events, and the ends of all compute actions, are sorted
// into one order of the whole pipeline: by tick, compute before the transfers of the same tick, and
// those by their tag, which is the same on both sides. Each rank's list is its part of that order.
// An action never needs a later one of that order, so the lists cannot deadlock even where a send
// blocks until its receive; and a message leaves as soon as its data exist.

#include "base/memory.h"
#include "base/status.h"
#include "parallel/pipeline/build.h"

#include <stdlib.h>

typedef struct event {
    int64_t tick;
    int order;     // 0: compute; of a transfer 1 + its tag
    int rank;      // whose list it goes to
    size_t number; // of the compute action in its old list
    cy_action action;
} event;

typedef struct events {
    event *items; // owned, [count]
    size_t count;
    size_t capacity;
} events;

// The order of one rank's part. No two transfers of a tick have the same tag.
static int compare(const void *left, const void *right)
{
    const event *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->tick != b->tick) return a->tick < b->tick ? -1 : 1;
    if (a->order != b->order) return a->order < b->order ? -1 : 1;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return 0;
}

static cy_status add_event(events *all, event item)
{
    void *block = all->items;
    CY_TRY(cy_memory_grow(&block, &all->capacity, all->count + 1, sizeof(event)));
    all->items = block;
    all->items[all->count++] = item;
    return CY_OK;
}

// What an action's end sends to another segment, if that lies on another rank.
static cy_status add_transfer(
    events *all, const cy_schedule *schedule, int rank, cy_action made, int64_t tick)
{
    if (made.kind == CY_ACTION_BACKWARD_WEIGHT || !cy_action_is_compute(made.kind)) return CY_OK;
    const bool forward = made.kind == CY_ACTION_FORWARD;
    const int segment = cy_schedule_segment(schedule, rank, made.chunk);
    const int to = forward ? segment + 1 : segment - 1;
    if (to < 0 || to == cy_schedule_segments(schedule)) return CY_OK;
    const int peer = cy_schedule_segment_rank(schedule, to);
    if (peer == rank) return CY_OK;

    const cy_action send = {
        .kind = forward ? CY_ACTION_SEND_ACTIVATION : CY_ACTION_SEND_GRADIENT,
        .microbatch = made.microbatch,
        .chunk = made.chunk,
        .peer = peer,
    };
    const cy_action receive = {
        .kind = forward ? CY_ACTION_RECV_ACTIVATION : CY_ACTION_RECV_GRADIENT,
        .microbatch = made.microbatch,
        .chunk = to / schedule->stages,
        .peer = rank,
    };
    const int order = 1 + cy_action_tag(schedule, rank, send);
    CY_ASSERT(order == 1 + cy_action_tag(schedule, peer, receive));
    event item = {.tick = tick, .order = order, .rank = rank, .action = send};
    CY_TRY(add_event(all, item));
    item.rank = peer;
    item.action = receive;
    return add_event(all, item);
}

static cy_status collect(events *all, const cy_schedule *schedule, const cy_ticks *flow)
{
    for (int rank = 0; rank < schedule->stages; rank++) {
        const cy_action_list *list = &schedule->ranks[rank];
        for (size_t i = 0; i < list->count; i++) {
            const int64_t tick = flow->end[flow->first[rank] + i];
            const event item = {
                .tick = tick, .rank = rank, .number = i, .action = list->actions[i]};
            CY_ASSERT(!cy_action_is_transfer(item.action.kind));
            CY_TRY(add_event(all, item));
            CY_TRY(add_transfer(all, schedule, rank, item.action, tick));
        }
    }
    return CY_OK;
}

cy_status cy_schedule_add_transfers(cy_schedule *schedule)
{
    cy_ticks flow;
    CY_TRY(cy_ticks_run(&flow, schedule));
    events all = {0};
    cy_status status = collect(&all, schedule, &flow);
    cy_ticks_close(&flow);
    if (status == CY_OK) {
        if (all.count > 0) qsort(all.items, all.count, sizeof(event), compare);
        for (int rank = 0; rank < schedule->stages; rank++)
            schedule->ranks[rank].count = 0;
        for (size_t i = 0; i < all.count && status == CY_OK; i++) {
            status = cy_schedule_add(schedule, all.items[i].rank, all.items[i].action);
        }
    }
    cy_memory_free(all.items);
    return status;
}

// ---- ticks

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

// Runs one rank until it must wait; true when it ran at least one action.
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

static bool is_stalled(const state *s, int rank)
{
    return s->next[rank] < s->schedule->ranks[rank].count;
}

static cy_action stalled_at(const state *s, int rank)
{
    CY_ASSERT(is_stalled(s, rank));
    return s->schedule->ranks[rank].actions[s->next[rank]];
}

// The rank that a stalled rank waits for.
static int waits_for(const state *s, int rank)
{
    int from;
    (void)ready_at(s, rank, stalled_at(s, rank), &from);
    return cy_schedule_segment_rank(s->schedule, from);
}

// Every stalled rank waits for another stalled rank (a rank at its end has delivered everything),
// so following them ends in a cycle.
static cy_status fail_with_cycle(const state *s, int rank)
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
            cy_action_text(buffer, s->schedule, stalled_at(s, at)), other);
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
        if (is_stalled(s, rank)) return fail_with_cycle(s, rank);
    }
    return CY_OK;
}

static cy_status alloc(state *s, size_t actions, size_t cells)
{
    const size_t stages = (size_t)s->schedule->stages;
    CY_TRY(CY_ALLOC(&s->flow->end, actions));
    CY_TRY(CY_ALLOC(&s->flow->first, stages));
    CY_TRY(CY_ALLOC(&s->forward, cells));
    CY_TRY(CY_ALLOC(&s->input, cells));
    CY_TRY(CY_ALLOC(&s->clock, stages));
    return CY_ALLOC(&s->next, stages);
}

cy_status cy_ticks_run(cy_ticks *flow, const cy_schedule *schedule)
{
    const size_t stages = (size_t)schedule->stages;
    const size_t cells = (size_t)cy_schedule_segments(schedule) * (size_t)schedule->microbatches;
    size_t actions = 0;
    for (size_t rank = 0; rank < stages; rank++)
        actions += schedule->ranks[rank].count;

    cy_ticks made = {0};
    state s = {.schedule = schedule, .flow = &made};
    cy_status status = alloc(&s, actions, cells);
    if (status == CY_OK) {
        for (size_t i = 0; i < cells; i++)
            s.forward[i] = s.input[i] = NOT_YET;
        for (size_t rank = 1; rank < stages; rank++)
            made.first[rank] = made.first[rank - 1] + schedule->ranks[rank - 1].count;
        status = run(&s);
    }
    cy_memory_free(s.forward);
    cy_memory_free(s.input);
    cy_memory_free(s.clock);
    cy_memory_free(s.next);
    if (status == CY_OK) {
        *flow = made;
    } else {
        cy_ticks_close(&made);
    }
    return status;
}

void cy_ticks_close(cy_ticks *flow)
{
    cy_memory_free(flow->end);
    cy_memory_free(flow->first);
    *flow = (cy_ticks){0};
}
