#define _POSIX_C_SOURCE 200809L
// Tests the bubble of every engine as the executor runs it, against the formula and the simulator,
// in simulated time: each rank has a clock that its actions advance, and what it sends says when it
// was ready, so that the result is the same on any machine. And tests that messages travel under
// work: a receive is started before the action that stands in front of the one that needs it.
//
// bench/claims/bubble.c measures the same with stages that take time.

#include "dist/pipeline_stub.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A stage whose actions take a unit a forward, an input gradient and a weight gradient, divided by
// the chunks: segments are so much smaller.
typedef struct clocked {
    cy_schedule schedule;
    double clock[8]; // of each rank
    double busy[8];
    double first[8]; // when each rank's first action started
    int started[8];
    int receives[8], early[8]; // receives, and those started under an earlier action
} clocked;

typedef struct place {
    clocked *all;
    int rank;
} place;

// Runs an action of `parts` units that needs what `input` says, and writes when it ended.
static void advance(place *at, double parts, cy_view output, cy_view input)
{
    clocked *all = at->all;
    const double ready = cy_view_is_none(input) ? 0.0 : *(const double *)input.data;
    if (ready > all->clock[at->rank]) all->clock[at->rank] = ready;
    if (all->started[at->rank]++ == 0) all->first[at->rank] = all->clock[at->rank];
    const double takes = parts / all->schedule.chunks;
    all->clock[at->rank] += takes;
    all->busy[at->rank] += takes;
    if (!cy_view_is_none(output)) *(double *)output.data = all->clock[at->rank];
}

static cy_status forward(void *context, const cy_pipeline_call *call, cy_view output, cy_view input)
{
    (void)call;
    advance(context, 1, output, input);
    return CY_OK;
}

// The kept input is there since its forward; what is waited for is the output gradient.
static cy_status backward(void *context, const cy_pipeline_call *call, cy_view input_gradient,
    cy_view output_gradient, cy_view input)
{
    (void)call;
    (void)input;
    advance(context, 2, input_gradient, output_gradient);
    return CY_OK;
}

static cy_status backward_input(void *context, const cy_pipeline_call *call, cy_view input_gradient,
    cy_view output_gradient, cy_view input)
{
    (void)call;
    (void)input;
    advance(context, 1, input_gradient, output_gradient);
    return CY_OK;
}

static cy_status backward_weight(
    void *context, const cy_pipeline_call *call, cy_view output_gradient, cy_view input)
{
    (void)call;
    (void)input;
    advance(context, 1, cy_view_none(), output_gradient);
    return CY_OK;
}

// Counts the receives of a trace, and those between whose start and wait an action stood: actions
// write a span at their end.
static void count_receives(clocked *all, int rank, const cy_trace *trace)
{
    for (int64_t i = 0; i < trace->count; i++) {
        const cy_span *comm = &trace->spans[i];
        if (comm->kind != CY_SPAN_COMM || strcmp(comm->name, "recv") != 0) continue;
        const cy_span *wait = &trace->spans[i + 1];
        bool early = false;
        for (int64_t k = 0; k < i; k++) {
            const cy_span *action = &trace->spans[k];
            early = early ||
                (action->kind == CY_SPAN_STAGE && action->end_ns >= comm->start_ns &&
                    action->end_ns <= wait->start_ns);
        }
        all->receives[rank]++;
        all->early[rank] += early;
    }
}

static cy_status run_rank(cy_world *world, void *context)
{
    clocked *all = context;
    place at = {all, cy_world_rank(world)};
    const cy_pipeline_stage stage = {.context = &at,
        .forward = forward,
        .backward = backward,
        .backward_input = backward_input,
        .backward_weight = backward_weight};
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "pp"));
    cy_executor executor;
    CY_TRY(cy_executor_open(&executor,
        &(cy_executor_options){
            .schedule = &all->schedule, .group = group, .dtype = CY_F64, .rows = 1, .cols = 1}));
    cy_arena arena;
    cy_arena_measure(&arena, "step");
    cy_executor_alloc(&executor, &arena);
    void *memory = aligned_alloc(64, arena.peak + 64);
    cy_trace trace;
    CY_TRY(cy_trace_open(&trace, 4096));
    STUB_EXPECT(memory != NULL, "no memory for a stage");
    cy_arena_init(&arena, "step", memory, arena.peak);
    cy_executor_alloc(&executor, &arena);
    cy_queue queue = {.heartbeat = cy_world_heartbeat(world), .trace = &trace};
    const cy_status status = cy_executor_run(&executor, &queue, &stage, NULL);
    if (status != CY_OK) return status; // messages may be in flight: nothing may be closed
    STUB_EXPECT(trace.count <= trace.capacity, "%lld spans", (long long)trace.count);
    count_receives(all, at.rank, &trace);
    cy_trace_close(&trace);
    free(memory);
    cy_executor_close(&executor);
    cy_group_close(group);
    return CY_OK;
}

// The share of the longest rank's time that ranks idle, on average, as cy_timeline_add_up defines
// it.
static double bubble_of(const clocked *all, int stages)
{
    double span = 0, busy = 0;
    for (int r = 0; r < stages; r++) {
        span = fmax(span, all->clock[r] - all->first[r]);
        busy += all->busy[r] / stages;
    }
    return (span - busy) / span;
}

static void check(cy_pipeline_engine engine, int p, int m, int v, double formula)
{
    const cy_schedule_options options = {engine, p, m, v, NULL};
    static clocked all;
    all = (clocked){0};
    CY_CHECK_OK(cy_schedule_open(&all.schedule, &options));
    cy_timeline simulated;
    CY_CHECK_OK(cy_schedule_simulate(&simulated, &all.schedule,
        &(cy_durations){.forward = 1, .backward_input = 1, .backward_weight = 1}));
    cy_world_options world = cy_world_defaults();
    world.ranks = p;
    CY_CHECK_OK(cy_world_run_threads(&world, run_rank, &all));
    const double bubble = bubble_of(&all, p);
    if (!(fabs(bubble - simulated.bubble) <= 1e-9 && fabs(simulated.bubble - formula) <= 1e-9)) {
        fail_msg("%s P=%d M=%d V=%d: bubble %.9f, simulated %.9f, formula %.9f",
            cy_pipeline_engine_name(engine), p, m, v, bubble, simulated.bubble, formula);
    }
    // All but the first receive of a rank, which nothing stands in front of on any but the first
    // rank.
    for (int r = 0; r < p; r++) {
        if (all.early[r] < all.receives[r] - 1) {
            fail_msg("%s P=%d M=%d V=%d: rank %d starts %d of %d receives under an action",
                cy_pipeline_engine_name(engine), p, m, v, r, all.early[r], all.receives[r]);
        }
        assert_true(all.receives[r] > 0);
    }
    cy_timeline_close(&simulated);
    cy_schedule_close(&all.schedule);
}

static void bubbles_are_those_of_the_formulas(void **context)
{
    (void)context;
    for (int p = 2; p <= 8; p *= 2) {
        const int m = 8;
        const double waits = p - 1;
        check(CY_PIPELINE_AFAB, p, m, 1, waits / (m + waits));
        check(CY_PIPELINE_1F1B, p, m, 1, waits / (m + waits));
        check(CY_PIPELINE_INTERLEAVED, p, m, 2, waits / (2 * m + waits));
        check(CY_PIPELINE_INTERLEAVED, p, m, 4, waits / (4 * m + waits));
        if (p == 8) continue; // 8 microbatches are too few for zero bubbles over 8 stages
        check(CY_PIPELINE_ZERO_BUBBLE, p, m, 1, waits / (3 * m + waits));
        check(CY_PIPELINE_ZERO_BUBBLE, p, m, 2, 0.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bubbles_are_those_of_the_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
