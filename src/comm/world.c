// Opens the groups of a world: by its backend, by the algorithm of the configuration, over delayed
// links where they are asked for.

#include "comm/world.h"

#include "base/memory.h"
#include "base/status.h"
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
        .file_timeout_s = 1800.0,
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

_Atomic uint64_t *cy_world_heartbeat(cy_world *world)
{
    return &world->page->heartbeat;
}

static cy_status add_delay(cy_world *world, cy_group **group, const int *ranks, int count)
{
    const cy_world_delay *delay = world->options.delay;
    if (delay == NULL) return CY_OK;
    CY_ASSERT(delay->node_ranks > 0);
    cy_link *links;
    CY_TRY(CY_ALLOC(&links, (size_t)count * (size_t)count));
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

int cy_world_node(const cy_world *world, int rank)
{
    CY_ASSERT(0 <= rank && rank < world->size);
    const cy_world_options *options = &world->options;
    if (options->delay != NULL) return rank / options->delay->node_ranks;
    if (options->ranks_per_node > 0) return rank / options->ranks_per_node;
    return cy_world_node_of(world, rank);
}

int cy_world_nodes(const cy_world *world)
{
    int nodes = 0;
    for (int rank = 0; rank < world->size; rank++) {
        int first = 0;
        while (cy_world_node(world, first) != cy_world_node(world, rank))
            first++;
        nodes += first == rank;
    }
    return nodes;
}

// Which nodes the members of a group are of.
typedef struct group_nodes {
    int *of;    // owned, [count]: numbered from 0 by their first members
    int count;  // nodes
    int fewest; // members of a node
    int most;
    bool in_line; // members of a node are neighbours in the group
} group_nodes;

static cy_status find_nodes(group_nodes *found, const cy_world *world, const int *ranks, int count)
{
    int *of;
    CY_TRY(CY_ALLOC(&of, 2 * (size_t)count));
    group_nodes made = {.of = of, .fewest = count, .in_line = true};
    int *first = made.of + count; // [nodes]: the first member of each
    for (int i = 0; i < count; i++) {
        int k = 0;
        while (k < made.count &&
            cy_world_node(world, ranks[first[k]]) != cy_world_node(world, ranks[i]))
            k++;
        if (k == made.count) first[made.count++] = i;
        made.of[i] = k;
        if (i > 0 && k < made.of[i - 1]) made.in_line = false;
    }
    for (int k = 0; k < made.count; k++) {
        int members = 0;
        for (int i = 0; i < count; i++)
            members += made.of[i] == k;
        if (members < made.fewest) made.fewest = members;
        if (members > made.most) made.most = members;
    }
    *found = made;
    return CY_OK;
}

// The choice by the formulas, for links that are slow on purpose. Nodes that are not alike or not
// in line count as links between nodes all over.
static cy_algorithm_table choose_for(
    const cy_world_delay *delay, const group_nodes *nodes, int count)
{
    const bool uneven = nodes->fewest != nodes->most || !nodes->in_line;
    const cy_topology links = {
        .ranks = count,
        .node_ranks = uneven ? count : nodes->most,
        .inside = uneven ? delay->between : delay->inside,
        .between = delay->between,
    };
    return cy_algorithm_for(&links);
}

static cy_status add_algorithm(
    cy_world *world, cy_group **group, const group_nodes *nodes, int count)
{
    const cy_world_delay *delay = world->options.delay;
    const bool automatic = strcmp(world->options.algorithm, "auto") == 0;
    cy_algorithm_table table = cy_algorithm_always(CY_ALGORITHM_NATIVE);
    bool tables = false;
    if (!automatic) {
        CY_TRY(cy_algorithm_find(
            &table, &tables, world->options.algorithm, cy_group_dimension(*group)));
    }
    // On one node there are no levels.
    if (table.rows[0].algorithm == CY_ALGORITHM_HIERARCHICAL && nodes->count == 1) {
        table = cy_algorithm_always(CY_ALGORITHM_NATIVE);
    }
    if (cy_algorithm_is_native(&table) && delay == NULL) {
        return cy_group_set_nodes(*group, nodes->count > 1 ? nodes->of : NULL);
    }
    if (automatic) table = choose_for(delay, nodes, count);
    const cy_algorithm_options options = {
        .table = table,
        .nodes = nodes->count > 1 ? nodes->of : NULL,
        .native_others = tables,
        // A rank that waits in one group must go on in all others: its peers may wait there.
        .progress_thread = true,
    };
    return cy_algorithm_open(group, *group, &options);
}

static cy_status add_layers(cy_world *world, cy_group **group, const int *ranks, int count)
{
    group_nodes nodes;
    CY_TRY(find_nodes(&nodes, world, ranks, count));
    cy_status status = add_delay(world, group, ranks, count);
    if (status == CY_OK) status = add_algorithm(world, group, &nodes, count);
    cy_memory_free(nodes.of);
    return status;
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
    const cy_status status = add_layers(world, &made, ranks, count);
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
    int *ranks;
    CY_TRY(CY_ALLOC(&ranks, (size_t)count));
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
