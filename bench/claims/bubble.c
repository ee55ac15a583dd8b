// Measures the bubble of every pipeline engine against the simulator: stages that sleep instead of
// computing, so that any machine has enough cores. Sleeping is late by what the system is busy
// with.
//
// tests/dist/test_pipeline_bubble.c compares the two in simulated time.

#define _POSIX_C_SOURCE 200809L
#include "figures.h"

#include "dist/pipeline_stub.h"

#include <math.h>

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
    cy_queue queue = {.heartbeat = cy_world_heartbeat(world)};
    CY_TRY(cy_group_barrier(group));
    CY_TRY(cy_executor_run(executor, &queue, &stage, times));
    cy_timeline timeline;
    CY_TRY(cy_timeline_gather(&timeline, executor, times, 0.0));
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
    cy_executor_alloc(&executor, &arena);
    void *memory = aligned_alloc(64, arena.peak + 64);
    cy_timed_action *times = calloc(count, sizeof(*times));
    stub *s = malloc(sizeof(*s));
    cy_status status = CY_OK;
    if (memory == NULL || times == NULL || s == NULL) {
        status = CY_FAIL(CY_ERR_MEMORY, "no memory for a stage");
    } else {
        cy_arena_init(&arena, "step", memory, arena.peak);
        cy_executor_alloc(&executor, &arena);
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
    figure_need(cy_schedule_open(&j.schedule, &options));
    cy_world_options world = cy_world_defaults();
    world.ranks = options.stages;
    world.timeout_s = 20;
    world.delay = delay;
    figure_need(cy_world_run_threads(&world, run_rank, &j));
    cy_schedule_close(&j.schedule);
    return j.timeline;
}

static cy_timeline simulate(cy_schedule_options options, cy_durations durations)
{
    cy_schedule schedule;
    cy_timeline timeline;
    figure_need(cy_schedule_open(&schedule, &options));
    figure_need(cy_schedule_simulate(&timeline, &schedule, &durations));
    cy_schedule_close(&schedule);
    return timeline;
}

static double measure(cy_schedule_options options)
{
    cy_timeline timeline = run_step(options, NULL);
    const double bubble = timeline.bubble;
    cy_timeline_close(&timeline);
    return bubble;
}

// How far the measured bubble lies from the simulated one, as a share of it, the worse of 2 and 4
// stages with 8 microbatches. A bubble near nothing is held to what sleeping late costs: it counts
// as a share of a bubble of 0.2.
static void tell(const char *name, cy_pipeline_engine engine, int chunks)
{
    double worst = 0.0;
    for (int stages = 2; stages <= 4; stages += 2) {
        const cy_schedule_options options = {engine, stages, 8, chunks, NULL};
        cy_timeline timeline = simulate(
            options, (cy_durations){.forward = 1, .backward_input = 1, .backward_weight = 1});
        double off[FIGURE_ROUNDS];
        for (int i = 0; i < FIGURE_ROUNDS; i++) {
            const double bubble = measure(options);
            fprintf(stderr, "%s, %d stages: measured %.4f, simulated %.4f\n", name, stages, bubble,
                timeline.bubble);
            off[i] = fabs(bubble - timeline.bubble) / fmax(timeline.bubble, 0.2);
        }
        worst = fmax(worst, cy_median(off, FIGURE_ROUNDS));
        cy_timeline_close(&timeline);
    }
    char figure[96];
    snprintf(figure, sizeof(figure), "bubble.%s_off", name);
    figure_median(figure, &worst, 1, "of-simulated");
}

// Messages travel while the ranks compute: on links that take two thirds of a forward for a
// message, a step takes what the simulator says, not a message's time more for each action.
static void tell_of_slow_links(void)
{
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
    double quotients[FIGURE_ROUNDS];
    for (int i = 0; i < FIGURE_ROUNDS; i++) {
        cy_timeline timeline = run_step(options, &delay);
        fprintf(stderr, "slow links: measured %.4f s, simulated %.4f s, waiting for each %.4f s\n",
            timeline.end, simulated.end, simulated.end + 2 * 8 * (message_s + latency_s));
        quotients[i] = timeline.end / simulated.end;
        cy_timeline_close(&timeline);
    }
    cy_timeline_close(&simulated);
    figure_median("bubble.slow_links_over_simulated", quotients, FIGURE_ROUNDS, "of-simulated");
}

int main(void)
{
    tell("afab", CY_PIPELINE_AFAB, 1);
    tell("1f1b", CY_PIPELINE_1F1B, 1);
    tell("interleaved_2", CY_PIPELINE_INTERLEAVED, 2);
    tell("interleaved_4", CY_PIPELINE_INTERLEAVED, 4);
    tell("zb_h1", CY_PIPELINE_ZERO_BUBBLE, 1);
    tell("zb_v", CY_PIPELINE_ZERO_BUBBLE, 2);
    tell_of_slow_links();
    return 0;
}
