// Runs a function as all ranks of a configuration: opens their groups, chooses the algorithms of
// their sums, and counts their traffic.
#include "train/ranks.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "config/config.h"
#include "engine/memory_check.h"

#include <stdio.h>
#include <string.h>

typedef struct ranks_run {
    const cy_config *config;
    const cy_config_machine *machine;
    cy_mesh mesh;
    cy_rank_work work;
    void *context;
    bool delayed; // links are slowed down: algorithms are not measured
} ranks_run;

// The number of ranks that share the cores of this process.
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

// Ranks with different configurations must not train together, so they compare this hash.
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

// Opens the group of tensor-parallel ranks that hold the same kv heads. cy_param_slice gives these
// to neighbours.
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

// Opens all groups. The norm group consists of ranks with different elements of gradients and
// moments: with ZeRO all ranks, without it the ranks of one replica of the model.
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

// ---- algorithms

#define BUDGET_S 0.04 // for measuring one dimension

// The dimensions that sum tensors. The others sum a few numbers.
enum { SUMS_TP, SUMS_DP, SUMS };

static const char *const sums[SUMS] = {"tp", "dp"};

// The size of the largest sum in a run of this model.
static size_t largest_message(const cy_rank *rank, const cy_config *config, int dimension)
{
    const cy_model_shape *shape = &config->shape;
    const double activations = (double)config->training.micro_batch_size *
        (double)config->training.seq_length * (double)shape->hidden * sizeof(float);
    const double parts = rank->mesh.size[CY_AXIS_TP] * rank->mesh.size[CY_AXIS_PP];
    const double layer = (double)shape->hidden * (double)(4 * shape->hidden + 3 * shape->ffn);
    const double gradient = 4.0 / parts *
        ((double)shape->layers * layer + (double)shape->vocab * (double)shape->hidden);
    const double bucket = config->distributed.bucket_mb * 0x1p20;
    const double bytes = dimension == SUMS_TP ? activations : gradient < bucket ? gradient : bucket;
    return bytes < 0x1p40 ? (size_t)bytes : (size_t)1 << 40;
}

// The groups of a dimension, each once.
static int groups_of(cy_engine_groups *groups, int dimension, cy_group **found[3])
{
    int count = 0;
    if (dimension == SUMS_DP) {
        found[count++] = &groups->gradient;
        return count;
    }
    found[count++] = &groups->tp;
    if (groups->kv != groups->tp) found[count++] = &groups->kv;
    if (groups->norm != groups->world) found[count++] = &groups->norm;
    return count;
}

// On memory like an engine's.
static cy_status measure_group(cy_algorithm_times *times, cy_group *group, size_t bytes)
{
    const size_t most = (size_t)cy_algorithm_size(CY_ALGORITHM_SIZES - 1);
    const size_t room = bytes < 8 ? 8 : bytes < most ? bytes : most;
    void *data = NULL;
    CY_TRY(cy_memory_map(&data, room));
    const cy_status status = cy_algorithm_measure(times, group, NULL, data, room, BUDGET_S);
    cy_memory_unmap(data, room);
    return status;
}

static cy_status measure_sums(
    const cy_rank *rank, const cy_config *config, cy_algorithm_times *times)
{
    const cy_engine_groups *groups = &rank->groups;
    cy_group *const measured[SUMS] = {groups->tp, groups->gradient};
    for (int d = 0; d < SUMS; d++) {
        times[d] = (cy_algorithm_times){0};
        if (cy_group_size(measured[d]) == 1) continue;
        CY_TRY(measure_group(&times[d], measured[d], largest_message(rank, config, d)));
    }
    // Groups of a dimension come to one choice: what is fastest in the slowest of them.
    const int64_t count = (int64_t)(SUMS * sizeof(*times) / sizeof(double));
    const cy_traffic none = cy_group_counters(groups->world);
    CY_TRY(cy_group_all_reduce(groups->world, NULL, cy_view_of(times, CY_F64, 1, count), CY_MAX));
    cy_group_set_counters(groups->world, none);
    return CY_OK;
}

static cy_status wrap_group(cy_group **group, const cy_algorithm_table *table)
{
    if (cy_group_size(*group) == 1) return CY_OK;
    const cy_algorithm_options options = {
        .table = *table, .native_others = true, .progress_thread = true};
    return cy_algorithm_open(group, *group, &options);
}

// Writes "tp:tree<=1536,native;dp:native". *plain is true where all of them are native.
static cy_status write_choice(
    cy_text *text, const cy_rank *rank, const cy_algorithm_table *tables, bool *plain)
{
    *plain = true;
    cy_group *const measured[SUMS] = {rank->groups.tp, rank->groups.gradient};
    for (int d = 0; d < SUMS; d++) {
        if (cy_group_size(measured[d]) == 1) continue;
        *plain = *plain && cy_algorithm_is_native(&tables[d]);
        CY_TRY(cy_text_add(text, "%s%s:", text->length > 0 ? ";" : "", sums[d]));
        CY_TRY(cy_algorithm_table_write(text, &tables[d]));
    }
    return CY_OK;
}

static cy_status wrap_groups(cy_rank *rank, const cy_algorithm_table *tables)
{
    for (int d = 0; d < SUMS; d++) {
        cy_group **groups[3];
        if (cy_algorithm_is_native(&tables[d])) continue;
        const int count = groups_of(&rank->groups, d, groups);
        for (int g = 0; g < count; g++)
            CY_TRY(wrap_group(groups[g], &tables[d]));
    }
    return CY_OK;
}

// Measures the groups of a rank and wraps those for which an algorithm is faster than the backend's
// own. `config`, the rank's own, gets the choice in place of auto. All ranks of the run call it
// with newly opened groups and make the same choice. It takes about a tenth of a second at most.
static cy_status choose_algorithms(cy_rank *rank, cy_config *config)
{
    char *name = config->distributed.algorithm;
    const size_t room = sizeof(config->distributed.algorithm);
    if (strcmp(name, "auto") != 0) return CY_OK;
    cy_algorithm_times times[SUMS];
    cy_algorithm_table tables[SUMS];
    CY_TRY(measure_sums(rank, config, times));
    for (int d = 0; d < SUMS; d++)
        tables[d] = cy_algorithm_from_times(&times[d]);
    cy_text text = {0};
    bool plain = true;
    cy_status status = write_choice(&text, rank, tables, &plain);
    if (status == CY_OK && (plain || text.length >= room)) {
        snprintf(name, room, "%s", cy_algorithm_name(CY_ALGORITHM_NATIVE));
    } else if (status == CY_OK) {
        snprintf(name, room, "%s", text.bytes);
        status = wrap_groups(rank, tables);
    }
    cy_text_free(&text);
    return status;
}

cy_status cy_rank_describe_algorithms(const cy_rank *rank, cy_text *text)
{
    const char *name = rank->config->distributed.algorithm;
    if (strchr(name, ':') != NULL) return cy_text_add(text, "all_reduce: %s\n", name);
    if (strcmp(name, cy_algorithm_name(CY_ALGORITHM_HIERARCHICAL)) != 0) return CY_OK;
    const int nodes = rank->world == NULL ? 1 : cy_world_nodes(rank->world);
    if (nodes > 1) {
        return cy_text_add(
            text, "all_reduce: hierarchical, %d ranks on %d nodes\n", rank->mesh.world, nodes);
    }
    return cy_text_add(text,
        "all_reduce: distributed.algorithm hierarchical has nothing to do, all ranks are on one "
        "node: the backend's own is used\n");
}

// ---- traffic

enum { TP, CP, PP, DP, WORLD = CY_TRAFFIC_WORLD };

static const char *const dimensions[CY_TRAFFIC_DIMENSIONS] = {"tp", "cp", "pp", "dp", "world"};

const char *cy_traffic_dimension(int index)
{
    return dimensions[index];
}

cy_rank_traffic cy_traffic_now(const cy_engine_groups *groups)
{
    const struct {
        int dimension;
        const cy_group *group;
    } all[] = {
        {TP, groups->tp},
        {TP, groups->kv},
        {CP, groups->cp},
        {PP, groups->pp},
        {PP, groups->embedding},
        {DP, groups->gradient},
        {WORLD, groups->norm},
        {WORLD, groups->world},
    };
    cy_rank_traffic now = {0};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        bool counted = cy_group_size(all[i].group) == 1;
        for (size_t j = 0; j < i; j++)
            counted = counted || all[j].group == all[i].group;
        if (counted) continue;
        const cy_traffic sent = cy_group_counters(all[i].group);
        cy_traffic *sum = &now.of[all[i].dimension];
        sum->bytes += sent.bytes;
        sum->messages += sent.messages;
        sum->seconds += sent.seconds;
        sum->exposed_s += sent.exposed_s;
        sum->bytes_between_nodes += sent.bytes_between_nodes;
    }
    return now;
}

cy_rank_traffic cy_traffic_between(const cy_rank_traffic *before, const cy_rank_traffic *after)
{
    cy_rank_traffic since;
    for (int i = 0; i < CY_TRAFFIC_DIMENSIONS; i++) {
        since.of[i] = (cy_traffic){
            .bytes = after->of[i].bytes - before->of[i].bytes,
            .messages = after->of[i].messages - before->of[i].messages,
            .seconds = after->of[i].seconds - before->of[i].seconds,
            .exposed_s = after->of[i].exposed_s - before->of[i].exposed_s,
            .bytes_between_nodes =
                after->of[i].bytes_between_nodes - before->of[i].bytes_between_nodes,
        };
    }
    return since;
}

// ---- running

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
    if (status == CY_OK && !run->delayed) status = choose_algorithms(&rank, resolved);
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
