// The table of strict mode's sums: blocks that the mesh has no part in, exponents that follow the
// terms, and a step that is done again.

#include "support/support.h"

#include "base/numbers.h"
#include "model/strict_sums.h"

#include <math.h>
#include <stdlib.h>

static const cy_model_shape shape = {.layers = 3,
    .hidden = 576,
    .ffn = 1536,
    .heads = 9,
    .kv_heads = 3,
    .head_dim = 64,
    .vocab = 49152};

static void blocks(void **state)
{
    (void)state;
    const cy_sum_blocks b = cy_sum_blocks_of(&shape, 1024);
    assert_int_equal(b.heads, 64);
    assert_int_equal(b.ffn, 128);
    assert_int_equal(b.vocab, 128);
    assert_int_equal(b.tokens, 64);
    cy_model_shape other = shape;
    other.ffn = 11008; // 2^8 * 43
    other.heads = 32;
    other.head_dim = 80;
    other.vocab = 50257;
    const cy_sum_blocks c = cy_sum_blocks_of(&other, 96);
    assert_int_equal(c.heads, 16);
    assert_int_equal(c.ffn, 32);
    assert_int_equal(c.vocab, 128);
    assert_int_equal(c.tokens, 32);
}

static cy_fixed *of_key(const cy_sums *sums, cy_param_key key)
{
    const cy_param param = {.key = key};
    return cy_sums_gradient(sums, &param);
}

static cy_fixed *in_layer(const cy_sums *sums, cy_role role)
{
    return of_key(sums, (cy_param_key){role, 1, CY_DENSE});
}

static void fused_gradients_share_one(void **state)
{
    (void)state;
    cy_sums sums;
    CY_CHECK_OK(cy_sums_open(&sums, &shape, 1024));
    assert_ptr_equal(in_layer(&sums, CY_ROLE_V), in_layer(&sums, CY_ROLE_Q));
    assert_ptr_equal(in_layer(&sums, CY_ROLE_UP), in_layer(&sums, CY_ROLE_GATE));
    assert_ptr_equal(in_layer(&sums, CY_ROLE_K_BIAS), in_layer(&sums, CY_ROLE_Q_BIAS));
    assert_ptr_not_equal(in_layer(&sums, CY_ROLE_OUT), in_layer(&sums, CY_ROLE_DOWN));
    assert_ptr_equal(
        cy_sums_at(&sums, shape.layers, CY_SUM_SITES - 1), sums.table + sums.count - 1);
    assert_null(cy_sums_at(NULL, 0, CY_SUM_OUT));
    cy_sums_close(&sums);
}

// The gradients of each expert are a sum of their own, beside those of dense parameters.
static void every_expert_has_sums(void **state)
{
    (void)state;
    cy_model_shape mixture = shape;
    cy_sums sums;
    mixture.experts = 3;
    CY_CHECK_OK(cy_sums_open(&sums, &mixture, 1024));
    assert_int_equal(sums.count, (shape.layers + 2) * 4 * CY_SUM_SITES);
    for (int layer = -1; layer <= shape.layers; layer++) {
        for (int expert = CY_DENSE; expert < 3; expert++) {
            cy_fixed *down = of_key(&sums, (cy_param_key){CY_ROLE_DOWN, layer, expert});
            const cy_fixed *up = of_key(&sums, (cy_param_key){CY_ROLE_UP, layer, expert});
            const cy_fixed *gate = of_key(&sums, (cy_param_key){CY_ROLE_GATE, layer, expert});
            assert_true(sums.table <= down && down < sums.table + sums.count);
            assert_int_not_equal(down->exponent, 7); // nobody else's
            down->exponent = 7;
            assert_ptr_equal(up, gate);
            assert_ptr_not_equal(up, down);
        }
    }
    assert_int_equal(cy_sums_at(&sums, 1, CY_ROLE_DOWN)->exponent, 7);
    cy_sums_close(&sums);
}

// The largest term leaves eight bits below 2^40 units, whatever the exponent was before.
static void exponents_follow_the_terms(void **state)
{
    (void)state;
    cy_sums sums;
    CY_CHECK_OK(cy_sums_open(&sums, &shape, 1024));
    cy_fixed *down = cy_sums_at(&sums, 0, CY_SUM_DOWN), *out = cy_sums_at(&sums, 0, CY_SUM_OUT);
    uint32_t *largest = calloc((size_t)sums.count, sizeof(*largest));
    const int before = out->exponent;
    static const float terms[] = {0x1.8p20f, 0x1p31f, 0x1p39f, 0.25f};
    for (size_t i = 0; i < sizeof(terms) / sizeof(*terms); i++) {
        down->exponent = -10;
        largest[down - sums.table] = cy_f32_bits(terms[i]);
        assert_false(cy_sums_exceeded(cy_f32_bits(terms[i])));
        cy_sums_update_exponents(&sums, largest, 0);
        const double units = ldexp((double)terms[i], -10 - down->exponent);
        assert_true(units >= 0x1p31 && units < 0x1p32);
        assert_int_equal(out->exponent, before); // no terms: as it was
    }
    assert_true(cy_sums_exceeded(cy_f32_bits(0x1p40f)));
    assert_true(cy_sums_exceeded(cy_f32_bits(NAN) & 0x7fffffffu));
    free(largest);
    cy_sums_close(&sums);
}

// Each entry has a place of its own for its largest term, which views of the sum carry.
static void views_carry_the_sum(void **state)
{
    (void)state;
    cy_sums sums;
    CY_CHECK_OK(cy_sums_open(&sums, &shape, 1024));
    _Atomic uint32_t *largest = calloc((size_t)sums.count, sizeof(*largest));
    cy_sums_bind(&sums, largest);
    for (int64_t i = 0; i < sums.count; i++) {
        int64_t number = 0;
        const cy_view view = cy_fixed_view(&sums.table[i], cy_view_of(&number, CY_FX64, 1, 1));
        assert_ptr_equal(view.largest, largest + i);
        assert_int_equal(view.exponent, sums.table[i].exponent);
        assert_int_equal(view.block_k, sums.table[i].block_k);
    }
    free(largest);
    cy_sums_close(&sums);
}

static void a_raise_ends_with_its_step(void **state)
{
    (void)state;
    cy_sums sums;
    CY_CHECK_OK(cy_sums_open(&sums, &shape, 1024));
    cy_fixed *down = cy_sums_at(&sums, 0, CY_SUM_DOWN), *out = cy_sums_at(&sums, 0, CY_SUM_OUT);
    const int before = out->exponent, loss = sums.loss.exponent, squares = sums.square_exponent;
    cy_sums_raise(&sums, 16);
    assert_int_equal(out->exponent, before + 16);
    assert_int_equal(squares + 32, sums.square_exponent);
    down->exponent = 6;
    uint32_t *largest = calloc((size_t)sums.count, sizeof(*largest));
    largest[down - sums.table] = cy_f32_bits(0x1p35f);
    cy_sums_update_exponents(&sums, largest, 16);
    free(largest);
    assert_int_equal(down->exponent, 6 + 35 + 1 + 8 - 40);
    assert_int_equal(out->exponent, before);
    assert_int_equal(loss, sums.loss.exponent);
    assert_int_equal(squares, sums.square_exponent);
    cy_sums_close(&sums);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks),
        cmocka_unit_test(fused_gradients_share_one),
        cmocka_unit_test(every_expert_has_sums),
        cmocka_unit_test(exponents_follow_the_terms),
        cmocka_unit_test(views_carry_the_sum),
        cmocka_unit_test(a_raise_ends_with_its_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
