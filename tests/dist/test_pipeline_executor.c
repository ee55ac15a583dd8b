#define _POSIX_C_SOURCE 200809L
// Every engine run by ranks that are threads: each microbatch arrives where and as it should, with
// as many bytes and as much memory as the schedule says.

#include "dist/pipeline_stub.h"

#include "base/file.h"
#include "parallel/pipeline/measured.h"

#include <stdio.h>
#include <string.h>

typedef struct job {
    cy_schedule schedule;
    cy_schedule_cost cost;
    cy_dtype dtype;
    int64_t rows, cols;
    double bytes[16]; // sent, by rank
} job;

// Measured times must be possible: no microbatch enters a segment before it left the one before.
static cy_status check_timeline(cy_timeline *timeline)
{
    for (size_t i = 0; i < timeline->count; i++) {
        const cy_timed_action *after = &timeline->items[i];
        STUB_EXPECT(0.0 <= after->start && after->start <= after->end, "times of item %zu", i);
        STUB_EXPECT(after->end <= timeline->end || !cy_action_is_compute(after->action.kind),
            "item %zu ends late", i);
        if (after->action.kind != CY_ACTION_FORWARD || after->rank == 0) continue;
        for (size_t k = 0; k < timeline->count; k++) {
            const cy_timed_action *before = &timeline->items[k];
            const bool feeds = before->action.kind == CY_ACTION_FORWARD &&
                before->rank == after->rank - 1 && before->action.chunk == 0 &&
                after->action.chunk == 0 && before->action.microbatch == after->action.microbatch;
            STUB_EXPECT(!feeds || before->end <= after->start, "item %zu starts early", i);
        }
    }
    cy_timeline_close(timeline);
    return CY_OK;
}

// Runs on a dry queue over a measuring arena, then twice for real, all on one executor.
static cy_status run_steps(job *j, cy_executor *executor, cy_group *group, _Atomic uint64_t *beat)
{
    stub s;
    const int rank = cy_group_rank(group);
    cy_stage stage = stub_stage(&s, &j->schedule, rank);
    cy_queue queue = {.dry = true, .beat = beat};
    cy_arena arena;
    cy_arena_measure(&arena, "step");
    cy_executor_place(executor, &arena);
    CY_TRY(cy_executor_run(executor, &queue, &stage, NULL));
    const size_t planned = arena.peak;
    const double dry_bytes = cy_group_counters(group).bytes;
    const int forwards = s.calls[0];

    void *memory = aligned_alloc(64, planned + 64);
    cy_timed_action *times = calloc(j->schedule.ranks[rank].count, sizeof(*times));
    STUB_EXPECT(memory != NULL && times != NULL, "no memory");
    cy_arena_place(&arena, "step", memory, planned);
    cy_executor_place(executor, &arena);
    cy_status status = CY_OK;
    queue.dry = false;
    for (int step = 0; step < 2 && status == CY_OK; step++) {
        stage = stub_stage(&s, &j->schedule, rank);
        status = cy_executor_run(executor, &queue, &stage, times);
    }
    free(memory);
    CY_TRY(status);
    for (int kind = CY_SLOT_INPUT; kind < CY_SLOT_KINDS; kind++) {
        for (int i = 0; i < executor->slots.count[kind]; i++) {
            STUB_EXPECT(executor->requests[kind][i].handle == NULL, "a message is in flight");
        }
    }
    const int chunks = j->schedule.chunks;
    STUB_EXPECT(forwards == chunks * j->schedule.microbatches, "%d dry forwards", forwards);
    STUB_EXPECT(s.calls[0] == forwards, "%d forwards", s.calls[0]);
    STUB_EXPECT(s.calls[1] + s.calls[3] == forwards, "%d weight gradients", s.calls[3]);
    STUB_EXPECT(s.firsts == chunks && s.lasts == chunks, "%d firsts %d lasts", s.firsts, s.lasts);
    j->bytes[rank] = cy_group_counters(group).bytes;
    cy_timeline timeline;
    CY_TRY(cy_timeline_gather(&timeline, executor, &queue, times, 0.0));
    free(times);
    STUB_EXPECT((timeline.items != NULL) == (rank == 0), "a timeline on rank %d", rank);
    if (rank == 0) CY_TRY(check_timeline(&timeline));
    STUB_EXPECT(
        j->bytes[rank] == 3.0 * dry_bytes, "dry %g bytes, then %g", dry_bytes, j->bytes[rank]);
    return CY_OK;
}

static cy_status run_rank(cy_world *world, void *context)
{
    job *j = context;
    const int rank = cy_world_rank(world);
    cy_group *group = NULL;
    CY_TRY(stub_open_group(world, &group));
    const cy_executor_options options = {.schedule = &j->schedule,
        .group = group,
        .dtype = j->dtype,
        .rows = j->rows,
        .cols = j->cols};
    cy_executor executor;
    CY_TRY(cy_executor_open(&executor, &options));
    // The places of stashes are the checker's peaks.
    STUB_EXPECT(cy_executor_places(&executor, CY_SLOT_STASH) == j->cost.ranks[rank].peak_stash,
        "stashes of rank %d", rank);
    STUB_EXPECT(cy_executor_places(&executor, CY_SLOT_KEPT) == j->cost.ranks[rank].peak_kept,
        "kept places of rank %d", rank);
    // Buffers are no more than what is kept and what may be on its way.
    const int kept = j->cost.ranks[rank].peak_kept;
    for (int kind = CY_SLOT_INPUT; kind < CY_SLOT_KINDS; kind++) {
        const int most = kind < CY_SLOT_OUTPUT ? kept + 2 : 2;
        const int places = cy_executor_places(&executor, (cy_slot_kind)kind);
        STUB_EXPECT(
            places <= most, "rank %d: %d places of kind %d, %d kept", rank, places, kind, kept);
    }
    const cy_status status = run_steps(j, &executor, group, cy_world_beat(world));
    if (status != CY_OK) return status; // messages may be in flight: nothing may be closed
    cy_executor_close(&executor);
    cy_group_close(group);
    return CY_OK;
}

static void run_job(cy_schedule_options options, cy_dtype dtype)
{
    job j = {.dtype = dtype, .rows = 3, .cols = 5};
    CY_CHECK_OK(cy_schedule_open(&j.schedule, &options));
    CY_CHECK_OK(cy_schedule_check(&j.cost, &j.schedule, NULL));
    cy_world_options world = cy_world_defaults();
    world.ranks = options.stages;
    world.timeout_s = 20;
    world.check = true; // buffers in flight are full of NaN
    CY_CHECK_OK(cy_world_run_threads(&world, run_rank, &j));
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
    for (int e = 0; e < CY_ENGINE_CSV; e++) {
        for (int v = 1; v <= 3; v++) {
            const int most = e == CY_ENGINE_INTERLEAVED ? 3 : e == CY_ENGINE_ZERO_BUBBLE ? 2 : 1;
            if (v > most) continue;
            for (int p = 0; p < 4; p++) {
                for (int m = 0; m < 6; m++) {
                    run_job((cy_schedule_options){.engine = (cy_engine)e,
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
    run_job((cy_schedule_options){CY_ENGINE_1F1B, 8, 16, 1, NULL}, CY_F64);
    run_job((cy_schedule_options){CY_ENGINE_INTERLEAVED, 8, 11, 2, NULL}, CY_F32);
    run_job((cy_schedule_options){CY_ENGINE_ZERO_BUBBLE, 8, 16, 2, NULL}, CY_BF16);
}

// The actions of other dimensions reach the stage, in their place of the list.
typedef struct seen {
    stub s;
    int optimizer_after; // forwards done when it came
} seen;

static cy_status see_other(void *context, cy_queue *queue, const cy_action *action)
{
    (void)queue;
    seen *what = context;
    STUB_EXPECT(action->kind == CY_ACTION_OPTIMIZER, "%s", cy_action_code(action->kind));
    what->optimizer_after = what->s.calls[1];
    return CY_OK;
}

static void other_actions(void **context)
{
    (void)context;
    char folder[300], path[400];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/s.csv", folder);
    CY_CHECK_OK(cy_file_write(path, "F0,F1,B0,B1,OP", 14));
    cy_schedule schedule;
    CY_CHECK_OK(cy_schedule_open(&schedule, &(cy_schedule_options){CY_ENGINE_CSV, 1, 2, 1, path}));
    cy_executor executor;
    CY_CHECK_OK(cy_executor_open(
        &executor, &(cy_executor_options){&schedule, cy_group_self(), CY_F32, 1, 1}));
    cy_arena arena;
    cy_arena_measure(&arena, "step");
    cy_executor_place(&executor, &arena);
    assert_int_equal(arena.peak, 0); // one segment: nothing goes anywhere
    seen what;
    cy_stage stage = stub_stage(&what.s, &schedule, 0);
    cy_queue queue = {0};
    CY_CHECK_FAILS(cy_executor_run(&executor, &queue, &stage, NULL), CY_ERR_UNSUPPORTED, "OP");
    stage = stub_stage(&what.s, &schedule, 0);
    stage.other = see_other;
    cy_timed_action times[5];
    CY_CHECK_OK(cy_executor_run(&executor, &queue, &stage, times));
    assert_int_equal(what.optimizer_after, 2);
    for (int i = 1; i < 5; i++)
        assert_true(times[i].start >= times[i - 1].end);
    cy_executor_close(&executor);
    cy_schedule_close(&schedule);
}

// A stage that fails is an error of the run that names the rank, not a hang.
static cy_status fail_forward(
    void *context, cy_queue *queue, const cy_stage_call *call, cy_view output, cy_view input)
{
    const stub *s = context;
    if (s->rank == 1 && call->microbatch == 2) {
        return CY_FAIL(CY_ERR_NOT_FINITE, "microbatch 2 went wrong");
    }
    return stub_forward(context, queue, call, output, input);
}

static cy_status run_failing(cy_world *world, void *context)
{
    job *j = context;
    const int rank = cy_world_rank(world);
    cy_group *group = NULL;
    CY_TRY(stub_open_group(world, &group));
    const cy_executor_options options = {
        .schedule = &j->schedule, .group = group, .dtype = CY_F32, .rows = 2, .cols = 2};
    static char memory[3][65536] __attribute__((aligned(64)));
    static stub stubs[3];
    cy_executor executor;
    CY_TRY(cy_executor_open(&executor, &options));
    cy_arena arena;
    cy_arena_place(&arena, "step", memory[rank], sizeof(memory[rank]));
    cy_executor_place(&executor, &arena);
    cy_stage stage = stub_stage(&stubs[rank], &j->schedule, rank);
    stage.forward = fail_forward;
    cy_queue queue = {.beat = cy_world_beat(world)};
    const cy_status status = cy_executor_run(&executor, &queue, &stage, NULL);
    cy_executor_close(&executor);
    return status;
}

static void failing_stage(void **context)
{
    (void)context;
    job j = {0};
    CY_CHECK_OK(
        cy_schedule_open(&j.schedule, &(cy_schedule_options){CY_ENGINE_1F1B, 3, 4, 1, NULL}));
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
        cmocka_unit_test(other_actions),
        cmocka_unit_test(failing_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
