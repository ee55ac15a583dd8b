#include "support/support.h"

#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT (1 << 20)

// The first known answer that the authors of Philox published for 10 rounds.
static void known_answer(void **state)
{
    (void)state;
    assert_true(cy_random_bits(0, 0) == 0xe169c58d6627e8d5u);
}

static void keys_differ(void **state)
{
    (void)state;
    const uint64_t key = cy_random_key(42, "model.norm.weight");
    assert_true(key == cy_random_key(42, "model.norm.weight"));
    assert_true(key != cy_random_key(43, "model.norm.weight"));
    assert_true(key != cy_random_key(42, "model.norm.bias"));
    assert_true(cy_random_key_at(key, 0) != cy_random_key_at(key, 1));
    assert_true(cy_random_key_at(key, 0) != key);
}

static void uniform_moments(void **state)
{
    (void)state;
    double sum = 0.0, squares = 0.0, product = 0.0, last = 0.5;
    for (uint64_t i = 0; i < COUNT; i++) {
        const double x = cy_random_uniform(3, i);
        assert_true(x >= 0.0 && x < 1.0);
        sum += x;
        squares += (x - 0.5) * (x - 0.5);
        product += (x - 0.5) * (last - 0.5);
        last = x;
    }
    // Five standard errors each.
    assert_true(fabs(sum / COUNT - 0.5) < 5.0 * sqrt(1.0 / 12 / COUNT));
    assert_true(fabs(squares / COUNT - 1.0 / 12) < 5.0 * sqrt(1.0 / 180 / COUNT));
    assert_true(fabs(product / COUNT) < 5.0 / 12 / sqrt(COUNT));
}

static void normal_moments(void **state)
{
    (void)state;
    float *x = malloc(COUNT * sizeof(*x));
    assert_non_null(x);
    cy_random_normal(x, cy_random_key(1, "test"), 0, COUNT);
    double moments[5] = {0}, neighbours = 0.0;
    int beyond3 = 0;
    for (int i = 0; i < COUNT; i++) {
        double power = 1.0;
        for (int k = 1; k < 5; k++) {
            power *= (double)x[i];
            moments[k] += power / COUNT;
        }
        if (i > 0) neighbours += (double)x[i] * (double)x[i - 1] / COUNT;
        beyond3 += fabsf(x[i]) > 3.0f;
    }
    free(x);
    // Five standard errors of the moments of normal numbers.
    assert_true(fabs(moments[1]) < 5.0 * sqrt(1.0 / COUNT));
    assert_true(fabs(moments[2] - 1.0) < 5.0 * sqrt(2.0 / COUNT));
    assert_true(fabs(moments[3]) < 5.0 * sqrt(15.0 / COUNT));
    assert_true(fabs(moments[4] - 3.0) < 5.0 * sqrt(96.0 / COUNT));
    assert_true(fabs(neighbours) < 5.0 * sqrt(1.0 / COUNT));
    const double tail = 0.0026997960632601866;
    assert_true(fabs((double)beyond3 / COUNT - tail) < 5.0 * sqrt(tail / COUNT));
}

// The numbers against the definition, with the C library's functions in double.
static void normal_is_box_muller(void **state)
{
    (void)state;
    float x[4096];
    cy_random_normal(x, 99, 0, 4096);
    for (uint64_t i = 0; i < 4096; i += 4) { // the first pair of each block is cy_random_bits
        const uint64_t bits = cy_random_bits(99, i / 4);
        const double unit = ((double)((uint32_t)bits >> 8) + 1.0) * 0x1p-24;
        const double angle = 6.283185307179586 * (double)(bits >> 32) * 0x1p-32;
        const double radius = sqrt(-2.0 * log(unit));
        assert_true(fabs((double)x[i] - radius * cos(angle)) < 2e-6);
        assert_true(fabs((double)x[i + 1] - radius * sin(angle)) < 2e-6);
    }
}

// What lets a shard draw the numbers of the whole tensor.
static void slice_equals_whole(void **state)
{
    (void)state;
    float whole[2000], slice[2000];
    const uint64_t first = (uint64_t)1 << 33; // beyond 32 bits
    cy_random_normal(whole, 5, first, 2000);
    for (int64_t from = 0; from < 300; from += 7) {
        for (int64_t count = 0; count < 700; count += 131) {
            slice[count] = 123.0f;
            cy_random_normal(slice, 5, first + (uint64_t)from, count);
            assert_memory_equal(slice, whole + from, (size_t)count * sizeof(float));
            assert_true(slice[count] == 123.0f); // and no more than was asked for
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answer),
        cmocka_unit_test(keys_differ),
        cmocka_unit_test(uniform_moments),
        cmocka_unit_test(normal_moments),
        cmocka_unit_test(normal_is_box_muller),
        cmocka_unit_test(slice_equals_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
