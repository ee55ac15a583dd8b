#include "comm/world.h"

#include "base/assert.h"
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
#endif

cy_status cy_world_run(const char *backend, bool launched, const cy_world_options *options,
    cy_rank_function function, void *context)
{
    const bool automatic = strcmp(backend, "auto") == 0 || strcmp(backend, "gloo") == 0;
    if (strcmp(backend, "mpi") == 0 || (automatic && launched)) {
        return cy_world_run_mpi(options, function, context);
    }
    if (strcmp(backend, "self") == 0 && options->ranks > 1) {
        return CY_FAIL(CY_ERR_REQUEST, "backend self serves 1 rank, not %d", options->ranks);
    }
    if (automatic || strcmp(backend, "threads") == 0 || strcmp(backend, "self") == 0) {
        return cy_world_run_threads(options, function, context);
    }
    const cy_status status =
        CY_FAIL(CY_ERR_UNSUPPORTED, "backend %s is not in this build", backend);
    cy_error_set_hint("it has self, threads%s", CY_HAVE_MPI ? ", mpi" : "");
    return status;
}

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

const char *cy_world_host(const cy_world *world, int rank)
{
    CY_ASSERT(0 <= rank && rank < world->size);
    return world->ops->host(world, rank);
}

_Atomic uint64_t *cy_world_beat(cy_world *world)
{
    return &world->beat;
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
    return world->ops->open_group(world, group, ranks, count, dimension);
}

void cy_world_abort(cy_world *world, const char *text)
{
    world->ops->abort(world, text);
}
