// Tuned attention of every instruction set of this machine against the portable one in double, over
// head sizes, groups, windows, several spans, positions with gaps and views that are part of wider
// matrices.

#include "support/machine.h"
#include "support/support.h"

#include "base/numbers.h"
#include "base/random.h"
#include "kernel/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define ARENA_BYTES ((size_t)192 << 20)

static int isas_of(const char *names[4])
{
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    cy_cpu_limit(&cpu, cy_test_isa("auto"));
    int count = 0;
    if (cpu.avx2) names[count++] = "avx2";
    if (cpu.avx512) names[count++] = "avx512";
    if (cpu.avx512_bf16) names[count++] = "avx512_bf16";
    if (cpu.amx) names[count++] = "amx";
    if (cpu.neon) names[count++] = "neon";
    return count;
}

typedef struct setting {
    int heads, kv_heads;
    int64_t head_dim, window;
    int64_t rows, keys;
    cy_attention_span spans[3];
    int span_count;
    int32_t q_start, step; // positions of a span: start + step * index
    bool accumulate;
} setting;

typedef struct problem {
    cy_view q, k, v, d_o;
    cy_view o, lse, delta, dq, dk, dv;
    int32_t *q_positions, *k_positions;
    cy_attention_spec spec;
} problem;

// Numbers of [-1, 1) that every dtype holds exactly, in columns 3 and on of a wider matrix.
static cy_view make(
    cy_test_machine *self, cy_dtype dtype, int64_t rows, int64_t cols, uint64_t seed)
{
    const cy_view all = cy_view_alloc(&self->data, dtype, rows, cols + 5);
    const cy_view x = cy_view_cols(all, 3, cols);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < all.cols; j++) {
            const uint64_t index = (uint64_t)(i * cols + j);
            const double value = ((double)(cy_random_bits(seed, index) % 256) - 128.0) / 128.0;
            void *at = cy_view_at(all, i, j);
            if (dtype == CY_F64) *(double *)at = value;
            if (dtype == CY_F32) *(float *)at = (float)value;
            if (dtype == CY_BF16) *(cy_bf16 *)at = cy_bf16_from_f32((float)value);
            if (dtype == CY_F16) *(cy_f16 *)at = cy_f16_from_f32((float)value);
        }
    }
    return x;
}

static void place(const setting *s, problem *p)
{
    for (int i = 0; i < s->span_count; i++) {
        const cy_attention_span *span = &s->spans[i];
        for (int64_t j = 0; j < span->k_count; j++) {
            p->k_positions[span->k_first + j] = (int32_t)j * s->step;
        }
        for (int64_t j = 0; j < span->q_count; j++) {
            p->q_positions[span->q_first + j] = s->q_start + (int32_t)j * s->step;
        }
    }
}

static problem pose(cy_test_machine *self, const setting *s, cy_dtype dtype)
{
    const int64_t width = s->heads * s->head_dim, kv_width = s->kv_heads * s->head_dim;
    const cy_dtype wide = dtype == CY_F64 ? CY_F64 : CY_F32;
    problem p = {.q = make(self, dtype, s->rows, width, 1)};
    p.k = make(self, dtype, s->keys, kv_width, 2);
    p.v = make(self, dtype, s->keys, kv_width, 3);
    p.d_o = make(self, dtype, s->rows, width, 4);
    p.o = make(self, dtype, s->rows, width, 5);
    p.dq = make(self, wide, s->rows, width, 6);
    p.dk = make(self, dtype, s->keys, kv_width, 7);
    p.dv = make(self, wide, s->keys, kv_width, 8);
    p.lse = cy_view_alloc(&self->data, wide, s->heads, s->rows);
    p.delta = cy_view_alloc(&self->data, wide, s->heads, s->rows);
    p.q_positions = cy_arena_alloc(&self->data, (size_t)s->rows * sizeof(int32_t));
    p.k_positions = cy_arena_alloc(&self->data, (size_t)s->keys * sizeof(int32_t));
    place(s, &p);
    p.spec = (cy_attention_spec){
        .heads = s->heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .window = s->window,
        .scale = 2.0 / sqrt((double)s->head_dim),
        .spans = s->spans,
        .span_count = s->span_count,
        .q_positions = p.q_positions,
        .k_positions = p.k_positions,
        .accumulate = s->accumulate,
    };
    return p;
}

static void run(cy_test_machine *self, problem *p)
{
    cy_attention_forward(&self->queue, p->o, p->lse, p->q, p->k, p->v, &p->spec);
    cy_attention_delta(&self->queue, p->delta, p->d_o, p->o, p->spec.heads);
    cy_attention_backward(
        &self->queue, p->dq, p->dk, p->dv, p->d_o, p->lse, p->delta, p->q, p->k, p->v, &p->spec);
}

static double get(cy_view x, int64_t row, int64_t col)
{
    const void *at = cy_view_at(x, row, col);
    if (x.dtype == CY_F64) return *(const double *)at;
    if (x.dtype == CY_F32) return (double)*(const float *)at;
    if (x.dtype == CY_BF16) return (double)cy_bf16_to_f32(*(const cy_bf16 *)at);
    return (double)cy_f16_to_f32(*(const cy_f16 *)at);
}

// Close to the double result, measured against the largest element of the row.
static void compare(cy_view x, cy_view wanted, double bound, const char *what, const char *isa)
{
    for (int64_t i = 0; i < x.rows; i++) {
        double size = 1e-3;
        for (int64_t j = 0; j < x.cols; j++) {
            const double at = fabs(get(wanted, i, j));
            if (isfinite(at)) size = fmax(size, at);
        }
        for (int64_t j = 0; j < x.cols; j++) {
            const double a = get(x, i, j), b = get(wanted, i, j);
            if (a != b && !(fabs(a - b) <= bound * size)) {
                fail_msg("%s %s %s [%d, %d]: %.9g, wants %.9g (row's largest %.3g)", isa,
                    cy_dtype_name(x.dtype), what, (int)i, (int)j, a, b, size);
            }
        }
    }
}

static const setting settings[] = {
    {1, 1, 64, 0, 1, 1, {{0, 1, 0, 1}}, 1, 0, 1, false},
    {6, 2, 64, 0, 150, 150, {{0, 150, 0, 150}}, 1, 0, 1, true},
    {3, 1, 72, 0, 131, 131, {{0, 131, 0, 131}}, 1, 0, 2, false},
    {2, 2, 128, 40, 200, 200, {{0, 200, 0, 200}}, 1, 0, 1, false},
    {4, 4, 8, 3, 70, 70, {{0, 30, 0, 30}, {30, 37, 30, 37}}, 2, 0, 1, true},
    // Queries late among more keys; two spans over the same keys; one that sees nothing; rows in no
    // span.
    {2, 1, 64, 0, 90, 300, {{0, 40, 0, 300}, {40, 20, 100, 150}, {60, 20, 0, 10}}, 3, 200, 1,
        false},
    {2, 1, 64, 5, 90, 64, {{2, 40, 0, 64}, {45, 40, 0, 64}}, 2, -20, 1, false},
    {5, 1, 20, 0, 65, 129, {{0, 65, 0, 129}}, 1, 64, 1, true},
};

static void equal_to_the_portable_one(void **state)
{
    (void)state;
    const char *isas[4];
    const int isa_count = isas_of(isas);
    for (int i = 0; i < isa_count; i++) {
        cy_test_machine self;
        CY_CHECK_OK(cy_test_machine_open(&self, isas[i], 2, ARENA_BYTES));
        for (size_t s = 0; s < sizeof(settings) / sizeof(settings[0]); s++) {
            cy_arena_rewind(&self.data, 0);
            problem wanted = pose(&self, &settings[s], CY_F64);
            self.queue.kernels = cy_kernels_ref();
            run(&self, &wanted);
            self.queue.kernels = &self.kernels;
            const size_t mark = cy_arena_mark(&self.data);
            static const cy_dtype dtypes[] = {CY_F32, CY_BF16, CY_F16};
            for (int d = 0; d < 3; d++) {
                cy_arena_rewind(&self.data, mark);
                problem p = pose(&self, &settings[s], dtypes[d]);
                run(&self, &p);
                // bf16 and fp16 round o, which delta is made of, and bf16 the weights.
                const double bound = d == 0 ? 4e-6 : d == 1 ? 2e-2 : 4e-3;
                compare(p.lse, wanted.lse, d == 0 ? 2e-6 : 1e-4, "lse", isas[i]);
                compare(p.o, wanted.o, bound, "o", isas[i]);
                compare(p.dq, wanted.dq, 2 * bound, "dq", isas[i]);
                compare(p.dk, wanted.dk, 2 * bound, "dk", isas[i]);
                compare(p.dv, wanted.dv, bound, "dv", isas[i]);
            }
        }
        CY_CHECK_OK(cy_test_machine_close(&self));
    }
}

static void workers_do_not_change_results(void **state)
{
    (void)state;
    static float kept[2][300 * 256];
    const setting s = {
        4, 2, 64, 0, 300, 300, {{0, 170, 0, 170}, {170, 130, 170, 130}}, 2, 0, 1, false};
    for (int workers = 1; workers <= 3; workers++) {
        cy_test_machine self;
        CY_CHECK_OK(cy_test_machine_open(&self, "auto", workers, ARENA_BYTES));
        problem p = pose(&self, &s, CY_BF16);
        run(&self, &p);
        for (int64_t i = 0; i < 300; i++) {
            for (int64_t j = 0; j < 256; j++) {
                const float dq = (float)get(p.dq, i, j);
                const float dk = j < 128 ? (float)get(p.dk, i, j) : (float)get(p.dv, i, j - 128);
                if (workers == 1) kept[0][i * 256 + j] = dq;
                if (workers == 1) kept[1][i * 256 + j] = dk;
                assert_true(kept[0][i * 256 + j] == dq);
                assert_true(kept[1][i * 256 + j] == dk);
            }
        }
        CY_CHECK_OK(cy_test_machine_close(&self));
    }
}

// The same scratch on a dry queue; far less than one matrix of scores.
static void memory_grows_with_tokens_not_their_square(void **state)
{
    (void)state;
    cy_test_machine self;
    CY_CHECK_OK(cy_test_machine_open(&self, "auto", 2, ARENA_BYTES));
    size_t peaks[2];
    for (int i = 0; i < 2; i++) {
        const int64_t t = i == 0 ? 4096 : 16384;
        const setting s = {4, 2, 64, 0, t, t, {{0, t, 0, t}}, 1, 0, 1, false};
        cy_arena_rewind(&self.data, 0);
        cy_arena measure;
        cy_arena_measure(&measure, "scratch");
        cy_queue dry = {.kernels = &self.kernels,
            .kernel_state = self.queue.kernel_state,
            .pool = self.queue.pool,
            .scratch = &measure,
            .dry = true};
        self.data.capacity = SIZE_MAX;
        self.data.measuring = true;
        const cy_dtype dtype = CY_BF16;
        const cy_view q = cy_view_of((void *)64, dtype, t, 256);
        const cy_view k = cy_view_of((void *)64, dtype, t, 128);
        const cy_view lse = cy_view_of((void *)64, CY_F32, 4, t);
        const int32_t positions = 0;
        const cy_attention_spec spec = {.heads = s.heads,
            .kv_heads = s.kv_heads,
            .head_dim = 64,
            .scale = 1,
            .spans = s.spans,
            .span_count = 1,
            .q_positions = &positions,
            .k_positions = &positions};
        self.kernels.attention_forward(&dry, q, lse, q, k, k, &spec);
        const size_t forward = measure.peak;
        self.kernels.attention_backward(&dry, q, k, k, q, lse, lse, q, k, k, &spec);
        assert_int_equal(measure.used, 0);
        peaks[i] = measure.peak;
        assert_true(forward < (size_t)4 << 20);
        assert_true(peaks[i] < (size_t)t * (size_t)t * 2);
    }
    assert_true(peaks[1] < 5 * peaks[0]);
    self.data.measuring = false;
    CY_CHECK_OK(cy_test_machine_close(&self));
}

static void merged_parts_equal_the_whole(void **state)
{
    (void)state;
    cy_test_machine self;
    CY_CHECK_OK(cy_test_machine_open(&self, "auto", 2, ARENA_BYTES));
    const setting whole = {4, 2, 64, 0, 100, 220, {{0, 100, 0, 220}}, 1, 120, 1, false};
    setting first = whole, second = whole;
    first.spans[0].k_count = 150;
    second.spans[0] = (cy_attention_span){0, 100, 150, 70};
    problem all = pose(&self, &whole, CY_F32), a = pose(&self, &first, CY_F32);
    problem b = pose(&self, &second, CY_F32);
    for (int i = 0; i < 70; i++)
        b.k_positions[150 + i] = 150 + i;
    cy_attention_forward(&self.queue, all.o, all.lse, all.q, all.k, all.v, &all.spec);
    cy_attention_forward(&self.queue, a.o, a.lse, a.q, a.k, a.v, &a.spec);
    cy_attention_forward(&self.queue, b.o, b.lse, b.q, b.k, b.v, &b.spec);
    assert_true(get(b.lse, 0, 0) == (double)-INFINITY); // the first queries see the first part only
    cy_attention_merge(&self.queue, a.o, a.lse, b.o, b.lse, 4);
    compare(a.o, all.o, 4e-6, "merged o", "auto");
    compare(a.lse, all.lse, 2e-6, "merged lse", "auto");
    CY_CHECK_OK(cy_test_machine_close(&self));
}

// Rows of a prompt, of several sequences, and single rows, over pages in no order, one after the
// other, and with a gap before the sixth and the ninth, which are the last of two blocks of keys.
static void pages_equal_the_portable_one(void **state)
{
    (void)state;
    enum { TOKENS = 672, ROWS = 140, PER = 16 };
    static const int page_sizes[] = {16, 16, 24};
    int32_t table[3][3 * PER], sequences[ROWS], positions[ROWS];
    for (int i = 0; i < 3 * PER; i++) {
        table[0][i] = (i * 7 + 3) % (TOKENS / 16);
        table[1][i] = i % (TOKENS / 16);
        table[2][i] = i / PER * 3 + i % PER + (i % PER >= 5 ? 1 : 0) + (i % PER >= 8 ? 1 : 0);
    }
    for (int i = 0; i < ROWS; i++) {
        sequences[i] = i < 90 ? 1 : i % 3;
        positions[i] = i < 90 ? 110 + i : (i * 37) % 250;
    }
    const char *isas[4];
    const int isa_count = isas_of(isas);
    for (int i = 0; i < isa_count; i++) {
        for (int d = 0; d < 12; d++) {
            cy_test_machine self;
            CY_CHECK_OK(cy_test_machine_open(&self, isas[i], 2, ARENA_BYTES));
            const cy_dtype dtype = d % 2 == 0 ? CY_F32 : CY_BF16;
            const int page = page_sizes[d / 4];
            cy_view o[2], q, k, v;
            for (int j = 0; j < 2; j++) {
                const cy_dtype used = j == 0 ? CY_F64 : dtype;
                q = make(&self, used, ROWS, 240, 1);
                k = make(&self, used, TOKENS, 80, 2);
                v = make(&self, used, TOKENS, 80, 3);
                o[j] = make(&self, used, ROWS, 240, 4);
                const cy_kv_pages pages = {k, v, table[d / 4], page, PER};
                const cy_attention_spec spec = {.heads = 6,
                    .kv_heads = 2,
                    .head_dim = 40,
                    .scale = 0.3,
                    .window = d % 4 < 2 ? 0 : 33};
                self.queue.kernels = j == 0 ? cy_kernels_ref() : &self.kernels;
                cy_attention_paged(&self.queue, o[j], q, &pages, sequences, positions, &spec);
            }
            compare(o[1], o[0], dtype == CY_F32 ? 4e-6 : 2e-2, "paged o", isas[i]);
            CY_CHECK_OK(cy_test_machine_close(&self));
        }
    }
}

// One row of [1, 6 * 40] whose parts are made `step` at a time, and the whole.
static void compare_parts(
    cy_test_machine *self, cy_dtype dtype, int32_t position, int64_t window, int64_t step)
{
    enum { PAGES = 40, PAGE = 16, PER = 32 };
    const int64_t slots = (int64_t)PAGES * PAGE, dim = 40;
    int32_t table[PER];
    for (int i = 0; i < PER; i++)
        table[i] = (i * 7 + 3) % PAGES;
    const int32_t sequence = 0;
    const cy_view q = make(self, dtype, 1, 6 * dim, 1), k = make(self, dtype, slots, 2 * dim, 2);
    const cy_view v = make(self, dtype, slots, 2 * dim, 3);
    const cy_view o = make(self, dtype, 1, 6 * dim, 4), joined = make(self, dtype, 1, 6 * dim, 5);
    const cy_kv_pages pages = {k, v, table, PAGE, PER};
    const cy_attention_spec spec = {
        .heads = 6, .kv_heads = 2, .head_dim = dim, .scale = 0.3, .window = window};
    const int64_t count = cy_attention_part_count(&spec, position);
    const cy_view parts = cy_view_alloc(
        &self->data, dtype == CY_F64 ? CY_F64 : CY_F32, count, cy_attention_split_cols(&spec));
    memset(parts.data, 0xff, cy_view_bytes(parts)); // NaN: each part is written
    cy_attention_paged(&self->queue, o, q, &pages, &sequence, &position, &spec);
    for (int64_t first = 0; first < count; first += step) {
        const int64_t some = count - first < step ? count - first : step;
        cy_attention_split(&self->queue, cy_view_rows(parts, first, some), q, &pages, &sequence,
            &position, &spec, first);
    }
    cy_attention_combine(&self->queue, joined, parts, &spec);
    if (memcmp(joined.data, o.data, (size_t)o.cols * cy_dtype_size(dtype)) != 0) {
        fail_msg("%s, %s, position %d, window %d, %d parts at a time: other bits",
            self->queue.kernels->name, cy_dtype_name(dtype), position, (int)window, (int)step);
    }
}

static void joined_parts_give_the_bits_of_the_whole(void **state)
{
    (void)state;
    static const int32_t positions[] = {0, 127, 128, 300, 511};
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16, CY_F64};
    const char *isas[4];
    const int isa_count = isas_of(isas);
    for (int i = 0; i < isa_count; i++) {
        cy_test_machine self;
        CY_CHECK_OK(cy_test_machine_open(&self, isas[i], 2, ARENA_BYTES));
        for (int at = 0; at < 5; at++) {
            for (int d = 0; d < 3; d++) {
                for (int64_t step = 1; step <= 10; step += 3) {
                    compare_parts(&self, dtypes[d], positions[at], 0, step);
                    compare_parts(&self, dtypes[d], positions[at], 150, step);
                }
            }
        }
        CY_CHECK_OK(cy_test_machine_close(&self));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_to_the_portable_one),
        cmocka_unit_test(workers_do_not_change_results),
        cmocka_unit_test(memory_grows_with_tokens_not_their_square),
        cmocka_unit_test(merged_parts_equal_the_whole),
        cmocka_unit_test(pages_equal_the_portable_one),
        cmocka_unit_test(joined_parts_give_the_bits_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
