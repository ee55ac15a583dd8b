// The reducer without a model: units for which a rank has no gradient, and what is copied.

#include "support/support.h"
#include "support/worlds.h"

#include "parallel/data/reducer.h"

#include <string.h>

#define RANKS      3
#define ELEMENTS   (INT64_C(192) * 40)
#define ARENA_SIZE ((size_t)8 << 20)

#define BLOCK INT64_C(192) // elements that divide by the ranks and by a cache line

static const cy_flat_range units[] = {
    {0, BLOCK * 7}, {BLOCK * 7, BLOCK * 30}, {BLOCK * 37, BLOCK * 3}};

typedef struct run {
    int zero_stage;
    bool naive;
    int first_skipping; // ranks from this one on do not use unit 1
} run;

static float gradient(int rank, int64_t i)
{
    return (float)((i * 7 + INT64_C(31) * rank) % 101 - 50);
}

// Whole gradients are views of the array that is reduced: nothing is copied in, and with stage 0
// nothing out.
static cy_status expect_no_copies(const cy_queue *queue, int64_t before)
{
    for (int64_t i = before; i < queue->trace->count; i++) {
        const cy_span *span = &queue->trace->spans[i % queue->trace->capacity];
        if (strcmp(span->name, "copy") == 0) return CY_FAIL(CY_ERR_CORRUPT, "a copy");
    }
    return CY_OK;
}

static cy_status step(cy_reducer *reducer, const cy_queue *queue, const run *what, int rank)
{
    cy_reducer_zero(reducer);
    const int64_t before = queue->trace->count;
    for (int u = 0; u < 3; u++) {
        if (u == 1 && rank >= what->first_skipping) continue;
        float *grads = cy_reducer_grads(reducer, u);
        for (int64_t i = 0; i < units[u].count; i++)
            grads[i] += gradient(rank, units[u].first + i);
        CY_TRY(cy_reducer_gradient_final(reducer, u, true));
    }
    CY_TRY(cy_reducer_finish(reducer));
    if (what->zero_stage == 0) CY_TRY(expect_no_copies(queue, before));
    for (int o = 0; o < cy_reducer_owned_count(reducer); o++) {
        const cy_owned_range owned = cy_reducer_owned(reducer, o);
        for (int64_t i = owned.first; i < owned.first + owned.count; i++) {
            const bool skipped = units[1].first <= i && i < units[2].first;
            float wanted = 0.0f;
            for (int r = 0; r < (skipped ? what->first_skipping : RANKS); r++)
                wanted += gradient(r, i);
            const float found = ((const float *)owned.grad.data)[i - owned.first];
            if (found == wanted) continue;
            return CY_FAIL(CY_ERR_CORRUPT,
                "zero %d, %d ranks use unit 1: element %lld is %g, not %g", what->zero_stage,
                what->first_skipping, (long long)i, (double)found, (double)wanted);
        }
        if (what->zero_stage > 0 || o != 1) continue;
        if (owned.grad.data != cy_reducer_grads(reducer, 1)) {
            return CY_FAIL(CY_ERR_CORRUPT, "what is updated from is no view of the gradients");
        }
    }
    return CY_OK;
}

static cy_status reduce(cy_test_machine *machine, cy_group *group, void *context)
{
    const run *what = context;
    cy_queue *queue = &machine->queue;
    cy_trace trace = {0};
    const cy_reducer_spec spec = {
        .group = group,
        .queue = queue,
        .zero_stage = what->zero_stage,
        .naive = what->naive,
        .bucket_bytes = 12 * BLOCK * sizeof(float),
        .weight_dtype = CY_F32,
        .master_dtype = CY_F32,
        .grad_dtype = CY_F32,
        .train = true,
        .parameters = units,
        .parameter_count = 3,
    };
    cy_reducer *reducer = NULL;
    CY_TRY(cy_trace_open(&trace, 1024));
    queue->trace = &trace;
    CY_TRY(cy_reducer_open(&reducer, &spec, units, 3));
    cy_reducer_alloc(reducer, &machine->data);
    cy_status status = CY_OK;
    for (int i = 0; i < 3 && status == CY_OK; i++) // again: nothing is left over
        status = step(reducer, queue, what, cy_group_rank(group));
    cy_reducer_close(reducer);
    cy_trace_close(&trace);
    return status;
}

// A skipped branch: what is not used has a gradient of zero, and the ranks that use it do not wait
// for those that do not.
static void units_without_a_gradient_are_zero(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = RANKS;
    for (int first_skipping = 0; first_skipping <= RANKS; first_skipping++) {
        for (int zero = 0; zero <= 1; zero++) {
            run what = {.zero_stage = zero, .first_skipping = first_skipping};
            CY_CHECK_OK(cy_test_on_machines(&options, "auto", ARENA_SIZE, reduce, &what));
        }
        run naive = {.naive = true, .first_skipping = first_skipping};
        CY_CHECK_OK(cy_test_on_machines(&options, "auto", ARENA_SIZE, reduce, &naive));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_without_a_gradient_are_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
