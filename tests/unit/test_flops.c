// Parameters and floating-point operations of published shapes.

#define _GNU_SOURCE
#include "model/manifest.h"
#include "observe/memory.h"
#include "observe/profile.h"
#include "support/support.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

static const cy_model_shape smollm_135m = {.layers = 30,
    .hidden = 576,
    .ffn = 1536,
    .heads = 9,
    .kv_heads = 3,
    .head_dim = 64,
    .vocab = 49152,
    .tied = true};

static const cy_model_shape llama2_7b = {.layers = 32,
    .hidden = 4096,
    .ffn = 11008,
    .heads = 32,
    .kv_heads = 32,
    .head_dim = 128,
    .vocab = 32000};

static const cy_model_shape mixtral_8x7b = {.layers = 32,
    .hidden = 4096,
    .ffn = 14336,
    .heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .vocab = 32000,
    .experts = 8,
    .experts_per_token = 2,
    .expert_ffn = 14336};

static const cy_model_shape qwen3_06b = {.layers = 28,
    .hidden = 1024,
    .ffn = 3072,
    .heads = 16,
    .kv_heads = 8,
    .head_dim = 128,
    .vocab = 151936,
    .tied = true,
    .qk_norm = true};

static void parameters_are_the_published_ones(void **state)
{
    (void)state;
    assert_int_equal(cy_params_all(&smollm_135m), 134515008);
    assert_int_equal(cy_params_all(&llama2_7b), 6738415616);
    assert_int_equal(cy_params_all(&mixtral_8x7b), 46702792704);
    assert_int_equal(cy_params_all(&qwen3_06b), 596049920);
    assert_int_equal(cy_params_active(&llama2_7b), 6738415616);
    assert_int_equal(cy_params_active(&mixtral_8x7b), 12879925248);
}

static void biases_count(void **state)
{
    (void)state;
    cy_model_shape shape = smollm_135m;
    shape.qkv_bias = true;
    assert_int_equal(cy_params_all(&shape) - cy_params_all(&smollm_135m), 30 * (9 + 6) * 64);
    shape.out_bias = true;
    assert_int_equal(
        cy_params_all(&shape) - cy_params_all(&smollm_135m), 30 * ((9 + 6) * 64 + 576));
}

static void parameters_are_those_of_the_manifest(void **state)
{
    (void)state;
    cy_model_shape shapes[4] = {smollm_135m, llama2_7b, qwen3_06b, smollm_135m};
    shapes[3].qkv_bias = true;
    shapes[3].out_bias = true;
    for (int i = 0; i < 4; i++) {
        cy_manifest manifest;
        shapes[i].norm_eps = 1e-5;
        shapes[i].rope.theta = 10000;
        shapes[i].max_positions = 2048;
        shapes[i].init_std = 0.02;
        shapes[i].bos = shapes[i].eos = -1;
        CY_CHECK_OK(cy_manifest_open(&manifest, &shapes[i], cy_precision_of(CY_F32)));
        assert_int_equal(cy_manifest_elements(&manifest), cy_params_all(&shapes[i]));
        cy_manifest_close(&manifest);
    }
}

static void both_conventions(void **state)
{
    (void)state;
    assert_true(cy_flops_per_token(&smollm_135m, 1024) == 6.0 * 134515008 + 12.0 * 30 * 576 * 1024);
    // The tied table is the head's matrix: it stays.
    assert_true(
        cy_flops_per_token_causal(&smollm_135m, 1024) == 6.0 * 134515008 + 6.0 * 30 * 576 * 1024);
    assert_true(cy_flops_per_token_causal(&llama2_7b, 4096) ==
        6.0 * (6738415616 - INT64_C(32000) * 4096) + 6.0 * 32 * 4096 * 4096);
}

static void share_of_an_unknown_peak_is_no_number(void **state)
{
    (void)state;
    assert_true(cy_flops_utilization(1000, 2e6, 8e9) == 0.25);
    assert_true(isnan(cy_flops_utilization(1000, 2e6, 0)));
}

static void resident_memory_follows_what_is_touched(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); // what it keeps about memory is resident, too
#endif
    const size_t size = (size_t)64 << 20;
    cy_rss before, during, after;
    CY_CHECK_OK(cy_rss_read(&before));
    void *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(block != MAP_FAILED);
    memset(block, 1, size);
    CY_CHECK_OK(cy_rss_read(&during));
    munmap(block, size);
    CY_CHECK_OK(cy_rss_read(&after));
    const size_t slack = (size_t)4 << 20;
    assert_in_range(
        during.now_bytes, before.now_bytes + size - slack, before.now_bytes + size + slack);
    assert_true(after.now_bytes < during.now_bytes - size / 2);
    assert_true(after.peak_bytes >= during.now_bytes - slack);
    if (cy_rss_reset_peak() != CY_OK) skip(); // some containers forbid it
    CY_CHECK_OK(cy_rss_read(&after));
    assert_true(after.peak_bytes < during.now_bytes - size / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_the_published_ones),
        cmocka_unit_test(biases_count),
        cmocka_unit_test(parameters_are_those_of_the_manifest),
        cmocka_unit_test(both_conventions),
        cmocka_unit_test(share_of_an_unknown_peak_is_no_number),
        cmocka_unit_test(resident_memory_follows_what_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
