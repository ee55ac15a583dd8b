// comm/mpi/ranks.h: the inside of the `mpi` backend. Included by comm/mpi/*.c only.
//
// MPI moves the data; sums are ours, in the order of comm/reduce.h, so that a run under MPI has the
// bits of a run with threads. Ranks of one machine share their rank pages, so that a wait can tell
// which rank is missing. MPI makes progress inside its own calls only: a
// transfer goes on while a rank of this process is in a start, a test or a wait of any group.
//
// A process has one rank, or several as threads, the same number in each. Groups inside of a
// process are then those of the threads backend. In the others all data go in messages between
// pairs of ranks, because MPI knows processes only: route.c. So do those of a world after whose
// failure the process opens another one, because such messages can be taken back: withdraw.c.

#ifndef CY_COMM_MPI_RANKS_H
#define CY_COMM_MPI_RANKS_H

#include "comm/backend.h"
#include "comm/world_backend.h"

#include <mpi.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define CALL_RING 64

// What ranks of a machine share begins a cache line. MPI aligns shared regions for numbers only, so
// a region is asked for with a line more; each process finds the same place in it, since where it
// sees a region differs by whole pages of memory.
#define MPI_LINE               64
#define MPI_REGION_BYTES(type) (sizeof(type) + MPI_LINE)

static inline void *mpi_align_line(void *region)
{
    const size_t beyond = (uintptr_t)region % MPI_LINE;
    return (char *)region + (beyond > 0 ? MPI_LINE - beyond : 0);
}

// The failure of the run, on each machine: filled in by the first rank of the machine to fail.
typedef struct mpi_failure {
    _Alignas(MPI_LINE) _Atomic int teller; // 1 + a rank of the process that reports it and ends the
                                           // job; 0: nothing has failed
    _Atomic int aborted;
    char text[1024];
} mpi_failure;

// What a member publishes to its group: its last collectives, see mpi_call_pack.
typedef struct mpi_entry {
    _Alignas(MPI_LINE) _Atomic uint64_t came; // number of collectives started
    _Atomic uint64_t calls[CALL_RING];
} mpi_entry;

// Groups that a rank may have open to ranks of other processes where data go by routes.
#define MPI_ENTRIES 64

// This process, which its ranks share.
typedef struct mpi_process {
    int number;   // of this process among those of the world
    int count;    // of processes
    int *members; // owned, [count]: their numbers in the job
    int threads;  // ranks of each process
    int size;     // ranks of the world
    int generation;
    bool routed; // data go between pairs of ranks, by route.c
    cy_world_options options;
    MPI_Comm world;            // owned: all processes
    MPI_Win window;            // of what the ranks of the machine share
    struct mpi_world **worlds; // owned, [threads]
    cy_rank_page **pages;      // owned, [size]; NULL for ranks of other machines
    mpi_entry **entry_tables;  // owned, [size]: MPI_ENTRIES entries of each; NULL as pages
    mpi_failure *failure;      // of this machine
    bool left;                 // a rank of this process did not end after a failure
    char (*hosts)[64];         // owned, [size]
    int *nodes;                // owned, [size]: see cy_world_node_of
    bool spin;
    pthread_mutex_t lock;     // around every call of MPI, and of the groups' own lists
    _Atomic bool inside;      // a thread that has the lock
    _Atomic bool stopped;     // a rank has failed: no call of MPI touches its buffers any more
    struct mpi_group *groups; // borrowed: the open ones, all of which go on while one waits
    MPI_Comm *wires;          // owned, [2 threads]; NULL where nothing is routed
    int contexts;             // groups that tags can tell apart
    MPI_Request notice;       // see mpi_notice_look
    char notice_text[1024];
    MPI_Request *quiet; // owned, [count]: see withdraw.c
    bool withdrawn;
    bool lost; // a process was gone, or did not withdraw in time: it may still read memory of this
} mpi_process;

// A rank.
typedef struct mpi_world {
    cy_world base;
    mpi_process *process; // borrowed
    cy_guard guard;
    cy_world *local; // borrowed: the same rank among those of this process; NULL: it is alone
    int *met;        // owned, [size]: groups opened so far that have this rank in them
    bool entry_used[MPI_ENTRIES]; // entries in use
    int next_entry;               // where the search for a free one begins
} mpi_world;

typedef enum mpi_phase {
    MPI_PHASE_FIRST,  // the data are on their way to the ranks that reduce them
    MPI_PHASE_SECOND, // the results are on their way to all ranks
    MPI_PHASE_DONE,
} mpi_phase;

typedef struct mpi_transfer {
    cy_transfer base;
    struct mpi_transfer *next; // among free records, or in the order of their start
    struct mpi_transfer *made_before;
    bool in_use;
    cy_operation operation;
    _Atomic mpi_phase phase; // changed under the lock
    MPI_Request request;
    MPI_Request *pairs; // owned, [2 size]: messages with each member, instead of `request`
    int pair_receives;  // of them, which come first
    int pair_count;     // of them in flight
    uint64_t sequence;
    uint64_t call;     // what it is, as a number: see mpi_call_pack
    cy_buffer staging; // owned: what the others sent, before it is reduced
    size_t stride;     // from what one member sent to what the next one did
    size_t skew;       // before what the first one did
    bool overflow;
    int *numbers; // owned, [4 size]: counts and places that MPI reads until the transfer is done
} mpi_transfer;

typedef struct mpi_group {
    cy_group base;
    struct mpi_group *next; // of the process's open groups
    mpi_world *world;       // borrowed
    MPI_Comm first;         // owned: messages and first phases
    MPI_Comm second;        // owned: second phases, whose order is that of the first ones
    int *contexts;          // owned, [size]: instead of them, where data go by routes
    MPI_Win window;         // of the entries, where all members are on one machine
    int entry;              // of this rank's entry_used instead; -1: none
    mpi_entry **entries;    // owned, [size]; NULL where members are on several machines
    int *ranks;             // owned, [size]: world ranks
    uint64_t sequence;
    uint64_t messages;
    mpi_transfer *head; // borrowed: collectives in their first phase, oldest first
    mpi_transfer *tail;
    mpi_transfer *records;         // borrowed: free ones, of collectives
    mpi_transfer *message_records; // borrowed: free ones, of messages
    mpi_transfer *made;            // owned: all, the last one first
    _Atomic bool broken;           // by any thread of the process
    cy_status broken_status;
    char broken_text[1024];
} mpi_group;

// ---- job.c

// Takes part in the next world of the job, and begins MPI the first time. CY_ERR_REQUEST: a world
// is open already, or the process cannot have another.
cy_status mpi_job_enter(int *generation, const cy_world_options *options);

typedef enum mpi_job_end {
    MPI_JOB_WHOLE,  // all processes have left the world: MPI can be ended, or another one opened
    MPI_JOB_LOST,   // one is gone or does not answer: those that are left can open another one
    MPI_JOB_FAILED, // the job ends
} mpi_job_end;

void mpi_job_leave(mpi_job_end end);

// Fails where this MPI allows calls by one thread only.
cy_status mpi_job_check_turns(void);

// ---- world.c

// How long the ranks may take to come.
double mpi_start_limit_s(const cy_world_options *options);

// The world fails with this text, unless it has failed already.
void mpi_fail_world(mpi_process *process, const char *text);

// ---- withdraw.c

// Whether a process of this machine has ended without a word.
bool mpi_is_gone(const mpi_process *process, int other);

// Takes back what this process has in flight after a failure, once: its ranks may free their memory
// then, and their groups fail without a call of MPI.
void mpi_withdraw(mpi_process *process);

// Whether a process of another machine tells of a failure, which ends this world then. Only where
// the process may open another: elsewhere the job ends with it.
cy_status mpi_notice_open(mpi_process *process);
void mpi_notice_look(mpi_process *process);
void mpi_notice_close(mpi_process *process);

// ---- watchdog.c

// A failure of a call of MPI, with MPI's own text.
cy_status mpi_failed(int code, const char *what);

// Why the run has ended; CY_OK: it has not.
cy_status mpi_run_failure(const mpi_process *process);

// The group can only be closed from now on, for this reason.
cy_status mpi_break_group(mpi_group *group, cy_status status, const char *text);

// Why the group or the run can only be closed; CY_OK: neither.
cy_status mpi_group_failure(const mpi_group *group);

// One call as a number: kind, reduction, dtype, root, count.
uint64_t mpi_call_pack(const cy_operation *operation);

// Fails, and the group with it, when a member that has come to this collective calls something
// else.
cy_status mpi_check_calls(mpi_group *group, uint64_t sequence);

// Looks whether the others of a transfer that this rank waits for are alive; `watchdog` keeps the
// watched rank between two looks. Fails, and the group with it, when a process is gone, a member
// calls something else, or one has shown no heartbeat for the run's timeout_s.
cy_status mpi_check_peers(mpi_group *group, const mpi_transfer *record, cy_watchdog *watchdog);

// ---- route.c: where data go between pairs of ranks

// Where a message between this rank and another goes, as MPI sees it.
typedef struct mpi_route {
    MPI_Comm communicator;
    int process;
    int tag;
} mpi_route;

cy_status mpi_routes_open(mpi_process *process);
void mpi_routes_close(mpi_process *process);

// A message of the user, or one of a collective, whose tags are 0 and 1.
mpi_route mpi_route_message(const mpi_group *group, int member, bool send, int tag);
mpi_route mpi_route_collective(const mpi_group *group, int member, bool send, int tag);

// Takes contexts for a group whose members are known, and an entry of this rank's entry_used.
cy_status mpi_routes_join(mpi_group *group);
void mpi_routes_leave(mpi_group *group);

// Tells the members of an open group which entry this rank has, and finds theirs.
cy_status mpi_routes_meet(mpi_group *group);

// ---- collective.c

// Whether the members' messages contain the call, so that no member has to look at the entries.
bool mpi_self_describing(const mpi_group *group, const cy_operation *operation);

// Posts the first phase of an operation.
cy_status mpi_collective_start(
    mpi_group *group, mpi_transfer *record, const cy_operation *operation);

// Advances a transfer, and the first phases of all open groups, as far as they go without waiting.
cy_status mpi_advance(mpi_group *group, mpi_transfer *record);

// ---- group.c

cy_status mpi_open_group(
    cy_world *world, cy_group **group, const int *ranks, int count, const char *dimension);

// Around every call of MPI: the threads of a process take turns.
void mpi_lock(mpi_process *process);
void mpi_unlock(mpi_process *process);

#endif
