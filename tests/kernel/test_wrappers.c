// What stands between a caller and an operator: what a dry queue counts, the trace, costs, and what
// is refused.

#include "kernel/harness.h"

#include "kernel/cost.h"

static void dry_queue_counts(void **state)
{
    (void)state;
    bench at;
    cy_arena nowhere;
    bench_open(&at, cy_kernels_ref(), 1);
    cy_queue *queue = &at.queue;
    queue->dry = true;
    cy_arena_measure(&nowhere, "nowhere"); // a touch would be a fault
    const cy_view a = cy_view_alloc(&nowhere, CY_BF16, 100, 200);
    const cy_view b = cy_view_alloc(&nowhere, CY_BF16, 200, 300);
    const cy_view c = cy_view_alloc(&nowhere, CY_F32, 100, 300);
    cy_matmul(queue, c, a, b, (cy_matmul_spec){0});
    assert_true(queue->planned.flops == 2.0 * 100 * 200 * 300);
    assert_true(queue->planned.bytes == 2.0 * 100 * 200 + 2.0 * 200 * 300 + 4.0 * 100 * 300);
    queue->planned = (cy_cost){0};
    cy_copy(queue, c, c);
    cy_fill(queue, c, 1.0);
    assert_true(queue->planned.flops == 0.0);
    assert_true(queue->planned.bytes == 3 * 4.0 * 100 * 300);
    bench_close(&at);
}

static void trace_has_the_operator(void **state)
{
    (void)state;
    bench at;
    cy_trace trace;
    bench_open(&at, cy_kernels_ref(), 1);
    CY_CHECK_OK(cy_trace_open(&trace, 8));
    at.queue.trace = &trace;
    const cy_view x = bench_random(&at, CY_F32, 3, 4, 0, 1.0), y = bench_twin(&at, x);
    cy_add(&at.queue, y, x, y);
    cy_add(&at.queue, cy_view_rows(y, 0, 0), cy_view_rows(x, 0, 0), cy_view_rows(y, 0, 0));
    assert_int_equal(trace.count, 1); // nothing to do is nothing to show
    assert_string_equal(trace.spans[0].name, "add");
    assert_int_equal(trace.spans[0].kind, CY_SPAN_COMPUTE);
    assert_true(trace.spans[0].cost.flops == 12.0 && trace.spans[0].cost.bytes == 3 * 48.0);
    cy_trace_close(&trace);
    bench_close(&at);
}

static void attention_cost_counts_pairs(void **state)
{
    (void)state;
    const cy_attention_span spans[] = {{0, 4, 0, 4}, {4, 2, 0, 6}};
    cy_attention_spec spec = {.heads = 3, .head_dim = 8, .spans = spans, .span_count = 2};
    assert_true(cy_attention_pairs(&spec) == 1 + 2 + 3 + 4 + 5 + 6);
    spec.window = 3;
    assert_true(cy_attention_pairs(&spec) == 1 + 2 + 3 + 3 + 3 + 3);
    spec.pairs = 100.0;
    const cy_view none = cy_view_none();
    assert_true(
        cy_cost_attention_forward(none, none, none, none, none, &spec).flops == 4.0 * 100 * 3 * 8);
    assert_true(
        cy_cost_attention_backward(none, none, none, none, none, none, none, none, none, &spec)
            .flops == 10.0 * 100 * 3 * 8);
}

// A bench of the process that is to end.
static bench *opened(void)
{
    static bench at;
    bench_open(&at, cy_kernels_ref(), 1);
    return &at;
}

static void wrong_depth(void)
{
    bench *at = opened();
    const cy_view x = bench_random(at, CY_F32, 4, 4, 0, 1.0), y = bench_twin(at, x);
    cy_matmul(&at->queue, y, cy_view_cols(x, 0, 3), x, (cy_matmul_spec){0});
}

static void product_in_place(void)
{
    bench *at = opened();
    const cy_view x = bench_random(at, CY_F32, 4, 4, 0, 1.0), y = bench_twin(at, x);
    cy_matmul(&at->queue, x, x, y, (cy_matmul_spec){0});
}

static void mixed_factors(void)
{
    bench *at = opened();
    const cy_view x = bench_random(at, CY_F32, 4, 4, 0, 1.0), y = bench_twin(at, x);
    cy_matmul(&at->queue, y, x, bench_random(at, CY_BF16, 4, 4, 0, 1.0), (cy_matmul_spec){0});
}

static void shifted_sum(void)
{
    bench *at = opened();
    const cy_view x = bench_random(at, CY_F32, 4, 8, 0, 1.0);
    cy_add(&at->queue, cy_view_cols(x, 0, 4), cy_view_cols(x, 1, 4), cy_view_cols(x, 4, 4));
}

static void narrow_accumulator(void)
{
    bench *at = opened();
    const cy_view x = bench_random(at, CY_BF16, 4, 4, 0, 1.0);
    const int32_t tokens[4] = {0};
    cy_embedding_backward(&at->queue, bench_twin(at, x), x, tokens, 0);
}

// Columns of one matrix beside each other are not the same memory.
static void columns_beside(void)
{
    bench *at = opened();
    const cy_view x = bench_random(at, CY_F32, 4, 8, 3, 1.0);
    cy_add(&at->queue, cy_view_cols(x, 0, 4), cy_view_cols(x, 0, 4), cy_view_cols(x, 4, 4));
    cy_copy(&at->queue, cy_view_cols(x, 5, 3), cy_view_cols(x, 2, 3));
}

static void wrong_calls_are_assertions(void **state)
{
    (void)state;
    assert_true(cy_test_aborts(wrong_depth));
    assert_true(cy_test_aborts(product_in_place));
    assert_true(cy_test_aborts(mixed_factors));
    assert_true(cy_test_aborts(shifted_sum));
    assert_true(cy_test_aborts(narrow_accumulator));
    assert_false(cy_test_aborts(columns_beside));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dry_queue_counts),
        cmocka_unit_test(trace_has_the_operator),
        cmocka_unit_test(attention_cost_counts_pairs),
        cmocka_unit_test(wrong_calls_are_assertions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
