// Every engine on 2 to 4 stages, with 1 to 8 microbatches, tied and untied: 50 steps with 4
// microbatches, some with the others; and 50 steps with the other dimensions.

#include "dist/pipeline_parity.h"

// A sanitizer looks at what a step does, which is the same in the fourth and in the fiftieth.
#define STEPS      (CY_TEST_SANITIZED ? 4 : 50)
#define STEPS_SOME 4

static parity_reference reference;

static void every_engine_and_every_number_of_microbatches(void **state)
{
    (void)state;
    for (int tied = 0; tied <= 1; tied++) {
        for (int microbatches = 1; microbatches <= 8; microbatches *= 2) {
            for (int stages = 2; stages <= 4; stages++) {
                for (int e = 0; e < PARITY_ENGINES; e++) {
                    const parity_case c = {.engine = parity_engines[e].engine,
                        .stages = stages,
                        .chunks = parity_engines[e].chunks,
                        .microbatches = microbatches,
                        .tied = tied != 0,
                        .steps = microbatches == 4 ? STEPS : STEPS_SOME};
                    parity_check(&reference, &c);
                }
            }
        }
    }
}

static void with_every_other_dimension(void **state)
{
    (void)state;
    static const struct {
        int dp, tp, cp, zero_stage;
    } others[] = {{2, 1, 1, 0}, {2, 1, 1, 1}, {2, 1, 1, 2}, {2, 1, 1, 3}, {1, 2, 1, 0},
        {1, 1, 2, 0}, {2, 2, 1, 1}};
    for (int i = 0; i < (int)(sizeof(others) / sizeof(others[0])); i++) {
        for (int e = 0; e < PARITY_ENGINES; e++) {
            const parity_case c = {.engine = parity_engines[e].engine,
                .stages = 2,
                .chunks = parity_engines[e].chunks,
                .microbatches = 4,
                .tied = true,
                .dp = others[i].dp,
                .tp = others[i].tp,
                .cp = others[i].cp,
                .zero_stage = others[i].zero_stage,
                .steps = STEPS};
            parity_check(&reference, &c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_every_other_dimension),
        cmocka_unit_test(every_engine_and_every_number_of_microbatches),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cy_test_training_close(&reference.training);
    return failed;
}
