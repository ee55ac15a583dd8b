// Divides the layers of the model among the segments of a pipeline.

#include "parallel/pipeline/schedule.h"

#include "base/status.h"

static double segment_cost(const cy_layer_range *ranges, const cy_schedule *schedule, int segment,
    const cy_partition_costs *costs)
{
    double cost = ranges[segment].count * costs->layer;
    if (segment == 0) cost += costs->embedding;
    if (segment == cy_schedule_segments(schedule) - 1) cost += costs->head;
    return cost;
}

static double rank_cost(const cy_layer_range *ranges, const cy_schedule *schedule, int rank,
    const cy_partition_costs *costs)
{
    double cost = 0.0;
    for (int chunk = 0; chunk < schedule->chunks; chunk++) {
        const int segment = cy_schedule_segment(schedule, rank, chunk);
        cost += segment_cost(ranges, schedule, segment, costs);
    }
    return cost;
}

// Layers all cost the same, so giving each to the cheapest rank so far is the best there is.
static int cheapest_segment(
    const cy_layer_range *ranges, const cy_schedule *schedule, const cy_partition_costs *costs)
{
    int best_rank = 0;
    double best = rank_cost(ranges, schedule, 0, costs);
    for (int rank = 1; rank < schedule->stages; rank++) {
        const double cost = rank_cost(ranges, schedule, rank, costs);
        if (cost < best) {
            best = cost;
            best_rank = rank;
        }
    }
    int segment = cy_schedule_segment(schedule, best_rank, 0);
    for (int chunk = 1; chunk < schedule->chunks; chunk++) {
        const int other = cy_schedule_segment(schedule, best_rank, chunk);
        if (segment_cost(ranges, schedule, other, costs) <
            segment_cost(ranges, schedule, segment, costs)) {
            segment = other;
        }
    }
    return segment;
}

static void place_ranges(cy_layer_range *ranges, int segments)
{
    int first = 0;
    for (int s = 0; s < segments; s++) {
        ranges[s].first = first;
        first += ranges[s].count;
    }
}

static cy_status check_enough(const cy_schedule *schedule, int layers)
{
    const int segments = cy_schedule_segments(schedule);
    if (layers >= segments) return CY_OK;
    const cy_status status = CY_FAIL(CY_ERR_REQUEST,
        "%d stages with %d chunk%s each are more than the model's %d layer%s", schedule->stages,
        schedule->chunks, schedule->chunks == 1 ? "" : "s", layers, layers == 1 ? "" : "s");
    cy_error_set_hint("lower distributed.pp_size or distributed.pp_chunks");
    return status;
}

cy_status cy_partition_by_cost(cy_layer_range *ranges, const cy_schedule *schedule, int layers,
    const cy_partition_costs *costs)
{
    CY_ASSERT(costs->layer > 0.0 && costs->embedding >= 0.0 && costs->head >= 0.0);
    CY_TRY(check_enough(schedule, layers));
    const int segments = cy_schedule_segments(schedule);
    for (int s = 0; s < segments; s++)
        ranges[s] = (cy_layer_range){.count = 1};
    for (int given = segments; given < layers; given++) {
        ranges[cheapest_segment(ranges, schedule, costs)].count++;
    }
    place_ranges(ranges, segments);
    return CY_OK;
}

cy_status cy_partition_by_list(cy_layer_range *ranges, const cy_schedule *schedule, int layers,
    const int *list, int list_count)
{
    const int segments = cy_schedule_segments(schedule);
    if (list_count != segments) {
        return CY_FAIL(CY_ERR_REQUEST,
            "pp_layers lists %d counts, %d stages with %d chunks need %d", list_count,
            schedule->stages, schedule->chunks, segments);
    }
    long long sum = 0;
    for (int s = 0; s < segments; s++) {
        if (list[s] < 1) {
            return CY_FAIL(CY_ERR_REQUEST,
                "pp_layers gives segment %d %d layers, each needs at least 1", s, list[s]);
        }
        sum += list[s];
    }
    if (sum != layers) {
        return CY_FAIL(
            CY_ERR_REQUEST, "pp_layers adds up to %lld layers, the model has %d", sum, layers);
    }
    for (int s = 0; s < segments; s++)
        ranges[s] = (cy_layer_range){.count = list[s]};
    place_ranges(ranges, segments);
    return CY_OK;
}
