// Messages between ranks that share processes. MPI knows processes; which thread of one sends,
// which thread of the other receives and which group they mean is in the communicator and in the
// tag.
//
//   communicator   of the thread that sends; one for messages, one for collectives
//   tag            context | thread that receives | tag of the message
//
// The context tells groups apart. Both ends count the groups that they have opened together, in the
// same order, so they agree on it without a word. Opening a group thus needs no communicator of its
// own, whose making would block the other ranks of the process: two processes whose threads open
// two groups in different orders would wait for each other for ever.

#include "base/memory.h"
#include "base/status.h"
#include "comm/mpi/ranks.h"

#include <string.h>

// Bits of a tag: of a message, with those that algorithms and delays take, and of a collective.
#define MESSAGE_BITS    16
#define COLLECTIVE_BITS 1

_Static_assert(4 * CY_TAG_LIMIT <= 1 << MESSAGE_BITS, "tags of messages have their bits");

cy_status mpi_routes_open(mpi_process *process)
{
    int *most = NULL;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
    const int64_t tags = found != 0 ? (int64_t)*most + 1 : 32768;
    const int64_t contexts = tags / (1 << MESSAGE_BITS) / process->threads;
    // Contexts are used again in turn, long after the groups that had them are closed.
    if (contexts < 2 * MPI_ENTRIES) {
        return CY_FAIL(CY_ERR_UNSUPPORTED,
            "%d ranks in each process: the tags of this MPI end at %lld, which is too few for them",
            process->threads, (long long)(tags - 1));
    }
    process->contexts = contexts < INT32_MAX ? (int)contexts : INT32_MAX;
    CY_TRY(CY_ALLOC(&process->wires, 2 * (size_t)process->threads));
    for (int i = 0; i < 2 * process->threads; i++) {
        const int code = MPI_Comm_dup(process->world, &process->wires[i]);
        if (code != MPI_SUCCESS) return mpi_failed(code, "communicators of the ranks");
        MPI_Comm_set_errhandler(process->wires[i], MPI_ERRORS_RETURN);
    }
    return CY_OK;
}

void mpi_routes_close(mpi_process *process)
{
    for (int i = 0; process->wires != NULL && i < 2 * process->threads; i++)
        MPI_Comm_free(&process->wires[i]);
}

static mpi_route route(const mpi_group *group, int member, bool send, int kind, int bits, int tag)
{
    const mpi_process *process = group->world->process;
    const int there = group->ranks[member];
    const int from = send ? group->world->base.rank : there;
    const int to = send ? there : group->world->base.rank;
    CY_DEBUG_ASSERT(0 <= tag && tag < 1 << bits);
    return (mpi_route){
        .communicator = process->wires[2 * (from % process->threads) + kind],
        .process = there / process->threads,
        .tag = (group->contexts[member] * process->threads + to % process->threads) << bits | tag,
    };
}

mpi_route mpi_route_message(const mpi_group *group, int member, bool send, int tag)
{
    return group->contexts != NULL
        ? route(group, member, send, 0, MESSAGE_BITS, tag)
        : (mpi_route){.communicator = group->first, .process = member, .tag = tag};
}

mpi_route mpi_route_collective(const mpi_group *group, int member, bool send, int tag)
{
    return group->contexts != NULL
        ? route(group, member, send, 1, COLLECTIVE_BITS, tag)
        : (mpi_route){.communicator = group->second, .process = member, .tag = tag};
}

// A free entry, the one whose last use is longest ago: members of a group that this rank has closed
// may still look at theirs.
static int take_entry(mpi_world *world)
{
    for (int i = 0; i < MPI_ENTRIES; i++) {
        const int entry = (world->next_entry + i) % MPI_ENTRIES;
        if (world->entry_used[entry]) continue;
        world->entry_used[entry] = true;
        world->next_entry = (entry + 1) % MPI_ENTRIES;
        return entry;
    }
    return -1;
}

cy_status mpi_routes_join(mpi_group *group)
{
    mpi_world *world = group->world;
    CY_TRY(CY_ALLOC(&group->contexts, (size_t)group->base.size));
    for (int m = 0; m < group->base.size; m++) {
        int *met = &world->met[group->ranks[m]];
        group->contexts[m] = *met;
        *met = (*met + 1) % world->process->contexts;
    }
    group->entry = take_entry(world);
    if (group->entry < 0) {
        return CY_FAIL(CY_ERR_UNSUPPORTED,
            "a rank has %d groups open to ranks of other processes: there is no region for another",
            MPI_ENTRIES);
    }
    memset(&world->process->entry_tables[world->base.rank][group->entry], 0, sizeof(mpi_entry));
    return CY_OK;
}

void mpi_routes_leave(mpi_group *group)
{
    if (group->contexts != NULL && group->entry >= 0)
        group->world->entry_used[group->entry] = false;
    cy_memory_free(group->contexts);
    group->contexts = NULL;
}

cy_status mpi_routes_meet(mpi_group *group)
{
    const mpi_process *process = group->world->process;
    const int size = group->base.size;
    int32_t *found;
    CY_TRY(CY_ALLOC(&found, (size_t)size));
    int32_t mine = group->entry;
    cy_status status = cy_group_all_gather(
        &group->base, NULL, cy_view_of(found, CY_I32, size, 1), cy_view_of(&mine, CY_I32, 1, 1));
    group->base.counters = (cy_traffic){0};
    group->sequence = 0;
    bool seen = true;
    for (int m = 0; m < size; m++)
        seen = seen && process->entry_tables[group->ranks[m]] != NULL;
    if (status == CY_OK && seen) {
        status = CY_ALLOC(&group->entries, (size_t)size);
        for (int m = 0; m < size && status == CY_OK; m++)
            group->entries[m] = &process->entry_tables[group->ranks[m]][found[m]];
    }
    cy_memory_free(found);
    return status;
}
