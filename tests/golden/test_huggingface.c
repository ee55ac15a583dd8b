// Every family of Hugging Face models against figures that transformers gave for a small model of
// it, committed in tests/golden/huggingface with the models; scripts/parity.py made both.

#include "support/parity.h"
#include "support/support.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static void check(const char *family, int tp)
{
    char folder[512], figures[600];
    const char *source = getenv("SOURCE");
    snprintf(folder, sizeof(folder), "%s/tests/golden/huggingface/%s",
        source != NULL ? source : ".", family);
    snprintf(figures, sizeof(figures), "%s/figures.safetensors", folder);
    cy_parity p;
    CY_CHECK_OK(cy_parity_measure(&p, folder, figures, tp));
    const bool whole = p.shapes == 3 && p.gradients >= 20 && p.steps == 20 && p.tokens == 100;
    const bool holds = p.logits <= 1e-4 && p.gradient <= 1e-4 && p.loss <= 1e-4 &&
        p.greedy == p.tokens && p.penalised == p.tokens;
    if (whole && holds) return;
    fail_msg("%s, tp %d: %d shapes, logits differ by %g; %d gradients by %g (%s); losses of %d "
             "steps by %g; greedy text %lld, with penalty %lld of %lld",
        family, tp, p.shapes, p.logits, p.gradients, p.gradient, p.tensor, p.steps, p.loss,
        (long long)p.greedy, (long long)p.penalised, (long long)p.tokens);
}

#define FAMILY(test, name)                                                                         \
    static void test(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        check(name, 1);                                                                            \
    }

FAMILY(llama2, "llama2")
FAMILY(llama2_with_tied_embeddings, "llama2-tied")
FAMILY(llama3_with_scaled_rope, "llama3-rope")
FAMILY(smollm, "smollm")
FAMILY(mistral_with_a_window, "mistral-window")
FAMILY(qwen2_with_biases, "qwen2")
FAMILY(qwen3_with_norms_of_heads, "qwen3")

// 41 tokens on two ranks: the vocabulary does not divide.
static void two_ranks_too(void **state)
{
    (void)state;
    check("smollm", 2);
    check("qwen3", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama2),
        cmocka_unit_test(llama2_with_tied_embeddings),
        cmocka_unit_test(llama3_with_scaled_rope),
        cmocka_unit_test(smollm),
        cmocka_unit_test(mistral_with_a_window),
        cmocka_unit_test(qwen2_with_biases),
        cmocka_unit_test(qwen3_with_norms_of_heads),
        cmocka_unit_test(two_ranks_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
