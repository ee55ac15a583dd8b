// comm/world.h: all ranks of a run, and the groups that are opened among them.
//
// A world is what a backend makes of a run: ranks are threads of this process ("threads"),
// processes that MPI started ("mpi"), or threads of such processes, the same number in each. Each
// rank gets a handle of its own, which its thread alone uses; the handle belongs to the world and
// lives until the rank's function returns. When a rank's function fails, every wait of every other
// rank fails too, so no rank hangs.

#ifndef CY_COMM_WORLD_H
#define CY_COMM_WORLD_H

#include "comm/algorithm.h"
#include "comm/group.h"
#include "comm/mesh.h"

#include <stdatomic.h>

typedef struct cy_world cy_world;

// The most ranks as threads of one process: more than any machine has cores.
#define CY_WORLD_THREADS 1024

// Links that are slower than the machine: nodes of `node_ranks` consecutive world ranks.
typedef struct cy_world_delay {
    cy_link inside;  // a node
    cy_link between; // nodes
    int node_ranks;
} cy_world_delay;

typedef struct cy_world_options {
    int ranks;             // 0: as many as processes were started; needed for threads
    int threads_per_rank;  // what each rank's pool will have: decides whether waiting may spin
    int launched;          // processes that were started; 0 where nobody says
    int launched_rank;     // which of them this is; 0 where nobody says
    double timeout_s;      // how long a rank may show no heartbeat before a wait for it fails
    double file_timeout_s; // instead of it, while the rank is inside of a call on a file
    bool check;            // fill buffers in flight with NaN: for tests and debug builds
    int ranks_per_node;    // nodes of so many consecutive ranks; 0: as the machines are
    const char *algorithm; // borrowed: "auto", or the name of an algorithm for every group
    const cy_world_delay *delay; // borrowed; NULL: links as they are
    uint64_t configuration;      // a hash: ranks whose hashes or builds differ refuse to start
    // Of worlds that follow each other, which messages and processes tell apart by it. Under MPI it
    // is the same in all processes and grows; 0: one more than the last, and 1 between threads.
    int generation;
    // MPI: after a failure cy_world_run_mpi returns it in every process, which may open another
    // world with those that are left; false: the job ends.
    bool reopens;
    const int *members; // borrowed: numbers of the job's processes that are the world, in order of
                        // their ranks; NULL: all. Only MPI has them
    int member_count;
    // Called where a rank has not ended seconds after another's failure, with that failure and its
    // text: reports it and ends the process, because the rank still uses what the caller has. It
    // does not return. NULL: the run waits for the rank, as long as that takes.
    void (*left_behind)(cy_status status);
} cy_world_options;

// 1 rank, 1 thread, 60 s, 1800 s for files, checks in debug builds, automatic algorithms.
cy_world_options cy_world_defaults(void);

typedef cy_status (*cy_rank_function)(cy_world *world, void *context);

// Runs `function` once on each of options->ranks threads and returns when all have ended: CY_OK, or
// the status of the rank that failed first with its hint, its text preceded by "rank R (host):".
CY_MUST_CHECK cy_status cy_world_run_threads(
    const cy_world_options *options, cy_rank_function function, void *context);

// Runs `function` as one rank of the job that mpirun or srun started, or, where options->ranks is a
// multiple of the processes, as that many threads: process p has the ranks from p T to p T + T - 1.
// Returns when all ranks of this process have ended. The process whose rank failed first gets its
// status back; the others wait to be ended by it, unless the world reopens. A process may run one
// world after the other, and MPI ends with the process. CY_ERR_REQUEST: the numbers do not go
// together, or a world is open in this process already. CY_ERR_TIMEOUT: a process of the world does
// not come. CY_ERR_UNSUPPORTED: this MPI does not let threads take turns.
CY_MUST_CHECK cy_status cy_world_run_mpi(
    const cy_world_options *options, cy_rank_function function, void *context);

// Ends the other processes of a job with this exit status. Call it last, once a failure has been
// printed; it returns where this process is the only one.
void cy_world_end_job(int exit_status);

// Whether this process has joined its MPI job. Before that every process meets the same failures.
bool cy_world_has_begun(void);

int cy_world_rank(const cy_world *world);
int cy_world_size(const cy_world *world);
const char *cy_world_backend(const cy_world *world);

// The machine that world rank `rank` runs on, identified by the lowest world rank there.
int cy_world_node_of(const cy_world *world, int rank);

// Whether world rank `rank` runs on this rank's machine.
bool cy_world_shares_machine(const cy_world *world, int rank);

// The node of a world rank: its machine, or what ranks_per_node or the delayed links make of it. A
// number of the backend's own, equal for ranks of one node.
int cy_world_node(const cy_world *world, int rank);

// Nodes among all ranks.
int cy_world_nodes(const cy_world *world);

// A counter that says this rank is alive whenever it changes. Group calls and cy_queue_run change
// it; set queue->heartbeat to it.
_Atomic uint64_t *cy_world_heartbeat(cy_world *world);

// Opens the group of these world ranks, in this order, this rank among them: every member calls it
// with the same list, and ranks that have several groups in common open them in one order. Traffic
// is counted under `dimension`. One rank alone gets cy_group_self().
CY_MUST_CHECK cy_status cy_world_open_group(
    cy_world *world, cy_group **group, const int *ranks, int count, const char *dimension);

// Opens this rank's group of a kind of the mesh, which has as many ranks as the world. All ranks
// open the kinds that they need in one order. Where the rank is in none (a middle stage has no
// embedding group) it gets cy_group_self().
CY_MUST_CHECK cy_status cy_world_open_kind(
    cy_world *world, cy_group **group, const cy_mesh *mesh, cy_mesh_kind kind);

// For a rank's function that is about to return `status`, a failure whose text is the last one:
// ends the waits of all other ranks with it. When it returns no other rank reads or writes memory
// of this one any more, so that it may be freed. Returns whether its groups may be closed then:
// where a job of MPI ends with the failure, closing them takes the other members, which do not call
// it.
CY_MUST_CHECK bool cy_world_fail(cy_world *world, cy_status status);

// Ends the run: every wait of every rank fails with CY_ERR_PEER and this text.
void cy_world_abort(cy_world *world, const char *text);

#endif
