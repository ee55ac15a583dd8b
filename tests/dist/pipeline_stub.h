// tests/dist/pipeline_stub.h: a stage without a model, which checks what the executor hands it.
//
// Every element of an activation is 4 m + s for microbatch m entering segment s, of a gradient
// 4 m + segments - s: small integers, which every dtype holds exactly. Ranks are threads, so a
// difference is a failure that is returned, not an assertion that jumps.

#ifndef CY_TESTS_DIST_PIPELINE_STUB_H
#define CY_TESTS_DIST_PIPELINE_STUB_H

#include "support/support.h"
#include "support/worlds.h"

#include "base/numbers.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/executor.h"

#include <stdlib.h>
#include <time.h>

#define STUB_EXPECT(condition, ...)                                                                \
    do {                                                                                           \
        if (!(condition)) return CY_FAIL(CY_ERR_CORRUPT, __VA_ARGS__);                             \
    } while (0)

#define STUB_CELLS 1024 // microbatches * chunks, at most

typedef struct stub {
    const cy_schedule *schedule;
    int rank;
    bool dry;              // the queue is: nothing is touched
    double seconds;        // that a forward, an input gradient and a weight gradient each take
    int stash[STUB_CELLS]; // what lies at each place: 1 + microbatch + chunk * microbatches
    int kept[STUB_CELLS];
    int calls[4]; // by kind
    int lasts;
    int open[64]; // weight gradients still to come, by chunk
} stub;

static inline double stub_get(cy_view view, int64_t i)
{
    if (view.dtype == CY_BF16) return (double)cy_bf16_to_f32(((const cy_bf16 *)view.data)[i]);
    if (view.dtype == CY_F64) return ((const double *)view.data)[i];
    return (double)((const float *)view.data)[i];
}

static inline void stub_fill(cy_view view, double value)
{
    for (int64_t i = 0; i < cy_view_count(view); i++) {
        if (view.dtype == CY_BF16) {
            ((cy_bf16 *)view.data)[i] = cy_bf16_from_f32((float)value);
        } else if (view.dtype == CY_F64) {
            ((double *)view.data)[i] = value;
        } else {
            ((float *)view.data)[i] = (float)value;
        }
    }
}

static inline cy_status stub_holds(cy_view view, double value, const char *what)
{
    for (int64_t i = 0; i < cy_view_count(view); i++) {
        STUB_EXPECT(
            stub_get(view, i) == value, "%s holds %g, not %g", what, stub_get(view, i), value);
    }
    return CY_OK;
}

static inline void stub_work(const stub *s, int parts)
{
    if (s->seconds <= 0.0) return;
    const struct timespec nap = {.tv_nsec = (long)(s->seconds * parts * 1e9)};
    nanosleep(&nap, NULL);
}

static inline int stub_mark(const stub *s, const cy_pipeline_call *call)
{
    return 1 + call->microbatch + call->chunk * s->schedule->microbatches;
}

static inline double stub_activation(const cy_pipeline_call *call, int segment)
{
    return 4.0 * call->microbatch + segment;
}

static inline double stub_gradient(const stub *s, const cy_pipeline_call *call, int segment)
{
    return 4.0 * call->microbatch + cy_schedule_segments(s->schedule) - segment;
}

static inline cy_status stub_forward(
    void *context, const cy_pipeline_call *call, cy_view output, cy_view input)
{
    stub *s = context;
    s->calls[0]++;
    if (s->dry) return CY_OK;
    const int last = cy_schedule_segments(s->schedule) - 1;
    STUB_EXPECT(cy_view_is_none(input) == (call->segment == 0), "input of %d", call->segment);
    STUB_EXPECT(cy_view_is_none(output) == (call->segment == last), "output of %d", call->segment);
    CY_TRY(stub_holds(input, stub_activation(call, call->segment), "an input"));
    STUB_EXPECT(s->stash[call->stash] == 0, "stash %d is in use", call->stash);
    STUB_EXPECT(s->kept[call->kept] == 0, "kept place %d is in use", call->kept);
    s->stash[call->stash] = s->kept[call->kept] = stub_mark(s, call);
    stub_work(s, 1);
    stub_fill(output, stub_activation(call, call->segment + 1));
    return CY_OK;
}

static inline cy_status stub_input(stub *s, const cy_pipeline_call *call, cy_view input_gradient,
    cy_view output_gradient, cy_view input, int parts)
{
    const int last = cy_schedule_segments(s->schedule) - 1;
    STUB_EXPECT(cy_view_is_none(input_gradient) == (call->segment == 0), "input gradient");
    STUB_EXPECT(cy_view_is_none(output_gradient) == (call->segment == last), "output gradient");
    CY_TRY(stub_holds(input, stub_activation(call, call->segment), "a kept input"));
    CY_TRY(stub_holds(
        output_gradient, stub_gradient(s, call, call->segment + 1), "an output gradient"));
    STUB_EXPECT(s->stash[call->stash] == stub_mark(s, call), "stash %d is another's", call->stash);
    s->stash[call->stash] = 0;
    stub_work(s, parts);
    stub_fill(input_gradient, stub_gradient(s, call, call->segment));
    return CY_OK;
}

static inline cy_status stub_weight(stub *s, const cy_pipeline_call *call)
{
    STUB_EXPECT(s->kept[call->kept] == stub_mark(s, call), "place %d is another's", call->kept);
    s->kept[call->kept] = 0;
    s->open[call->chunk]--;
    STUB_EXPECT(call->last == (s->open[call->chunk] == 0), "last at the wrong place");
    s->lasts += call->last;
    return CY_OK;
}

static inline cy_status stub_backward(void *context, const cy_pipeline_call *call,
    cy_view input_gradient, cy_view output_gradient, cy_view input)
{
    stub *s = context;
    s->calls[1]++;
    if (s->dry) return CY_OK;
    CY_TRY(stub_weight(s, call));
    return stub_input(s, call, input_gradient, output_gradient, input, 2);
}

static inline cy_status stub_backward_input(void *context, const cy_pipeline_call *call,
    cy_view input_gradient, cy_view output_gradient, cy_view input)
{
    stub *s = context;
    s->calls[2]++;
    if (s->dry) return CY_OK;
    return stub_input(s, call, input_gradient, output_gradient, input, 1);
}

static inline cy_status stub_backward_weight(
    void *context, const cy_pipeline_call *call, cy_view output_gradient, cy_view input)
{
    stub *s = context;
    s->calls[3]++;
    if (s->dry) return CY_OK;
    CY_TRY(stub_holds(input, stub_activation(call, call->segment), "a weight gradient's input"));
    CY_TRY(stub_holds(output_gradient, stub_gradient(s, call, call->segment + 1),
        "a weight gradient's output gradient"));
    stub_work(s, 1);
    return stub_weight(s, call);
}

static inline cy_pipeline_stage stub_stage(stub *s, const cy_schedule *schedule, int rank)
{
    *s = (stub){.schedule = schedule, .rank = rank};
    for (int c = 0; c < schedule->chunks; c++)
        s->open[c] = schedule->microbatches;
    return (cy_pipeline_stage){
        .context = s,
        .forward = stub_forward,
        .backward = stub_backward,
        .backward_input = stub_backward_input,
        .backward_weight = stub_backward_weight,
    };
}

// ---- a whole rank

typedef struct stub_job {
    cy_schedule schedule;
    cy_schedule_cost cost;
    cy_dtype dtype;
    int64_t rows, cols;
    double bytes[16]; // sent, by rank
} stub_job;

// Measured times must be possible: no microbatch enters a segment before it left the one before.
static inline cy_status stub_check_timeline(cy_timeline *timeline)
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
static inline cy_status stub_run_steps(
    stub_job *j, cy_executor *executor, cy_group *group, _Atomic uint64_t *heartbeat)
{
    stub s;
    const int rank = cy_group_rank(group);
    cy_pipeline_stage stage = stub_stage(&s, &j->schedule, rank);
    s.dry = true;
    cy_queue queue = {.dry = true, .heartbeat = heartbeat};
    cy_arena arena;
    cy_arena_measure(&arena, "step");
    cy_executor_alloc(executor, &arena);
    CY_TRY(cy_executor_run(executor, &queue, &stage, NULL));
    const size_t planned = arena.peak;
    const double dry_bytes = cy_group_counters(group).bytes;
    const int forwards = s.calls[0];

    void *memory = aligned_alloc(64, planned + 64);
    cy_timed_action *times = calloc(j->schedule.ranks[rank].count, sizeof(*times));
    STUB_EXPECT(memory != NULL && times != NULL, "no memory");
    cy_arena_init(&arena, "step", memory, planned);
    cy_executor_alloc(executor, &arena);
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
    STUB_EXPECT(s.lasts == chunks, "%d lasts", s.lasts);
    j->bytes[rank] = cy_group_counters(group).bytes;
    cy_timeline timeline;
    const double zero_s = 7.0; // threads share the clock: any instant of it
    CY_TRY(cy_timeline_gather(&timeline, executor, times, zero_s));
    free(times);
    STUB_EXPECT((timeline.items != NULL) == (rank == 0), "a timeline on rank %d", rank);
    if (rank == 0) CY_TRY(stub_check_timeline(&timeline));
    STUB_EXPECT(
        j->bytes[rank] == 3.0 * dry_bytes, "dry %g bytes, then %g", dry_bytes, j->bytes[rank]);
    return CY_OK;
}

static inline cy_status stub_run_rank(cy_world *world, void *context)
{
    stub_job *j = context;
    const int rank = cy_world_rank(world);
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "pp"));
    const cy_executor_options options = {.schedule = &j->schedule,
        .group = group,
        .dtype = j->dtype,
        .rows = j->rows,
        .cols = j->cols};
    cy_executor executor;
    CY_TRY(cy_executor_open(&executor, &options));
    // The places of stashes are the checker's peaks.
    STUB_EXPECT(cy_executor_slot_count(&executor, CY_SLOT_STASH) == j->cost.ranks[rank].peak_stash,
        "stashes of rank %d", rank);
    STUB_EXPECT(cy_executor_slot_count(&executor, CY_SLOT_KEPT) == j->cost.ranks[rank].peak_kept,
        "kept places of rank %d", rank);
    // Buffers are no more than what is kept and what may be on its way.
    const int kept = j->cost.ranks[rank].peak_kept;
    for (int kind = CY_SLOT_INPUT; kind < CY_SLOT_KINDS; kind++) {
        const int most = kind < CY_SLOT_OUTPUT ? kept + 2 : 2;
        const int places = cy_executor_slot_count(&executor, (cy_slot_kind)kind);
        STUB_EXPECT(
            places <= most, "rank %d: %d places of kind %d, %d kept", rank, places, kind, kept);
    }
    const cy_status status = stub_run_steps(j, &executor, group, cy_world_heartbeat(world));
    if (status != CY_OK) return status; // messages may be in flight: nothing may be closed
    cy_executor_close(&executor);
    cy_group_close(group);
    return CY_OK;
}

#endif
