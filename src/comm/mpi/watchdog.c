// What can go wrong with a group over MPI: failures of MPI and of the run, members that call
// different collectives, and ranks that show no heartbeat while others wait for them.

#define _GNU_SOURCE
#include "base/clock.h"
#include "comm/mpi/ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

// ---- failures

cy_status mpi_failed(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return CY_FAIL(CY_ERR_PEER, "%s: %s", what, text);
}

cy_status mpi_run_failure(const mpi_process *process)
{
    if (atomic_load(&process->failure->aborted) == 0) return CY_OK;
    return CY_FAIL(CY_ERR_PEER, "%s", process->failure->text);
}

cy_status mpi_break_group(mpi_group *group, cy_status status, const char *text)
{
    group->broken_status = status;
    snprintf(group->broken_text, sizeof(group->broken_text), "%s", text);
    group->broken = true; // last: another thread of the process may read them
    return CY_FAIL(status, "%s", text);
}

cy_status mpi_group_failure(const mpi_group *group)
{
    CY_TRY(mpi_run_failure(group->world->process));
    if (group->broken) return CY_FAIL(group->broken_status, "%s", group->broken_text);
    return CY_OK;
}

// ---- what members call

uint64_t mpi_call_pack(const cy_operation *o)
{
    const bool reduces = o->kind == CY_OP_ALL_REDUCE || o->kind == CY_OP_REDUCE_SCATTER;
    const int root = o->kind == CY_OP_BROADCAST ? o->peer : 0;
    const bool counts = o->kind != CY_OP_ALL_TO_ALLV && o->kind != CY_OP_BARRIER;
    const uint64_t count = counts ? (uint64_t)cy_view_count(o->in) : 0;
    return (uint64_t)o->kind | (uint64_t)(reduces ? o->reduce : 0) << 4 |
        (uint64_t)o->in.dtype << 8 | (uint64_t)root << 12 | count << 24;
}

static void call_describe(uint64_t call, char *text, size_t bytes)
{
    const cy_operation_kind kind = (cy_operation_kind)(call & 15);
    const char *name = cy_operation_name(kind);
    const unsigned long long count = call >> 24;
    const char *dtype = cy_dtype_name((cy_dtype)(call >> 8 & 15));
    if (kind == CY_OP_BARRIER) {
        snprintf(text, bytes, "%s", name);
    } else if (kind == CY_OP_BROADCAST) {
        snprintf(
            text, bytes, "%s of %llu %s from %d", name, count, dtype, (int)(call >> 12 & 4095));
    } else if (kind == CY_OP_ALL_REDUCE || kind == CY_OP_REDUCE_SCATTER) {
        snprintf(text, bytes, "%s of %llu %s, %s", name, count, dtype,
            cy_reduce_op_name((cy_reduce_op)(call >> 4 & 15)));
    } else {
        snprintf(text, bytes, "%s of %llu %s", name, count, dtype);
    }
}

cy_status mpi_check_calls(mpi_group *group, uint64_t sequence)
{
    if (group->entries == NULL) return CY_OK;
    const uint64_t ours =
        atomic_load(&group->entries[group->base.rank]->calls[sequence % CALL_RING]);
    for (int m = 0; m < group->base.size; m++) {
        const uint64_t came = atomic_load(&group->entries[m]->came);
        if (came <= sequence || came > sequence + CALL_RING) continue;
        const uint64_t theirs = atomic_load(&group->entries[m]->calls[sequence % CALL_RING]);
        if (theirs == ours) continue;
        char our_call[128];
        char their_call[128];
        char text[1024];
        call_describe(ours, our_call, sizeof(our_call));
        call_describe(theirs, their_call, sizeof(their_call));
        const int us = group->world->base.rank;
        char(*hosts)[64] = group->world->process->hosts;
        snprintf(text, sizeof(text),
            "collective %llu of %s: rank %d (%s) calls %s, but rank %d (%s) calls %s",
            (unsigned long long)sequence, group->base.label, us, hosts[us], our_call,
            group->ranks[m], hosts[group->ranks[m]], their_call);
        return mpi_break_group(group, CY_ERR_PEER, text);
    }
    return CY_OK;
}

// ---- the missing member

// A member that this transfer may be waiting for, or -1 where all have started it.
static int missing_member(const mpi_group *group, const mpi_transfer *record)
{
    if (cy_operation_is_message(record->base.kind)) return record->operation.peer;
    if (group->entries == NULL) return group->base.rank == 0 ? 1 : 0;
    for (int m = 0; m < group->base.size; m++) {
        if (atomic_load(&group->entries[m]->came) <= record->sequence) return m;
    }
    return -1;
}

static cy_status report_rank(
    mpi_group *group, const mpi_transfer *record, int rank, const char *why, cy_status status)
{
    char who[256];
    char text[1024];
    const mpi_process *process = group->world->process;
    cy_rank_page_describe(process->pages[rank], rank, process->hosts[rank], who, sizeof(who));
    snprintf(text, sizeof(text), "%s %llu of %s: %s %s", cy_operation_name(record->base.kind),
        (unsigned long long)record->sequence, group->base.label, why, who);
    return mpi_break_group(group, status, text);
}

static cy_status report_silence(mpi_group *group, const mpi_transfer *record, int rank)
{
    char why[96];
    const mpi_world *world = group->world;
    cy_rank_page_describe_timeout(
        world->process->pages[rank], &world->base.options, why, sizeof(why));
    return report_rank(group, record, rank, why, CY_ERR_TIMEOUT);
}

// The watched rank has shown no heartbeat since the last look: fails at the end of its time limit.
static cy_status check_timeout(mpi_group *group, const mpi_transfer *record, cy_watchdog *watchdog)
{
    const mpi_world *world = group->world;
    const double limit_s =
        cy_rank_page_timeout_s(world->process->pages[watchdog->rank], &world->base.options);
    if (cy_watch_silence_s(watchdog) < limit_s) return CY_OK;
    return report_silence(group, record, watchdog->rank);
}

// Changes as long as a rank computes, calls or waits.
static uint64_t sign_of(const cy_rank_page *page)
{
    return cy_rank_page_progress(page) + atomic_load(&page->looks);
}

// All have come, and one may have stopped since. A member that waits looks after the others, one
// that has gone on computes or calls: one member is watched until it has done any of it, then the
// next.
static cy_status check_local_members(
    mpi_group *group, const mpi_transfer *record, cy_watchdog *watchdog)
{
    const mpi_world *world = group->world;
    const int size = group->base.size;
    int member = 0;
    while (member < size && group->ranks[member] != watchdog->rank)
        member++;
    const cy_rank_page *watched = member < size ? world->process->pages[watchdog->rank] : NULL;
    if (watched != NULL && watchdog->heartbeat == sign_of(watched))
        return check_timeout(group, record, watchdog);
    for (int i = 1; i <= size; i++) {
        const int rank = group->ranks[(member + i) % size];
        const cy_rank_page *page = world->process->pages[rank];
        if (rank == world->base.rank || page == NULL || atomic_load(&page->ended) != 0) continue;
        cy_watch_begin(watchdog, rank, sign_of(page));
        break;
    }
    return CY_OK;
}

// The missing member is on another machine and shows no heartbeat: its time counts from the first
// look of the wait, and it may be in a call on a file. Meanwhile the members of this machine are
// watched.
static cy_status check_remote_members(
    mpi_group *group, const mpi_transfer *record, int rank, cy_watchdog *watchdog)
{
    const double limit_s = cy_rank_page_timeout_s(NULL, &group->world->base.options);
    if (watchdog->begun_ns == 0) watchdog->begun_ns = cy_clock_ns();
    if ((double)(cy_clock_ns() - watchdog->begun_ns) * 1e-9 >= limit_s)
        return report_silence(group, record, rank);
    return check_local_members(group, record, watchdog);
}

cy_status mpi_check_peers(mpi_group *group, const mpi_transfer *record, cy_watchdog *watchdog)
{
    mpi_world *world = group->world;
    cy_rank_page *const *pages = world->process->pages;
    cy_rank_page *mine = world->base.page;
    atomic_fetch_add_explicit(&mine->looks, 1, memory_order_relaxed);
    mpi_notice_look(world->process);
    CY_TRY(mpi_group_failure(group));
    if (!cy_operation_is_message(record->base.kind))
        CY_TRY(mpi_check_calls(group, record->sequence));
    for (int m = 0; m < group->base.size; m++) {
        const cy_rank_page *page = pages[group->ranks[m]];
        if (page == NULL || atomic_load(&page->ended) != 0) continue;
        if (kill(atomic_load(&page->process), 0) != 0 && errno == ESRCH) {
            return report_rank(
                group, record, group->ranks[m], "the process is gone of", CY_ERR_PEER);
        }
    }
    const int member = missing_member(group, record);
    atomic_store(&mine->waiting_for, member < 0 ? -1 : group->ranks[member]);
    if (member < 0) return check_local_members(group, record, watchdog);
    const int rank = cy_rank_page_root_cause(pages, world->base.size, group->ranks[member]);
    if (pages[rank] == NULL) return check_remote_members(group, record, rank, watchdog);
    const uint64_t heartbeat = cy_rank_page_heartbeat(pages[rank]);
    if (watchdog->rank == rank && watchdog->heartbeat == heartbeat)
        return check_timeout(group, record, watchdog);
    cy_watch_begin(watchdog, rank, heartbeat);
    return CY_OK;
}
