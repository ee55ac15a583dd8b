// The frequencies of rotary positions: near the system's power, and the same bits everywhere.

#include "support/support.h"

#include "data/hash.h"
#include "model/rope.h"

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
        got[count] = cy_rope_frequencies(got, &shape, 64);
        const uint64_t hash = cy_hash_bytes((const unsigned char *)got, (count + 1) * sizeof(*got));
        if (hash != cases[i].hash) {
            fail_msg("case %zu: %016llx, wanted %016llx", i, (unsigned long long)hash,
                (unsigned long long)cases[i].hash);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_ones_are_powers),
        cmocka_unit_test(their_bits_are_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
