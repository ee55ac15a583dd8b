#define _GNU_SOURCE
#include "comm/threads.h"

#include <sched.h>
#include <string.h>

#include "base/memory.h"

// Up to so many bytes the last member to come does all the work at once: a handshake costs more.
#define ALONE_BYTES 32768

typedef struct slot_context {
    threads_group *group;
    slot *at;
    uint64_t sequence;
} slot_context;

// ---- conditions to wait for

static bool is_free(void *context)
{
    const slot_context *c = context;
    return atomic_load(&c->at->sequence) == c->sequence;
}

static bool is_complete(void *context)
{
    const slot_context *c = context;
    return atomic_load(&c->at->state) != SLOT_OPEN;
}

static bool is_over(void *context)
{
    const slot_context *c = context;
    return atomic_load(&c->at->state) >= SLOT_DONE;
}

static int first_below(const slot_context *c, uint64_t mark)
{
    for (int m = 0; m < c->group->base.size; m++) {
        if (atomic_load_explicit(&c->at->came[m], memory_order_relaxed) < mark) return m;
    }
    return -1;
}

static int who_has_not_come(void *context)
{
    const slot_context *c = context;
    return first_below(c, 2 * c->sequence + 1);
}

static int who_has_not_left(void *context)
{
    const slot_context *c = context;
    return first_below(c, 2 * (c->sequence - SLOTS) + 2);
}

static int nobody(void *context)
{
    (void)context;
    return -1; // who is inside a task will come out of it
}

// ---- work

static void finish_task(threads_shared *shared, slot *at)
{
    if (atomic_fetch_add_explicit(&at->finished, 1, memory_order_acq_rel) + 1 != at->tasks) return;
    int ready = SLOT_READY;
    if (atomic_compare_exchange_strong(&at->state, &ready, SLOT_DONE)) group_notify(shared);
}

// Takes one task; false when there is none left.
static bool help_once(threads_shared *shared, slot *at)
{
    bool worked = false;
    // Announced before the look at the state: who gives up waits until nobody is inside.
    atomic_fetch_add(&at->running, 1);
    if (atomic_load(&at->state) == SLOT_READY) {
        const int64_t task = atomic_fetch_add_explicit(&at->next, 1, memory_order_relaxed);
        if (task < at->tasks) {
            slot_task(shared, at, task);
            finish_task(shared, at);
            worked = true;
        }
    }
    atomic_fetch_sub(&at->running, 1);
    return worked;
}

static void help(void *context, int64_t task, int worker)
{
    (void)task;
    (void)worker;
    const slot_context *c = context;
    while (help_once(c->group->shared, c->at)) {
    }
}

// The last member has come.
static cy_status open_tasks(threads_group *group, slot *at, uint64_t sequence)
{
    threads_shared *shared = group->shared;
    const cy_status status = slot_plan(shared, at, sequence);
    if (status != CY_OK) {
        group_fail(shared, status, cy_error_text());
        atomic_store(&at->state, SLOT_FAILED);
        group_notify(shared);
        return status;
    }
    int open = SLOT_OPEN;
    const int next = at->tasks == 0 ? SLOT_DONE : SLOT_READY;
    if (!atomic_compare_exchange_strong(&at->state, &open, next)) return group_failure(shared);
    if (at->tasks > 0 && (size_t)at->tasks * at->grain <= ALONE_BYTES) {
        while (help_once(shared, at)) {
        }
    } else {
        group_notify(shared);
    }
    return CY_OK;
}

// ---- a member's life in a slot

static cy_status complete(threads_group *group, cy_queue *queue, threads_transfer *record);

static cy_status enter_slot(threads_group *group, threads_transfer *record, slot *at)
{
    const uint64_t place = record->sequence % SLOTS;
    threads_transfer *old = group->in_flight[place];
    if (old != NULL) {
        old->status = complete(group, NULL, old);
        old->completed = true;
        group->in_flight[place] = NULL;
    }
    slot_context context = {group, at, record->sequence};
    if (is_free(&context)) return CY_OK;
    return group_await(group, is_free, who_has_not_left, &context, record);
}

static cy_status fill_entry(slot_entry *entry, const cy_operation *operation, int size)
{
    entry->operation = *operation;
    if (operation->kind != CY_OP_ALL_TO_ALLV) return CY_OK;
    if (entry->rows == NULL) {
        void *block = NULL;
        CY_TRY(cy_memory_take(&block, 2 * (size_t)size, sizeof(int64_t)));
        entry->rows = block;
    }
    memcpy(entry->rows, operation->out_rows, (size_t)size * sizeof(int64_t));
    memcpy(entry->rows + size, operation->in_rows, (size_t)size * sizeof(int64_t));
    entry->operation.out_rows = entry->rows;
    entry->operation.in_rows = entry->rows + size;
    return CY_OK;
}

cy_status slot_start(threads_group *group, threads_transfer *record, const cy_operation *operation)
{
    record->sequence = group->sequence;
    slot *at = &group->shared->slots[record->sequence % SLOTS];
    CY_TRY(enter_slot(group, record, at));
    CY_TRY(fill_entry(&at->entries[group->base.rank], operation, group->base.size));
    group->sequence++;
    group->in_flight[record->sequence % SLOTS] = record;
    rank_says(group->rank, group->base.dimension, operation->kind, record->sequence);
    atomic_store_explicit(
        &at->came[group->base.rank], 2 * record->sequence + 1, memory_order_release);
    if (atomic_fetch_add(&at->here, 1) + 1 < group->base.size) return CY_OK;
    const cy_status status = open_tasks(group, at, record->sequence);
    if (status != CY_OK) group->in_flight[record->sequence % SLOTS] = NULL;
    return status;
}

// After a failure: nobody may touch this member's buffers once it has returned.
static void give_up(slot *at)
{
    int state = SLOT_OPEN;
    if (!atomic_compare_exchange_strong(&at->state, &state, SLOT_FAILED)) {
        state = SLOT_READY;
        (void)atomic_compare_exchange_strong(&at->state, &state, SLOT_FAILED);
    }
    while (atomic_load(&at->running) > 0)
        sched_yield();
}

static void leave(threads_group *group, slot *at, uint64_t sequence)
{
    atomic_store_explicit(&at->came[group->base.rank], 2 * sequence + 2, memory_order_relaxed);
    if (atomic_fetch_add(&at->left, 1) + 1 < group->base.size) return;
    atomic_store_explicit(&at->here, 0, memory_order_relaxed);
    atomic_store_explicit(&at->left, 0, memory_order_relaxed);
    atomic_store_explicit(&at->next, 0, memory_order_relaxed);
    atomic_store_explicit(&at->finished, 0, memory_order_relaxed);
    atomic_store_explicit(&at->overflow, false, memory_order_relaxed);
    atomic_store_explicit(&at->state, SLOT_OPEN, memory_order_relaxed);
    atomic_store(&at->sequence, sequence + SLOTS);
    group_notify(group->shared); // somebody may be a whole ring ahead
}

static cy_status complete(threads_group *group, cy_queue *queue, threads_transfer *record)
{
    slot *at = &group->shared->slots[record->sequence % SLOTS];
    slot_context context = {group, at, record->sequence};
    cy_status status = CY_OK;
    if (!is_complete(&context)) {
        status = group_await(group, is_complete, who_has_not_come, &context, record);
    }
    if (status == CY_OK && atomic_load(&at->state) == SLOT_READY) {
        const int workers = queue != NULL ? cy_queue_workers(queue) : 1;
        if (workers > 1 && at->tasks >= 2 * workers) {
            cy_queue_run(queue, help, &context, workers);
        } else {
            help(&context, 0, 0);
        }
        if (!is_over(&context)) status = group_await(group, is_over, nobody, &context, record);
    }
    if (status == CY_OK && atomic_load(&at->state) == SLOT_FAILED) {
        status = group_failure(group->shared);
    }
    if (status != CY_OK) {
        give_up(at);
        return status;
    }
    if (queue != NULL && atomic_load_explicit(&at->overflow, memory_order_relaxed)) {
        atomic_store(&queue->fixed_overflow, true);
    }
    leave(group, at, record->sequence);
    return CY_OK;
}

cy_status slot_wait(threads_group *group, cy_queue *queue, threads_transfer *record)
{
    if (record->completed) {
        if (record->status != CY_OK) return group_failure(group->shared);
        return CY_OK;
    }
    atomic_fetch_add_explicit(&group->rank->base.beat, 1, memory_order_relaxed);
    const cy_status status = complete(group, queue, record);
    group->in_flight[record->sequence % SLOTS] = NULL;
    return status;
}

bool slot_test(threads_group *group, threads_transfer *record)
{
    if (record->completed) return true;
    slot *at = &group->shared->slots[record->sequence % SLOTS];
    slot_context context = {group, at, record->sequence};
    if (atomic_load(&at->state) == SLOT_READY) help_once(group->shared, at);
    return is_over(&context);
}
