// Collectives of many bytes. Every member leaves its operation in the slot of that turn; the last
// one to come cuts the work into tasks (threads_task.c), and whoever waits takes some.

#define _GNU_SOURCE
#include "base/memory.h"
#include "base/status.h"
#include "comm/threads/threads.h"

#include <sched.h>
#include <string.h>

// Up to so many bytes the last member to come does all the work at once: a handshake costs more.
#define ALONE_BYTES 32768

typedef struct slot_context {
    threads_group *group;
    slot *at;
    const threads_transfer *record;
} slot_context;

static slot_context context_of(threads_group *group, const threads_transfer *record)
{
    return (slot_context){group, &group->shared->slots[record->turn % SLOTS], record};
}

// ---- conditions to wait for

static bool is_free(const slot_context *c)
{
    return atomic_load(&c->at->turn) == c->record->turn;
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

// Asked a few times a second while somebody is missing. A member that calls something small comes
// to no slot, but its descriptor tells; the group fails then.
static int first_absent(void *context)
{
    const slot_context *c = context;
    const int missing = descriptor_missing(c->group, c->record->sequence, 0);
    if (missing < 0 && descriptor_check(c->group, c->record->sequence) != CY_OK) return -1;
    return missing;
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
    const cy_status status = slot_plan(group, at, sequence);
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

static cy_status fill_entry(slot_entry *entry, const cy_operation *operation, int size)
{
    entry->operation = *operation;
    if (operation->kind != CY_OP_ALL_TO_ALLV) return CY_OK;
    if (entry->rows == NULL) {
        void *block = NULL;
        CY_TRY(cy_memory_alloc(&block, 2 * (size_t)size, sizeof(int64_t)));
        entry->rows = block;
    }
    memcpy(entry->rows, operation->out_rows, (size_t)size * sizeof(int64_t));
    memcpy(entry->rows + size, operation->in_rows, (size_t)size * sizeof(int64_t));
    entry->operation.out_rows = entry->rows;
    entry->operation.in_rows = entry->rows + size;
    return CY_OK;
}

cy_status slot_enter(threads_group *group, threads_transfer *record)
{
    record->turn = group->turn;
    slot_context context = context_of(group, record);
    CY_ASSERT(is_free(&context)); // all members have completed, and left, what was here before
    CY_TRY(
        fill_entry(&context.at->entries[group->base.rank], &record->operation, group->base.size));
    group->turn++;
    return CY_OK;
}

cy_status slot_come(threads_group *group, threads_transfer *record)
{
    slot *at = context_of(group, record).at;
    if (atomic_fetch_add(&at->here, 1) + 1 < group->base.size) return CY_OK;
    return open_tasks(group, at, record->sequence);
}

void slot_cancel(threads_group *group, const threads_transfer *record)
{
    slot *at = context_of(group, record).at;
    int state = SLOT_OPEN;
    if (!atomic_compare_exchange_strong(&at->state, &state, SLOT_FAILED)) {
        state = SLOT_READY;
        (void)atomic_compare_exchange_strong(&at->state, &state, SLOT_FAILED);
    }
    while (atomic_load(&at->running) > 0)
        sched_yield();
}

static void leave(threads_group *group, slot *at, uint64_t turn)
{
    if (atomic_fetch_add(&at->left, 1) + 1 < group->base.size) return;
    atomic_store_explicit(&at->here, 0, memory_order_relaxed);
    atomic_store_explicit(&at->left, 0, memory_order_relaxed);
    atomic_store_explicit(&at->next, 0, memory_order_relaxed);
    atomic_store_explicit(&at->finished, 0, memory_order_relaxed);
    atomic_store_explicit(&at->overflow, false, memory_order_relaxed);
    atomic_store_explicit(&at->state, SLOT_OPEN, memory_order_relaxed);
    atomic_store(&at->turn, turn + SLOTS);
}

cy_status slot_complete(threads_group *group, cy_queue *queue, threads_transfer *record)
{
    slot_context context = context_of(group, record);
    slot *at = context.at;
    cy_status status = CY_OK;
    if (!is_complete(&context)) {
        status = group_await(group, is_complete, first_absent, &context, record);
    }
    if (status == CY_OK && atomic_load(&at->state) == SLOT_READY) {
        const int workers = queue != NULL ? cy_queue_workers(queue) : 1;
        if (workers > 1 && at->tasks / 2 >= workers) {
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
        slot_cancel(group, record);
        return status;
    }
    if (queue != NULL && atomic_load_explicit(&at->overflow, memory_order_relaxed)) {
        atomic_store(&queue->fixed_overflow, true);
    }
    leave(group, at, record->turn);
    return CY_OK;
}

bool slot_test(threads_group *group, threads_transfer *record)
{
    slot_context context = context_of(group, record);
    if (atomic_load(&context.at->state) == SLOT_READY) help_once(group->shared, context.at);
    return is_over(&context);
}
