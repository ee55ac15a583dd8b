// Every matrix product of this build and machine, against sums in double.
//
// Small integers make all sums exact, so those results must be equal, not close: nothing can be
// missing or counted twice. Real numbers then bound the rounding. c lies inside a larger matrix
// whose other elements must stay as they were.

#include "support/machine.h"
#include "support/support.h"

#include "base/numbers.h"
#include "base/random.h"
#include "build_info.h"
#include "kernel/cpu/gemm/matmul.h"
#include "kernel/cpu/cpu.h"
#include "kernel/dispatch.h"

#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES ((size_t)96 << 20)

typedef cy_matmul_fn *product;

// The products of this machine: those of the instruction sets it has, and the table's choice.
static int products_of(const cy_test_machine *self, product *products)
{
    const cy_cpu_state *state = self->queue.kernel_state;
    int count = 0;
    products[count++] = self->kernels.matmul;
#if defined(__x86_64__)
    if (state->cpu.avx2) products[count++] = cy_matmul_avx2;
    if (state->cpu.avx512) products[count++] = cy_matmul_avx512;
    if (state->cpu.avx512_bf16) products[count++] = cy_matmul_avx512_bf16;
    if (state->cpu.amx) products[count++] = cy_matmul_amx;
#elif defined(__aarch64__)
    if (state->cpu.neon) products[count++] = cy_matmul_neon;
#else
    (void)state;
#endif
#if CY_HAVE_DNNL
    if (state->dnnl != NULL) products[count++] = cy_matmul_dnnl;
#endif
    return count;
}

static double get(cy_view x, int64_t row, int64_t col)
{
    const void *at = cy_view_at(x, row, col);
    switch (x.dtype) {
    case CY_F32:
        return (double)*(const float *)at;
    case CY_BF16:
        return (double)cy_bf16_to_f32(*(const cy_bf16 *)at);
    case CY_F16:
        return (double)cy_f16_to_f32(*(const cy_f16 *)at);
    case CY_F64:
    case CY_I32:
    case CY_I64:
    case CY_U8:
    case CY_FX64:
        break;
    }
    fail();
    return 0;
}

static void set(cy_view x, int64_t row, int64_t col, double value)
{
    void *at = cy_view_at(x, row, col);
    if (x.dtype == CY_F32) *(float *)at = (float)value;
    if (x.dtype == CY_BF16) *(cy_bf16 *)at = cy_bf16_from_f32((float)value);
    if (x.dtype == CY_F16) *(cy_f16 *)at = cy_f16_from_f32((float)value);
}

// A matrix of small integers, or of numbers in [-1, 1), in the middle of a wider one.
static cy_view make(cy_arena *arena, cy_dtype dtype, int64_t rows, int64_t cols, int64_t gap,
    uint64_t seed, bool integers)
{
    cy_view all = cy_view_alloc(arena, dtype, rows + 2, cols + gap);
    memset(all.data, 0x5a, cy_view_bytes(all));
    const cy_view x = cy_view_cols(cy_view_rows(all, 1, rows), gap / 2, cols);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            const uint64_t index = (uint64_t)(i * cols + j);
            const double value = integers ? (double)(cy_random_bits(seed, index) % 5) - 2.0
                                          : 2.0 * cy_random_uniform(seed, index) - 1.0;
            set(x, i, j, value);
        }
    }
    return x;
}

typedef struct shape {
    int64_t m, n, k;
} shape;

typedef struct problem {
    cy_view c, before, a, b;
    cy_matmul_spec spec;
    shape size;
    bool integers;
} problem;

static problem pose(
    cy_test_machine *self, shape size, cy_dtype dtype, cy_dtype c_dtype, int bits, bool integers)
{
    const cy_matmul_spec spec = {
        .transpose_a = (bits & 1) != 0,
        .transpose_b = (bits & 2) != 0,
        .accumulate = (bits & 4) != 0,
    };
    const int64_t gap = (bits & 8) != 0 ? 6 : 0;
    cy_arena_rewind(&self->data, 0);
    problem p = {.spec = spec, .size = size, .integers = integers};
    p.a = make(&self->data, dtype, spec.transpose_a ? size.k : size.m,
        spec.transpose_a ? size.m : size.k, gap, 1, integers);
    p.b = make(&self->data, dtype, spec.transpose_b ? size.n : size.k,
        spec.transpose_b ? size.k : size.n, gap, 2, integers);
    p.c = make(&self->data, c_dtype, size.m, size.n, gap, 3, integers);
    p.before = make(&self->data, c_dtype, size.m, size.n, gap, 3, integers);
    return p;
}

// What c must become, and the sum of the sizes of its terms.
static void expect(double *sums, double *sizes, const problem *p)
{
    for (int64_t i = 0; i < p->size.m; i++) {
        for (int64_t j = 0; j < p->size.n; j++) {
            double sum = p->spec.accumulate ? get(p->before, i, j) : 0, size = fabs(sum);
            for (int64_t k = 0; k < p->size.k; k++) {
                const double term = (p->spec.transpose_a ? get(p->a, k, i) : get(p->a, i, k)) *
                    (p->spec.transpose_b ? get(p->b, j, k) : get(p->b, k, j));
                sum += term;
                size += fabs(term);
            }
            sums[i * p->size.n + j] = sum;
            sizes[i * p->size.n + j] = size;
        }
    }
}

static void check(const problem *p, const double *sums, const double *sizes, const char *name)
{
    const double step = p->c.dtype == CY_BF16 ? 0x1p-8 : p->c.dtype == CY_F16 ? 0x1p-11 : 0x1p-24;
    for (int64_t i = 0; i < p->size.m; i++) {
        for (int64_t j = 0; j < p->size.n; j++) {
            // One rounding of the result; fp32 sums add up to k roundings of partial sums.
            const double sum = sums[i * p->size.n + j];
            const double partial =
                p->integers ? 0 : (double)p->size.k * 0x1p-24 * sizes[i * p->size.n + j];
            const double bound =
                p->integers && p->c.dtype == CY_F32 ? 0 : step * fabs(sum) + partial;
            if (!(fabs(get(p->c, i, j) - sum) <= bound)) {
                fail_msg("%s: %s -> %s, m n k %d %d %d, bits %d%d%d: c(%d,%d) is %.9g, wants %.9g",
                    name, cy_dtype_name(p->a.dtype), cy_dtype_name(p->c.dtype), (int)p->size.m,
                    (int)p->size.n, (int)p->size.k, p->spec.transpose_a, p->spec.transpose_b,
                    p->spec.accumulate, (int)i, (int)j, get(p->c, i, j), sum);
            }
        }
    }
    // Rows above and below and the gaps beside every row.
    const size_t size = cy_dtype_size(p->c.dtype);
    const int64_t gap = p->c.stride - p->c.cols;
    const unsigned char *all =
        (const unsigned char *)p->c.data - (size_t)(p->c.stride + gap / 2) * size;
    for (int64_t i = 0; i < p->c.rows + 2; i++) {
        for (int64_t j = 0; j < p->c.stride * (int64_t)size; j++) {
            const int64_t col = j / (int64_t)size - gap / 2;
            const bool inside = i > 0 && i <= p->c.rows && col >= 0 && col < p->c.cols;
            if (!inside) assert_int_equal(all[i * p->c.stride * (int64_t)size + j], 0x5a);
        }
    }
}

static void all_products(const shape *sizes, size_t count, bool integers)
{
    static const cy_dtype dtypes[][2] = {
        {CY_F32, CY_F32}, {CY_BF16, CY_BF16}, {CY_BF16, CY_F32}, {CY_F16, CY_F16}};
    static double sums[8192], sizes_of_terms[8192];
    cy_test_machine self;
    CY_CHECK_OK(cy_test_machine_open(&self, "auto", 2, ARENA_BYTES));
    product products[8];
    const int product_count = products_of(&self, products);
    for (size_t s = 0; s < count; s++) {
        for (size_t d = 0; d < 4; d++) {
            for (int bits = 0; bits < 16; bits++) {
                for (int i = 0; i < product_count; i++) {
                    const problem p =
                        pose(&self, sizes[s], dtypes[d][0], dtypes[d][1], bits, integers);
                    if (i == 0) expect(sums, sizes_of_terms, &p);
                    products[i](&self.queue, p.c, p.a, p.b, p.spec);
                    char name[32];
                    snprintf(name, sizeof(name), "product %d", i);
                    check(&p, sums, sizes_of_terms, name);
                }
            }
        }
    }
    CY_CHECK_OK(cy_test_machine_close(&self));
}

static void integers_give_exact_sums(void **state)
{
    (void)state;
    static const shape sizes[] = {{1, 1, 1}, {1, 33, 5}, {7, 1, 64}, {17, 31, 33}, {33, 65, 48},
        {49, 64, 32}, {130, 40, 70}, {6, 70, 129}, {3, 131, 71}};
    all_products(sizes, sizeof(sizes) / sizeof(sizes[0]), true);
}

static void rounding_stays_in_bounds(void **state)
{
    (void)state;
    static const shape sizes[] = {{5, 70, 600}, {40, 33, 1100}};
    all_products(sizes, sizeof(sizes) / sizeof(sizes[0]), false);
}

typedef void (*problem_step)(const problem *p);

// Every product of fp32 on numbers, in all four ways its operands may lie.
static void each_product(shape size, problem_step prepare, problem_step expect_result)
{
    cy_test_machine self;
    CY_CHECK_OK(cy_test_machine_open(&self, "auto", 2, ARENA_BYTES));
    product products[8];
    const int count = products_of(&self, products);
    for (int bits = 0; bits < 4; bits++) {
        for (int n = 0; n < count; n++) {
            const problem p = pose(&self, size, CY_F32, CY_F32, bits, false);
            if (prepare != NULL) prepare(&p);
            products[n](&self.queue, p.c, p.a, p.b, p.spec);
            expect_result(&p);
        }
    }
    CY_CHECK_OK(cy_test_machine_close(&self));
}

static void expect_all_bits(const problem *p)
{
    for (int64_t i = 0; i < p->c.rows; i++) {
        for (int64_t j = 0; j < p->c.cols; j++) {
            const double a = p->spec.transpose_a ? get(p->a, 0, i) : get(p->a, i, 0);
            const double b = p->spec.transpose_b ? get(p->b, j, 0) : get(p->b, 0, j);
            assert_true(fabs(get(p->c, i, j) - a * b) <= 0x1p-23 * fabs(a * b));
        }
    }
}

// One term a sum, so that nothing hides what is missing from it: all 24 bits of both factors count.
static void products_of_two_keep_all_bits(void **state)
{
    (void)state;
    each_product((shape){70, 45, 1}, NULL, expect_all_bits);
}

#define ROWS_APART 20 // those that are not finite

static void put_not_finite(const problem *p)
{
    static const double values[] = {(double)INFINITY, -(double)INFINITY, (double)NAN, 3.4e38};
    for (int64_t at = 0; at < 4; at++) {
        const int64_t row = ROWS_APART * at, k = 19 * at;
        set(p->a, p->spec.transpose_a ? k : row, p->spec.transpose_a ? row : k, values[at]);
        for (int64_t j = 0; j < p->c.cols; j++)
            set(p->b, p->spec.transpose_b ? j : k, p->spec.transpose_b ? k : j, 1.5);
    }
}

static void expect_not_finite(const problem *p)
{
    for (int64_t i = 0; i < p->c.rows; i++) {
        for (int64_t j = 0; j < p->c.cols; j++)
            assert_int_equal(isfinite(get(p->c, i, j)) != 0, i % ROWS_APART != 0);
    }
}

// A row with an element that is not finite, or that is near the largest there is, has sums that are
// not finite; no other row has. Overflow is looked for in them.
static void what_is_not_finite_stays_in_its_row(void **state)
{
    (void)state;
    each_product((shape){70, 45, 80}, put_not_finite, expect_not_finite);
}

// Tiles, slices of depth and edges at once: too large for all products in double, so the first
// rows and the last ones of each product are held against the portable one on integers.
static void large_products_equal_the_portable_one(void **state)
{
    (void)state;
    static const shape sizes[] = {{300, 270, 700}, {1100, 130, 64}, {24, 40, 4200}, {300, 70, 1100},
        {520, 70, 4200}, {2100, 33, 32}, {2100, 33, 1060}};
    cy_test_machine self;
    CY_CHECK_OK(cy_test_machine_open(&self, "auto", 2, ARENA_BYTES));
    product products[8];
    const int count = products_of(&self, products);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (int bits = 0; bits < 8; bits++) {
            for (int d = 0; d < 3; d++) {
                const cy_dtype dtype = d != 0 ? CY_BF16 : CY_F32, to = d == 2 ? CY_BF16 : CY_F32;
                problem p = pose(&self, sizes[s], dtype, to, bits, true);
                cy_kernels_ref()->matmul(&self.queue, p.before, p.a, p.b, p.spec);
                cy_view start = cy_view_alloc(&self.data, to, p.c.rows, p.c.cols);
                memcpy(start.data, p.c.data, cy_view_bytes(start));
                for (int i = 0; i < count; i++) {
                    memcpy(p.c.data, start.data, cy_view_bytes(start));
                    products[i](&self.queue, p.c, p.a, p.b, p.spec);
                    assert_memory_equal(p.c.data, p.before.data, cy_view_bytes(p.c));
                }
            }
        }
    }
    CY_CHECK_OK(cy_test_machine_close(&self));
}

static void workers_do_not_change_results(void **state)
{
    (void)state;
    static const shape size = {520, 200, 700};
    static float kept[8][520 * 200];
    for (int workers = 1; workers <= 3; workers++) {
        cy_test_machine self;
        CY_CHECK_OK(cy_test_machine_open(&self, "auto", workers, ARENA_BYTES));
        product products[8];
        const int count = products_of(&self, products);
        for (int i = 0; i < count; i++) {
            const problem p = pose(&self, size, CY_BF16, CY_F32, 2, false);
            products[i](&self.queue, p.c, p.a, p.b, p.spec);
            if (workers == 1) memcpy(kept[i], p.c.data, sizeof(kept[i]));
            assert_memory_equal(kept[i], p.c.data, sizeof(kept[i]));
        }
        CY_CHECK_OK(cy_test_machine_close(&self));
    }
}

#if defined(__x86_64__)
// Products of panels against those of blocks, which promise the same chain of multiply-adds:
// slices, passes and tasks follow the caches, the bits must not.
static void caches_do_not_change_results(void **state)
{
    (void)state;
    static const shape sizes[] = {{67, 333, 1600}, {200, 1700, 45}, {1, 40, 3100}, {515, 33, 270}};
    static const cy_panel_caches caches[] = {
        {0, 0}, {(size_t)32 << 10, (size_t)512 << 10}, {(size_t)48 << 10, (size_t)2 << 20}, {1, 1}};
    cy_test_machine self;
    CY_CHECK_OK(cy_test_machine_open(&self, "auto", 2, ARENA_BYTES));
    const bool can = ((const cy_cpu_state *)self.queue.kernel_state)->cpu.avx2;
    for (size_t s = 0; can && s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (int bits = 0; bits < 8; bits++) {
            for (int d = 0; d < 3; d++) {
                const cy_dtype dtype = d != 0 ? CY_BF16 : CY_F32, to = d == 2 ? CY_BF16 : CY_F32;
                const size_t mark = cy_arena_mark(&self.data);
                const problem p = pose(&self, sizes[s], dtype, to, bits, false);
                const size_t bytes =
                    (size_t)(p.c.rows * p.c.stride) * cy_dtype_size(to); // but for the last gap
                const size_t whole = bytes - (size_t)(p.c.stride - p.c.cols) * cy_dtype_size(to);
                char *start = cy_arena_alloc(&self.data, whole);
                char *wanted = cy_arena_alloc(&self.data, whole);
                memcpy(start, p.c.data, whole);
                cy_matmul_tiled(&self.queue, cy_microkernel_avx2(), NULL, p.c, p.a, p.b, p.spec);
                memcpy(wanted, p.c.data, whole);
                for (size_t i = 0; i < sizeof(caches) / sizeof(caches[0]); i++) {
                    memcpy(p.c.data, start, whole);
                    cy_matmul_panels(
                        &self.queue, cy_panels_avx2(), caches[i], p.c, p.a, p.b, p.spec);
                    assert_memory_equal(p.c.data, wanted, whole);
                }
                cy_arena_rewind(&self.data, mark);
            }
        }
    }
    CY_CHECK_OK(cy_test_machine_close(&self));
}
#endif

// A dry queue takes as much scratch as a real one, and what it has made is made for good.
static void a_dry_run_measures_and_makes_all(void **state)
{
    (void)state;
    static const shape size = {300, 270, 129};
    cy_test_machine self;
    CY_CHECK_OK(cy_test_machine_open(&self, "auto", 2, ARENA_BYTES));
    product products[8];
    const int count = products_of(&self, products);
    for (int i = 0; i < count; i++) {
        const problem p = pose(&self, size, CY_BF16, CY_BF16, 1, true);
        cy_arena measure;
        cy_arena_measure(&measure, "scratch");
        self.queue.scratch = &measure;
        self.queue.dry = true;
        products[i](&self.queue, p.c, p.a, p.b, p.spec);
        self.queue.scratch = &self.scratch;
        self.queue.dry = false;
        self.scratch.peak = 0;
#if CY_HAVE_DNNL
        const cy_cpu_state *kept = self.queue.kernel_state;
        const int64_t made = kept->dnnl == NULL ? 0 : cy_dnnl_primitives(kept->dnnl);
#endif
        products[i](&self.queue, p.c, p.a, p.b, p.spec);
        assert_int_equal(self.scratch.peak, measure.peak);
        assert_true(measure.peak <= (size_t)16 << 20);
#if CY_HAVE_DNNL
        assert_int_equal(kept->dnnl == NULL ? 0 : cy_dnnl_primitives(kept->dnnl), made);
#endif
    }
    CY_CHECK_OK(cy_test_machine_close(&self));
}

static void what_the_machine_lacks_is_an_error(void **state)
{
    (void)state;
    cy_test_machine self;
    CY_CHECK_OK(cy_test_machine_open(&self, "ref", 1, ARENA_BYTES));
    assert_string_equal(self.kernels.name, "ref");
    assert_ptr_equal(self.kernels.matmul, cy_kernels_ref()->matmul);
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    cy_kernels_close(&self.queue);
    CY_CHECK_FAILS(cy_kernels_open(&self.queue, &self.kernels, "sse9"), CY_ERR_REQUEST, "sse9");
#if defined(__aarch64__)
    static const char *const names[] = {"neon"};
    const bool has[] = {cpu.neon};
#else
    static const char *const names[] = {"avx2", "avx512", "avx512_bf16", "amx"};
    const bool has[] = {cpu.avx2, cpu.avx512, cpu.avx512_bf16, cpu.amx};
#endif
    for (size_t i = 0; i < sizeof(has) / sizeof(*has); i++) {
        if (has[i]) {
            CY_CHECK_OK(cy_kernels_open(&self.queue, &self.kernels, names[i]));
            assert_string_equal(self.kernels.name, names[i]);
            cy_kernels_close(&self.queue);
        } else {
            CY_CHECK_FAILS(cy_kernels_open(&self.queue, &self.kernels, names[i]),
                CY_ERR_UNSUPPORTED, names[i]);
        }
    }
    CY_CHECK_OK(cy_test_machine_close(&self));
}

// ---- how a product is cut into tasks

// Every element of c is in one tile.
static void check_cover(const cy_tiles *tiles, int64_t rows, int64_t cols)
{
    unsigned char *seen = calloc((size_t)(rows * cols), 1);
    assert_non_null(seen);
    assert_int_equal(cy_tiles_count(tiles), tiles->row_count * tiles->col_count);
    for (int64_t i = 0; i < cy_tiles_count(tiles); i++) {
        const cy_tile tile = cy_tiles_at(tiles, i, rows, cols);
        assert_true(tile.rows > 0 && tile.rows <= tiles->rows);
        assert_true(tile.cols > 0 && tile.cols <= tiles->cols);
        for (int64_t row = tile.row; row < tile.row + tile.rows; row++) {
            for (int64_t col = tile.col; col < tile.col + tile.cols; col++)
                seen[row * cols + col]++;
        }
    }
    for (int64_t i = 0; i < rows * cols; i++)
        assert_int_equal(seen[i], 1);
    free(seen);
}

static void tiles_cover_a_product_once(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 31, 64, 129, 500, 1024};
    for (int keep = 0; keep < 2; keep++) {
        for (int i = 0; i < 36; i++) {
            const int64_t rows = sizes[i / 6], cols = sizes[i % 6];
            const cy_tiles tiles = cy_tiles_cut(rows, cols, 256, 512, 8, keep == 1);
            if (tiles.row_count > 1) assert_int_equal(tiles.rows % 32, 0);
            if (tiles.col_count > 1) assert_int_equal(tiles.cols % 64, 0);
            assert_true(tiles.rows <= 256 && tiles.cols <= 512);
            check_cover(&tiles, rows, cols);
        }
    }
}

static void check_tile(
    cy_tiles tiles, int64_t rows, int64_t cols, int64_t row_count, int64_t col_count)
{
    assert_int_equal(tiles.rows, rows);
    assert_int_equal(tiles.cols, cols);
    assert_int_equal(tiles.row_count, row_count);
    assert_int_equal(tiles.col_count, col_count);
}

static void the_longer_side_is_halved_or_the_columns(void **state)
{
    (void)state;
    // Enough as they are.
    check_tile(cy_tiles_cut(2048, 1024, 1024, 512, 4, false), 1024, 512, 2, 2);
    // Rows are halved while columns are fewer than twice as many, otherwise columns.
    check_tile(cy_tiles_cut(2048, 512, 1024, 512, 8, false), 256, 512, 8, 1);
    check_tile(cy_tiles_cut(1024, 1024, 256, 1024, 8, false), 256, 512, 4, 2);
    // Who keeps rows has columns halved, down to 128, and then rows.
    check_tile(cy_tiles_cut(2048, 512, 1024, 512, 8, true), 1024, 128, 2, 4);
    check_tile(cy_tiles_cut(2048, 512, 1024, 512, 16, true), 512, 128, 4, 4);
    // Not below 64 x 128, however many are wanted.
    check_tile(cy_tiles_cut(128, 256, 1024, 512, 1000, false), 64, 128, 2, 2);
    check_tile(cy_tiles_cut(32, 100, 1024, 512, 1000, true), 32, 100, 1, 1);
    // What just fits is not cut, nor rounded up.
    check_tile(cy_tiles_cut(100, 200, 100, 200, 1, false), 100, 200, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_cover_a_product_once),
        cmocka_unit_test(the_longer_side_is_halved_or_the_columns),
        cmocka_unit_test(integers_give_exact_sums),
        cmocka_unit_test(rounding_stays_in_bounds),
        cmocka_unit_test(products_of_two_keep_all_bits),
        cmocka_unit_test(what_is_not_finite_stays_in_its_row),
        cmocka_unit_test(large_products_equal_the_portable_one),
        cmocka_unit_test(workers_do_not_change_results),
#if defined(__x86_64__)
        cmocka_unit_test(caches_do_not_change_results),
#endif
        cmocka_unit_test(a_dry_run_measures_and_makes_all),
        cmocka_unit_test(what_the_machine_lacks_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
