// The frequencies of rotary positions: near the system's power, and the same bits everywhere.

#include "support/support.h"

#include "base/numbers.h"
#include "model/shape.h"

#include <math.h>
#include <string.h>

static cy_model_shape shape_of(cy_rope_shape rope, int64_t head_dim)
{
    return (cy_model_shape){.head_dim = head_dim, .rope = rope};
}

static void plain_ones_are_powers(void **state)
{
    (void)state;
    static const double thetas[] = {10000, 500000, 1e6, 5e7, 3.5};
    for (size_t i = 0; i < sizeof(thetas) / sizeof(*thetas); i++) {
        for (int64_t head_dim = 2; head_dim <= 256; head_dim += 2) {
            double got[128];
            const cy_model_shape shape = shape_of((cy_rope_shape){.theta = thetas[i]}, head_dim);
            assert_true(cy_rope_frequencies(got, &shape, 64) == 1.0);
            assert_true(got[0] == 1.0);
            for (int64_t k = 0; k < head_dim / 2; k++) {
                const double wanted = pow(thetas[i], -2.0 * (double)k / (double)head_dim);
                assert_true(fabs(got[k] / wanted - 1.0) < 8e-15);
            }
        }
    }
}

// Written down from one processor: whoever runs this elsewhere compares the two.
static void their_bits_are_the_same_everywhere(void **state)
{
    (void)state;
    static const struct {
        cy_rope_shape rope;
        int64_t head_dim;
        uint64_t hash;
    } cases[] = {
        {{.theta = 10000}, 64, 0x4ece44e1b611f471},
        {{.theta = 500000,
             .scaling = CY_ROPE_LLAMA3,
             .factor = 8,
             .low_freq_factor = 1,
             .high_freq_factor = 4,
             .original_length = 8192},
            128, 0xd8dc48a5301b8f3a},
        {{.theta = 1e6,
             .scaling = CY_ROPE_YARN,
             .factor = 4,
             .beta_fast = 32,
             .beta_slow = 1,
             .original_length = 32768},
            80, 0x83af8cf4baf72bbf},
        {{.theta = 10000, .scaling = CY_ROPE_DYNAMIC, .factor = 2, .original_length = 32}, 64,
            0x35e544fa4ba0fb27},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        double got[65];
        const cy_model_shape shape = shape_of(cases[i].rope, cases[i].head_dim);
        const size_t count = (size_t)cases[i].head_dim / 2;
        got[count] = 123; // behind the last of them
        const double factor = cy_rope_frequencies(got, &shape, 64);
        assert_true(got[count] == 123);
        got[count] = factor;
        const uint64_t hash = cy_hash_bytes((const unsigned char *)got, (count + 1) * sizeof(*got));
        if (hash != cases[i].hash) {
            fail_msg("case %zu: %016llx, wanted %016llx", i, (unsigned long long)hash,
                (unsigned long long)cases[i].hash);
        }
    }
}

// Where nothing is stretched, or all of it, the numbers are those of the plain ones.
static void ends_of_the_scalings(void **state)
{
    (void)state;
    enum { HEAD_DIM = 16, PAIRS = 8 };
    double plain[PAIRS], got[PAIRS];
    cy_model_shape shape = shape_of((cy_rope_shape){.theta = 10000}, HEAD_DIM);
    cy_rope_frequencies(plain, &shape, 64);

    // linear: all by the factor.
    shape.rope.scaling = CY_ROPE_LINEAR;
    shape.rope.factor = 3;
    assert_true(cy_rope_frequencies(got, &shape, 64) == 1.0);
    for (int i = 0; i < PAIRS; i++)
        assert_true(got[i] == plain[i] / 3);

    // dynamic: as they are up to the original length, and a longer wave from one beyond it.
    shape.rope.scaling = CY_ROPE_DYNAMIC;
    shape.rope.original_length = 64;
    assert_true(cy_rope_frequencies(got, &shape, 64) == 1.0);
    assert_memory_equal(got, plain, sizeof(plain));
    assert_true(cy_rope_frequencies(got, &shape, 65) == 1.0);
    const double theta = 10000 * pow(3.0 * 65 / 64 - 2, 16.0 / 14);
    for (int i = 0; i < PAIRS; i++)
        assert_true(fabs(got[i] / pow(theta, -i / 8.0) - 1) < 1e-13);

    // llama3: waves shorter than 64 / 6 stay, longer ones than 64 / 2 go by the factor.
    shape.rope.scaling = CY_ROPE_LLAMA3;
    shape.rope.low_freq_factor = 2;
    shape.rope.high_freq_factor = 6;
    assert_true(cy_rope_frequencies(got, &shape, 64) == 1.0);
    for (int i = 0; i < PAIRS; i++) {
        const double wave = 2 * 3.14159265358979323846 / plain[i];
        const double kept = fmin(fmax((64 / wave - 2) / 4, 0), 1);
        const double wanted = plain[i] / 3 * (1 - kept) + plain[i] * kept;
        assert_true(fabs(got[i] / wanted - 1) < 1e-15);
        if (wave < 64.0 / 6) assert_true(got[i] == plain[i]);
        if (wave > 32) assert_true(got[i] == plain[i] / 3);
    }
}

// yarn: pairs that turn more than 32 times within the original length stay, those that turn less
// than once go by the factor.
static void ends_of_yarns_ramp(void **state)
{
    (void)state;
    enum { HEAD_DIM = 16, PAIRS = 8 };
    static const struct {
        int64_t length;
        double fast;      // rotations above which nothing is stretched
        double low, high; // of the ramp, in pairs, by hand: 0.8686 ln(length / (6.2832 rotations))
    } cases[] = {
        {1, 32, 0, 0.001},                  // both below 0: no ramp at all
        {6, 32, 0, 0.001},                  // -0.04 rounds up to 0
        {7, 32, 0, 1},                      // 0.09
        {64, 32, 0, 3},                     // 2.02
        {1024, 32, 1, 5},                   // 1.41 and 4.42
        {32768, 32, 4, 8},                  // 4.42 and 7.43
        {INT64_C(1) << 30, 1 << 20, 4, 15}, // 4.42 and 16.47, but the last is head_dim - 1
        {INT64_C(1) << 40, 32, 19, 15},     // 19.47
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
        double plain[PAIRS], got[PAIRS];
        cy_model_shape shape = shape_of((cy_rope_shape){.theta = 10000}, HEAD_DIM);
        cy_rope_frequencies(plain, &shape, 64);
        shape.rope = (cy_rope_shape){.theta = 10000,
            .scaling = CY_ROPE_YARN,
            .factor = 4,
            .beta_fast = cases[c].fast,
            .beta_slow = 1,
            .attention_factor = 0.75,
            .original_length = cases[c].length};
        assert_true(cy_rope_frequencies(got, &shape, 64) == 0.75);
        const double low = cases[c].low;
        const double high = cases[c].high > low ? cases[c].high : low + 0.001;
        for (int i = 0; i < PAIRS; i++) {
            const double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
            const double wanted = plain[i] / 4 * ramp + plain[i] * (1 - ramp);
            if (fabs(got[i] / wanted - 1) < 1e-15) continue;
            fail_msg("length %lld, pair %d: %.17g, wanted %.17g", (long long)cases[c].length, i,
                got[i], wanted);
        }
    }
    static const struct {
        double factor, wanted;
    } factors[] = {{0.5, 1}, {1, 1}, {1.5, 1.0405465108108164}, {4, 1.1386294361119891}};
    for (size_t i = 0; i < sizeof(factors) / sizeof(*factors); i++) {
        double got[PAIRS];
        const cy_model_shape shape = shape_of((cy_rope_shape){.theta = 10000,
                                                  .scaling = CY_ROPE_YARN,
                                                  .factor = factors[i].factor,
                                                  .beta_fast = 32,
                                                  .beta_slow = 1,
                                                  .original_length = 64},
            HEAD_DIM);
        assert_true(fabs(cy_rope_frequencies(got, &shape, 64) - factors[i].wanted) < 1e-15);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_ones_are_powers),
        cmocka_unit_test(their_bits_are_the_same_everywhere),
        cmocka_unit_test(ends_of_the_scalings),
        cmocka_unit_test(ends_of_yarns_ramp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
