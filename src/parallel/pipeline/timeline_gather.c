#include "parallel/pipeline/timeline_gather.h"

#include "base/memory.h"

// Behind those of activations and gradients.
static int tag_of(const cy_executor *executor)
{
    return 2 * cy_schedule_segments(executor->options.schedule);
}

static cy_status send_times(
    const cy_executor *executor, cy_queue *queue, const cy_timed_action *times, double zero_s)
{
    const size_t count = executor->options.schedule->ranks[executor->rank].count;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 2 * count, sizeof(double)));
    double *pairs = block;
    for (size_t i = 0; i < count; i++) {
        pairs[2 * i] = times[i].start - zero_s;
        pairs[2 * i + 1] = times[i].end - zero_s;
    }
    cy_request request = {0};
    cy_status status = cy_group_start_send(executor->options.group, queue, &request,
        cy_view_of(pairs, CY_F64, (int64_t)count, 2), 0, tag_of(executor));
    if (status == CY_OK) status = cy_group_wait(executor->options.group, queue, &request);
    cy_memory_free(block);
    return status;
}

static cy_status receive_times(
    cy_timed_action *items, const cy_executor *executor, cy_queue *queue, int from)
{
    const cy_action_list *list = &executor->options.schedule->ranks[from];
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 2 * list->count, sizeof(double)));
    const double *pairs = block;
    cy_request request = {0};
    cy_status status = cy_group_start_recv(executor->options.group, queue, &request,
        cy_view_of(block, CY_F64, (int64_t)list->count, 2), from, tag_of(executor));
    if (status == CY_OK) status = cy_group_wait(executor->options.group, queue, &request);
    for (size_t i = 0; status == CY_OK && i < list->count; i++) {
        items[i] = (cy_timed_action){.action = list->actions[i],
            .rank = from,
            .start = pairs[2 * i],
            .end = pairs[2 * i + 1]};
    }
    cy_memory_free(block);
    return status;
}

// So that the first action starts at 0.
static void shift(cy_timeline *timeline)
{
    double first = timeline->items[0].start;
    for (size_t i = 0; i < timeline->count; i++) {
        if (timeline->items[i].start < first) first = timeline->items[i].start;
    }
    for (size_t i = 0; i < timeline->count; i++) {
        timeline->items[i].start -= first;
        timeline->items[i].end -= first;
    }
}

cy_status cy_timeline_gather(cy_timeline *timeline, const cy_executor *executor, cy_queue *queue,
    const cy_timed_action *times, double zero_s)
{
    const cy_schedule *schedule = executor->options.schedule;
    if (executor->rank != 0) {
        CY_TRY(send_times(executor, queue, times, zero_s));
        *timeline = (cy_timeline){0};
        return CY_OK;
    }
    size_t count = 0;
    for (int rank = 0; rank < schedule->stages; rank++)
        count += schedule->ranks[rank].count;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, count, sizeof(cy_timed_action)));
    cy_timeline made = {.items = block,
        .count = count,
        .stages = schedule->stages,
        .microbatches = schedule->microbatches,
        .chunks = schedule->chunks};
    size_t first = schedule->ranks[0].count;
    for (size_t i = 0; i < first; i++) {
        made.items[i] = times[i];
        made.items[i].start -= zero_s;
        made.items[i].end -= zero_s;
    }
    for (int rank = 1; rank < schedule->stages; rank++) {
        const cy_status status = receive_times(&made.items[first], executor, queue, rank);
        if (status != CY_OK) {
            cy_timeline_close(&made);
            return status;
        }
        first += schedule->ranks[rank].count;
    }
    shift(&made);
    cy_timeline_add_up(&made);
    *timeline = made;
    return CY_OK;
}
