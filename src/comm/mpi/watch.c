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

static void watch(cy_watch *eye, int rank, uint64_t sign)
{
    eye->rank = rank;
    eye->beat = sign;
    eye->since_ns = cy_clock_ns();
}

static cy_status give_up(mpi_group *group, const mpi_transfer *record, int rank)
{
    char why[96];
    const mpi_world *world = group->world;
    cy_rank_page_silence(world->process->pages[rank], &world->base.options, why, sizeof(why));
    return blame(group, record, rank, why, CY_ERR_TIMEOUT);
}

// What is watched has not changed: fails once that is so for longer than ranks may be still.
static cy_status bear(mpi_group *group, const mpi_transfer *record, const cy_watch *eye)
{
    const mpi_world *world = group->world;
    const double limit_s =
        cy_rank_page_limit_s(world->process->pages[eye->rank], &world->base.options);
    if ((double)(cy_clock_ns() - eye->since_ns) * 1e-9 < limit_s) return CY_OK;
    return give_up(group, record, eye->rank);
}

// What changes as long as a rank computes, calls or waits.
static uint64_t sign_of(const cy_rank_page *page)
{
    return cy_rank_page_life(page) + atomic_load(&page->looks);
}

// All have come, and one may have stopped since. Who waits looks around and who has gone on
// computes or calls: one member is watched until it has done any of it, then the next.
static cy_status look_at_members(mpi_group *group, const mpi_transfer *record, cy_watch *eye)
{
    const mpi_world *world = group->world;
    const int size = group->base.size;
    int member = 0;
    while (member < size && group->ranks[member] != eye->rank)
        member++;
    const cy_rank_page *watched = member < size ? world->process->pages[eye->rank] : NULL;
    if (watched != NULL && eye->beat == sign_of(watched)) return bear(group, record, eye);
    for (int i = 1; i <= size; i++) {
        const int rank = group->ranks[(member + i) % size];
        const cy_rank_page *page = world->process->pages[rank];
        if (rank == world->base.rank || page == NULL || atomic_load(&page->ended) != 0) continue;
        watch(eye, rank, sign_of(page));
        break;
    }
    return CY_OK;
}

// The one that is missing is on another machine and shows no sign: its time counts from the first
// look of the wait, and it may be at a file. Meanwhile the members of this machine are watched.
static cy_status look_from_afar(
    mpi_group *group, const mpi_transfer *record, int rank, cy_watch *eye)
{
    const double limit_s = cy_rank_page_limit_s(NULL, &group->world->base.options);
    if (eye->begun_ns == 0) eye->begun_ns = cy_clock_ns();
    if ((double)(cy_clock_ns() - eye->begun_ns) * 1e-9 >= limit_s)
        return give_up(group, record, rank);
    return look_at_members(group, record, eye);
}

cy_status mpi_look_after(mpi_group *group, const mpi_transfer *record, cy_watch *eye)
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
    if (member < 0) return look_at_members(group, record, eye);
    const int rank = cy_rank_page_culprit(pages, world->base.size, group->ranks[member]);
    if (pages[rank] == NULL) return look_from_afar(group, record, rank, eye);
    const uint64_t beat = cy_rank_page_sign(pages[rank]);
    if (eye->rank == rank && eye->beat == beat) return bear(group, record, eye);
    watch(eye, rank, beat);
    return CY_OK;
}
