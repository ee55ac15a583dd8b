// Makes pipeline schedules: names, segments and tags, the lists of actions; and divides the layers
// of the model among the segments.

#include "parallel/pipeline/schedule.h"

#include "base/memory.h"
#include "base/status.h"
#include "parallel/pipeline/build.h"

#include <stdio.h>
#include <string.h>

// More than any machine has; they keep every product below in an int.
#define STAGES_MAX   1024
#define CHUNKS_MAX   64
#define FORWARDS_MAX (1 << 24)

static const char *const engine_names[CY_PIPELINE_ENGINES] = {
    [CY_PIPELINE_AFAB] = "afab",
    [CY_PIPELINE_1F1B] = "1f1b",
    [CY_PIPELINE_INTERLEAVED] = "interleaved",
    [CY_PIPELINE_ZERO_BUBBLE] = "zero_bubble",
    [CY_PIPELINE_CSV] = "csv",
};

static const char *const action_codes[CY_ACTION_KINDS] = {
    [CY_ACTION_FORWARD] = "F",
    [CY_ACTION_BACKWARD] = "B",
    [CY_ACTION_BACKWARD_INPUT] = "I",
    [CY_ACTION_BACKWARD_WEIGHT] = "W",
    [CY_ACTION_SEND_ACTIVATION] = "SF",
    [CY_ACTION_RECV_ACTIVATION] = "RF",
    [CY_ACTION_SEND_GRADIENT] = "SB",
    [CY_ACTION_RECV_GRADIENT] = "RB",
};

const char *cy_pipeline_engine_name(cy_pipeline_engine engine)
{
    CY_ASSERT(0 <= (int)engine && engine < CY_PIPELINE_ENGINES);
    return engine_names[engine];
}

bool cy_pipeline_engine_from_name(cy_pipeline_engine *engine, const char *name)
{
    for (int i = 0; i < CY_PIPELINE_ENGINES; i++) {
        if (strcmp(engine_names[i], name) == 0) {
            *engine = (cy_pipeline_engine)i;
            return true;
        }
    }
    return false;
}

const char *cy_action_code(cy_action_kind kind)
{
    CY_ASSERT(0 <= (int)kind && kind < CY_ACTION_KINDS);
    return action_codes[kind];
}

bool cy_action_is_compute(cy_action_kind kind)
{
    return kind <= CY_ACTION_BACKWARD_WEIGHT;
}

bool cy_action_is_transfer(cy_action_kind kind)
{
    return CY_ACTION_SEND_ACTIVATION <= kind && kind <= CY_ACTION_RECV_GRADIENT;
}

int cy_schedule_segments(const cy_schedule *schedule)
{
    return schedule->stages * schedule->chunks;
}

int cy_schedule_segment(const cy_schedule *schedule, int rank, int chunk)
{
    CY_ASSERT(0 <= rank && rank < schedule->stages);
    CY_ASSERT(0 <= chunk && chunk < schedule->chunks);
    const bool back = schedule->placement == CY_PLACEMENT_V && chunk % 2 == 1;
    return chunk * schedule->stages + (back ? schedule->stages - 1 - rank : rank);
}

int cy_schedule_segment_rank(const cy_schedule *schedule, int segment)
{
    CY_ASSERT(0 <= segment && segment < cy_schedule_segments(schedule));
    const int step = segment % schedule->stages;
    const bool back = schedule->placement == CY_PLACEMENT_V && segment / schedule->stages % 2 == 1;
    return back ? schedule->stages - 1 - step : step;
}

const char *cy_action_text(
    char buffer[CY_ACTION_TEXT_BYTES], const cy_schedule *schedule, cy_action action)
{
    const char *code = cy_action_code(action.kind);
    char chunk[16] = "";
    if (schedule->chunks > 1) snprintf(chunk, sizeof(chunk), ".%d", action.chunk);
    snprintf(buffer, CY_ACTION_TEXT_BYTES, "%s%d%s", code, action.microbatch, chunk);
    return buffer;
}

int cy_action_tag(const cy_schedule *schedule, int rank, cy_action action)
{
    CY_ASSERT(cy_action_is_transfer(action.kind));
    const int segment = cy_schedule_segment(schedule, rank, action.chunk);
    // The number of a boundary is that of the segment before it.
    const bool before =
        action.kind == CY_ACTION_RECV_ACTIVATION || action.kind == CY_ACTION_SEND_GRADIENT;
    const bool gradient =
        action.kind == CY_ACTION_SEND_GRADIENT || action.kind == CY_ACTION_RECV_GRADIENT;
    return 2 * (before ? segment - 1 : segment) + (gradient ? 1 : 0);
}

cy_status cy_schedule_init(
    cy_schedule *schedule, cy_pipeline_engine engine, int stages, int microbatches, int chunks)
{
    cy_action_list *ranks = NULL;
    CY_TRY(CY_ALLOC(&ranks, (size_t)stages));
    *schedule = (cy_schedule){
        .engine = engine,
        .placement =
            engine == CY_PIPELINE_ZERO_BUBBLE && chunks == 2 ? CY_PLACEMENT_V : CY_PLACEMENT_LOOP,
        .stages = stages,
        .microbatches = microbatches,
        .chunks = chunks,
        .ranks = ranks,
    };
    return CY_OK;
}

cy_status cy_schedule_add(cy_schedule *schedule, int rank, cy_action action)
{
    cy_action_list *list = &schedule->ranks[rank];
    void *block = list->actions;
    CY_TRY(cy_memory_grow(&block, &list->capacity, list->count + 1, sizeof(cy_action)));
    list->actions = block;
    list->actions[list->count++] = action;
    return CY_OK;
}

cy_status cy_schedule_add_compute(
    cy_schedule *schedule, int rank, cy_action_kind kind, int microbatch, int chunk)
{
    CY_ASSERT(cy_action_is_compute(kind));
    return cy_schedule_add(schedule, rank,
        (cy_action){.kind = kind, .microbatch = microbatch, .chunk = chunk, .peer = -1});
}

void cy_schedule_close(cy_schedule *schedule)
{
    for (int rank = 0; schedule->ranks != NULL && rank < schedule->stages; rank++) {
        cy_memory_free(schedule->ranks[rank].actions);
    }
    cy_memory_free(schedule->ranks);
    *schedule = (cy_schedule){0};
}

static cy_status check_sizes(const cy_schedule_options *options)
{
    const char *name = cy_pipeline_engine_name(options->engine);
    if (options->stages < 1 || options->stages > STAGES_MAX) {
        return CY_FAIL(CY_ERR_REQUEST, "%s: %d stages, there must be 1 to %d", name,
            options->stages, STAGES_MAX);
    }
    if (options->microbatches < 1 || options->microbatches > CY_PIPELINE_MICROBATCHES) {
        return CY_FAIL(CY_ERR_REQUEST, "%s: %d microbatches, there must be 1 to %d", name,
            options->microbatches, CY_PIPELINE_MICROBATCHES);
    }
    if (options->chunks < 1 || options->chunks > CHUNKS_MAX) {
        return CY_FAIL(CY_ERR_REQUEST, "%s: %d chunks a stage, there must be 1 to %d", name,
            options->chunks, CHUNKS_MAX);
    }
    if ((long long)options->stages * options->chunks * options->microbatches > FORWARDS_MAX) {
        return CY_FAIL(CY_ERR_REQUEST,
            "%s: %d stages with %d chunks and %d microbatches are more than %d forwards", name,
            options->stages, options->chunks, options->microbatches, FORWARDS_MAX);
    }
    return CY_OK;
}

static cy_status check_engine(const cy_schedule_options *options)
{
    const int chunks = options->chunks;
    switch (options->engine) {
    case CY_PIPELINE_AFAB:
    case CY_PIPELINE_1F1B:
        if (chunks == 1) return CY_OK;
        cy_error_set(
            "%s takes 1 chunk a stage, not %d", cy_pipeline_engine_name(options->engine), chunks);
        cy_error_set_hint("the engines with chunks are interleaved, and zero_bubble with 2");
        return CY_ERR_REQUEST;
    case CY_PIPELINE_ZERO_BUBBLE:
        if (chunks <= 2) return CY_OK;
        return CY_FAIL(CY_ERR_REQUEST,
            "zero_bubble takes 1 chunk a stage (ZB-H1) or 2 (ZB-V), not %d", chunks);
    case CY_PIPELINE_INTERLEAVED:
        return CY_OK;
    case CY_PIPELINE_CSV:
        if (options->csv != NULL && options->csv[0] != '\0') return CY_OK;
        return CY_FAIL(CY_ERR_REQUEST, "the csv engine needs the path of its schedule");
    case CY_PIPELINE_ENGINES:
        break;
    }
    return CY_FAIL(CY_ERR_REQUEST, "there is no pipeline engine %d", (int)options->engine);
}

static cy_status build(cy_schedule *schedule, const cy_schedule_options *options)
{
    bool transfers = false;
    switch (options->engine) {
    case CY_PIPELINE_AFAB:
        CY_TRY(cy_schedule_build_afab(schedule));
        break;
    case CY_PIPELINE_1F1B:
        CY_TRY(cy_schedule_build_1f1b(schedule));
        break;
    case CY_PIPELINE_INTERLEAVED:
        CY_TRY(cy_schedule_build_interleaved(schedule));
        break;
    case CY_PIPELINE_ZERO_BUBBLE:
        CY_TRY(cy_schedule_build_zero_bubble(schedule));
        break;
    case CY_PIPELINE_CSV:
        CY_TRY(cy_schedule_read_csv(schedule, &transfers, options->csv));
        if (!transfers) CY_TRY(cy_schedule_check_compute(schedule));
        break;
    case CY_PIPELINE_ENGINES:
        break;
    }
    if (!transfers) CY_TRY(cy_schedule_add_transfers(schedule));
    return cy_schedule_check(NULL, schedule, NULL);
}

cy_status cy_schedule_open(cy_schedule *schedule, const cy_schedule_options *options)
{
    CY_ASSERT(0 <= (int)options->engine && options->engine < CY_PIPELINE_ENGINES);
    CY_TRY(check_sizes(options));
    CY_TRY(check_engine(options));
    cy_schedule made;
    CY_TRY(cy_schedule_init(
        &made, options->engine, options->stages, options->microbatches, options->chunks));
    const cy_status status = build(&made, options);
    if (status != CY_OK) {
        const char *path = options->engine == CY_PIPELINE_CSV ? options->csv : NULL;
        if (path != NULL && strstr(cy_error_text(), path) == NULL) cy_error_prefix("%s: ", path);
        cy_schedule_close(&made);
        return status;
    }
    *schedule = made;
    return CY_OK;
}

// ---- partition

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

// All layers cost the same, so giving each to the cheapest rank so far is optimal.
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
