// Choosing tokens: the law that is drawn from, and the edges.

#include "infer/sampler.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

#define VOCAB 16

static const float logits[VOCAB] = {0.3f, -1.0f, 2.0f, 0.0f, 1.5f, -2.5f, 2.0f, 0.7f, -0.2f, 1.1f,
    -3.0f, 0.9f, -0.6f, 0.1f, -1.7f, 0.4f};

static int32_t choose(const float *from, int64_t vocab, cy_sampling_params spec, int64_t position)
{
    cy_sampler sampler;
    int32_t token = -1;
    CY_CHECK_OK(cy_sampler_open(&sampler, vocab));
    CY_CHECK_OK(cy_sample_token(&token, &sampler, from, &spec, position, NULL, 0));
    cy_sampler_close(&sampler);
    return token;
}

// Draws at many positions and compares the counts with probabilities `law` [VOCAB]: a token of
// probability 0 must never come, the rest must pass a chi-square test. The seed is fixed, so this
// does not flicker; the bound is the 0.999 quantile (Wilson and Hilferty's approximation).
static void follows(
    const double *law, cy_sampling_params spec, const int32_t *history, int64_t count)
{
    const int draws = 40000;
    int seen[VOCAB] = {0};
    cy_sampler sampler;
    CY_CHECK_OK(cy_sampler_open(&sampler, VOCAB));
    for (int i = 0; i < draws; i++) {
        int32_t token = -1;
        CY_CHECK_OK(cy_sample_token(&token, &sampler, logits, &spec, i, history, count));
        assert_in_range(token, 0, VOCAB - 1);
        seen[token]++;
    }
    cy_sampler_close(&sampler);
    double chi = 0;
    int freedom = -1;
    for (int i = 0; i < VOCAB; i++) {
        if (law[i] == 0) {
            assert_int_equal(seen[i], 0);
            continue;
        }
        const double expected = law[i] * draws;
        chi += (seen[i] - expected) * (seen[i] - expected) / expected;
        freedom++;
    }
    assert_true(freedom > 0);
    const double spread = 2.0 / (9.0 * freedom);
    const double bound = freedom * pow(1 - spread + 3.09 * sqrt(spread), 3);
    if (chi > bound) print_error("chi-square %g of %d, bound %g\n", chi, freedom, bound);
    assert_true(chi <= bound);
}

// The law of exp(score / temperature) over the tokens that `kept` marks.
static void softmax(double *law, const double *scores, double temperature, const char *kept)
{
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) {
        law[i] = kept[i] == '1' ? exp(scores[i] / temperature) : 0;
        sum += law[i];
    }
    for (int i = 0; i < VOCAB; i++)
        law[i] /= sum;
}

static void plain_law(double *law, double temperature, const char *kept)
{
    double scores[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        scores[i] = (double)logits[i];
    softmax(law, scores, temperature, kept);
}

static void temperature_shapes_the_law(void **state)
{
    (void)state;
    double law[VOCAB];
    cy_sampling_params spec = cy_sampling_defaults();
    const double temperatures[] = {0.5, 1, 3};
    for (int i = 0; i < 3; i++) {
        spec.temperature = temperatures[i];
        spec.seed = (uint64_t)i + 7;
        plain_law(law, spec.temperature, "1111111111111111");
        follows(law, spec, NULL, 0);
    }
}

static void top_k_keeps_k_with_ties_by_id(void **state)
{
    (void)state;
    double law[VOCAB];
    cy_sampling_params spec = cy_sampling_defaults();
    spec.temperature = 1;
    spec.top_k = 5; // 2.0 2.0 1.5 1.1 0.9: tokens 2, 6, 4, 9, 11
    plain_law(law, 1, "0010101001010000");
    follows(law, spec, NULL, 0);
    spec.top_k = 1;
    for (int i = 0; i < 20; i++)
        assert_int_equal(choose(logits, VOCAB, spec, i), 2);
}

static void top_k_of_all_or_more_is_no_cut(void **state)
{
    (void)state;
    cy_sampling_params all = cy_sampling_defaults();
    all.temperature = 1;
    const int64_t sizes[] = {VOCAB, VOCAB + 1, INT64_MAX};
    for (int s = 0; s < 3; s++) {
        cy_sampling_params spec = all;
        spec.top_k = sizes[s];
        for (int i = 0; i < 50; i++) {
            assert_int_equal(choose(logits, VOCAB, spec, i), choose(logits, VOCAB, all, i));
        }
    }
}

// Marks the fewest best tokens whose probability together is at least p, by exhaustive counting.
static void mark_top_p(char *kept, const double *law, double p)
{
    memset(kept, '0', VOCAB);
    double sum = 0;
    while (sum < p) {
        int best = -1;
        for (int i = 0; i < VOCAB; i++) {
            if (kept[i] == '0' && (best < 0 || law[i] > law[best])) best = i;
        }
        kept[best] = '1';
        sum += law[best];
    }
}

static void top_p_keeps_the_fewest_that_suffice(void **state)
{
    (void)state;
    cy_sampling_params spec = cy_sampling_defaults();
    spec.temperature = 1;
    const double shares[] = {0.9, 0.5, 0.25};
    for (int i = 0; i < 3; i++) {
        double law[VOCAB];
        char kept[VOCAB];
        spec.top_p = shares[i];
        plain_law(law, 1, "1111111111111111");
        mark_top_p(kept, law, shares[i]);
        plain_law(law, 1, kept);
        follows(law, spec, NULL, 0);
    }
    spec.top_p = 1e-9; // at least one token stays
    for (int i = 0; i < 20; i++)
        assert_int_equal(choose(logits, VOCAB, spec, i), 2);
}

static void top_p_counts_within_top_k(void **state)
{
    (void)state;
    double law[VOCAB];
    char kept[VOCAB];
    cy_sampling_params spec = cy_sampling_defaults();
    spec.temperature = 1;
    spec.top_k = 6;
    spec.top_p = 0.7;
    plain_law(law, 1, "0010101101010000"); // the six best, renormalised
    mark_top_p(kept, law, 0.7);
    plain_law(law, 1, kept);
    follows(law, spec, NULL, 0);
}

static void a_penalty_counts_each_token_once(void **state)
{
    (void)state;
    const int32_t history[] = {2, 5, 2, 2, 99, -1};
    double law[VOCAB], scores[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        scores[i] = (double)logits[i];
    scores[2] /= 1.5; // positive: divided
    scores[5] *= 1.5; // negative: multiplied
    cy_sampling_params spec = cy_sampling_defaults();
    spec.temperature = 1;
    spec.repetition_penalty = 1.5;
    softmax(law, scores, 1, "1111111111111111");
    follows(law, spec, history, 6);

    spec.temperature = 0; // greedy takes the other one of the two best
    cy_sampler sampler;
    int32_t token = -1;
    CY_CHECK_OK(cy_sampler_open(&sampler, VOCAB));
    CY_CHECK_OK(cy_sample_token(&token, &sampler, logits, &spec, 0, history, 6));
    cy_sampler_close(&sampler);
    assert_int_equal(token, 6);
}

static void greedy_takes_the_first_of_equals(void **state)
{
    (void)state;
    cy_sampling_params spec = cy_sampling_defaults();
    spec.top_k = 3;
    spec.top_p = 0.1;
    for (int i = 0; i < 10; i++)
        assert_int_equal(choose(logits, VOCAB, spec, i), 2);
    const float equal[4] = {1, 1, 1, 1};
    assert_int_equal(choose(equal, 4, spec, 0), 0);
    const float one[1] = {-5};
    assert_int_equal(choose(one, 1, spec, 0), 0);
    const float zeros[4] = {-1, -0.0f, 0.0f, -0.0f};
    assert_int_equal(choose(zeros, 4, spec, 0), 1);
}

// Wherever the largest stands, also beside tokens that never come.
static void greedy_finds_the_largest_of_many(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    static float many[MANY];
    const cy_sampling_params spec = cy_sampling_defaults();
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int at = 0; at < MANY; at += 37) {
            for (int i = 0; i < MANY; i++)
                many[i] = (float)sign * (float)(10 + i % 100);
            many[at] = sign < 0 ? -9.5f : 200.0f;
            if (at + 100 < MANY) many[at + 100] = many[at]; // the first of equals
            assert_int_equal(choose(many, MANY, spec, 0), at);
            many[(at + 1) % MANY] = -INFINITY;
            assert_int_equal(choose(many, MANY, spec, 0), at);
        }
    }
}

static void a_draw_is_a_function_of_seed_and_position(void **state)
{
    (void)state;
    cy_sampling_params spec = cy_sampling_defaults();
    spec.temperature = 2;
    int differ = 0;
    for (int i = 0; i < 100; i++) {
        spec.seed = 1;
        const int32_t first = choose(logits, VOCAB, spec, i);
        assert_int_equal(choose(logits, VOCAB, spec, i), first);
        spec.seed = 2;
        differ += choose(logits, VOCAB, spec, i) != first;
    }
    assert_true(differ > 50);
}

static void minus_infinity_never_comes(void **state)
{
    (void)state;
    const float some[4] = {-INFINITY, 0, -INFINITY, 1};
    cy_sampling_params spec = cy_sampling_defaults();
    for (int temperature = 0; temperature < 2; temperature++) {
        spec.temperature = temperature * 100.0;
        for (int k = 0; k < 5; k++) {
            spec.top_k = k;
            for (int i = 0; i < 200; i++)
                assert_int_equal(choose(some, 4, spec, i) % 2, 1);
        }
    }
}

static void logits_that_are_no_numbers_are_errors(void **state)
{
    (void)state;
    cy_sampler sampler;
    int32_t token = 77;
    const cy_sampling_params spec = cy_sampling_defaults();
    CY_CHECK_OK(cy_sampler_open(&sampler, 3));
    const float nan_third[3] = {0, 1, NAN};
    CY_CHECK_FAILS(cy_sample_token(&token, &sampler, nan_third, &spec, 0, NULL, 0),
        CY_ERR_NOT_FINITE, "logit 2 of 3 is");
    const float infinite[3] = {INFINITY, 1, 0};
    CY_CHECK_FAILS(cy_sample_token(&token, &sampler, infinite, &spec, 0, NULL, 0),
        CY_ERR_NOT_FINITE, "logit 0 of 3 is inf");
    const float negative_nan[3] = {0, -NAN, 1};
    CY_CHECK_FAILS(cy_sample_token(&token, &sampler, negative_nan, &spec, 0, NULL, 0),
        CY_ERR_NOT_FINITE, "logit 1 of 3 is");
    const float none[3] = {-INFINITY, -INFINITY, -INFINITY};
    CY_CHECK_FAILS(cy_sample_token(&token, &sampler, none, &spec, 0, NULL, 0), CY_ERR_NOT_FINITE,
        "all 3 logits");
    assert_int_equal(token, 77);
    cy_sampler_close(&sampler);
}

static void a_spec_out_of_range_is_named(void **state)
{
    (void)state;
    cy_sampling_params spec = cy_sampling_defaults();
    CY_CHECK_OK(cy_sampling_check(&spec));
    spec.temperature = -1;
    CY_CHECK_FAILS(cy_sampling_check(&spec), CY_ERR_REQUEST, "temperature is -1");
    spec = cy_sampling_defaults();
    spec.top_k = -1;
    CY_CHECK_FAILS(cy_sampling_check(&spec), CY_ERR_REQUEST, "top-k is -1");
    spec = cy_sampling_defaults();
    spec.top_p = 0;
    CY_CHECK_FAILS(cy_sampling_check(&spec), CY_ERR_REQUEST, "top-p is 0");
    spec.top_p = (double)NAN;
    CY_CHECK_FAILS(cy_sampling_check(&spec), CY_ERR_REQUEST, "top-p is");
    spec = cy_sampling_defaults();
    spec.repetition_penalty = 0;
    CY_CHECK_FAILS(cy_sampling_check(&spec), CY_ERR_REQUEST, "repetition penalty is 0");
}

// Each number at the ends of its range, with the whole text.
static void a_spec_is_taken_up_to_its_ends(void **state)
{
    (void)state;
    static const struct {
        cy_sampling_params spec;
        const char *wrong; // NULL: it is taken
    } cases[] = {
        {{.temperature = 0, .top_p = 1, .repetition_penalty = 1}, NULL},
        {{.temperature = 1e300, .top_p = 1e-300, .repetition_penalty = 1e-300}, NULL},
        {{.temperature = -1e-9, .top_p = 1, .repetition_penalty = 1},
            "temperature is -1e-09, must be 0 (greedy) or more"},
        {{.temperature = (double)INFINITY, .top_p = 1, .repetition_penalty = 1},
            "temperature is inf, must be 0 (greedy) or more"},
        {{.top_k = -1, .top_p = 1, .repetition_penalty = 1},
            "top-k is -1, must be 0 (all) or more"},
        {{.top_k = INT64_MAX, .top_p = 1, .repetition_penalty = 1}, NULL},
        {{.top_p = 0, .repetition_penalty = 1}, "top-p is 0, must be above 0 and at most 1"},
        {{.top_p = 1.25, .repetition_penalty = 1}, "top-p is 1.25, must be above 0 and at most 1"},
        {{.top_p = 1, .repetition_penalty = 0},
            "repetition penalty is 0, must be above 0 (1 is none)"},
        {{.top_p = 1, .repetition_penalty = -1},
            "repetition penalty is -1, must be above 0 (1 is none)"},
        {{.top_p = 1, .repetition_penalty = (double)INFINITY},
            "repetition penalty is inf, must be above 0 (1 is none)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const cy_status status = cy_sampling_check(&cases[i].spec);
        assert_int_equal(status, cases[i].wrong != NULL ? CY_ERR_REQUEST : CY_OK);
        if (cases[i].wrong != NULL) assert_string_equal(cy_error_text(), cases[i].wrong);
    }
    cy_sampling_params spec = cy_sampling_defaults();
    spec.temperature = (double)NAN;
    assert_int_equal(cy_sampling_check(&spec), CY_ERR_REQUEST);
    spec = cy_sampling_defaults();
    spec.repetition_penalty = (double)NAN;
    assert_int_equal(cy_sampling_check(&spec), CY_ERR_REQUEST);
}

// The best token under a penalty, by hand.
static void a_penalty_turns_the_choice(void **state)
{
    (void)state;
    static const struct {
        float logits[2];
        double penalty;
        int32_t history, token;
    } cases[] = {
        {{0.5f, 0.4f}, 1, 0, 0},
        {{0.5f, 0.4f}, 2, 0, 1}, // 0.25 and 0.4
        {{0.5f, 0.4f}, 2, 1, 0},
        {{0.5f, 0.4f}, 1.2, 0, 0}, // 0.417 and 0.4
        {{-0.5f, -0.9f}, 2, 0, 1}, // -1 and -0.9
        {{0.5f, 0.8f}, 0.5, 0, 0}, // 1 and 0.8
        {{1, 1}, 2, 2, 0},         // there is no token 2: the first of equals
        {{1, 1}, 2, -1, 0},
        {{0, -0.1f}, 2, 0, 0},
    };
    const cy_sampling_params plain = cy_sampling_defaults();
    assert_true(plain.temperature == 0 && plain.top_k == 0 && plain.top_p == 1);
    assert_true(plain.repetition_penalty == 1 && plain.seed == 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        cy_sampler sampler;
        cy_sampling_params spec = plain;
        int32_t token = -1;
        spec.repetition_penalty = cases[i].penalty;
        CY_CHECK_OK(cy_sampler_open(&sampler, 2));
        CY_CHECK_OK(
            cy_sample_token(&token, &sampler, cases[i].logits, &spec, 0, &cases[i].history, 1));
        assert_int_equal(token, cases[i].token);
        cy_sampler_close(&sampler);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_shapes_the_law),
        cmocka_unit_test(top_k_keeps_k_with_ties_by_id),
        cmocka_unit_test(top_k_of_all_or_more_is_no_cut),
        cmocka_unit_test(top_p_keeps_the_fewest_that_suffice),
        cmocka_unit_test(top_p_counts_within_top_k),
        cmocka_unit_test(a_penalty_counts_each_token_once),
        cmocka_unit_test(greedy_takes_the_first_of_equals),
        cmocka_unit_test(greedy_finds_the_largest_of_many),
        cmocka_unit_test(a_draw_is_a_function_of_seed_and_position),
        cmocka_unit_test(minus_infinity_never_comes),
        cmocka_unit_test(logits_that_are_no_numbers_are_errors),
        cmocka_unit_test(a_spec_out_of_range_is_named),
        cmocka_unit_test(a_spec_is_taken_up_to_its_ends),
        cmocka_unit_test(a_penalty_turns_the_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
