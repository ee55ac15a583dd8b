// Runs one rank's list of a pipeline schedule: assigns buffers and stashes to microbatches,
// executes the actions, and gathers measured times.

#include "parallel/pipeline/executor.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

// ---- slots

// A walk over the list in the executor's order: the first counts, the second assigns places.
typedef struct walk {
    const cy_schedule *schedule; // borrowed
    int rank;
    cy_slots *slots; // borrowed
    bool giving;
    int live[CY_SLOT_KINDS];
    int peak[CY_SLOT_KINDS];
    int *freed[CY_SLOT_KINDS]; // owned, [slots->count]: when a place became free; -1 in use
    int time;
} walk;

static int *cell(const cy_slots *slots, cy_slot_kind kind, int chunk, int microbatch)
{
    const size_t row = (size_t)kind * (size_t)slots->chunks + (size_t)chunk;
    return &slots->table[row * (size_t)slots->microbatches + (size_t)microbatch];
}

int cy_slots_at(const cy_slots *slots, cy_slot_kind kind, int chunk, int microbatch)
{
    CY_ASSERT(0 <= chunk && chunk < slots->chunks);
    CY_ASSERT(0 <= microbatch && microbatch < slots->microbatches);
    return *cell(slots, kind, chunk, microbatch);
}

static void take(walk *w, cy_slot_kind kind, int chunk, int microbatch)
{
    w->live[kind]++;
    if (w->live[kind] > w->peak[kind]) w->peak[kind] = w->live[kind];
    if (!w->giving) return;
    // The place that has been free longest: its message has had the most time to leave.
    const int count = w->slots->count[kind];
    int best = 0;
    while (best < count && w->freed[kind][best] < 0)
        best++;
    CY_ASSERT(best < count);
    for (int i = best + 1; i < count; i++) {
        const int freed = w->freed[kind][i];
        if (freed >= 0 && freed < w->freed[kind][best]) best = i;
    }
    w->freed[kind][best] = -1;
    *cell(w->slots, kind, chunk, microbatch) = best;
}

static void give_back(walk *w, cy_slot_kind kind, int chunk, int microbatch)
{
    w->live[kind]--;
    w->time++;
    if (w->giving) w->freed[kind][*cell(w->slots, kind, chunk, microbatch)] = w->time;
}

// Receives are posted before the compute action that they follow in the list.
static void post(walk *w, size_t from)
{
    const cy_action_list *list = &w->schedule->ranks[w->rank];
    for (size_t i = from; i < list->count && !cy_action_is_compute(list->actions[i].kind); i++) {
        const cy_action action = list->actions[i];
        if (action.kind == CY_ACTION_RECV_ACTIVATION) {
            take(w, CY_SLOT_INPUT, action.chunk, action.microbatch);
        }
        if (action.kind == CY_ACTION_RECV_GRADIENT) {
            take(w, CY_SLOT_GRADIENT, action.chunk, action.microbatch);
        }
    }
}

// Takes a place for what an action produces: the one from which the next segment reads it, if that
// segment is on this rank too.
static void take_made(walk *w, cy_action action, bool forward)
{
    const int segment = cy_schedule_segment(w->schedule, w->rank, action.chunk);
    const int to = forward ? segment + 1 : segment - 1;
    if (to < 0 || to == cy_schedule_segments(w->schedule)) return;
    if (cy_schedule_segment_rank(w->schedule, to) == w->rank) {
        take(w, forward ? CY_SLOT_INPUT : CY_SLOT_GRADIENT, to / w->schedule->stages,
            action.microbatch);
    } else {
        take(w, forward ? CY_SLOT_OUTPUT : CY_SLOT_INPUT_GRADIENT, action.chunk, action.microbatch);
    }
}

static void compute(walk *w, cy_action action)
{
    const int c = action.chunk, m = action.microbatch;
    if (action.kind == CY_ACTION_FORWARD) {
        take(w, CY_SLOT_STASH, c, m);
        take(w, CY_SLOT_KEPT, c, m);
        take_made(w, action, true);
        return;
    }
    if (action.kind != CY_ACTION_BACKWARD_WEIGHT) {
        take_made(w, action, false);
        give_back(w, CY_SLOT_STASH, c, m);
    }
    if (action.kind != CY_ACTION_BACKWARD_INPUT) {
        const int segment = cy_schedule_segment(w->schedule, w->rank, c);
        give_back(w, CY_SLOT_KEPT, c, m);
        if (segment > 0) give_back(w, CY_SLOT_INPUT, c, m);
        if (segment < cy_schedule_segments(w->schedule) - 1) give_back(w, CY_SLOT_GRADIENT, c, m);
    }
}

static void run(walk *w)
{
    const cy_action_list *list = &w->schedule->ranks[w->rank];
    post(w, 0);
    for (size_t i = 0; i < list->count; i++) {
        const cy_action action = list->actions[i];
        if (cy_action_is_compute(action.kind)) {
            post(w, i + 1);
            compute(w, action);
        } else if (action.kind == CY_ACTION_SEND_ACTIVATION) {
            give_back(w, CY_SLOT_OUTPUT, action.chunk, action.microbatch);
        } else if (action.kind == CY_ACTION_SEND_GRADIENT) {
            give_back(w, CY_SLOT_INPUT_GRADIENT, action.chunk, action.microbatch);
        }
    }
}

static cy_status give_places(cy_slots *slots, const cy_schedule *schedule, int rank)
{
    walk counted = {.schedule = schedule, .rank = rank, .slots = slots};
    run(&counted);
    walk giving = {.schedule = schedule, .rank = rank, .slots = slots, .giving = true};
    cy_status status = CY_OK;
    for (int kind = 0; kind < CY_SLOT_KINDS; kind++) {
        const bool sent = kind == CY_SLOT_OUTPUT || kind == CY_SLOT_INPUT_GRADIENT;
        slots->count[kind] = counted.peak[kind] + (sent && counted.peak[kind] > 0 ? 1 : 0);
        if (status == CY_OK) status = CY_ALLOC(&giving.freed[kind], (size_t)slots->count[kind]);
    }
    if (status == CY_OK) run(&giving);
    for (int kind = 0; kind < CY_SLOT_KINDS; kind++)
        cy_memory_free(giving.freed[kind]);
    return status;
}

cy_status cy_slots_open(cy_slots *slots, const cy_schedule *schedule, int rank)
{
    CY_ASSERT(0 <= rank && rank < schedule->stages);
    cy_slots made = {.microbatches = schedule->microbatches, .chunks = schedule->chunks};
    const size_t cells = CY_SLOT_KINDS * (size_t)schedule->chunks * (size_t)schedule->microbatches;
    CY_TRY(CY_ALLOC(&made.table, cells));
    for (size_t i = 0; i < cells; i++)
        made.table[i] = -1;
    const cy_status status = give_places(&made, schedule, rank);
    if (status != CY_OK) {
        cy_slots_close(&made);
        return status;
    }
    *slots = made;
    return CY_OK;
}

void cy_slots_close(cy_slots *slots)
{
    cy_memory_free(slots->table);
    *slots = (cy_slots){0};
}

// ---- the executor

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

// Waits for the message that a compute action reads, and returns its view; none at the ends of the
// model.
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
        return stage->forward(stage->context, &call, made, input);
    }
    CY_TRY(wait_for(s, &output_gradient, CY_SLOT_GRADIENT, call.chunk, call.microbatch));
    if (action.kind == CY_ACTION_BACKWARD_WEIGHT) {
        *start = cy_clock_s();
        return stage->backward_weight(stage->context, &call, output_gradient, input);
    }
    CY_TRY(wait_for_slot(s, &made, &call, false));
    *start = cy_clock_s();
    if (action.kind == CY_ACTION_BACKWARD_INPUT) {
        return stage->backward_input(stage->context, &call, made, output_gradient, input);
    }
    return stage->backward(stage->context, &call, made, output_gradient, input);
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
    CY_TRY(CY_ALLOC(&executor->last_weight, (size_t)executor->options.schedule->chunks));
    for (int kind = CY_SLOT_INPUT; kind < CY_SLOT_KINDS; kind++) {
        if (executor->slots.count[kind] == 0) continue;
        CY_TRY(CY_ALLOC(&executor->requests[kind], (size_t)executor->slots.count[kind]));
    }
    return CY_OK;
}

cy_status cy_executor_open(cy_executor *executor, const cy_executor_options *options)
{
    CY_ASSERT(options->rows > 0 && options->cols > 0);
    CY_ASSERT(cy_group_size(options->group) == options->schedule->stages);
    // The boundaries need so many tags, and measured times one more.
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

// ---- measured times

// The tag after those of activations and gradients.
static int tag_of(const cy_executor *executor)
{
    return 2 * cy_schedule_segments(executor->options.schedule);
}

static cy_status send_times(
    const cy_executor *executor, const cy_timed_action *times, double zero_s)
{
    const size_t count = executor->options.schedule->ranks[executor->rank].count;
    double *pairs = NULL;
    CY_TRY(CY_ALLOC(&pairs, 2 * count));
    for (size_t i = 0; i < count; i++) {
        pairs[2 * i] = times[i].start - zero_s;
        pairs[2 * i + 1] = times[i].end - zero_s;
    }
    cy_request request = {0};
    cy_status status = cy_group_start_send(executor->options.group, NULL, &request,
        cy_view_of(pairs, CY_F64, (int64_t)count, 2), 0, tag_of(executor));
    if (status == CY_OK) status = cy_group_wait(executor->options.group, NULL, &request);
    cy_memory_free(pairs);
    return status;
}

static cy_status receive_times(cy_timed_action *items, const cy_executor *executor, int from)
{
    const cy_action_list *list = &executor->options.schedule->ranks[from];
    double *pairs = NULL;
    CY_TRY(CY_ALLOC(&pairs, 2 * list->count));
    cy_request request = {0};
    cy_status status = cy_group_start_recv(executor->options.group, NULL, &request,
        cy_view_of(pairs, CY_F64, (int64_t)list->count, 2), from, tag_of(executor));
    if (status == CY_OK) status = cy_group_wait(executor->options.group, NULL, &request);
    for (size_t i = 0; status == CY_OK && i < list->count; i++) {
        items[i] = (cy_timed_action){.action = list->actions[i],
            .rank = from,
            .start = pairs[2 * i],
            .end = pairs[2 * i + 1]};
    }
    cy_memory_free(pairs);
    return status;
}

// Moves all times so that the first action starts at 0.
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

cy_status cy_timeline_gather(
    cy_timeline *timeline, const cy_executor *executor, const cy_timed_action *times, double zero_s)
{
    const cy_schedule *schedule = executor->options.schedule;
    if (executor->rank != 0) {
        CY_TRY(send_times(executor, times, zero_s));
        *timeline = (cy_timeline){0};
        return CY_OK;
    }
    size_t count = 0;
    for (int rank = 0; rank < schedule->stages; rank++)
        count += schedule->ranks[rank].count;
    cy_timed_action *items = NULL;
    CY_TRY(CY_ALLOC(&items, count));
    cy_timeline made = {.items = items,
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
        const cy_status status = receive_times(&made.items[first], executor, rank);
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
