#include "support/ranks.h"

#include "support/worlds.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct ranks_run {
    void (*body)(void *context, cy_group *ranks);
    void *context;
} ranks_run;

static cy_status run_rank(cy_world *world, void *context)
{
    const ranks_run *run = context;
    cy_group *ranks = NULL;
    CY_TRY(cy_test_open_all(world, &ranks, "world"));
    run->body(run->context, ranks);
    cy_group_close(ranks);
    return CY_OK;
}

void cy_test_ranks(int size, void (*body)(void *context, cy_group *ranks), void *context)
{
    ranks_run run = {.body = body, .context = context};
    cy_world_options options = cy_world_defaults();
    options.ranks = size;
    options.timeout_s = 1800.0; // between two calls of the group a body does all that it tests
    if (cy_world_run_threads(&options, run_rank, &run) == CY_OK) return;
    fprintf(stderr, "%d ranks: %s\n", size, cy_error_text());
    abort();
}
