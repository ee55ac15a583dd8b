// A group of processes: how it waits, the table of functions behind comm/group.h, opening and
// closing.

#define _GNU_SOURCE
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/mpi/ranks.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define YIELD_NS 2000000  // then sleep between looks
#define LOOK_NS  20000000 // how often a long wait looks after the others
#define SLEEP_NS 50000

// A fragment is received while the one before it is added, and is still in the core's own cache
// then. Shorter ones cost more messages; docs/collectives.md has the figures.
#define FRAGMENT_BYTES ((size_t)256 << 10)

// ---- one thread at a time

// MPI was asked for turns of threads only; two at once would damage its lists now and then.
static void enter(mpi_process *process)
{
    CY_ASSERT(!atomic_exchange(&process->inside, true));
}

void mpi_lock(mpi_process *process)
{
    pthread_mutex_lock(&process->lock);
    enter(process);
}

void mpi_unlock(mpi_process *process)
{
    atomic_store(&process->inside, false);
    pthread_mutex_unlock(&process->lock);
}

// Shows the others what this member calls.
static cy_status publish_call(mpi_group *group, const mpi_transfer *record)
{
    if (group->entries == NULL) return CY_OK;
    mpi_entry *entry = group->entries[group->base.rank];
    // Small messages carry the call with them: the others' entries are lines of other cores, and to
    // look at them at every call costs more than the message. No rank waits for these stores.
    if (mpi_self_describing(group, &record->operation)) {
        atomic_store_explicit(
            &entry->calls[record->sequence % CALL_RING], record->call, memory_order_relaxed);
        atomic_store_explicit(&entry->came, record->sequence + 1, memory_order_release);
        return CY_OK;
    }
    atomic_store(&entry->calls[record->sequence % CALL_RING], record->call);
    atomic_store(&entry->came, record->sequence + 1);
    return mpi_check_calls(group, record->sequence);
}

// ---- waiting

// Messages have records of their own: the staging memory of a collective would otherwise move about
// among all of them, and be touched for the first time again and again.
static mpi_transfer **free_list_of(mpi_group *group, cy_operation_kind kind)
{
    return cy_operation_is_message(kind) ? &group->message_records : &group->records;
}

static void record_give(mpi_group *group, mpi_transfer *record)
{
    mpi_transfer **list = free_list_of(group, record->base.kind);
    record->in_use = false;
    record->next = *list;
    *list = record;
}

static cy_status advance_inside(mpi_group *group, mpi_transfer *record)
{
    mpi_process *process = group->world->process;
    const cy_status status =
        process->stopped ? mpi_run_failure(process) : mpi_advance(group, record);
    mpi_unlock(process);
    return status;
}

static cy_status advance_locked(mpi_group *group, mpi_transfer *record)
{
    mpi_lock(group->world->process);
    return advance_inside(group, record);
}

// The thread that is inside of MPI moves the data of all, so this one does not wait for the lock.
static cy_status advance_if_free(mpi_group *group, mpi_transfer *record)
{
    mpi_process *process = group->world->process;
    if (process->threads == 1) return advance_locked(group, record);
    if (pthread_mutex_trylock(&process->lock) != 0) return CY_OK;
    enter(process);
    return advance_inside(group, record);
}

static cy_status mpi_wait(cy_group *base, cy_queue *queue, cy_transfer *transfer)
{
    mpi_group *group = (mpi_group *)base;
    mpi_transfer *record = (mpi_transfer *)transfer;
    const mpi_process *process = group->world->process;
    cy_rank_page *page = group->world->base.page;
    // The beginning of a wait is a heartbeat; afterwards only looks are counted.
    atomic_fetch_add(&page->heartbeat, 1);
    const int64_t start = cy_clock_ns();
    int64_t looked = start;
    cy_watchdog watchdog = {.rank = -1};
    cy_status status = advance_locked(group, record);
    for (int turn = 0; status == CY_OK && record->phase != MPI_PHASE_DONE; turn++) {
        status = advance_if_free(group, record);
        if (record->phase == MPI_PHASE_DONE || (process->spin && turn % 64 != 63)) continue;
        const int64_t now = cy_clock_ns();
        if (now - start > YIELD_NS) {
            const struct timespec pause = {.tv_nsec = SLEEP_NS};
            nanosleep(&pause, NULL);
        } else {
            sched_yield();
        }
        if (now - looked > LOOK_NS && status == CY_OK) {
            looked = now;
            status = mpi_check_peers(group, record, &watchdog);
        }
    }
    atomic_store(&page->waiting_for, -1);
    if (queue != NULL && record->overflow) cy_queue_note_overflow(queue);
    // After a failure MPI may still write to the staging memory: the record is never used again.
    if (status == CY_OK) {
        mpi_lock(group->world->process);
        record_give(group, record);
        mpi_unlock(group->world->process);
    }
    return status;
}

static cy_status check_peers(cy_group *base, const cy_transfer *transfer, cy_watchdog *watchdog)
{
    return mpi_check_peers((mpi_group *)base, (const mpi_transfer *)transfer, watchdog);
}

static cy_status mpi_test(cy_group *base, cy_transfer *transfer, bool *done)
{
    mpi_group *group = (mpi_group *)base;
    mpi_transfer *record = (mpi_transfer *)transfer;
    CY_TRY(mpi_group_failure(group));
    CY_TRY(advance_locked(group, record));
    *done = record->phase == MPI_PHASE_DONE;
    return CY_OK;
}

// ---- starting

static cy_status record_make(mpi_group *group, cy_operation_kind kind)
{
    const size_t size = (size_t)group->base.size;
    mpi_transfer *made;
    CY_TRY(CY_ALLOC(&made, 1));
    cy_status status = CY_ALLOC(&made->numbers, 4 * size);
    if (status != CY_OK) goto free_record;
    status = CY_ALLOC(&made->pairs, 2 * size);
    if (status != CY_OK) goto free_numbers;
    made->base.kind = kind;
    made->made_before = group->made;
    group->made = made;
    record_give(group, made);
    return CY_OK;

free_numbers:
    cy_memory_free(made->numbers);
free_record:
    cy_memory_free(made);
    return status;
}

static cy_status record_take(mpi_group *group, mpi_transfer **record, cy_operation_kind kind)
{
    mpi_transfer **list = free_list_of(group, kind);
    if (*list == NULL) CY_TRY(record_make(group, kind));
    *record = *list;
    *list = (*record)->next;
    (*record)->next = NULL;
    (*record)->in_use = true;
    (*record)->pair_receives = 0;
    (*record)->pair_count = 0;
    return CY_OK;
}

static cy_status message_start(mpi_group *group, mpi_transfer *record, const cy_operation *o)
{
    const size_t bytes = cy_view_bytes(o->in);
    if (bytes > INT32_MAX) {
        return CY_FAIL(
            CY_ERR_UNSUPPORTED, "a message of %zu bytes: mpi takes %d", bytes, INT32_MAX);
    }
    record->sequence = group->messages++;
    const bool send = o->kind == CY_OP_SEND;
    const mpi_route to = mpi_route_message(group, o->peer, send, o->tag);
    const int code = send ? MPI_Isend(o->in.data, (int)bytes, MPI_BYTE, to.process, to.tag,
                                to.communicator, &record->request)
                          : MPI_Irecv(o->out.data, (int)bytes, MPI_BYTE, to.process, to.tag,
                                to.communicator, &record->request);
    return code == MPI_SUCCESS ? CY_OK : mpi_failed(code, cy_operation_name(o->kind));
}

static cy_status start_locked(mpi_group *group, cy_request *request, const cy_operation *operation)
{
    cy_rank_page *page = group->world->base.page;
    mpi_transfer *record = NULL;
    CY_TRY(record_take(group, &record, operation->kind));
    record->base.kind = operation->kind;
    record->operation = *operation;
    record->phase = MPI_PHASE_FIRST;
    record->request = MPI_REQUEST_NULL;
    record->overflow = false;
    cy_status status = CY_OK;
    if (cy_operation_is_message(operation->kind)) {
        cy_rank_page_set_call(page, group->base.dimension, operation->kind, group->messages);
        status = message_start(group, record, operation);
    } else {
        record->sequence = group->sequence++;
        cy_rank_page_set_call(page, group->base.dimension, operation->kind, record->sequence);
        record->call = mpi_call_pack(operation);
        status = publish_call(group, record);
        if (status == CY_OK) status = mpi_collective_start(group, record, operation);
    }
    if (status != CY_OK) {
        record_give(group, record);
        return status;
    }
    request->handle = record;
    return CY_OK;
}

// NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): waited for in mpi_wait
static cy_status mpi_start(
    cy_group *base, cy_queue *queue, cy_request *request, const cy_operation *operation)
{
    (void)queue;
    mpi_group *group = (mpi_group *)base;
    CY_TRY(mpi_group_failure(group));
    mpi_process *process = group->world->process;
    mpi_lock(process);
    const cy_status status =
        process->stopped ? mpi_run_failure(process) : start_locked(group, request, operation);
    mpi_unlock(process);
    return status;
}
// NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)

// ---- opening and closing

static void mpi_abort_group(cy_group *base, const char *text)
{
    mpi_group *group = (mpi_group *)base;
    char whole[900];
    snprintf(whole, sizeof(whole), "%s was aborted: %s", base->label, text);
    (void)mpi_break_group(group, CY_ERR_PEER, whole);
    cy_world_abort(&group->world->base, whole);
}

// Freeing a communicator is collective: after a failure the others would not call it.
static void close_communicators(mpi_group *group)
{
    if (group->contexts != NULL) return;
    if (group->entries != NULL) MPI_Win_free(&group->window);
    MPI_Comm_free(&group->first);
    MPI_Comm_free(&group->second);
}

static void mpi_close(cy_group *base)
{
    mpi_group *group = (mpi_group *)base;
    mpi_process *process = group->world->process;
    mpi_lock(process);
    mpi_group **link = &process->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    const bool alive = !group->broken && atomic_load(&process->failure->aborted) == 0;
    if (alive) close_communicators(group);
    // MPI may still use those in flight, unless all were taken back.
    const bool taken_back = process->withdrawn && !process->lost;
    for (mpi_transfer *record = group->made, *before; record != NULL; record = before) {
        before = record->made_before;
        if (!taken_back && (!alive || record->in_use)) continue;
        cy_buffer_free(&record->staging);
        cy_memory_free(record->numbers);
        cy_memory_free(record->pairs);
        cy_memory_free(record);
    }
    mpi_routes_leave(group);
    cy_memory_free(group->entries);
    cy_memory_free(group->ranks);
    cy_memory_free(group);
    mpi_unlock(process);
}

static const cy_group_ops mpi_group_ops = {
    .name = "mpi",
    .start = mpi_start,
    .wait = mpi_wait,
    .test = mpi_test,
    .check_peers = check_peers,
    .abort = mpi_abort_group,
    .close = mpi_close,
};

static cy_status open_communicators(mpi_group *group, int count)
{
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    const mpi_process *process = group->world->process;
    MPI_Comm_group(process->world, &all);
    MPI_Group_incl(all, count, group->ranks, &members);
    // The tag keeps apart groups that are opened at the same time over some common ranks.
    int code = MPI_Comm_create_group(process->world, members, group->ranks[0], &group->first);
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(group->first, &group->second);
    MPI_Group_free(&members);
    MPI_Group_free(&all);
    if (code != MPI_SUCCESS) return mpi_failed(code, "opening a group");
    MPI_Comm_set_errhandler(group->first, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(group->second, MPI_ERRORS_RETURN);
    return CY_OK;
}

static cy_status open_entries(mpi_group *group)
{
    for (int m = 0; m < group->base.size; m++) {
        if (group->world->process->pages[group->ranks[m]] == NULL) return CY_OK;
    }
    CY_TRY(CY_ALLOC(&group->entries, (size_t)group->base.size));
    void *region = NULL;
    const int code = MPI_Win_allocate_shared(
        MPI_REGION_BYTES(mpi_entry), 1, MPI_INFO_NULL, group->first, &region, &group->window);
    if (code != MPI_SUCCESS) return mpi_failed(code, "memory shared by a group");
    memset(mpi_align_line(region), 0, sizeof(mpi_entry));
    for (int m = 0; m < group->base.size; m++) {
        MPI_Aint bytes = 0;
        int unit = 0;
        MPI_Win_shared_query(group->window, m, &bytes, &unit, &region);
        group->entries[m] = mpi_align_line(region);
    }
    MPI_Barrier(group->first);
    return CY_OK;
}

// Where MPI has a communicator for the group, and where it has none: several members may be in one
// process, and making or freeing one takes members that may have failed.
static cy_status open_members(mpi_group *group)
{
    mpi_process *process = group->world->process;
    mpi_lock(process);
    cy_status status = CY_OK;
    if (process->routed) {
        status = mpi_routes_join(group);
    } else {
        status = open_communicators(group, group->base.size);
        if (status == CY_OK) status = open_entries(group);
    }
    if (status == CY_OK) {
        group->next = process->groups;
        process->groups = group;
    }
    mpi_unlock(process);
    return status;
}

static bool is_inside(const mpi_process *process, const int *ranks, int count)
{
    for (int m = 0; m < count; m++) {
        if (ranks[m] / process->threads != process->number) return false;
    }
    return true;
}

cy_status mpi_open_group(
    cy_world *base, cy_group **group, const int *ranks, int count, const char *dimension)
{
    mpi_world *world = (mpi_world *)base;
    if (is_inside(world->process, ranks, count))
        return world->local->ops->open_group(world->local, group, ranks, count, dimension);
    mpi_group *made;
    CY_TRY(CY_ALLOC(&made, 1));
    made->world = world;
    cy_status status = CY_ALLOC(&made->ranks, (size_t)count);
    if (status != CY_OK) goto free_group;
    memcpy(made->ranks, ranks, (size_t)count * sizeof(int));
    int place = 0;
    while (ranks[place] != base->rank)
        place++;
    cy_group_init(&made->base, &mpi_group_ops, place, count, dimension);
    cy_group_set_generation(&made->base, world->process->generation);
    made->base.fragment_bytes = FRAGMENT_BYTES;
    made->base.guard = &world->guard;
    status = open_members(made);
    if (status != CY_OK) goto free_ranks;
    if (made->contexts != NULL) status = mpi_routes_meet(made);
    if (status != CY_OK) {
        mpi_close(&made->base);
        return status;
    }
    *group = &made->base;
    return CY_OK;

free_ranks:
    mpi_routes_leave(made);
    cy_memory_free(made->entries);
    cy_memory_free(made->ranks);
free_group:
    cy_memory_free(made);
    return status;
}
