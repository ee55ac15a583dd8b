// Strict attention: queries, heads and batches cut in every way have the bits of the whole, on
// every table; gradients of keys and values are the same integers. Against the reference within a
// tolerance.

#include "kernel/strict.h"
#include "kernel/dispatch.h"

typedef struct setting {
    cy_dtype dtype;
    int heads, kv_heads, sequences;
    int64_t head_dim, window;
    int64_t length; // of a sequence
    int64_t step;   // queries of a part: a multiple of 32
} setting;

typedef struct problem {
    cy_view q, k, v, d_o;
    cy_view o, lse, delta, dq, dk, dv;
    int32_t *positions; // of queries and keys
    cy_attention_span spans[32];
    cy_attention_spec spec;
} problem;

static void pose(bench *at, problem *p, const setting *s)
{
    const int64_t rows = s->length * s->sequences;
    const int64_t width = s->heads * s->head_dim, kv_width = s->kv_heads * s->head_dim;
    p->q = bench_random(at, s->dtype, rows, width, 3, 1.0);
    p->k = bench_random(at, s->dtype, rows, kv_width, 1, 1.0);
    p->v = bench_random(at, s->dtype, rows, kv_width, 0, 1.0);
    p->d_o = bench_random(at, s->dtype, rows, width, 0, 1.0);
    p->positions = bench_make(at, CY_I32, 1, rows, 0).data;
    for (int64_t i = 0; i < rows; i++)
        p->positions[i] = (int32_t)(i % s->length);
    p->spec = (cy_attention_spec){
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .window = s->window,
        .scale = 1.0 / sqrt((double)s->head_dim),
        .spans = p->spans,
        .q_positions = p->positions,
        .k_positions = p->positions,
    };
}

static void take_outputs(bench *at, problem *p, const setting *s)
{
    const int64_t rows = p->q.rows;
    p->o = bench_make(at, s->dtype, rows, p->q.cols, 2);
    p->lse = bench_make(at, CY_F32, s->heads, rows, 0);
    p->delta = bench_make(at, CY_F32, s->heads, rows, 0);
    p->dq = bench_make(at, CY_F32, rows, p->q.cols, 1);
    p->dk = make_fixed(at, rows, p->k.cols, 0, -24);
    p->dv = make_fixed(at, rows, p->k.cols, 3, -24);
}

// Queries [row, row + rows) with heads [head, head + heads * group) over one sequence.
static void run_part(
    bench *at, problem *p, const setting *s, int64_t row, int64_t rows, int kv_head, int kv_heads)
{
    const int64_t dim = s->head_dim, group = s->heads / s->kv_heads;
    const int64_t sequence = row / s->length, first = kv_head * group;
    cy_attention_span span = {0, rows, 0, s->length};
    cy_attention_spec spec = p->spec;
    spec.heads = kv_heads * (int)group;
    spec.kv_heads = kv_heads;
    spec.spans = &span;
    spec.span_count = 1;
    spec.q_positions = p->positions + row;
    spec.accumulate = true;
#define QUERY(view) cy_view_cols(cy_view_rows(p->view, row, rows), first *dim, kv_heads *group *dim)
#define KEY(view)                                                                                  \
    cy_view_cols(                                                                                  \
        cy_view_rows(p->view, sequence * s->length, s->length), kv_head *dim, kv_heads *dim)
#define ROW(view) cy_view_cols(cy_view_rows(p->view, first, kv_heads *group), row, rows)
    cy_attention_forward(&at->queue, QUERY(o), ROW(lse), QUERY(q), KEY(k), KEY(v), &spec);
    cy_attention_delta(&at->queue, ROW(delta), QUERY(d_o), QUERY(o), spec.heads);
    cy_fill(&at->queue, QUERY(dq), 0.0);
    cy_attention_backward(&at->queue, QUERY(dq), KEY(dk), KEY(dv), QUERY(d_o), ROW(lse), ROW(delta),
        QUERY(q), KEY(k), KEY(v), &spec);
}

static int run_all(bench *at, cy_view *outs, const void *given)
{
    const setting *s = given;
    problem whole = {0};
    pose(at, &whole, s);
    take_outputs(at, &whole, s);
    for (int i = 0; i < s->sequences; i++) {
        whole.spans[i] = (cy_attention_span){i * s->length, s->length, i * s->length, s->length};
    }
    whole.spec.span_count = s->sequences;
    cy_attention_forward(&at->queue, whole.o, whole.lse, whole.q, whole.k, whole.v, &whole.spec);
    cy_attention_delta(&at->queue, whole.delta, whole.d_o, whole.o, s->heads);
    cy_attention_backward(&at->queue, whole.dq, whole.dk, whole.dv, whole.d_o, whole.lse,
        whole.delta, whole.q, whole.k, whole.v, &whole.spec);
    assert_false(at->overflow);

    // Parts in descending order, each pair of a key head and some queries in a call of its own.
    problem parts = whole;
    take_outputs(at, &parts, s);
    for (int sequence = s->sequences - 1; sequence >= 0; sequence--) {
        for (int64_t row = (s->length - 1) / s->step * s->step; row >= 0; row -= s->step) {
            const int64_t rows = s->length - row < s->step ? s->length - row : s->step;
            for (int head = 0; head < s->kv_heads; head++)
                run_part(at, &parts, s, sequence * s->length + row, rows, head, 1);
        }
    }
    expect_same_bits("o", parts.o, whole.o);
    expect_same_bits("lse", parts.lse, whole.lse);
    expect_same_bits("dq", parts.dq, whole.dq);
    expect_same_bits("dk", parts.dk, whole.dk);
    expect_same_bits("dv", parts.dv, whole.dv);

    // Against the reference, from the same lse and delta.
    const double bound = s->dtype == CY_BF16 ? 1e-2 : 2e-5;
    const cy_view o = bench_make(at, s->dtype, whole.o.rows, whole.o.cols, 0);
    const cy_view lse = bench_make(at, CY_F32, s->heads, whole.o.rows, 0);
    cy_ref_attention_forward(&at->queue, o, lse, whole.q, whole.k, whole.v, &whole.spec);
    expect_close("o", whole.o, o, bound, bound);
    expect_close("lse", whole.lse, lse, 1e-5, 1e-5);
    const cy_view dq = bench_make(at, CY_F32, o.rows, o.cols, 0);
    const cy_view dk = bench_make(at, CY_F32, o.rows, whole.k.cols, 0);
    const cy_view dv = bench_make(at, CY_F32, o.rows, whole.k.cols, 0);
    cy_ref_attention_backward(&at->queue, dq, dk, dv, whole.d_o, whole.lse, whole.delta, whole.q,
        whole.k, whole.v, &whole.spec);
    expect_close("dq", whole.dq, dq, 1e-4, 1e-4);
    expect_close("dk", whole.dk, dk, 1e-4, 1e-4);
    expect_close("dv", whole.dv, dv, 1e-4, 1e-4);

    // Without fixed point too, where nobody cuts.
    cy_attention_backward(&at->queue, dq, dk, dv, whole.d_o, whole.lse, whole.delta, whole.q,
        whole.k, whole.v, &whole.spec);
    expect_same_bits("dq", dq, whole.dq);
    expect_close("dk", dk, whole.dk, 1e-4, 1e-4);
    const cy_view made[] = {whole.o, whole.lse, whole.dq, whole.dk, whole.dv, dk, dv};
    memcpy(outs, made, sizeof(made));
    return 7;
}

static void test_attention(void **state)
{
    (void)state;
    static const setting settings[] = {
        {CY_F32, 4, 2, 2, 64, 0, 192, 64},
        {CY_F32, 2, 2, 1, 40, 0, 150, 32},
        {CY_BF16, 3, 1, 1, 64, 50, 160, 32},
        {CY_BF16, 2, 1, 3, 16, 0, 33, 32},
    };
    strict_tables all;
    tables_open(&all);
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
        expect_one_result(&all, "attention", run_all, &settings[i]);
    tables_close(&all);
}

// Rows in no span and rows that see nothing.
static void test_rows_without_keys(void **state)
{
    (void)state;
    strict_tables all;
    tables_open(&all);
    for (int i = 0; i < all.count; i++) {
        bench *at = &all.benches[i];
        bench_clear(at);
        const setting s = {CY_F32, 2, 1, 1, 24, 0, 70, 32};
        problem p = {0};
        pose(at, &p, &s);
        take_outputs(at, &p, &s);
        int32_t *later = bench_ascending(at, 70, 30); // of keys: queries 0 to 29 see none
        p.spec.k_positions = later;
        p.spans[0] = (cy_attention_span){0, 40, 0, 70};
        p.spec.span_count = 1;
        const cy_view o = bench_make(at, CY_F32, 70, 48, 0), lse = bench_make(at, CY_F32, 2, 70, 0);
        cy_attention_forward(&at->queue, p.o, p.lse, p.q, p.k, p.v, &p.spec);
        cy_ref_attention_forward(&at->queue, o, lse, p.q, p.k, p.v, &p.spec);
        expect_close("o", p.o, o, 1e-5, 1e-6);
        expect_close("lse", p.lse, lse, 1e-5, 1e-6);
        cy_attention_delta(&at->queue, p.delta, p.d_o, p.o, 2);
        cy_attention_backward(
            &at->queue, p.dq, p.dk, p.dv, p.d_o, p.lse, p.delta, p.q, p.k, p.v, &p.spec);
        const cy_view dq = bench_make(at, CY_F32, 70, 48, 0);
        const cy_view dk = bench_make(at, CY_F32, 70, 24, 0),
                      dv = bench_make(at, CY_F32, 70, 24, 0);
        cy_ref_attention_backward(
            &at->queue, dq, dk, dv, p.d_o, p.lse, p.delta, p.q, p.k, p.v, &p.spec);
        expect_close("dq", p.dq, dq, 1e-4, 1e-5);
        expect_close("dk", p.dk, dk, 1e-4, 1e-5);
        expect_close("dv", p.dv, dv, 1e-4, 1e-5);
        bench_check(at);
    }
    tables_close(&all);
}

static void test_opened_by_name(void **state)
{
    (void)state;
    bench at;
    bench_open(&at, NULL, 1);
    cy_kernels table;
    CY_CHECK_OK(cy_kernels_open(&at.queue, &table, "strict"));
    assert_string_equal(at.queue.kernels->name, "strict");
    cy_kernels_close(&at.queue);
    CY_CHECK_OK(cy_kernels_open(&at.queue, &table, "strict_portable"));
    assert_ptr_not_equal(table.matmul, cy_kernels_ref()->matmul);
    cy_kernels_close(&at.queue);
    assert_int_equal(cy_kernels_open(&at.queue, &table, "strict_none"), CY_ERR_UNSUPPORTED);
    bench_close(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_rows_without_keys),
        cmocka_unit_test(test_opened_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
