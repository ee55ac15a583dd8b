#define _POSIX_C_SOURCE 200809L
// Every engine run by ranks that are threads: each microbatch arrives where and as it should, with
// as many bytes and as much memory as the schedule says.

#include "dist/pipeline_stub.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

static void run_job(cy_schedule_options options, cy_dtype dtype)
{
    stub_job j = {.dtype = dtype, .rows = 3, .cols = 5};
    CY_CHECK_OK(cy_schedule_open(&j.schedule, &options));
    CY_CHECK_OK(cy_schedule_check(&j.cost, &j.schedule, NULL));
    cy_world_options world = cy_world_defaults();
    world.ranks = options.stages;
    world.timeout_s = 20;
    world.check = true; // buffers in flight are full of NaN
    CY_CHECK_OK(cy_world_run_threads(&world, stub_run_rank, &j));
    double bytes = 0;
    for (int r = 0; r < options.stages; r++)
        bytes += j.bytes[r];
    const double message = (double)(j.rows * j.cols) * (double)cy_dtype_size(dtype);
    assert_true(bytes == 3.0 * (double)j.cost.messages * message); // one dry step, two real ones
    cy_schedule_cost_close(&j.cost);
    cy_schedule_close(&j.schedule);
}

static void every_engine(void **context)
{
    (void)context;
    static const int stages[] = {1, 2, 3, 4};
    static const int microbatches[] = {1, 2, 3, 4, 7, 8};
    for (int e = 0; e < CY_PIPELINE_CSV; e++) {
        for (int v = 1; v <= 3; v++) {
            const int most = e == CY_PIPELINE_INTERLEAVED ? 3
                : e == CY_PIPELINE_ZERO_BUBBLE            ? 2
                                                          : 1;
            if (v > most) continue;
            for (int p = 0; p < 4; p++) {
                for (int m = 0; m < 6; m++) {
                    run_job((cy_schedule_options){.engine = (cy_pipeline_engine)e,
                                .stages = stages[p],
                                .microbatches = microbatches[m],
                                .chunks = v},
                        m % 2 == 0 ? CY_F32 : CY_BF16);
                }
            }
        }
    }
}

static void eight_ranks(void **context)
{
    (void)context;
    run_job((cy_schedule_options){CY_PIPELINE_1F1B, 8, 16, 1, NULL}, CY_F64);
    run_job((cy_schedule_options){CY_PIPELINE_INTERLEAVED, 8, 11, 2, NULL}, CY_F32);
    run_job((cy_schedule_options){CY_PIPELINE_ZERO_BUBBLE, 8, 16, 2, NULL}, CY_BF16);
}

// As many segments as there are tags for, and one more.
static void most_segments(void **context)
{
    (void)context;
    cy_action_list nothing = {0};
    cy_schedule schedule = {.stages = 1, .microbatches = 1, .ranks = &nothing};
    const cy_executor_options options = {&schedule, cy_group_self(), CY_F32, 1, 1};
    cy_executor executor;
    schedule.chunks = CY_TAG_LIMIT / 2 - 1;
    CY_CHECK_OK(cy_executor_open(&executor, &options));
    cy_executor_close(&executor);
    schedule.chunks = CY_TAG_LIMIT / 2;
    CY_CHECK_FAILS(cy_executor_open(&executor, &options), CY_ERR_REQUEST,
        "8192 segments needs more than 16384 tags");
}

// A stage that fails is an error of the run that names the rank, not a hang.
static cy_status fail_forward(
    void *context, const cy_pipeline_call *call, cy_view output, cy_view input)
{
    const stub *s = context;
    if (s->rank == 1 && call->microbatch == 2) {
        return CY_FAIL(CY_ERR_NOT_FINITE, "microbatch 2 went wrong");
    }
    return stub_forward(context, call, output, input);
}

static cy_status run_failing(cy_world *world, void *context)
{
    stub_job *j = context;
    const int rank = cy_world_rank(world);
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "pp"));
    const cy_executor_options options = {
        .schedule = &j->schedule, .group = group, .dtype = CY_F32, .rows = 2, .cols = 2};
    static char memory[3][65536] __attribute__((aligned(64)));
    static stub stubs[3];
    cy_executor executor;
    CY_TRY(cy_executor_open(&executor, &options));
    cy_arena arena;
    cy_arena_init(&arena, "step", memory[rank], sizeof(memory[rank]));
    cy_executor_alloc(&executor, &arena);
    cy_pipeline_stage stage = stub_stage(&stubs[rank], &j->schedule, rank);
    stage.forward = fail_forward;
    cy_queue queue = {.heartbeat = cy_world_heartbeat(world)};
    const cy_status status = cy_executor_run(&executor, &queue, &stage, NULL);
    cy_executor_close(&executor);
    cy_group_close(group);
    return status;
}

static void failing_stage(void **context)
{
    (void)context;
    stub_job j = {0};
    CY_CHECK_OK(
        cy_schedule_open(&j.schedule, &(cy_schedule_options){CY_PIPELINE_1F1B, 3, 4, 1, NULL}));
    cy_world_options world = cy_world_defaults();
    world.ranks = 3;
    world.timeout_s = 20;
    CY_CHECK_FAILS(cy_world_run_threads(&world, run_failing, &j), CY_ERR_NOT_FINITE,
        "microbatch 2 went wrong");
    assert_non_null(strstr(cy_error_text(), "rank 1"));
    cy_schedule_close(&j.schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_engine),
        cmocka_unit_test(eight_ranks),
        cmocka_unit_test(most_segments),
        cmocka_unit_test(failing_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
