// tests/dist/pipeline_stub.h: a stage without a model, which checks what the executor hands it.
//
// Every element of an activation is 4 m + s for microbatch m entering segment s, of a gradient
// 4 m + segments - s: small integers, which every dtype holds exactly. Ranks are threads, so a
// difference is a failure that is returned, not an assertion that jumps.

#ifndef CY_TESTS_DIST_PIPELINE_STUB_H
#define CY_TESTS_DIST_PIPELINE_STUB_H

#include "support/support.h"

#include "base/half.h"
#include "comm/world.h"
#include "parallel/pipeline/check.h"
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
    double seconds;        // that a forward, an input gradient and a weight gradient each take
    int stash[STUB_CELLS]; // what lies at each place: 1 + microbatch + chunk * microbatches
    int kept[STUB_CELLS];
    int calls[4]; // by kind
    int firsts, lasts;
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

static inline int stub_mark(const stub *s, const cy_stage_call *call)
{
    return 1 + call->microbatch + call->chunk * s->schedule->microbatches;
}

static inline double stub_activation(const cy_stage_call *call, int segment)
{
    return 4.0 * call->microbatch + segment;
}

static inline double stub_gradient(const stub *s, const cy_stage_call *call, int segment)
{
    return 4.0 * call->microbatch + cy_schedule_segments(s->schedule) - segment;
}

static inline cy_status stub_forward(
    void *context, cy_queue *queue, const cy_stage_call *call, cy_view output, cy_view input)
{
    stub *s = context;
    s->calls[0]++;
    if (queue->dry) return CY_OK;
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

static inline cy_status stub_input(stub *s, const cy_stage_call *call, cy_view input_gradient,
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

static inline cy_status stub_weight(stub *s, const cy_stage_call *call)
{
    STUB_EXPECT(s->kept[call->kept] == stub_mark(s, call), "place %d is another's", call->kept);
    s->kept[call->kept] = 0;
    const int count = s->schedule->microbatches;
    STUB_EXPECT(call->first == (s->open[call->chunk] == count), "first at the wrong place");
    s->open[call->chunk]--;
    STUB_EXPECT(call->last == (s->open[call->chunk] == 0), "last at the wrong place");
    s->firsts += call->first;
    s->lasts += call->last;
    return CY_OK;
}

static inline cy_status stub_backward(void *context, cy_queue *queue, const cy_stage_call *call,
    cy_view input_gradient, cy_view output_gradient, cy_view input)
{
    stub *s = context;
    s->calls[1]++;
    if (queue->dry) return CY_OK;
    CY_TRY(stub_weight(s, call));
    return stub_input(s, call, input_gradient, output_gradient, input, 2);
}

static inline cy_status stub_backward_input(void *context, cy_queue *queue,
    const cy_stage_call *call, cy_view input_gradient, cy_view output_gradient, cy_view input)
{
    stub *s = context;
    s->calls[2]++;
    if (queue->dry) return CY_OK;
    return stub_input(s, call, input_gradient, output_gradient, input, 1);
}

static inline cy_status stub_backward_weight(void *context, cy_queue *queue,
    const cy_stage_call *call, cy_view output_gradient, cy_view input)
{
    stub *s = context;
    s->calls[3]++;
    if (queue->dry) return CY_OK;
    CY_TRY(stub_holds(input, stub_activation(call, call->segment), "a weight gradient's input"));
    CY_TRY(stub_holds(output_gradient, stub_gradient(s, call, call->segment + 1),
        "a weight gradient's output gradient"));
    stub_work(s, 1);
    return stub_weight(s, call);
}

static inline cy_stage stub_stage(stub *s, const cy_schedule *schedule, int rank)
{
    *s = (stub){.schedule = schedule, .rank = rank};
    for (int c = 0; c < schedule->chunks; c++)
        s->open[c] = schedule->microbatches;
    return (cy_stage){
        .context = s,
        .forward = stub_forward,
        .backward = stub_backward,
        .backward_input = stub_backward_input,
        .backward_weight = stub_backward_weight,
    };
}

// The group of all ranks of a world, in order.
static inline cy_status stub_open_group(cy_world *world, cy_group **group)
{
    int ranks[16];
    const int size = cy_world_size(world);
    STUB_EXPECT(size <= 16, "%d ranks", size);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    return cy_world_open_group(world, group, ranks, size, "pp");
}

#endif
