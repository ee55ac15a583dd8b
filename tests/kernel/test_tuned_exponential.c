// The exponential of the tuned operators, read off the softmax's gradient: exp(logit - 0) / 1. Over
// its whole range it is near the true one, and what is not finite stays so.

#include "kernel/tuned.h"

#include <math.h>

static void check_exponential(const char *isa)
{
    static runner on;
    const bool has = open_runner(&on, isa);
    if (has) {
        const int64_t count = 400000;
        bench *at = &on.one;
        const cy_view x = bench_make(at, CY_F32, 1, count, 0), y = bench_twin(at, x);
        const cy_view zero = scalar(at, CY_F32, 0.0), one = scalar(at, CY_F32, 1.0);
        const int32_t target = 1 << 30; // somewhere else
        float *in = x.data;
        for (int64_t i = 0; i < count; i++) {
            in[i] = -106.0f + (float)i * (196.0f / (float)count);
        }
        in[0] = NAN;
        in[1] = INFINITY;
        in[2] = -INFINITY;
        in[3] = 0.0f;
        in[4] = -0.0f;
        in[5] = 88.72283f; // the last that is finite
        in[6] = 88.73f;
        in[7] = -1e30f;
        in[8] = 1e30f;
        in[9] = 1e-30f;
        const cy_vocab_range range = {.first = 0, .valid = count};
        cy_softmax_grad(&at->queue, y, x, zero, one, &target, range, 1.0);
        const float *out = y.data;
        assert_true(isnan(out[0]));
        assert_true(isinf(out[1]) && isinf(out[6]) && isinf(out[8]));
        assert_true(out[2] == 0.0f && out[7] == 0.0f);
        assert_true(out[3] == 1.0f && out[4] == 1.0f && out[9] == 1.0f);
        double worst = 0.0;
        for (int64_t i = 3; i < count; i++) {
            const double want = exp((double)in[i]);
            if (want > 3.4028235e38) {
                assert_true(isinf(out[i]));
            } else if (want < 0x1p-126) {
                assert_true(fabs((double)out[i] - want) <= 0x1p-149);
            } else {
                cy_test_worse(&worst, fabs((double)out[i] / want - 1.0));
            }
        }
        print_message("%s: largest relative error %.3g\n", isa, worst);
        assert_true(worst < 1.2e-7);
        bench_check(at);
    }
    close_runner(&on);
    if (!has) skip();
}

static void exponential_avx2(void **state)
{
    (void)state;
    check_exponential("avx2");
}

static void exponential_avx512(void **state)
{
    (void)state;
    check_exponential("avx512");
}

static void exponential_neon(void **state)
{
    (void)state;
    check_exponential("neon");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponential_avx2),
        cmocka_unit_test(exponential_avx512),
        cmocka_unit_test(exponential_neon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
