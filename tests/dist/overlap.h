// tests/dist/overlap.h: what of a step's traffic is not hidden under its work, on links that take
// time and no core.

#ifndef CY_TESTS_DIST_OVERLAP_H
#define CY_TESTS_DIST_OVERLAP_H

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include "base/clock.h"
#include "base/median.h"

// A sanitizer looks at what a step does, not at how long it takes.
#define OVERLAP_STEPS (CY_TEST_SANITIZED ? 1 : 5)
#define OVERLAP_TIMED (!CY_TEST_SANITIZED)

// Another program on the same cores can hold one of two ranks up for longer than a transfer takes;
// a measurement that meets one is taken again.
#define OVERLAP_TRIES 4

typedef struct overlap_step {
    double step_s, exposed_s; // medians over steps, of rank 0
    double bytes;             // that rank 0 sends in a step
} overlap_step;

// The group of the one dimension that the configuration splits.
static inline cy_group *overlap_group(const cy_config *config, const cy_rank *rank)
{
    if (config->distributed.tp_size > 1) return rank->groups.tp;
    if (config->distributed.cp_size > 1) return rank->groups.cp;
    return rank->groups.gradient;
}

static inline cy_status overlap_time(cy_engine *engine, const cy_rank *rank, void *context)
{
    overlap_step *of = context;
    double seconds[OVERLAP_STEPS], exposed[OVERLAP_STEPS];
    cy_group *group = overlap_group(engine->options.config, rank);
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    CY_TRY(cy_engine_initialize(engine));
    for (int step = -1; step < OVERLAP_STEPS; step++) {
        const cy_adamw_spec adamw = cy_test_adamw(1e-3, step + 2);
        const cy_traffic before = cy_group_counters(group);
        const double start = cy_clock_s();
        cy_step_result result;
        CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
        if (step < 0) continue;
        const cy_traffic after = cy_group_counters(group);
        seconds[step] = cy_clock_s() - start;
        exposed[step] = after.exposed_s - before.exposed_s;
        if (rank->rank == 0) of->bytes = after.bytes - before.bytes;
    }
    if (rank->rank != 0) return CY_OK;
    of->step_s = cy_median(seconds, OVERLAP_STEPS);
    of->exposed_s = cy_median(exposed, OVERLAP_STEPS);
    return CY_OK;
}

// A step over links of 20 us and this bandwidth; 0: without limit.
static inline overlap_step overlap_measure(const cy_config *config, double bytes_per_s)
{
    overlap_step of = {0};
    const cy_world_delay delay = {
        .between = {.latency_s = 20e-6, .bytes_per_s = bytes_per_s}, .node_ranks = 1};
    CY_CHECK_OK(cy_test_on_mesh(config, "auto", &delay, overlap_time, &of));
    return of;
}

#endif
