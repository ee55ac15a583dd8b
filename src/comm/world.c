#include "comm/world.h"

#include "base/assert.h"
#include "base/memory.h"
#include "comm/backend.h"
#include "comm/world_backend.h"

#include "build_info.h"

#include <string.h>

cy_world_options cy_world_defaults(void)
{
    cy_world_options options = {
        .ranks = 1,
        .threads_per_rank = 1,
        .timeout_s = 60.0,
        .algorithm = "auto",
    };
#ifdef CY_DEBUG
    options.check = true;
#endif
    return options;
}

#if !CY_HAVE_MPI
cy_status cy_world_run_mpi(
    const cy_world_options *options, cy_rank_function function, void *context)
{
    (void)options;
    (void)function;
    (void)context;
    const cy_status status = CY_FAIL(CY_ERR_UNSUPPORTED, "backend mpi is not in this build");
    cy_error_set_hint("install libopenmpi-dev and build again");
    return status;
}

void cy_world_end_job(int exit_status)
{
    (void)exit_status;
}

bool cy_world_has_begun(void)
{
    return false;
}
#endif

int cy_world_rank(const cy_world *world)
{
    return world->rank;
}

int cy_world_size(const cy_world *world)
{
    return world->size;
}

const char *cy_world_backend(const cy_world *world)
{
    return world->ops->name;
}

int cy_world_node_of(const cy_world *world, int rank)
{
    CY_ASSERT(0 <= rank && rank < world->size);
    return world->ops->node_of(world, rank);
}

bool cy_world_shares_machine(const cy_world *world, int rank)
{
    return cy_world_node_of(world, rank) == cy_world_node_of(world, world->rank);
}

_Atomic uint64_t *cy_world_beat(cy_world *world)
{
    return &world->page->beat;
}

static cy_status add_delay(cy_world *world, cy_group **group, const int *ranks, int count)
{
    const cy_world_delay *delay = world->options.delay;
    if (delay == NULL) return CY_OK;
    CY_ASSERT(delay->node_ranks > 0);
    void *block = NULL;
    CY_TRY(cy_memory_take(&block, (size_t)count * (size_t)count, sizeof(cy_link)));
    cy_link *links = block;
    for (int from = 0; from < count; from++) {
        for (int to = 0; to < count; to++) {
            const bool near = ranks[from] / delay->node_ranks == ranks[to] / delay->node_ranks;
            links[from * count + to] = near ? delay->inside : delay->between;
        }
    }
    const cy_status status = cy_delay_open(group, *group, links);
    cy_memory_free(links);
    return status;
}

// Ranks of the group that one node has, when all nodes have as many and they are consecutive;
// otherwise all of them.
static int ranks_of_node(const cy_world_delay *delay, const int *ranks, int count)
{
    if (delay == NULL) return count;
    int first = 1;
    while (first < count && ranks[first] / delay->node_ranks == ranks[0] / delay->node_ranks)
        first++;
    for (int i = 0; i < count; i++) {
        const int leader = i / first * first;
        if (ranks[i] / delay->node_ranks != ranks[leader] / delay->node_ranks) return count;
    }
    return count % first == 0 ? first : count;
}

static cy_algorithm_table choose_for(
    const cy_world_delay *delay, const int *ranks, int count, int node_ranks)
{
    bool crosses = false;
    for (int i = 1; i < count; i++)
        crosses = crosses || ranks[i] / delay->node_ranks != ranks[0] / delay->node_ranks;
    // Nodes that do not have as many ranks each count as links between nodes all over.
    const bool uneven = crosses && node_ranks == count;
    const cy_links links = {
        .ranks = count,
        .node_ranks = node_ranks,
        .inside = uneven ? delay->between : delay->inside,
        .between = delay->between,
    };
    return cy_algorithm_for(&links);
}

static cy_status add_algorithm(cy_world *world, cy_group **group, const int *ranks, int count)
{
    const cy_world_delay *delay = world->options.delay;
    const bool automatic = strcmp(world->options.algorithm, "auto") == 0;
    cy_algorithm algorithm = CY_ALGORITHM_NATIVE;
    if (!automatic) CY_TRY(cy_algorithm_from_name(&algorithm, world->options.algorithm));
    if (algorithm == CY_ALGORITHM_NATIVE && delay == NULL) return CY_OK;
    const int node_ranks = ranks_of_node(delay, ranks, count);
    cy_algorithm_table table = cy_algorithm_always(algorithm);
    if (automatic) table = choose_for(delay, ranks, count, node_ranks);
    const cy_algorithm_options options = {
        .table = table,
        .node_ranks = node_ranks,
        // A rank that waits in one group must go on in all others: its peers may wait there.
        .progress_thread = true,
    };
    return cy_algorithm_open(group, *group, &options);
}

cy_status cy_world_open_group(
    cy_world *world, cy_group **group, const int *ranks, int count, const char *dimension)
{
    CY_ASSERT(count > 0);
    CY_ASSERT(strlen(dimension) < CY_DIMENSION_BYTES);
    bool member = false;
    for (int i = 0; i < count; i++) {
        CY_ASSERT(0 <= ranks[i] && ranks[i] < world->size);
        member = member || ranks[i] == world->rank;
    }
    CY_ASSERT(member); // a rank opens the groups that it belongs to
    if (count == 1) {
        *group = cy_group_self();
        return CY_OK;
    }
    cy_group *made = NULL;
    CY_TRY(world->ops->open_group(world, &made, ranks, count, dimension));
    cy_status status = add_delay(world, &made, ranks, count);
    if (status == CY_OK) status = add_algorithm(world, &made, ranks, count);
    if (status != CY_OK) {
        cy_group_close(made);
        return status;
    }
    *group = made;
    return CY_OK;
}

cy_status cy_world_open_kind(
    cy_world *world, cy_group **group, const cy_mesh *mesh, cy_mesh_kind kind)
{
    CY_ASSERT(mesh->world == world->size);
    const int count = cy_mesh_group_size(mesh, kind);
    void *block = NULL;
    CY_TRY(cy_memory_take(&block, (size_t)count, sizeof(int)));
    int *ranks = block;
    cy_status status = CY_OK;
    if (cy_mesh_ranks(mesh, kind, world->rank, ranks) < 0) {
        *group = cy_group_self();
    } else {
        status = cy_world_open_group(world, group, ranks, count, cy_mesh_kind_dimension(kind));
    }
    cy_memory_free(ranks);
    return status;
}

bool cy_world_fail(cy_world *world, cy_status status)
{
    CY_ASSERT(status != CY_OK);
    return world->ops->fail(world, status);
}

void cy_world_abort(cy_world *world, const char *text)
{
    world->ops->abort(world, text);
}
