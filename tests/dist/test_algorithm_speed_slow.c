// The automatic choice of an algorithm is within 10 % of the fastest one at every size, over links
// that take time and no core. 8 ranks, whose links are all alike or slow between nodes of 4.

#include "support/support.h"
#include "support/worlds.h"

#include "base/clock.h"
#include "base/median.h"

#include <string.h>

#define RANKS   8
#define SIZES   5
#define SAMPLES 3
#define TRIES   4 // a busy machine may disturb one choice and not the other

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

// Whether auto was near the best at every size; all figures are printed.
static bool near_the_best(const cy_world_delay *delay)
{
    double taken[NAMES][SIZES];
    for (int n = 0; n < NAMES; n++) {
        cy_world_options options = cy_world_defaults();
        options.ranks = RANKS;
        options.algorithm = names[n];
        options.delay = delay;
        options.check = false;
        CY_CHECK_OK(cy_world_run_threads(&options, measure, NULL));
        memcpy(taken[n], seconds, sizeof(seconds));
    }
    bool near = true;
    for (int s = 0; s < SIZES; s++) {
        double best = taken[1][s];
        print_message("%8lld bytes, ms:", (long long)sizes[s]);
        for (int n = 0; n < NAMES; n++) {
            print_message(" %s %.2f", names[n], taken[n][s] * 1e3);
            if (n > 0 && taken[n][s] < best) best = taken[n][s];
        }
        print_message("\n");
        near = near && taken[0][s] <= 1.1 * best;
    }
    return near;
}

static void expect_near_the_best(const cy_world_delay *delay)
{
    for (int i = 0; i < TRIES; i++) {
        if (near_the_best(delay)) return;
    }
    fail_msg("auto was farther than 10 %% from the fastest in %d tries", TRIES);
}

static void links_that_are_alike(void **state)
{
    (void)state;
    const cy_link link = {.latency_s = 0.005, .bytes_per_s = 20e6};
    expect_near_the_best(&(cy_world_delay){.inside = link, .between = link, .node_ranks = RANKS});
}

static void links_that_are_slow_between_nodes(void **state)
{
    (void)state;
    expect_near_the_best(&(cy_world_delay){.inside = {.latency_s = 0.002, .bytes_per_s = 200e6},
        .between = {.latency_s = 0.010, .bytes_per_s = 20e6},
        .node_ranks = 4});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_that_are_alike),
        cmocka_unit_test(links_that_are_slow_between_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
