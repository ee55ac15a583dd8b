#include "parallel/pipeline/check.h"

#include "base/memory.h"
#include "parallel/pipeline/check_internal.h"
#include "parallel/pipeline/ticks.h"

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static cy_rank_cost rank_cost(const cy_schedule *schedule, const cy_ticks *flow, int rank)
{
    const cy_action_list *list = &schedule->ranks[rank];
    cy_rank_cost cost = {.first_tick = -1};
    int stash = 0, kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        const cy_action_kind kind = list->actions[i].kind;
        const int64_t end = flow->end[flow->first[rank] + i];
        const int64_t ticks = cy_action_ticks(kind);
        if (kind == CY_ACTION_FORWARD) {
            stash++;
            kept++;
        }
        cost.peak_stash = larger(cost.peak_stash, stash);
        cost.peak_kept = larger(cost.peak_kept, kept);
        if (kind == CY_ACTION_BACKWARD || kind == CY_ACTION_BACKWARD_INPUT) stash--;
        if (kind == CY_ACTION_BACKWARD || kind == CY_ACTION_BACKWARD_WEIGHT) kept--;
        if (kind == CY_ACTION_SEND_ACTIVATION || kind == CY_ACTION_SEND_GRADIENT) cost.sends++;
        if (ticks == 0) continue;
        if (cost.first_tick < 0) cost.first_tick = end - ticks;
        cost.last_tick = end;
        cost.busy_ticks += ticks;
    }
    return cost;
}

static cy_status add_up(cy_schedule_cost *cost, const cy_schedule *schedule, const cy_ticks *flow)
{
    void *ranks = NULL;
    CY_TRY(cy_memory_alloc(&ranks, (size_t)schedule->stages, sizeof(cy_rank_cost)));
    *cost = (cy_schedule_cost){.ticks = flow->ticks, .ranks = ranks};
    double busy = 0;
    for (int rank = 0; rank < schedule->stages; rank++) {
        const cy_rank_cost one = rank_cost(schedule, flow, rank);
        const int64_t span = one.last_tick - one.first_tick;
        cost->ranks[rank] = one;
        if (span > cost->span) cost->span = span;
        cost->peak_stash = larger(cost->peak_stash, one.peak_stash);
        cost->peak_kept = larger(cost->peak_kept, one.peak_kept);
        cost->messages += one.sends;
        busy += (double)one.busy_ticks / schedule->stages;
    }
    cost->bubble = ((double)cost->span - busy) / (double)cost->span;
    cost->bubble_alone = ((double)cost->ticks - busy) / (double)cost->ticks;
    return CY_OK;
}

static cy_status check_limits(const cy_schedule_cost *cost, const cy_schedule_limits *limits)
{
    if (limits->peak_stash > 0 && cost->peak_stash > limits->peak_stash) {
        return CY_FAIL(CY_ERR_REQUEST, "a rank holds %d stashes at once, the limit is %d",
            cost->peak_stash, limits->peak_stash);
    }
    if (limits->peak_kept > 0 && cost->peak_kept > limits->peak_kept) {
        return CY_FAIL(CY_ERR_REQUEST,
            "a rank keeps %d stashes for their weight gradients at once, the limit is %d",
            cost->peak_kept, limits->peak_kept);
    }
    return CY_OK;
}

cy_status cy_schedule_check(
    cy_schedule_cost *cost, const cy_schedule *schedule, const cy_schedule_limits *limits)
{
    CY_TRY(cy_check_order(schedule, true));
    cy_ticks flow;
    CY_TRY(cy_ticks_run(&flow, schedule));
    cy_schedule_cost found = {0};
    cy_status status = cy_check_transfers(schedule);
    if (status == CY_OK) status = add_up(&found, schedule, &flow);
    if (status == CY_OK && limits != NULL) status = check_limits(&found, limits);
    cy_ticks_close(&flow);
    if (status == CY_OK && cost != NULL) {
        *cost = found;
    } else {
        cy_schedule_cost_close(&found);
    }
    return status;
}

cy_status cy_schedule_check_compute(const cy_schedule *schedule)
{
    return cy_check_order(schedule, false);
}

void cy_schedule_cost_close(cy_schedule_cost *cost)
{
    cy_memory_free(cost->ranks);
    *cost = (cy_schedule_cost){0};
}
