// train/ranks.h: runs a function as all ranks of a configuration, and counts what a rank sends.
//
// A single rank runs in the caller's thread. Several ranks are threads of this process, or, where
// mpirun or srun started the process, the process is one of them. Each rank gets its coordinates in
// the mesh and the groups that its layers need.
//
// distributed.algorithm `auto` is measured on the run's own groups when it starts, among the
// algorithms whose sums have the same bits as those of the backend: the clock decides how long a
// step takes, never what it computes. The choice becomes part of the run's resolved configuration,
// with which a later run measures nothing.

#ifndef CY_TRAIN_RANKS_H
#define CY_TRAIN_RANKS_H

#include "comm/mesh.h"
#include "comm/world.h"
#include "engine/engine.h"

typedef struct cy_rank {
    cy_world *world; // borrowed; NULL when there is one rank
    int rank;
    cy_mesh mesh;
    cy_coordinates at;
    cy_engine_groups groups;
    int threads;             // of this rank's pool
    const cy_config *config; // borrowed: the run's, with all choices that were measured
    bool spin;               // there is a core for each thread of all ranks together
} cy_rank;

typedef cy_status (*cy_rank_work)(const cy_rank *rank, void *context);

// For work that ends with `status`, before it frees memory: where that is a failure, the last one
// of this thread, it ends the waits of all other ranks and their use of this rank's memory.
void cy_rank_fail(const cy_rank *rank, cy_status status);

// Returns when all ranks have ended: CY_OK, or the failure of the first that failed. Ranks of MPI
// whose number, configuration or build do not agree fail with CY_ERR_REQUEST before any has begun;
// after a failure the caller reports it and calls cy_world_end_job.
CY_MUST_CHECK cy_status cy_ranks_run(
    const cy_config *config, const cy_config_machine *machine, cy_rank_work work, void *context);

// The same over links that are slower than those of the machine, so that overlap can be seen and
// tested. `delay` NULL: links have their own speed.
CY_MUST_CHECK cy_status cy_ranks_run_delayed(const cy_config *config,
    const cy_config_machine *machine, const cy_world_delay *delay, cy_rank_work work,
    void *context);

// CY_ERR_MEMORY where the limits of this process leave no room for its ranks, however small their
// plans are.
CY_MUST_CHECK cy_status cy_ranks_check_room(
    const cy_config *config, const cy_config_machine *machine);

// Opens rank `number` of the configuration without the other ranks. Its groups count bytes and send
// nothing: it serves engines that only plan.
CY_MUST_CHECK cy_status cy_rank_open_dry(
    cy_rank *rank, const cy_config *config, const cy_config_machine *machine, int number);
void cy_rank_close_dry(cy_rank *rank);

// The options of an engine of this rank.
cy_engine_options cy_rank_engine_options(const cy_rank *rank, const cy_config *config);

// Opens an engine of this rank, calls `use` with it, closes it, and returns the status of `use`.
typedef cy_status (*cy_engine_use)(cy_engine *engine, const cy_rank *rank, void *context);
CY_MUST_CHECK cy_status cy_rank_with_engine(
    const cy_rank *rank, const cy_engine_options *options, cy_engine_use use, void *context);

// Adds a line about the algorithms in use, where they are not the backend's own.
CY_MUST_CHECK cy_status cy_rank_describe_algorithms(const cy_rank *rank, cy_text *text);

// ---- traffic

#define CY_TRAFFIC_DIMENSIONS 5
#define CY_TRAFFIC_WORLD      4 // the last; those before it carry the model's tensors

// The traffic of a rank by dimension of the mesh. Several groups may serve one dimension: the
// copies of kv heads count as tensor parallelism, the two copies of a tied embedding as the
// pipeline. What all ranks agree on (norm, hash) is "world". Plan and metrics count with the same
// functions.
typedef struct cy_rank_traffic {
    cy_traffic of[CY_TRAFFIC_DIMENSIONS]; // tp, cp, pp, dp, world
} cy_rank_traffic;

// "tp", "cp", "pp", "dp", "world". Static storage.
const char *cy_traffic_dimension(int index);

// The counters of the groups now. A group that has two uses is counted once.
cy_rank_traffic cy_traffic_now(const cy_engine_groups *groups);

// The difference of two counts.
cy_rank_traffic cy_traffic_between(const cy_rank_traffic *before, const cy_rank_traffic *after);

#endif
