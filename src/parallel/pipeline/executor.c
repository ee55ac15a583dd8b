#include "parallel/pipeline/executor.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/memory.h"

// One run.
typedef struct state {
    cy_executor *executor;          // borrowed
    cy_queue *queue;                // borrowed
    const cy_pipeline_stage *stage; // borrowed
} state;

static const cy_action_list *list_of(const cy_executor *executor)
{
    return &executor->options.schedule->ranks[executor->rank];
}

// Bytes from one place of a kind to the next.
static size_t slot_bytes(const cy_executor *executor)
{
    const cy_executor_options *o = &executor->options;
    return cy_arena_bytes((size_t)(o->rows * o->cols) * cy_dtype_size(o->dtype));
}

// The matrix at the place of a microbatch.
static cy_view view_at(const cy_executor *executor, cy_slot_kind kind, int place)
{
    const cy_executor_options *o = &executor->options;
    CY_ASSERT(0 <= place && place < executor->slots.count[kind]);
    CY_ASSERT(executor->buffers[kind] != NULL);
    char *data = (char *)executor->buffers[kind] + (size_t)place * slot_bytes(executor);
    return cy_view_of(data, o->dtype, o->rows, o->cols);
}

// What a compute action reads, after its message has come; none at the ends of the model.
static cy_status wait_for(state *s, cy_view *view, cy_slot_kind kind, int chunk, int microbatch)
{
    cy_executor *e = s->executor;
    const int place = cy_slots_at(&e->slots, kind, chunk, microbatch);
    if (place < 0) {
        *view = cy_view_none();
        return CY_OK;
    }
    *view = view_at(e, kind, place);
    return cy_group_wait(e->options.group, s->queue, &e->requests[kind][place]);
}

// Where a compute action writes: into the neighbour segment's place on the same rank, else into a
// buffer from which the last message has left.
static cy_status wait_for_slot(state *s, cy_view *view, const cy_pipeline_call *call, bool forward)
{
    cy_executor *e = s->executor;
    const cy_schedule *schedule = e->options.schedule;
    const int to = forward ? call->segment + 1 : call->segment - 1;
    *view = cy_view_none();
    if (to < 0 || to == cy_schedule_segments(schedule)) return CY_OK;
    if (cy_schedule_segment_rank(schedule, to) == e->rank) {
        const cy_slot_kind kind = forward ? CY_SLOT_INPUT : CY_SLOT_GRADIENT;
        const int chunk = to / schedule->stages;
        *view = view_at(e, kind, cy_slots_at(&e->slots, kind, chunk, call->microbatch));
        return CY_OK;
    }
    return wait_for(
        s, view, forward ? CY_SLOT_OUTPUT : CY_SLOT_INPUT_GRADIENT, call->chunk, call->microbatch);
}

// Starts the receives that stand between this place of the list and the next compute action.
static cy_status post_receives(state *s, size_t from)
{
    cy_executor *e = s->executor;
    const cy_action_list *list = list_of(e);
    for (size_t i = from; i < list->count && !cy_action_is_compute(list->actions[i].kind); i++) {
        const cy_action action = list->actions[i];
        const bool activation = action.kind == CY_ACTION_RECV_ACTIVATION;
        if (!activation && action.kind != CY_ACTION_RECV_GRADIENT) continue;
        const cy_slot_kind kind = activation ? CY_SLOT_INPUT : CY_SLOT_GRADIENT;
        const int place = cy_slots_at(&e->slots, kind, action.chunk, action.microbatch);
        CY_TRY(cy_group_start_recv(e->options.group, s->queue, &e->requests[kind][place],
            view_at(e, kind, place), action.peer,
            cy_action_tag(e->options.schedule, e->rank, action)));
    }
    return CY_OK;
}

static cy_status start_send(state *s, cy_action action)
{
    cy_executor *e = s->executor;
    const cy_slot_kind kind =
        action.kind == CY_ACTION_SEND_ACTIVATION ? CY_SLOT_OUTPUT : CY_SLOT_INPUT_GRADIENT;
    const int place = cy_slots_at(&e->slots, kind, action.chunk, action.microbatch);
    return cy_group_start_send(e->options.group, s->queue, &e->requests[kind][place],
        view_at(e, kind, place), action.peer, cy_action_tag(e->options.schedule, e->rank, action));
}

static cy_pipeline_call call_of(const cy_executor *executor, size_t index)
{
    const cy_action action = list_of(executor)->actions[index];
    const int c = action.chunk, m = action.microbatch;
    return (cy_pipeline_call){
        .microbatch = m,
        .chunk = c,
        .segment = cy_schedule_segment(executor->options.schedule, executor->rank, c),
        .stash = cy_slots_at(&executor->slots, CY_SLOT_STASH, c, m),
        .kept = cy_slots_at(&executor->slots, CY_SLOT_KEPT, c, m),
        .last = executor->last_weight[c] == index,
    };
}

static cy_status run_compute(state *s, size_t index, double *start)
{
    const cy_action action = list_of(s->executor)->actions[index];
    const cy_pipeline_call call = call_of(s->executor, index);
    const cy_pipeline_stage *stage = s->stage;
    cy_view input, output_gradient = cy_view_none(), made = cy_view_none();
    CY_TRY(post_receives(s, index + 1));
    CY_TRY(wait_for(s, &input, CY_SLOT_INPUT, call.chunk, call.microbatch));
    if (action.kind == CY_ACTION_FORWARD) {
        CY_TRY(wait_for_slot(s, &made, &call, true));
        *start = cy_clock_s();
        return stage->forward(stage->context, s->queue, &call, made, input);
    }
    CY_TRY(wait_for(s, &output_gradient, CY_SLOT_GRADIENT, call.chunk, call.microbatch));
    if (action.kind == CY_ACTION_BACKWARD_WEIGHT) {
        *start = cy_clock_s();
        return stage->backward_weight(stage->context, s->queue, &call, output_gradient, input);
    }
    CY_TRY(wait_for_slot(s, &made, &call, false));
    *start = cy_clock_s();
    if (action.kind == CY_ACTION_BACKWARD_INPUT) {
        return stage->backward_input(stage->context, s->queue, &call, made, output_gradient, input);
    }
    return stage->backward(stage->context, s->queue, &call, made, output_gradient, input);
}

static cy_status run_action(state *s, size_t index, double *start)
{
    const cy_action *action = &list_of(s->executor)->actions[index];
    switch (action->kind) {
    case CY_ACTION_FORWARD:
    case CY_ACTION_BACKWARD:
    case CY_ACTION_BACKWARD_INPUT:
    case CY_ACTION_BACKWARD_WEIGHT:
        return run_compute(s, index, start);
    case CY_ACTION_SEND_ACTIVATION:
    case CY_ACTION_SEND_GRADIENT:
        return start_send(s, *action);
    case CY_ACTION_RECV_ACTIVATION:
    case CY_ACTION_RECV_GRADIENT:
        return CY_OK; // posted before
    case CY_ACTION_GATHER:
    case CY_ACTION_REDUCE:
    case CY_ACTION_RECOMPUTE:
    case CY_ACTION_OFFLOAD:
    case CY_ACTION_FETCH:
    case CY_ACTION_OPTIMIZER:
        if (s->stage->other != NULL) return s->stage->other(s->stage->context, s->queue, action);
        return CY_FAIL(CY_ERR_UNSUPPORTED, "the schedule has %s, which this stage cannot do",
            cy_action_code(action->kind));
    case CY_ACTION_KINDS:
        break;
    }
    return CY_FAIL(CY_ERR_REQUEST, "there is no action %d", (int)action->kind);
}

static cy_status wait_for_sends(state *s)
{
    cy_executor *e = s->executor;
    const cy_slot_kind kinds[] = {CY_SLOT_OUTPUT, CY_SLOT_INPUT_GRADIENT};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < e->slots.count[kinds[k]]; i++) {
            CY_TRY(cy_group_wait(e->options.group, s->queue, &e->requests[kinds[k]][i]));
        }
    }
    return CY_OK;
}

cy_status cy_executor_run(
    cy_executor *executor, cy_queue *queue, const cy_pipeline_stage *stage, cy_timed_action *times)
{
    state s = {.executor = executor, .queue = queue, .stage = stage};
    const cy_action_list *list = list_of(executor);
    CY_TRY(post_receives(&s, 0));
    for (size_t i = 0; i < list->count; i++) {
        const cy_action action = list->actions[i];
        const int64_t start_ns = cy_trace_start(queue->trace);
        double start = cy_clock_s();
        CY_TRY(run_action(&s, i, &start));
        if (!cy_action_is_transfer(action.kind)) {
            cy_trace_add(queue->trace, cy_action_code(action.kind), CY_SPAN_STAGE, start_ns,
                (cy_cost){0}, action.microbatch);
        }
        if (times == NULL) continue;
        times[i] = (cy_timed_action){
            .action = action, .rank = executor->rank, .start = start, .end = cy_clock_s()};
    }
    return wait_for_sends(&s);
}

static void find_last_weight_actions(cy_executor *executor)
{
    const cy_action_list *list = list_of(executor);
    for (size_t i = 0; i < list->count; i++) {
        const cy_action action = list->actions[i];
        if (action.kind != CY_ACTION_BACKWARD && action.kind != CY_ACTION_BACKWARD_WEIGHT) continue;
        executor->last_weight[action.chunk] = i;
    }
}

static cy_status take_tables(cy_executor *executor)
{
    const size_t chunks = (size_t)executor->options.schedule->chunks;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, chunks, sizeof(size_t)));
    executor->last_weight = block;
    for (int kind = CY_SLOT_INPUT; kind < CY_SLOT_KINDS; kind++) {
        if (executor->slots.count[kind] == 0) continue;
        block = NULL;
        CY_TRY(cy_memory_alloc(&block, (size_t)executor->slots.count[kind], sizeof(cy_request)));
        executor->requests[kind] = block;
    }
    return CY_OK;
}

cy_status cy_executor_open(cy_executor *executor, const cy_executor_options *options)
{
    CY_ASSERT(options->rows > 0 && options->cols > 0);
    CY_ASSERT(cy_group_size(options->group) == options->schedule->stages);
    // One more than the boundaries need: measured.c.
    if (2 * cy_schedule_segments(options->schedule) >= CY_TAG_LIMIT) {
        return CY_FAIL(CY_ERR_REQUEST, "a pipeline of %d segments needs more than %d tags",
            cy_schedule_segments(options->schedule), CY_TAG_LIMIT);
    }
    cy_executor made = {.options = *options, .rank = cy_group_rank(options->group)};
    cy_status status = cy_slots_open(&made.slots, options->schedule, made.rank);
    if (status == CY_OK) status = take_tables(&made);
    if (status != CY_OK) {
        cy_executor_close(&made);
        return status;
    }
    find_last_weight_actions(&made);
    *executor = made;
    return CY_OK;
}

void cy_executor_close(cy_executor *executor)
{
    for (int kind = 0; kind < CY_SLOT_KINDS; kind++)
        cy_memory_free(executor->requests[kind]);
    cy_memory_free(executor->last_weight);
    cy_slots_close(&executor->slots);
    *executor = (cy_executor){0};
}

void cy_executor_alloc(cy_executor *executor, cy_arena *arena)
{
    for (int kind = CY_SLOT_INPUT; kind < CY_SLOT_KINDS; kind++) {
        executor->buffers[kind] =
            cy_arena_alloc(arena, (size_t)executor->slots.count[kind] * slot_bytes(executor));
    }
}

int cy_executor_slot_count(const cy_executor *executor, cy_slot_kind kind)
{
    return executor->slots.count[kind];
}
