// Which operators an engine takes: the tuned ones, or those that follow the formula where its
// configuration says so.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include "kernel/kernel.h"

static cy_status look(cy_engine *engine, const cy_rank *rank, void *context)
{
    (void)rank;
    cy_kernels *kernels = context;
    *kernels = engine->kernels;
    return CY_OK;
}

static cy_kernels taken(bool flash, bool fused, bool strict)
{
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.model.use_flash_attention = flash;
    config.model.use_fused_adam = fused;
    config.training.strict = strict;
    cy_kernels kernels;
    CY_CHECK_OK(cy_test_on_mesh(&config, "auto", NULL, look, &kernels));
    return kernels;
}

static void a_configuration_chooses(void **state)
{
    (void)state;
    const cy_kernels *reference = cy_kernels_ref();
    const cy_kernels tuned = taken(true, true, false);
    assert_ptr_not_equal(tuned.adamw, tuned.adamw_unfused);

    const cy_kernels formula = taken(false, true, false);
    assert_ptr_equal(formula.attention_forward, reference->attention_forward);
    assert_ptr_equal(formula.attention_backward, reference->attention_backward);
    assert_ptr_equal(formula.adamw, tuned.adamw);

    const cy_kernels passes = taken(true, false, false);
    assert_ptr_equal(passes.adamw, tuned.adamw_unfused);
    assert_ptr_equal(passes.attention_forward, tuned.attention_forward);
    assert_ptr_equal(passes.attention_backward, tuned.attention_backward);

    // Strict mode's attention follows the formula in an order of its own, and stays.
    const cy_kernels strict = taken(true, true, true);
    const cy_kernels strict_formula = taken(false, true, true);
    assert_ptr_equal(strict_formula.attention_forward, strict.attention_forward);
    assert_ptr_equal(strict_formula.attention_backward, strict.attention_backward);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_configuration_chooses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
