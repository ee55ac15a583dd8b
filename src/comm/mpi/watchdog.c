// Whether the others are alive while a rank waits for a transfer: processes that are gone, calls
// that differ, and silence.

#define _GNU_SOURCE
#include "base/clock.h"
#include "comm/mpi/ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

// A member that this transfer may be waiting for, or -1 where all have come.
static int missing_member(const mpi_group *group, const mpi_transfer *record)
{
    if (cy_operation_is_message(record->base.kind)) return record->operation.peer;
    if (group->entries == NULL) return group->base.rank == 0 ? 1 : 0;
    for (int m = 0; m < group->base.size; m++) {
        if (atomic_load(&group->entries[m]->came) <= record->sequence) return m;
    }
    return -1;
}

static cy_status blame(
    mpi_group *group, const mpi_transfer *record, int rank, const char *why, cy_status status)
{
    char who[256];
    char text[1024];
    const mpi_process *process = group->world->process;
    cy_rank_page_describe(process->pages[rank], rank, process->hosts[rank], who, sizeof(who));
    snprintf(text, sizeof(text), "%s %llu of %s: %s %s", cy_operation_name(record->base.kind),
        (unsigned long long)record->sequence, group->base.dimension, why, who);
    return mpi_break_group(group, status, text);
}

static void watch_rank(cy_watchdog *watchdog, int rank, uint64_t sign)
{
    watchdog->rank = rank;
    watchdog->heartbeat = sign;
    watchdog->since_ns = cy_clock_ns();
}

static cy_status give_up(mpi_group *group, const mpi_transfer *record, int rank)
{
    char why[96];
    const mpi_world *world = group->world;
    cy_rank_page_describe_timeout(
        world->process->pages[rank], &world->base.options, why, sizeof(why));
    return blame(group, record, rank, why, CY_ERR_TIMEOUT);
}

// What is watched has not changed: fails once that is so for longer than ranks may be still.
static cy_status check_timeout(
    mpi_group *group, const mpi_transfer *record, const cy_watchdog *watchdog)
{
    const mpi_world *world = group->world;
    const double limit_s =
        cy_rank_page_timeout_s(world->process->pages[watchdog->rank], &world->base.options);
    if ((double)(cy_clock_ns() - watchdog->since_ns) * 1e-9 < limit_s) return CY_OK;
    return give_up(group, record, watchdog->rank);
}

// What changes as long as a rank computes, calls or waits.
static uint64_t sign_of(const cy_rank_page *page)
{
    return cy_rank_page_progress(page) + atomic_load(&page->looks);
}

// All have come, and one may have stopped since. Who waits looks around and who has gone on
// computes or calls: one member is watched until it has done any of it, then the next.
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
        watch_rank(watchdog, rank, sign_of(page));
        break;
    }
    return CY_OK;
}

// The one that is missing is on another machine and shows no sign: its time counts from the first
// look of the wait, and it may be at a file. Meanwhile the members of this machine are watched.
static cy_status check_remote_members(
    mpi_group *group, const mpi_transfer *record, int rank, cy_watchdog *watchdog)
{
    const double limit_s = cy_rank_page_timeout_s(NULL, &group->world->base.options);
    if (watchdog->begun_ns == 0) watchdog->begun_ns = cy_clock_ns();
    if ((double)(cy_clock_ns() - watchdog->begun_ns) * 1e-9 >= limit_s)
        return give_up(group, record, rank);
    return check_local_members(group, record, watchdog);
}

cy_status mpi_check_peers(mpi_group *group, const mpi_transfer *record, cy_watchdog *watchdog)
{
    mpi_world *world = group->world;
    cy_rank_page *const *pages = world->process->pages;
    cy_rank_page *mine = world->base.page;
    atomic_fetch_add_explicit(&mine->looks, 1, memory_order_relaxed);
    CY_TRY(mpi_group_failure(group));
    if (!cy_operation_is_message(record->base.kind))
        CY_TRY(mpi_check_calls(group, record->sequence));
    for (int m = 0; m < group->base.size; m++) {
        const cy_rank_page *page = pages[group->ranks[m]];
        if (page == NULL || atomic_load(&page->ended) != 0) continue;
        if (kill(atomic_load(&page->process), 0) != 0 && errno == ESRCH) {
            return blame(group, record, group->ranks[m], "the process is gone of", CY_ERR_PEER);
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
    watch_rank(watchdog, rank, heartbeat);
    return CY_OK;
}
