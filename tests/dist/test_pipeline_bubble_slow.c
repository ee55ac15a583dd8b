// The bubble as it is, against the formula and the simulator: stages that sleep instead of
// computing, so that any machine has enough cores.
//
// Sleeping is late by what the system is busy with, so each run gets five tries.

#define _POSIX_C_SOURCE 200809L
#include "dist/pipeline_stub.h"

#include "parallel/pipeline/draw.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROWS   INT64_C(64)
#define COLS   INT64_C(64)
#define PART_S 0.01 // of a forward, an input gradient, a weight gradient

typedef struct job {
    cy_schedule schedule;
    cy_timeline timeline; // measured, filled by rank 0
} job;

static cy_status run_stage(job *j, cy_world *world, cy_group *group, cy_executor *executor, stub *s,
    cy_timed_action *times)
{
    const int rank = cy_world_rank(world);
    const cy_pipeline_stage stage = stub_stage(s, &j->schedule, rank);
    // Segments are 1 / chunks of a stage: the work is the same for every engine.
    s->seconds = PART_S / j->schedule.chunks;
    cy_queue queue = {.beat = cy_world_beat(world)};
    CY_TRY(cy_group_barrier(group));
    CY_TRY(cy_executor_run(executor, &queue, &stage, times));
    cy_timeline timeline;
    CY_TRY(cy_timeline_gather(&timeline, executor, &queue, times, 0.0));
    if (rank == 0) j->timeline = timeline;
    return CY_OK;
}

static cy_status run_rank(cy_world *world, void *context)
{
    job *j = context;
    const size_t count = j->schedule.ranks[cy_world_rank(world)].count;
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "pp"));
    cy_executor executor;
    CY_TRY(cy_executor_open(&executor,
        &(cy_executor_options){.schedule = &j->schedule,
            .group = group,
            .dtype = CY_F32,
            .rows = ROWS,
            .cols = COLS}));
    cy_arena arena;
    cy_arena_measure(&arena, "step");
    cy_executor_place(&executor, &arena);
    void *memory = aligned_alloc(64, arena.peak + 64);
    cy_timed_action *times = calloc(count, sizeof(*times));
    stub *s = malloc(sizeof(*s));
    cy_status status = CY_OK;
    if (memory == NULL || times == NULL || s == NULL) {
        status = CY_FAIL(CY_ERR_MEMORY, "no memory for a stage");
    } else {
        cy_arena_place(&arena, "step", memory, arena.peak);
        cy_executor_place(&executor, &arena);
        status = run_stage(j, world, group, &executor, s, times);
    }
    free(times);
    free(memory);
    free(s);
    cy_executor_close(&executor);
    cy_group_close(group);
    return status;
}

// The measured timeline of one step, to be closed by the caller.
static cy_timeline run_step(cy_schedule_options options, const cy_world_delay *delay)
{
    job j = {0};
    CY_CHECK_OK(cy_schedule_open(&j.schedule, &options));
    cy_world_options world = cy_world_defaults();
    world.ranks = options.stages;
    world.timeout_s = 20;
    world.delay = delay;
    CY_CHECK_OK(cy_world_run_threads(&world, run_rank, &j));
    cy_schedule_close(&j.schedule);
    return j.timeline;
}

static cy_timeline simulate(cy_schedule_options options, cy_durations durations)
{
    cy_schedule schedule;
    cy_timeline timeline;
    CY_CHECK_OK(cy_schedule_open(&schedule, &options));
    CY_CHECK_OK(cy_schedule_simulate(&timeline, &schedule, &durations));
    cy_schedule_close(&schedule);
    return timeline;
}

static double measure(cy_schedule_options options, double *simulated)
{
    cy_timeline timeline =
        simulate(options, (cy_durations){.forward = 1, .backward_input = 1, .backward_weight = 1});
    *simulated = timeline.bubble;
    cy_timeline_close(&timeline);
    timeline = run_step(options, NULL);
    const double bubble = timeline.bubble;
    cy_text picture = {0};
    CY_CHECK_OK(cy_timeline_draw_svg(
        &picture, &timeline, &(cy_drawing){.title = "measured", .unit = "ms", .scale = 1e3}));
    assert_null(strstr(picture.bytes, "nan"));
    cy_text_free(&picture);
    cy_timeline_close(&timeline);
    return bubble;
}

// Within 10 % of the wanted bubble. A bubble near nothing is held to what sleeping late costs.
// Under a sanitizer schedules run and are not timed: what stages do between two naps takes many
// times as long.
static void check(cy_pipeline_engine engine, int p, int m, int v, double formula)
{
    double bubble = 0.0, simulated = 0.0;
    for (int attempt = 0; attempt < 5; attempt++) {
        bubble = measure((cy_schedule_options){engine, p, m, v, NULL}, &simulated);
        const double room = fmax(0.1 * simulated, 0.02);
        printf("%s P=%d M=%d V=%d: measured %.4f, simulated %.4f, formula %.4f\n",
            cy_pipeline_engine_name(engine), p, m, v, bubble, simulated, formula);
        if (fabs(simulated - formula) > 1e-9) break;
        if (CY_TEST_SANITIZED || fabs(bubble - simulated) <= room) return;
    }
    fail_msg("%s P=%d M=%d V=%d: bubble %.4f, simulated %.4f, formula %.4f",
        cy_pipeline_engine_name(engine), p, m, v, bubble, simulated, formula);
}

static void measured_bubbles(void **context)
{
    (void)context;
    static const int stages[] = {2, 4};
    for (int i = 0; i < 2; i++) {
        const int p = stages[i];
        const int m = 8;
        const double waits = p - 1;
        check(CY_PIPELINE_AFAB, p, m, 1, waits / (m + waits));
        check(CY_PIPELINE_1F1B, p, m, 1, waits / (m + waits));
        check(CY_PIPELINE_INTERLEAVED, p, m, 2, waits / (2 * m + waits));
        check(CY_PIPELINE_INTERLEAVED, p, m, 4, waits / (4 * m + waits));
        check(CY_PIPELINE_ZERO_BUBBLE, p, m, 1, waits / (3 * m + waits));
        check(CY_PIPELINE_ZERO_BUBBLE, p, m, 2, 0.0);
    }
}

// Messages travel while the ranks compute: on links that take two thirds of a forward for a
// message, a step takes what the simulator says, not a message's time more for each action.
static void transfers_overlap(void **context)
{
    (void)context;
    const cy_schedule_options options = {CY_PIPELINE_AFAB, 3, 8, 1, NULL};
    const double message_s = 0.5 * PART_S, latency_s = 0.2 * PART_S;
    const cy_link link = {
        .latency_s = latency_s, .bytes_per_s = (double)(ROWS * COLS) * sizeof(float) / message_s};
    const cy_world_delay delay = {.inside = link, .between = link, .node_ranks = 1};
    cy_timeline simulated = simulate(options,
        (cy_durations){.forward = PART_S,
            .backward_input = PART_S,
            .backward_weight = PART_S,
            .latency = latency_s,
            .message = message_s});
    // Were messages waited for, a step would take one more each way for each microbatch.
    const double waiting = simulated.end + 2 * 8 * (message_s + latency_s);
    double measured = 0.0;
    for (int attempt = 0; attempt < 5; attempt++) {
        cy_timeline timeline = run_step(options, &delay);
        measured = timeline.end;
        cy_timeline_close(&timeline);
        printf("slow links: measured %.4f s, simulated %.4f s, waiting for each %.4f s\n", measured,
            simulated.end, waiting);
        if (measured < 1.1 * simulated.end) break;
    }
    assert_true(measured < 1.1 * simulated.end);
    assert_true(measured < waiting);
    assert_true(measured > 0.98 * simulated.end); // the links are slow indeed
    cy_timeline_close(&simulated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_bubbles),
        cmocka_unit_test(transfers_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
