#include "support/worlds.h"

#define RANKS_MOST 64

cy_status cy_test_open_all(cy_world *world, cy_group **group, const char *dimension)
{
    int ranks[RANKS_MOST];
    const int size = cy_world_size(world);
    if (size > RANKS_MOST) return CY_FAIL(CY_ERR_REQUEST, "%d ranks", size);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    return cy_world_open_group(world, group, ranks, size, dimension);
}

typedef struct machine_run {
    const char *isa;
    size_t bytes;
    cy_test_machine_use use;
    void *context;
} machine_run;

static cy_status run_rank(cy_world *world, void *context)
{
    const machine_run *run = context;
    cy_test_machine machine;
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    CY_TRY(cy_test_machine_open(&machine, run->isa, 1, run->bytes));
    machine.queue.heartbeat = cy_world_heartbeat(world);
    CY_TRY(run->use(&machine, group, run->context));
    cy_group_close(group);
    return cy_test_machine_close(&machine);
}

cy_status cy_test_on_machines(const cy_world_options *options, const char *isa, size_t bytes,
    cy_test_machine_use use, void *context)
{
    machine_run run = {.isa = isa, .bytes = bytes, .use = use, .context = context};
    return cy_world_run_threads(options, run_rank, &run);
}
