// Runs a function as all ranks of a configuration, each with its groups.
#include "train/ranks.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "train/algorithms.h"
#include "config/config.h"
#include "engine/memory_check.h"

typedef struct ranks_run {
    const cy_config *config;
    const cy_config_machine *machine;
    cy_mesh mesh;
    cy_rank_work work;
    void *context;
    bool delayed; // the links say which algorithms are best
} ranks_run;

// Ranks that have this process's cores.
static int ranks_here(const ranks_run *run)
{
    const cy_config_machine *machine = run->machine;
    if (!cy_config_through_mpi(run->config, machine) || machine->sharing == 0)
        return run->mesh.world;
    return machine->sharing * cy_config_ranks_of_process(run->config, machine);
}

static int threads_of_rank(const ranks_run *run)
{
    if (run->config->distributed.threads_per_rank > 0) {
        return run->config->distributed.threads_per_rank;
    }
    const int threads = run->machine->cores / ranks_here(run);
    return threads > 0 ? threads : 1;
}

// Ranks that were given different configurations must not train together.
static cy_status hash_configuration(uint64_t *hash, const cy_config *config)
{
    cy_text json = {0};
    const cy_status status = cy_config_to_json(&json, config);
    if (status == CY_OK) {
        *hash = cy_hash_bytes((const unsigned char *)json.bytes, json.length);
    }
    cy_text_free(&json);
    return status;
}

// A rank without a world only plans.
static cy_status open_listed(
    cy_rank *rank, cy_group **group, const int *ranks, int place, int size, const char *dimension)
{
    if (rank->world == NULL) return cy_group_open_dry(group, place, size, dimension);
    return cy_world_open_group(rank->world, group, ranks, size, dimension);
}

static cy_status open_group(cy_rank *rank, cy_group **group, cy_mesh_kind kind)
{
    if (rank->world != NULL) return cy_world_open_kind(rank->world, group, &rank->mesh, kind);
    const int place = cy_mesh_group_rank(&rank->mesh, kind, rank->rank);
    *group = cy_group_self(); // where the rank is in no group of this kind
    if (place < 0) return CY_OK;
    return cy_group_open_dry(
        group, place, cy_mesh_group_size(&rank->mesh, kind), cy_mesh_kind_dimension(kind));
}

// The tensor-parallel ranks that hold the same kv heads: neighbours, as cy_param_slice deals them.
static cy_status open_kv_group(cy_rank *rank, const cy_config *config)
{
    const int tp = rank->mesh.size[CY_AXIS_TP];
    const int copies = tp > config->shape.kv_heads ? tp / config->shape.kv_heads : 1;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)tp, sizeof(int)));
    int *ranks = block;
    cy_mesh_ranks(&rank->mesh, CY_MESH_TP, rank->rank, ranks);
    const int first = rank->at.at[CY_AXIS_TP] / copies * copies;
    const cy_status status = open_listed(
        rank, &rank->groups.kv, ranks + first, rank->at.at[CY_AXIS_TP] % copies, copies, "tp");
    cy_memory_free(block);
    return status;
}

// Which ranks hold different elements of gradients and moments: with ZeRO all of them, without it
// those of one model.
static cy_status open_groups(cy_rank *rank, const cy_config *config)
{
    cy_engine_groups *groups = &rank->groups;
    CY_TRY(open_group(rank, &groups->tp, CY_MESH_TP));
    CY_TRY(open_kv_group(rank, config));
    CY_TRY(open_group(rank, &groups->cp, CY_MESH_CP));
    CY_TRY(open_group(rank, &groups->pp, CY_MESH_PP));
    CY_TRY(open_group(rank, &groups->embedding, CY_MESH_EMBEDDING));
    CY_TRY(open_group(rank, &groups->gradient, CY_MESH_CP_DP));
    CY_TRY(open_group(rank, &groups->world, CY_MESH_WORLD));
    if (config->distributed.zero_stage > 0) {
        groups->norm = groups->world;
        return CY_OK;
    }
    return open_group(rank, &groups->norm, CY_MESH_MODEL);
}

static void close_groups(cy_rank *rank)
{
    cy_engine_groups *groups = &rank->groups;
    if (groups->norm != groups->world) cy_group_close(groups->norm);
    cy_group_close(groups->world);
    cy_group_close(groups->gradient);
    cy_group_close(groups->embedding);
    cy_group_close(groups->pp);
    cy_group_close(groups->cp);
    cy_group_close(groups->kv);
    cy_group_close(groups->tp);
    *groups = (cy_engine_groups){0};
}

static cy_status run_rank(cy_world *world, void *context)
{
    const ranks_run *run = context;
    cy_rank rank = {
        .world = world,
        .rank = cy_world_rank(world),
        .mesh = run->mesh,
        .threads = threads_of_rank(run),
    };
    rank.at = cy_mesh_coordinates(&rank.mesh, rank.rank);
    rank.spin = rank.threads * ranks_here(run) <= run->machine->cores;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(cy_config)));
    cy_config *resolved = block;
    *resolved = *run->config;
    rank.config = resolved;
    cy_status status = open_groups(&rank, run->config);
    if (status == CY_OK && !run->delayed) status = cy_rank_choose_algorithms(&rank, resolved);
    if (status == CY_OK) status = run->work(&rank, run->context);
    if (status == CY_OK || cy_world_fail(world, status)) close_groups(&rank);
    cy_memory_free(resolved);
    return status;
}

void cy_rank_fail(const cy_rank *rank, cy_status status)
{
    if (status != CY_OK && rank->world != NULL) (void)!cy_world_fail(rank->world, status);
}

cy_status cy_ranks_run(
    const cy_config *config, const cy_config_machine *machine, cy_rank_work work, void *context)
{
    return cy_ranks_run_delayed(config, machine, NULL, work, context);
}

cy_status cy_ranks_run_delayed(const cy_config *config, const cy_config_machine *machine,
    const cy_world_delay *delay, cy_rank_work work, void *context)
{
    ranks_run run = {.config = config, .machine = machine, .work = work, .context = context};
    CY_TRY(cy_config_mesh(&run.mesh, config));
    CY_TRY(cy_ranks_check_room(config, machine));
    if (run.mesh.world == 1) {
        const cy_rank rank = {
            .mesh = run.mesh,
            .at = cy_mesh_coordinates(&run.mesh, 0),
            .groups = cy_engine_groups_self(),
            .threads = threads_of_rank(&run),
            .config = config,
            .spin = threads_of_rank(&run) <= machine->cores,
        };
        return work(&rank, context);
    }
    cy_world_options options = cy_world_defaults();
    options.ranks = run.mesh.world;
    options.threads_per_rank = threads_of_rank(&run);
    options.launched = run.machine->world;
    options.launched_rank = run.machine->rank;
    options.timeout_s = config->distributed.timeout_s;
    options.file_timeout_s = config->checkpoint.timeout_s;
    options.algorithm = config->distributed.algorithm;
    options.ranks_per_node = config->distributed.ranks_per_node;
    options.delay = delay;
    options.left_behind = machine->left_behind;
    options.reopens = machine->reopens;
    run.delayed = delay != NULL;
    CY_TRY(hash_configuration(&options.configuration, config));
    return cy_config_through_mpi(config, machine) ? cy_world_run_mpi(&options, run_rank, &run)
                                                  : cy_world_run_threads(&options, run_rank, &run);
}

cy_status cy_ranks_check_room(const cy_config *config, const cy_config_machine *machine)
{
    cy_mesh mesh;
    CY_TRY(cy_config_mesh(&mesh, config));
    const bool through_mpi = cy_config_through_mpi(config, machine);
    return cy_engine_check_room(
        through_mpi ? cy_config_ranks_of_process(config, machine) : mesh.world);
}

cy_status cy_rank_open_dry(
    cy_rank *rank, const cy_config *config, const cy_config_machine *machine, int number)
{
    ranks_run run = {.config = config, .machine = machine};
    CY_TRY(cy_config_mesh(&run.mesh, config));
    CY_ASSERT(0 <= number && number < run.mesh.world);
    *rank = (cy_rank){
        .rank = number,
        .mesh = run.mesh,
        .at = cy_mesh_coordinates(&run.mesh, number),
        .threads = threads_of_rank(&run),
        .config = config,
    };
    const cy_status status = open_groups(rank, config);
    if (status != CY_OK) cy_rank_close_dry(rank);
    return status;
}

void cy_rank_close_dry(cy_rank *rank)
{
    close_groups(rank);
}

cy_engine_options cy_rank_engine_options(const cy_rank *rank, const cy_config *config)
{
    return (cy_engine_options){
        .config = config,
        .groups = rank->groups,
        .world = rank->world,
        .threads = rank->threads,
        .first_core = rank->spin ? rank->rank * rank->threads : -1,
        .spin = rank->spin,
        .isa = cy_config_isa_name(config->distributed.isa),
        .train = true,
    };
}

cy_status cy_rank_with_engine(
    const cy_rank *rank, const cy_engine_options *options, cy_engine_use use, void *context)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(cy_engine)));
    cy_engine *engine = block;
    cy_status status = cy_engine_open(engine, options);
    if (status == CY_OK) {
        status = use(engine, rank, context);
        cy_rank_fail(rank, status);
        cy_engine_close(engine);
    }
    cy_memory_free(engine);
    return status;
}
