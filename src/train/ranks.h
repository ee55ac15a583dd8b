// train/ranks.h: running a function as all ranks of a configuration.
//
// One rank alone runs in the caller's thread. Several are threads of this process, or, where mpirun
// or srun started it, this process is one of them. Each gets its place in the mesh and the groups
// that its layers need.

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
    const cy_config *config; // borrowed: the run's, with every choice that was made by measuring
    bool spin;               // threads of all ranks together do not outnumber their cores
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

// The same over links that are slower than the machine, so that overlap can be seen and tested;
// `delay` NULL: links as they are.
CY_MUST_CHECK cy_status cy_ranks_run_delayed(const cy_config *config,
    const cy_config_machine *machine, const cy_world_delay *delay, cy_rank_work work,
    void *context);

// CY_ERR_MEMORY where the limits of this process leave no room for its ranks, whatever they plan.
CY_MUST_CHECK cy_status cy_ranks_check_room(
    const cy_config *config, const cy_config_machine *machine);

// Rank `number` of the configuration without the others: its groups count and move nothing, so it
// serves engines that only plan.
CY_MUST_CHECK cy_status cy_rank_open_dry(
    cy_rank *rank, const cy_config *config, const cy_config_machine *machine, int number);
void cy_rank_close_dry(cy_rank *rank);

// What an engine of this rank is opened with.
cy_engine_options cy_rank_engine_options(const cy_rank *rank, const cy_config *config);

// Opens an engine of this rank in memory of its own, hands it to `use` and closes it. Fails with
// what `use` returns.
typedef cy_status (*cy_engine_use)(cy_engine *engine, const cy_rank *rank, void *context);
CY_MUST_CHECK cy_status cy_rank_with_engine(
    const cy_rank *rank, const cy_engine_options *options, cy_engine_use use, void *context);

#endif
