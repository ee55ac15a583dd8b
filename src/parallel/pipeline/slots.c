#include "parallel/pipeline/slots.h"

#include "base/assert.h"
#include "base/memory.h"

// The executor's own order, walked twice: once to count, once to give places.
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
    // The one that is free longest: its message has had most time to leave.
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

// What an action makes lies where the next segment reads it, if that is on this rank too.
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
        void *block = NULL;
        const size_t room = (size_t)slots->count[kind] + 1; // nothing cannot be taken
        if (status == CY_OK) status = cy_memory_alloc(&block, room, sizeof(int));
        giving.freed[kind] = block;
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
    void *table = NULL;
    CY_TRY(cy_memory_alloc(&table, cells, sizeof(int)));
    made.table = table;
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
