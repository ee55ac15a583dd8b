// What oneDNN refuses is computed all the same: a shape that it does not take, and a tile that it
// fails to run. This program stands between the library's own functions and their callers.

#define _GNU_SOURCE
#include "support/machine.h"
#include "support/support.h"

#include "build_info.h"
#include "kernel/cpu/cpu.h"
#include "kernel/dispatch.h"
#include "kernel/peak.h"

#include <stdatomic.h>
#include <string.h>

#define ARENA_BYTES ((size_t)32 << 20)

#if CY_HAVE_DNNL

#include <dlfcn.h>
#include <dnnl.h>

static bool refuse_primitives;
static int asked;
static atomic_int fail_tiles; // every so many calls; 0: none
static atomic_int calls;

#define SHOWN __attribute__((visibility("default")))

SHOWN dnnl_status_t dnnl_primitive_create(
    dnnl_primitive_t *primitive, const_dnnl_primitive_desc_t descriptor)
{
    dnnl_status_t (*real)(dnnl_primitive_t *, const_dnnl_primitive_desc_t);
    void *found = dlsym(RTLD_NEXT, "dnnl_primitive_create");
    memcpy(&real, &found, sizeof(real));
    asked++;
    return refuse_primitives ? dnnl_unimplemented : real(primitive, descriptor);
}

SHOWN dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
    int count, const dnnl_exec_arg_t *arguments)
{
    dnnl_status_t (*real)(const_dnnl_primitive_t, dnnl_stream_t, int, const dnnl_exec_arg_t *);
    void *found = dlsym(RTLD_NEXT, "dnnl_primitive_execute");
    memcpy(&real, &found, sizeof(real));
    const int every = atomic_load(&fail_tiles);
    if (every != 0 && atomic_fetch_add(&calls, 1) % every == 0) return dnnl_runtime_error;
    return real(primitive, stream, count, arguments);
}

// c (+)= a b on small integers, by the function under test and by the portable one.
static void compare(cy_test_machine *self, cy_matmul_spec spec)
{
    enum { M = 300, N = 270, K = 65 };
    cy_arena_rewind(&self->data, 0);
    const cy_view a =
        cy_view_alloc(&self->data, CY_F32, spec.transpose_a ? K : M, spec.transpose_a ? M : K);
    const cy_view b =
        cy_view_alloc(&self->data, CY_F32, spec.transpose_b ? N : K, spec.transpose_b ? K : N);
    const cy_view c = cy_view_alloc(&self->data, CY_F32, M, N);
    const cy_view wanted = cy_view_alloc(&self->data, CY_F32, M, N);
    for (int i = 0; i < M * K; i++)
        ((float *)a.data)[i] = (float)(i % 7 - 3);
    for (int i = 0; i < N * K; i++)
        ((float *)b.data)[i] = (float)(i % 5 - 2);
    for (int i = 0; i < M * N; i++)
        ((float *)c.data)[i] = ((float *)wanted.data)[i] = (float)(i % 3);

    cy_arena measure;
    cy_arena_measure(&measure, "scratch");
    self->queue.scratch = &measure;
    self->queue.dry = true;
    cy_matmul_dnnl(&self->queue, c, a, b, spec);
    self->queue.scratch = &self->scratch;
    self->queue.dry = false;
    self->scratch.peak = 0;
    const int made = asked;
    cy_matmul_dnnl(&self->queue, c, a, b, spec);
    assert_int_equal(asked, made); // what was refused is not asked for again
    assert_int_equal(self->scratch.peak, measure.peak);
    cy_kernels_ref()->matmul(&self->queue, wanted, a, b, spec);
    assert_memory_equal(c.data, wanted.data, cy_view_bytes(c));
}

static const cy_matmul_spec specs[] = {{.transpose_b = true}, {0},
    {.transpose_a = true, .accumulate = true}, {.transpose_a = true, .transpose_b = true}};

static bool open_with_dnnl(cy_test_machine *self)
{
    CY_CHECK_OK(cy_test_machine_open(self, "auto", 2, ARENA_BYTES));
    const cy_cpu_state *state = self->queue.kernel_state;
    return state->dnnl != NULL;
}

static void a_refused_shape_is_our_own(void **state)
{
    (void)state;
    cy_test_machine self;
    if (open_with_dnnl(&self)) {
        const cy_cpu_state *kept = self.queue.kernel_state;
        assert_true(cy_dnnl_supports(kept->dnnl, CY_F32, CY_F32, specs[0]));
        refuse_primitives = true;
        for (size_t i = 0; i < CY_TEST_COUNT(specs); i++)
            compare(&self, specs[i]);
        assert_int_equal(cy_dnnl_primitives(kept->dnnl), 0);
        refuse_primitives = false;
    }
    CY_CHECK_OK(cy_test_machine_close(&self));
}

static void a_tile_that_fails_is_computed(void **state)
{
    (void)state;
    cy_test_machine self;
    if (open_with_dnnl(&self)) {
        const cy_cpu_state *kept = self.queue.kernel_state;
        int64_t failed = 0;
        for (int every = 1; every <= 3; every++) {
            atomic_store(&fail_tiles, every);
            for (size_t i = 0; i < CY_TEST_COUNT(specs); i++)
                compare(&self, specs[i]);
            assert_true(cy_dnnl_failed_tiles(kept->dnnl) > failed);
            failed = cy_dnnl_failed_tiles(kept->dnnl);
        }
        atomic_store(&fail_tiles, 0);
    }
    CY_CHECK_OK(cy_test_machine_close(&self));
}

// A processor without any product that the library takes has all of them computed by us.
static void a_library_that_refuses_all_is_not_used(void **state)
{
    (void)state;
    cy_test_machine self;
    refuse_primitives = true;
    if (open_with_dnnl(&self)) {
        for (int kind = 0; kind < CY_MATMUL_KINDS; kind++) {
            assert_int_equal(cy_kernels_matmul_backend(&self.queue, CY_F32, (cy_matmul_kind)kind),
                CY_MATMUL_TUNED);
        }
    }
    refuse_primitives = false;
    CY_CHECK_OK(cy_test_machine_close(&self));
}

#endif

// The peak of a dtype that the level only widens is at least that of fp32: its ways are among those
// that are measured. Otherwise a run could be said to use more than all of the machine.
static void what_is_widened_is_bounded_by_fp32(void **state)
{
    (void)state;
    static const char *const levels[] = {"ref", "avx2", "avx512", "avx512_bf16", "amx", "neon"};
    for (size_t i = 0; i < CY_TEST_COUNT(levels); i++) {
        cy_test_machine self;
        const cy_status status = cy_test_machine_open(&self, levels[i], 1, ARENA_BYTES);
        if (status == CY_ERR_UNSUPPORTED) continue;
        CY_CHECK_OK(status);
        const bool multiplies =
            strcmp(levels[i], "avx512_bf16") == 0 || strcmp(levels[i], "amx") == 0;
        assert_int_equal(cy_kernels_has_native_matmul(&self.queue, CY_BF16), multiplies);
        cy_peak_variant wide[CY_PEAK_VARIANTS], half[CY_PEAK_VARIANTS];
        const int wide_count = cy_peak_variants(wide, &self.queue, CY_F32);
        const int half_count = cy_peak_variants(half, &self.queue, CY_BF16);
        int found = 0;
        for (int j = 0; j < half_count; j++)
            found += half[j].dtype == CY_F32;
        assert_int_equal(found, multiplies ? 0 : wide_count);
        assert_true(half_count > found && half[0].multiply == self.queue.kernels->matmul);
        CY_CHECK_OK(cy_test_machine_close(&self));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if CY_HAVE_DNNL
        cmocka_unit_test(a_refused_shape_is_our_own),
        cmocka_unit_test(a_tile_that_fails_is_computed),
        cmocka_unit_test(a_library_that_refuses_all_is_not_used),
#endif
        cmocka_unit_test(what_is_widened_is_bounded_by_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
