// comm/mpi_ranks.h: the inside of the `mpi` backend. Included by comm/mpi*.c only.
//
// MPI moves the data; sums are ours, in order of rank, so that a run under MPI has the bits of a
// run with threads. Ranks of one machine share a page each, on which they say what they do, so that
// a wait can tell who is missing. MPI makes progress inside its own calls only: a transfer goes on
// while this rank is in a start, a test or a wait of any group.

#ifndef CY_COMM_MPI_RANKS_H
#define CY_COMM_MPI_RANKS_H

#include "comm/backend.h"
#include "comm/world_backend.h"

#include <mpi.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define CALL_RING 64

// What ranks of a machine share begins a cache line. MPI aligns shared rooms for numbers only, so a
// room is asked for with a line more; each process finds the same place in it, since where it sees
// a room differs by whole pages of memory.
#define MPI_LINE             64
#define MPI_ROOM_BYTES(type) (sizeof(type) + MPI_LINE)

static inline void *mpi_line_in(void *room)
{
    const size_t beyond = (uintptr_t)room % MPI_LINE;
    return (char *)room + (beyond > 0 ? MPI_LINE - beyond : 0);
}

// What a rank tells the others on its machine.
typedef struct mpi_page {
    _Alignas(MPI_LINE) _Atomic uint64_t beat; // its owner's calls and kernels: see cy_world_beat
    _Atomic uint64_t looks;                   // that its owner took while it waited
    _Atomic uint64_t last_call;               // sequence << 8 | kind
    _Atomic uint64_t last_dimension;          // its first 8 letters
    _Atomic int waiting_for;                  // a world rank, or -1
    _Atomic int ended;
    _Atomic int process;
    // The failure of the run: filled in by the first rank of the machine to fail, on page 0 of it.
    _Atomic int abort_claimed;
    _Atomic int aborted;
    char abort_text[1024];
} mpi_page;

// What a member tells the others of its group: its last collectives, see call_pack.
typedef struct mpi_entry {
    _Alignas(MPI_LINE) _Atomic uint64_t came; // number of collectives started
    _Atomic uint64_t calls[CALL_RING];
} mpi_entry;

typedef struct mpi_launch mpi_launch;

typedef struct mpi_world {
    cy_world base;
    mpi_launch *start; // owned
    MPI_Win window;
    mpi_page **pages;  // owned, [size]; NULL for ranks of other machines
    mpi_page *common;  // of this machine
    char (*hosts)[64]; // owned, [size]
    bool spin;
    pthread_mutex_t lock;     // around every call of MPI, and of the groups' own lists
    _Atomic bool inside;      // a thread that has the lock
    struct mpi_group *groups; // borrowed: the open ones, all of which go on while one waits
} mpi_world;

typedef enum mpi_phase {
    MPI_PHASE_FIRST,  // the data are on their way to who reduces them
    MPI_PHASE_SECOND, // the results are on their way to everybody
    MPI_PHASE_DONE,
} mpi_phase;

typedef struct mpi_transfer {
    cy_transfer base;
    struct mpi_transfer *next; // among free records, or in the order of their start
    cy_operation operation;
    mpi_phase phase;
    MPI_Request request;
    MPI_Request *pairs; // owned, [2 size]: messages with each member, instead of `request`
    int pair_count;     // of them in flight
    uint64_t sequence;
    uint64_t call; // what it is, as a number: see mpi_call_pack
    char *staging; // owned: what the others sent, before it is reduced
    size_t staging_bytes;
    bool overflow;
    int *numbers; // owned, [4 size]: counts and places that MPI reads until the transfer is done
} mpi_transfer;

typedef struct mpi_group {
    cy_group base;
    struct mpi_group *next; // of the world's open groups
    mpi_world *world;       // borrowed
    MPI_Comm first;         // owned: messages and first phases
    MPI_Comm second;        // owned: second phases, whose order is that of the first ones
    MPI_Win window;         // of the entries, where all members are on one machine
    mpi_entry **entries;    // owned, [size]; NULL where members are on several machines
    int *ranks;             // owned, [size]: world ranks
    uint64_t sequence;
    uint64_t messages;
    mpi_transfer *head; // borrowed: collectives in their first phase, oldest first
    mpi_transfer *tail;
    mpi_transfer *records; // owned: free ones
    bool broken;
    cy_status broken_status;
    char broken_text[1024];
} mpi_group;

// ---- mpi_start.c

// Begins MPI; fails when not all ranks have come within the time limit. Ended by mpi_end, after
// which there is no MPI any more.
cy_status mpi_begin(mpi_launch **start, const cy_world_options *options);
void mpi_end(mpi_launch *start);

// ---- mpi_world.c

cy_status mpi_failed(int code, const char *what);
cy_status mpi_run_failure(const mpi_world *world);
void mpi_says(mpi_world *world, const char *dimension, cy_operation_kind kind, uint64_t sequence);
void mpi_describe(const mpi_world *world, int rank, char *text, size_t bytes);
int mpi_culprit(const mpi_world *world, int rank);

// ---- mpi_group.c

cy_status mpi_open_group(
    cy_world *world, cy_group **group, const int *ranks, int count, const char *dimension);

// Around every call of MPI: the threads of a rank take turns.
void mpi_lock(mpi_world *world);
void mpi_unlock(mpi_world *world);

// One call as a number: kind, reduction, dtype, root, count.
uint64_t mpi_call_pack(const cy_operation *operation);

// Fails, and the group with it, when a member that has come to this collective calls something
// else.
cy_status mpi_check_calls(mpi_group *group, uint64_t sequence);

// The group can only be closed from now on, for this reason.
cy_status mpi_break_group(mpi_group *group, cy_status status, const char *text);

// Why the group or the run can only be closed; CY_OK: neither.
cy_status mpi_group_failure(const mpi_group *group);

// ---- mpi_watch.c

// Looks whether the others of a transfer that this rank waits for are alive; `eye` keeps who was
// watched, between two looks. Fails, and the group with it, when a process is gone, a member calls
// something else, or one has shown no sign of life for the run's timeout_s.
cy_status mpi_look_after(mpi_group *group, const mpi_transfer *record, cy_watch *eye);

// ---- mpi_collective.c

// Whether the members' messages say what they call, so that nobody has to look elsewhere.
bool mpi_says_itself(const mpi_group *group, const cy_operation *operation);

// Posts the first phase of an operation.
cy_status mpi_collective_start(
    mpi_group *group, mpi_transfer *record, const cy_operation *operation);

// Advances a transfer, and the first phases of all open groups, as far as they go without waiting.
cy_status mpi_advance(mpi_group *group, mpi_transfer *record);

#endif
