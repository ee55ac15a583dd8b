// Puts the sends and receives between the compute actions.
//
// A send and its receive are one event. All events, and the ends of all compute actions, are put in
// one order of the whole pipeline: by tick, compute before the transfers of the same tick, and
// those by their tag, which is the same on both sides. Each rank's list is its part of that order.
// An action never needs what comes later in it, so the lists cannot deadlock even where a send
// returns only when its receive has come; and a message leaves as soon as it is made.

#include "parallel/pipeline/build.h"

#include "base/assert.h"
#include "base/memory.h"
#include "parallel/pipeline/ticks.h"

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
