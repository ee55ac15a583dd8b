// Measures the automatic choice of an algorithm against the fastest one at every size, over links
// that take time and no core: 8 ranks, whose links are all alike or slow between nodes of 4.

#include "figures.h"

#include "support/worlds.h"

#include "base/clock.h"

#include <string.h>

#define RANKS   8
#define SIZES   5
#define SAMPLES 3

static const int64_t sizes[SIZES] = {8, 2048, 32768, 262144, 1048576};

static const char *const names[] = {"auto", "ring", "tree", "doubling", "hierarchical", "server"};
#define NAMES 6

static double seconds[SIZES]; // of the last run, as rank 0 saw it
static float data[RANKS][262144];

static cy_status measure(cy_world *world, void *context)
{
    (void)context;
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    for (int s = 0; s < SIZES; s++) {
        double times[SAMPLES];
        const cy_view view = cy_view_of(data[cy_world_rank(world)], CY_F32, 1, sizes[s] / 4);
        CY_TRY(cy_group_all_reduce(group, NULL, view, CY_MAX)); // buffers are taken
        for (int i = 0; i < SAMPLES; i++) {
            CY_TRY(cy_group_barrier(group));
            const double start = cy_clock_s();
            CY_TRY(cy_group_all_reduce(group, NULL, view, CY_MAX));
            times[i] = cy_clock_s() - start;
        }
        if (cy_world_rank(world) == 0) seconds[s] = cy_median(times, SAMPLES);
    }
    cy_group_close(group);
    return CY_OK;
}

// The time of the automatic choice over that of the fastest, at the size where it is worst.
static double over_the_best(const cy_world_delay *delay)
{
    double taken[NAMES][SIZES];
    for (int n = 0; n < NAMES; n++) {
        cy_world_options options = cy_world_defaults();
        options.ranks = RANKS;
        options.algorithm = names[n];
        options.delay = delay;
        options.check = false;
        figure_need(cy_world_run_threads(&options, measure, NULL));
        memcpy(taken[n], seconds, sizeof(seconds));
    }
    double worst = 0.0;
    for (int s = 0; s < SIZES; s++) {
        double best = taken[1][s];
        fprintf(stderr, "%8lld bytes, ms:", (long long)sizes[s]);
        for (int n = 0; n < NAMES; n++) {
            fprintf(stderr, " %s %.2f", names[n], taken[n][s] * 1e3);
            if (n > 0 && taken[n][s] < best) best = taken[n][s];
        }
        fprintf(stderr, "\n");
        if (taken[0][s] / best > worst) worst = taken[0][s] / best;
    }
    return worst;
}

static void tell(const char *name, const cy_world_delay *delay)
{
    double quotients[FIGURE_ROUNDS];
    for (int i = 0; i < FIGURE_ROUNDS; i++)
        quotients[i] = over_the_best(delay);
    figure_median(name, quotients, FIGURE_ROUNDS, "of-best");
}

int main(void)
{
    const cy_link alike = {.latency_s = 0.005, .bytes_per_s = 20e6};
    tell("algorithms.auto_over_best_alike",
        &(cy_world_delay){.inside = alike, .between = alike, .node_ranks = RANKS});
    tell("algorithms.auto_over_best_nodes",
        &(cy_world_delay){.inside = {.latency_s = 0.002, .bytes_per_s = 200e6},
            .between = {.latency_s = 0.010, .bytes_per_s = 20e6},
            .node_ranks = 4});
    return 0;
}
