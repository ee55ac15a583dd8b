// Every layer on exactly one segment, and no cut that would be better.

#include "support/support.h"

#include "parallel/pipeline/schedule.h"

#define LAYERS   64
#define STAGES   8
#define SEGMENTS 32

// Only its sizes are used here.
static cy_schedule sizes(int stages, int chunks, cy_placement placement)
{
    return (cy_schedule){.stages = stages, .chunks = chunks, .placement = placement};
}

static double cost_of(const cy_layer_range *ranges, const cy_schedule *schedule,
    const cy_partition_costs *costs, int rank)
{
    double cost = 0.0;
    for (int c = 0; c < schedule->chunks; c++) {
        const int s = cy_schedule_segment(schedule, rank, c);
        cost += ranges[s].count * costs->layer;
        if (s == 0) cost += costs->embedding;
        if (s == cy_schedule_segments(schedule) - 1) cost += costs->head;
    }
    return cost;
}

static void check_cut(const cy_schedule *schedule, int layers, const cy_partition_costs *costs)
{
    cy_layer_range ranges[SEGMENTS];
    CY_CHECK_OK(cy_partition_by_cost(ranges, schedule, layers, costs));
    int next = 0;
    for (int s = 0; s < cy_schedule_segments(schedule); s++) {
        assert_int_equal(ranges[s].first, next);
        assert_true(ranges[s].count >= 1);
        next += ranges[s].count;
    }
    assert_int_equal(next, layers);
    // Layers are alike, so a cut is the best one when no layer can leave a rank for another that
    // would then cost less than the first does now.
    for (int from = 0; from < schedule->stages; from++) {
        int movable = -schedule->chunks;
        for (int c = 0; c < schedule->chunks; c++) {
            movable += ranges[cy_schedule_segment(schedule, from, c)].count;
        }
        if (movable == 0) continue;
        const double now = cost_of(ranges, schedule, costs, from);
        for (int to = 0; to < schedule->stages; to++) {
            if (to == from) continue;
            assert_true(cost_of(ranges, schedule, costs, to) + costs->layer >= now - 1e-9);
        }
    }
}

static void all_sizes(void **context)
{
    (void)context;
    const cy_partition_costs costs[] = {{1.0, 0.0, 0.0}, {1.0, 0.1, 3.4}, {2.0, 5.0, 0.5}};
    for (int p = 1; p <= STAGES; p++) {
        for (int v = 1; v <= 4; v++) {
            for (int layers = p * v; layers <= LAYERS; layers++) {
                for (int k = 0; k < 3; k++) {
                    const cy_schedule loop = sizes(p, v, CY_PLACEMENT_LOOP);
                    const cy_schedule back = sizes(p, v, CY_PLACEMENT_V);
                    check_cut(&loop, layers, &costs[k]);
                    check_cut(&back, layers, &costs[k]);
                }
            }
        }
    }
}

static void head_counts(void **context)
{
    (void)context;
    cy_layer_range ranges[4];
    const cy_schedule four = sizes(4, 1, CY_PLACEMENT_LOOP);
    CY_CHECK_OK(cy_partition_by_cost(ranges, &four, 30, &(cy_partition_costs){1.0, 0.0, 6.0}));
    assert_int_equal(ranges[0].count, 9);
    assert_int_equal(ranges[3].count, 3);
    // Without costs, the first ranks take the remainder.
    CY_CHECK_OK(cy_partition_by_cost(ranges, &four, 30, &(cy_partition_costs){1.0, 0.0, 0.0}));
    const int plain[] = {8, 8, 7, 7};
    for (int s = 0; s < 4; s++)
        assert_int_equal(ranges[s].count, plain[s]);
}

static void given_list(void **context)
{
    (void)context;
    cy_layer_range ranges[4];
    const cy_schedule two = sizes(2, 2, CY_PLACEMENT_V);
    const int list[] = {1, 3, 4, 2};
    CY_CHECK_OK(cy_partition_by_list(ranges, &two, 10, list, 4));
    assert_int_equal(ranges[3].first, 8);
    assert_int_equal(ranges[3].count, 2);
    CY_CHECK_FAILS(cy_partition_by_list(ranges, &two, 11, list, 4), CY_ERR_REQUEST,
        "adds up to 10 layers, the model has 11");
    CY_CHECK_FAILS(cy_partition_by_list(ranges, &two, 10, list, 3), CY_ERR_REQUEST, "lists 3");
    const int empty[] = {5, 5, 0, 0};
    CY_CHECK_FAILS(cy_partition_by_list(ranges, &two, 10, empty, 4), CY_ERR_REQUEST, "segment 2");
}

static void too_many_stages(void **context)
{
    (void)context;
    cy_layer_range ranges[8];
    const cy_schedule eight = sizes(8, 1, CY_PLACEMENT_LOOP);
    CY_CHECK_FAILS(cy_partition_by_cost(ranges, &eight, 7, &(cy_partition_costs){1.0, 0.0, 0.0}),
        CY_ERR_REQUEST, "8 stages with 1 chunk each are more than the model's 7 layers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sizes),
        cmocka_unit_test(head_counts),
        cmocka_unit_test(given_list),
        cmocka_unit_test(too_many_stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
