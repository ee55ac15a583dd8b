// The functions of each instruction set that products and attention are built from, one by one:
// exact on small integers, and no byte behind an operand is read or written, which here ends where
// memory ends. Sums over more depth than one pass takes are among them.
#define _GNU_SOURCE
#include "support/support.h"

#include "base/platform.h"
#include "kernel/cpu/gemm/microkernel.h"
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MARK 777.0f // in gaps between rows

// Memory that ends at a page which nobody may touch.
typedef struct fenced {
    void *base;
    size_t bytes;
} fenced;

static void *fence(fenced *memory, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t inner = (bytes + page - 1) / page * page;
    memory->bytes = inner + page;
    memory->base =
        mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory->base != MAP_FAILED);
    assert_int_equal(mprotect((char *)memory->base + inner, page, PROT_NONE), 0);
    return (char *)memory->base + inner - bytes;
}

static void release(fenced *memory)
{
    assert_int_equal(munmap(memory->base, memory->bytes), 0);
}

static void put(cy_view view, int64_t row, int64_t col, float value)
{
    void *at = cy_view_at(view, row, col);
    if (view.dtype == CY_F32) *(float *)at = value;
    if (view.dtype == CY_BF16) *(cy_bf16 *)at = cy_bf16_from_f32(value);
    if (view.dtype == CY_F16) *(cy_f16 *)at = cy_f16_from_f32(value);
}

// Rows with a gap between them that holds MARK; the last one ends at the fence.
static cy_view fenced_view(
    fenced *memory, cy_dtype dtype, int64_t rows, int64_t cols, int64_t gap, int64_t seed)
{
    const size_t bytes = (size_t)((rows - 1) * (cols + gap) + cols) * cy_dtype_size(dtype);
    cy_view view = cy_view_of(fence(memory, bytes), dtype, rows, cols);
    view.stride = cols + gap;
    cy_view all = view;
    all.cols = view.stride;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols + (i + 1 < rows ? gap : 0); j++) {
            put(all, i, j, j < cols ? (float)((i * 31 + j * 7 + seed * 5) % 13 - 6) : MARK);
        }
    }
    return view;
}

static void expect_gaps(cy_view view)
{
    for (int64_t i = 0; i + 1 < view.rows; i++) {
        cy_view row = cy_view_rows(view, i, 1);
        row.cols = view.stride;
        for (int64_t j = view.cols; j < view.stride; j++)
            assert_float_equal(cy_ref_load(row, 0, j), (double)MARK, 1.0); // as bf16 has it
    }
}

static void expect_element(cy_view view, int64_t row, int64_t col, double wanted, const char *what)
{
    if (cy_ref_load(view, row, col) == wanted) return;
    fail_msg("%s: element (%lld, %lld) of %lld x %lld is %g, not %g", what, (long long)row,
        (long long)col, (long long)view.rows, (long long)view.cols, cy_ref_load(view, row, col),
        wanted);
}

static double load(cy_view source, bool transposed, int64_t row, int64_t col)
{
    return transposed ? cy_ref_load(source, col, row) : cy_ref_load(source, row, col);
}

// ---- products

typedef struct product {
    int64_t rows, cols, depth;
    bool left_turned, right_turned, accumulate;
    cy_dtype left, right; // of the sources
} product;

static void expect_product(cy_view c, cy_view a, cy_view b, const product *p, const char *isa)
{
    for (int64_t i = 0; i < p->rows; i++) {
        for (int64_t j = 0; j < p->cols; j++) {
            double sum = p->accumulate ? (double)((i * 31 + j * 7 + 15) % 13 - 6) : 0.0;
            for (int64_t k = 0; k < p->depth; k++)
                sum += load(a, p->left_turned, i, k) * load(b, p->right_turned, k, j);
            expect_element(c, i, j, sum, isa);
        }
    }
    expect_gaps(c);
}

// c (+)= a b as p says, through packed operands [left], [right] that have room for it.
static void run_packed(const cy_microkernel *ops, const product *p, cy_view c, cy_view a, cy_view b,
    void *left, void *right)
{
    const int64_t depth = cy_round_up(p->depth, ops->depth_step);
    ops->enter();
    ops->pack_left(left, a, p->left_turned);
    ops->pack_right(right, b, p->right_turned);
    ops->multiply(c.data, c.stride, left, depth, right, p->rows, p->cols, depth, p->accumulate);
    ops->leave();
}

static void multiply(const cy_microkernel *ops, const product *p)
{
    fenced memory[5];
    const cy_view a = p->left_turned
        ? fenced_view(&memory[0], p->left, p->depth, p->rows, 3, 1)
        : fenced_view(&memory[0], p->left, p->rows, p->depth, 2 * ops->depth_step, 1);
    const cy_view b = p->right_turned ? fenced_view(&memory[1], p->right, p->cols, p->depth, 3, 2)
                                      : fenced_view(&memory[1], p->right, p->depth, p->cols, 3, 2);
    const cy_view c = fenced_view(&memory[2], CY_F32, p->rows, p->cols, 5, 3);
    void *left = fence(&memory[3], cy_microkernel_left_bytes(ops, p->rows, p->depth));
    void *right = fence(&memory[4], cy_microkernel_right_bytes(ops, p->cols, p->depth));
    run_packed(ops, p, c, a, b, left, right);
    expect_product(c, a, b, p, ops->isa);
    if (!p->left_turned && cy_microkernel_left_fits(ops, a)) {
        const product from_zero = {
            p->rows, p->cols, p->depth, false, p->right_turned, false, p->left, p->right};
        ops->enter();
        ops->multiply(c.data, c.stride, a.data, a.stride, right, p->rows, p->cols, p->depth, false);
        ops->leave();
        expect_product(c, a, b, &from_zero, ops->isa);
    }
    for (int i = 0; i < 5; i++)
        release(&memory[i]);
}

static void products(const cy_microkernel *ops)
{
    static const int64_t rows[] = {1, 5, 6, 7, 13, 16, 17, 31, 32, 33, 50};
    static const int64_t cols[] = {1, 8, 15, 16, 17, 31, 32, 33, 48, 64, 65, 96, 97};
    static const int64_t depths[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 64, 70};
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16, CY_F16};
    int n = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        for (size_t j = 0; j < sizeof(cols) / sizeof(*cols); j++) {
            for (size_t k = 0; k < sizeof(depths) / sizeof(*depths); k++, n++) {
                const product p = {rows[i], cols[j], depths[k], n % 2 == 0, n / 2 % 2 == 0,
                    n / 4 % 2 == 0, dtypes[n % 3], dtypes[n / 3 % 3]};
                multiply(ops, &p);
            }
        }
    }
    for (int64_t depth = 500; depth < 1400; depth += 61) { // one to three passes
        multiply(ops, &(product){7, 40, depth, false, true, depth % 2 == 0, CY_F32, CY_BF16});
        multiply(ops, &(product){33, 70, depth, true, false, depth % 2 == 1, CY_BF16, CY_F32});
    }
}

// Every other element along the depth is so small that it, or what its parts leave of it, is no
// normal number: it must not show in the sums of the whole numbers beside it.
static void put_tiny(cy_view view, bool transposed, int64_t depth, int64_t other, int64_t odd)
{
    static const float tiny[] = {1e-45f, -3.3e-44f, 7.77e-42f, -1.1111e-40f, 9.87654e-39f,
        1.3333e-38f, -4.4444e-37f, 1.2345679e-35f, -8.7654321e-34f, 3.1415927e-32f, 2.7182817e-30f};
    const int64_t count = sizeof(tiny) / sizeof(tiny[0]);
    for (int64_t k = odd; k < depth; k += 2) {
        for (int64_t j = 0; j < other; j++) {
            put(view, transposed ? j : k, transposed ? k : j, tiny[(k + j * 5) % count]);
        }
    }
}

static void tiny_elements(const cy_microkernel *ops)
{
    enum { ROWS = 33, COLS = 70, DEPTH = 66 };
    for (int n = 0; n < 16; n++) {
        const bool left_turned = n & 1, right_turned = n & 2, in_left = n & 4;
        const product p = {ROWS, COLS, DEPTH, left_turned, right_turned, false, CY_F32, CY_F32};
        fenced memory[5];
        const cy_view a = left_turned ? fenced_view(&memory[0], CY_F32, DEPTH, ROWS, 0, 1)
                                      : fenced_view(&memory[0], CY_F32, ROWS, DEPTH, 0, 1);
        const cy_view b = right_turned ? fenced_view(&memory[1], CY_F32, COLS, DEPTH, 0, 2)
                                       : fenced_view(&memory[1], CY_F32, DEPTH, COLS, 0, 2);
        const cy_view c = fenced_view(&memory[2], CY_F32, ROWS, COLS, 0, 3);
        if (in_left) {
            put_tiny(a, !left_turned, DEPTH, ROWS, n / 8);
        } else {
            put_tiny(b, right_turned, DEPTH, COLS, n / 8);
        }
        void *left = fence(&memory[3], cy_microkernel_left_bytes(ops, ROWS, DEPTH));
        void *right = fence(&memory[4], cy_microkernel_right_bytes(ops, COLS, DEPTH));
        run_packed(ops, &p, c, a, b, left, right);
        for (int64_t i = 0; i < ROWS; i++) {
            for (int64_t j = 0; j < COLS; j++) {
                double sum = 0;
                for (int64_t k = 0; k < DEPTH; k++)
                    sum += load(a, left_turned, i, k) * load(b, right_turned, k, j);
                if (fabs(cy_ref_load(c, i, j) - sum) < 1e-20) continue;
                fail_msg("%s: element (%d, %d) is %g, not %g", ops->isa, (int)i, (int)j,
                    cy_ref_load(c, i, j), sum);
            }
        }
        for (int i = 0; i < 5; i++)
            release(&memory[i]);
    }
}

// ---- conversions, transpositions, a few rows

static void conversions(const cy_microkernel *ops)
{
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16, CY_F16};
    for (int n = 0; n < 9 * 70; n++) {
        const int64_t rows = n % 5 + 1, cols = n / 9 + 1;
        fenced memory[2];
        const cy_view from = fenced_view(&memory[0], dtypes[n % 3], rows, cols, n % 4, 1);
        const cy_view to = fenced_view(&memory[1], dtypes[n / 3 % 3], rows, cols, n % 3, 9);
        ops->convert(to, from);
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < cols; j++)
                expect_element(to, i, j, cy_ref_load(from, i, j), ops->isa);
        }
        expect_gaps(to);
        release(&memory[0]);
        release(&memory[1]);
    }
}

static void transpositions(const cy_microkernel *ops)
{
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16, CY_F16};
    for (int64_t rows = 1; rows < 40; rows++) {
        for (int64_t cols = 1; cols < 40; cols += 1 + rows % 3) {
            fenced memory[2];
            const cy_view from = fenced_view(&memory[0], dtypes[cols % 3], rows, cols, 3, 1);
            const cy_view to = fenced_view(&memory[1], CY_F32, cols, rows, rows % 2, 9);
            ops->transpose(to.data, to.stride, from);
            for (int64_t i = 0; i < cols; i++) {
                for (int64_t j = 0; j < rows; j++)
                    expect_element(to, i, j, cy_ref_load(from, j, i), ops->isa);
            }
            expect_gaps(to);
            release(&memory[0]);
            release(&memory[1]);
        }
    }
}

static void few_rows(const cy_microkernel *ops)
{
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16, CY_F16};
    static const int64_t depths[] = {1, 7, 8, 9, 16, 31, 32, 33, 63, 64, 65, 127, 128, 200};
    for (int n = 0; n < 3 * 4 * 14; n++) {
        const int64_t rows = n / 3 % 4 + 1, cols = n % 7 + 1, depth = depths[n / 12];
        fenced memory[3];
        const cy_view b = fenced_view(&memory[0], dtypes[n % 3], cols, depth, n % 4, 1);
        const cy_view a = fenced_view(&memory[1], CY_F32, rows, depth, 0, 2);
        const cy_view c = fenced_view(&memory[2], CY_F32, rows, cols, 0, 3);
        ops->dot(c.data, a.data, rows, b, n % 2 == 0 ? NULL : a.data);
        const product p = {rows, cols, depth, false, true, false, CY_F32, b.dtype};
        expect_product(c, a, b, &p, ops->isa);
        for (int i = 0; i < 3; i++)
            release(&memory[i]);
    }
}

// ---- every instruction set that this processor has

typedef void (*block_test)(const cy_microkernel *ops);

static void with_each(block_test test)
{
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    int tested = 0;
#if defined(__aarch64__)
    if (cpu.neon) {
        test(cy_microkernel_neon());
        tested++;
    }
#elif defined(__x86_64__)
    const cy_microkernel *const all[] = {cy_microkernel_avx2(), cy_microkernel_avx512(),
        cy_microkernel_avx512_bf16(), cy_microkernel_amx(), cy_microkernel_amx_split()};
    const bool there[] = {cpu.avx2, cpu.avx512, cpu.avx512_bf16, cpu.amx, cpu.amx};
    for (int i = 0; i < 5; i++) {
        if (!there[i]) continue;
        test(all[i]);
        tested++;
    }
#else
    (void)test;
#endif
    if (tested == 0) skip();
}

static void products_are_exact(void **state)
{
    (void)state;
    with_each(products);
}

static void tiny_elements_do_not_show(void **state)
{
    (void)state;
    with_each(tiny_elements);
}

static void conversions_are_exact(void **state)
{
    (void)state;
    with_each(conversions);
}

static void transpositions_are_exact(void **state)
{
    (void)state;
    with_each(transpositions);
}

static void few_rows_are_exact(void **state)
{
    (void)state;
    with_each(few_rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_exact),
        cmocka_unit_test(tiny_elements_do_not_show),
        cmocka_unit_test(conversions_are_exact),
        cmocka_unit_test(transpositions_are_exact),
        cmocka_unit_test(few_rows_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
