// Every operator with a backward pass against finite differences, in fp64.
//
// L = sum of outputs times fixed random numbers; those numbers are the outputs' gradient. The
// differences are central, of fourth order, so that neither truncation nor rounding is near 1e-6.

#include "kernel/harness.h"

#include <cyclotron/gradient.h>

typedef struct problem {
    bench at;
    cy_view in[4];   // perturbed, each in its turn
    cy_view grad[4]; // what the backward pass says, none: not checked
    cy_view mix[2];  // of the outputs
    double (*loss)(struct problem *);
    // of the operator at hand
    cy_view work[8];
    cy_attention_spec attention;
    cy_matmul_spec matmul;
    cy_vocab_range range;
    const int32_t *integers;
    int heads;
} problem;

static cy_view make(problem *of, int64_t rows, int64_t cols)
{
    return bench_random(&of->at, CY_F64, rows, cols, rows > 1 ? 3 : 0, 1.0);
}

static cy_view zeros(problem *of, cy_view like)
{
    const cy_view view = make(of, like.rows, like.cols);
    cy_fill(&of->at.queue, view, 0.0);
    return view;
}

static double mixed(cy_view out, cy_view mix)
{
    double sum = 0.0;
    for (int64_t i = 0; i < out.rows; i++) {
        for (int64_t j = 0; j < out.cols; j++) {
            sum += cy_ref_load(out, i, j) * cy_ref_load(mix, i, j);
        }
    }
    return sum;
}

static cy_status forward(void *context, double *loss)
{
    problem *of = context;
    *loss = of->loss(of);
    return CY_OK;
}

static cy_matrix matrix_of(cy_view view)
{
    cy_matrix matrix = cy_matrix_of(view.data, view.dtype, view.rows, view.cols);
    matrix.stride = view.stride;
    return matrix;
}

static void check_gradients(problem *of, const char *name)
{
    static const char *const inputs[4] = {"input 0", "input 1", "input 2", "input 3"};
    for (int k = 0; k < 4; k++) {
        if (cy_view_is_none(of->grad[k])) continue;
        const cy_gradient_tensor tensor = {inputs[k], matrix_of(of->in[k]), matrix_of(of->grad[k])};
        const cy_gradient_problem checked = {
            .context = of, .loss = forward, .tensors = &tensor, .tensor_count = 1};
        cy_gradient_report report;
        CY_CHECK_OK(cy_gradient_check(&report, &checked));
        if (report.agrees) continue;
        fail_msg("%s: %s [%lld, %lld]: gradient %.12g, differences %.12g", name, report.tensor,
            (long long)report.row, (long long)report.col, report.gradient, report.difference);
    }
    bench_check(&of->at);
    bench_close(&of->at);
}

static void begin(problem *of, double (*loss)(problem *))
{
    memset(of, 0, sizeof(*of));
    bench_open(&of->at, cy_kernels_ref(), 2);
    of->loss = loss;
}

// ---- products

static double matmul_loss(problem *of)
{
    cy_matmul(&of->at.queue, of->work[0], of->in[0], of->in[1], of->matmul);
    return mixed(of->work[0], of->mix[0]);
}

// A linear layer: y = x W^T, dx = dy W, dW += dy^T x.
static void linear(void **state)
{
    (void)state;
    problem of;
    begin(&of, matmul_loss);
    cy_queue *queue = &of.at.queue;
    of.in[0] = make(&of, 5, 7);
    of.in[1] = make(&of, 3, 7);
    of.work[0] = make(&of, 5, 3);
    of.mix[0] = make(&of, 5, 3);
    of.matmul = (cy_matmul_spec){.transpose_b = true};
    of.grad[0] = make(&of, 5, 7);
    of.grad[1] = make(&of, 3, 7);
    cy_matmul(queue, of.grad[0], of.mix[0], of.in[1], (cy_matmul_spec){0});
    const cy_view before = bench_twin(&of.at, of.grad[1]); // the accumulator starts non-zero
    cy_matmul(queue, of.grad[1], of.mix[0], of.in[0],
        (cy_matmul_spec){.transpose_a = true, .accumulate = true});
    for (int64_t i = 0; i < cy_view_count(before); i++) {
        double *sum = cy_view_at(of.grad[1], i / 7, i % 7);
        *sum -= cy_ref_load(before, i / 7, i % 7);
    }
    check_gradients(&of, "linear");
}

// ---- norm

static double norm_loss(problem *of)
{
    const cy_view x = of->work[2]; // changed in place, so it is a copy
    cy_copy(&of->at.queue, x, of->in[0]);
    cy_norm_forward(&of->at.queue, of->work[0], of->work[1], x, of->in[1], of->in[2], 1e-5);
    return mixed(of->work[0], of->mix[0]) + mixed(x, of->mix[1]);
}

static void norm(void **state)
{
    (void)state;
    problem of;
    begin(&of, norm_loss);
    cy_queue *queue = &of.at.queue;
    of.in[0] = make(&of, 4, 9);
    of.in[1] = make(&of, 4, 9); // the branch
    of.in[2] = make(&of, 1, 9);
    of.work[0] = make(&of, 4, 9);
    of.work[1] = make(&of, 1, 4);
    of.mix[0] = make(&of, 4, 9);
    of.mix[1] = make(&of, 4, 9); // of the residual stream, which goes on
    of.work[2] = make(&of, 4, 9);
    (void)norm_loss(&of);
    of.grad[0] = bench_twin(&of.at, of.mix[1]); // the residual's gradient is there already
    of.grad[2] = zeros(&of, of.in[2]);
    cy_norm_backward(queue, of.grad[0], of.grad[2], of.mix[0], of.work[2], of.work[1], of.in[2]);
    of.grad[1] = of.grad[0];
    check_gradients(&of, "norm");
}

// ---- rope

static double rope_loss(problem *of)
{
    cy_copy(&of->at.queue, of->work[0], of->in[0]);
    cy_rope(&of->at.queue, of->work[0], of->work[1], of->integers, of->heads, false);
    return mixed(of->work[0], of->mix[0]);
}

static void rope(void **state)
{
    (void)state;
    problem of;
    begin(&of, rope_loss);
    const double inv_freq[3] = {1.0, 0.1, 0.01};
    of.heads = 2;
    of.integers = bench_integers(&of.at, 5, 0, 40);
    of.in[0] = make(&of, 5, 2 * 6 + 1); // one column more than the heads: left alone
    of.work[0] = make(&of, 5, 13);
    of.work[1] = make(&of, 40, 6);
    of.mix[0] = make(&of, 5, 13);
    cy_rope_table(&of.at.queue, of.work[1], inv_freq, 1.3); // with YaRN's factor
    of.grad[0] = bench_twin(&of.at, of.mix[0]);
    cy_rope(&of.at.queue, of.grad[0], of.work[1], of.integers, of.heads, true);
    check_gradients(&of, "rope");
}

// ---- attention

static double attention_loss(problem *of)
{
    cy_attention_forward(
        &of->at.queue, of->work[0], of->work[1], of->in[0], of->in[1], of->in[2], &of->attention);
    return mixed(of->work[0], of->mix[0]);
}

static void check_attention(const char *name, int heads, int kv_heads, int64_t window,
    const cy_attention_span *spans, int span_count, int64_t queries, int64_t keys,
    int32_t first_query)
{
    const int64_t dim = 4;
    problem of;
    begin(&of, attention_loss);
    cy_queue *queue = &of.at.queue;
    of.in[0] = make(&of, queries, heads * dim);
    of.in[1] = make(&of, keys, kv_heads * dim);
    of.in[2] = make(&of, keys, kv_heads * dim);
    of.work[0] = make(&of, queries, heads * dim);
    of.work[1] = make(&of, heads, queries);
    of.work[2] = make(&of, heads, queries);
    of.mix[0] = make(&of, queries, heads * dim);
    of.attention = (cy_attention_spec){
        .heads = heads,
        .kv_heads = kv_heads,
        .head_dim = dim,
        .window = window,
        .scale = 0.5,
        .spans = spans,
        .span_count = span_count,
        .q_positions = bench_ascending(&of.at, queries, first_query),
        .k_positions = bench_ascending(&of.at, keys, 0),
        .accumulate = true,
    };
    (void)attention_loss(&of);
    for (int i = 0; i < 3; i++)
        of.grad[i] = zeros(&of, of.in[i]);
    cy_attention_delta(queue, of.work[2], of.mix[0], of.work[0], heads);
    cy_attention_spec spec = of.attention;
    spec.accumulate = false;
    cy_attention_backward(queue, of.grad[0], of.grad[1], of.grad[2], of.mix[0], of.work[1],
        of.work[2], of.in[0], of.in[1], of.in[2], &spec);
    // Adds nothing, for an output gradient of zero, and so must leave what is there.
    spec.accumulate = true;
    const cy_view nothing = zeros(&of, of.mix[0]), delta = zeros(&of, of.work[2]);
    cy_attention_backward(queue, of.grad[0], of.grad[1], of.grad[2], nothing, of.work[1], delta,
        of.in[0], of.in[1], of.in[2], &spec);
    check_gradients(&of, name);
}

static void attention(void **state)
{
    (void)state;
    const cy_attention_span one = {0, 6, 0, 6};
    check_attention("causal", 2, 2, 0, &one, 1, 6, 6, 0);
    check_attention("grouped heads", 6, 2, 0, &one, 1, 6, 6, 0);
    check_attention("window", 2, 1, 3, &one, 1, 6, 6, 0);
    // Two packed documents.
    const cy_attention_span packed[2] = {{0, 2, 0, 2}, {2, 4, 2, 4}};
    check_attention("spans", 2, 1, 0, packed, 2, 6, 6, 0);
    // Queries in the middle of the keys, as a rank of a split sequence has them; two spans share
    // keys, and one query and one key are in no span.
    const cy_attention_span split[2] = {{0, 2, 0, 5}, {3, 2, 1, 6}};
    check_attention("positions", 4, 2, 0, split, 2, 5, 8, 3);
}

// ---- feed-forward, embedding

static double swiglu_loss(problem *of)
{
    cy_swiglu_forward(&of->at.queue, of->work[0], of->in[0]);
    return mixed(of->work[0], of->mix[0]);
}

static void swiglu(void **state)
{
    (void)state;
    problem of;
    begin(&of, swiglu_loss);
    of.in[0] = make(&of, 4, 10);
    of.work[0] = make(&of, 4, 5);
    of.work[1] = make(&of, 4, 5);
    of.mix[0] = make(&of, 4, 5);
    // In place, with the output made again.
    of.grad[0] = bench_twin(&of.at, of.in[0]);
    cy_swiglu_backward(&of.at.queue, of.grad[0], of.work[1], of.mix[0], of.grad[0]);
    (void)swiglu_loss(&of);
    expect_same_bits("swiglu made again", of.work[1], of.work[0]);
    check_gradients(&of, "swiglu");
}

static double embedding_loss(problem *of)
{
    cy_embedding_forward(&of->at.queue, of->work[0], of->in[0], of->integers, 3);
    return mixed(of->work[0], of->mix[0]);
}

static void embedding(void **state)
{
    (void)state;
    problem of;
    begin(&of, embedding_loss);
    of.in[0] = make(&of, 6, 5);                      // tokens 3 to 8 of the vocabulary
    of.integers = bench_integers(&of.at, 24, 0, 12); // some twice, some elsewhere
    of.work[0] = make(&of, 24, 5);
    of.mix[0] = make(&of, 24, 5);
    of.grad[0] = zeros(&of, of.in[0]);
    cy_embedding_backward(&of.at.queue, of.grad[0], of.mix[0], of.integers, 3);
    check_gradients(&of, "embedding");
}

// ---- softmax cross-entropy

static double softmax_loss(problem *of)
{
    cy_queue *queue = &of->at.queue;
    const cy_view loss = of->work[3];
    cy_fill(queue, loss, 0.0);
    cy_softmax_max(queue, of->work[0], of->in[0], of->range);
    cy_softmax_sum(
        queue, of->work[1], of->work[2], of->in[0], of->work[0], of->integers, of->range);
    cy_softmax_loss(queue, loss, of->work[0], of->work[1], of->work[2], of->integers);
    return 0.37 * cy_ref_load(loss, 0, 0);
}

static void softmax(void **state)
{
    (void)state;
    problem of;
    begin(&of, softmax_loss);
    of.in[0] = make(&of, 6, 11);
    of.range = (cy_vocab_range){.first = 0, .valid = 9}; // two columns of padding
    int32_t *targets = bench_integers(&of.at, 6, 0, 9);
    targets[2] = -1; // no target
    of.integers = targets;
    for (int i = 0; i < 3; i++)
        of.work[i] = make(&of, 1, 6);
    of.work[3] = make(&of, 1, 1);
    of.grad[0] = make(&of, 6, 11);
    (void)softmax_loss(&of);
    cy_softmax_grad(
        &of.at.queue, of.grad[0], of.in[0], of.work[0], of.work[1], of.integers, of.range, 0.37);
    check_gradients(&of, "softmax");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear),
        cmocka_unit_test(norm),
        cmocka_unit_test(rope),
        cmocka_unit_test(attention),
        cmocka_unit_test(swiglu),
        cmocka_unit_test(embedding),
        cmocka_unit_test(softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
