// AdamW in ranges is AdamW at once, to the bit: a bucket may end anywhere. So is AdamW one step of
// the formula after the other.

#include "kernel/tuned.h"

#include <math.h>

static void check_ranges(const char *isa)
{
    static runner on;
    const bool has = open_runner(&on, isa);
    if (has) {
        bench *at = &on.three;
        const int64_t n = 40000;
        cy_view whole[5], parts[5], passes[5];
        const cy_dtype dtypes[5] = {CY_BF16, CY_F32, CY_F32, CY_F32, CY_F32};
        for (int i = 0; i < 5; i++)
            whole[i] = vector(at, dtypes[i], n);
        cy_ref_fill(&at->queue, whole[3], 0.5);
        for (int i = 0; i < 5; i++) {
            parts[i] = bench_twin(at, whole[i]);
            passes[i] = bench_twin(at, whole[i]);
        }
        const cy_view scale = scalar(at, CY_F64, 0.3), broken = scalar(at, CY_F64, (double)NAN);
        const cy_adamw_spec spec = {3e-3, 0.9, 0.95, 1e-8, 0.1, 7, {0}};
        cy_adamw(&at->queue, whole[0], whole[1], whole[2], whole[3], whole[4], scale, &spec);
        for (int64_t first = 0; first < n;) {
            int64_t count = 1 + first * 3 / 7;
            if (count > n - first) count = n - first;
            cy_view p[5];
            for (int i = 0; i < 5; i++)
                p[i] = cy_view_cols(parts[i], first, count);
            cy_adamw(&at->queue, p[0], p[1], p[2], p[3], p[4], scale, &spec);
            first += count;
        }
        for (int i = 0; i < 5; i++)
            expect_same_bits("adamw in ranges", parts[i], whole[i]);
        at->queue.kernels->adamw_unfused(
            &at->queue, passes[0], passes[1], passes[2], passes[3], passes[4], scale, &spec);
        for (int i = 0; i < 5; i++)
            expect_same_bits("adamw unfused", passes[i], whole[i]);
        // A scale that is no number changes nothing.
        cy_adamw(&at->queue, parts[0], parts[1], parts[2], parts[3], parts[4], broken, &spec);
        for (int i = 0; i < 5; i++)
            expect_same_bits("adamw skipped", parts[i], whole[i]);
        bench_check(at);
    }
    close_runner(&on);
    if (!has) skip();
}

static void ranges_avx2(void **state)
{
    (void)state;
    check_ranges("avx2");
}

static void ranges_avx512(void **state)
{
    (void)state;
    check_ranges("avx512");
}

static void ranges_neon(void **state)
{
    (void)state;
    check_ranges("neon");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_avx2),
        cmocka_unit_test(ranges_avx512),
        cmocka_unit_test(ranges_neon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
