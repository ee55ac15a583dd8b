// Compares one Hugging Face folder with the figures of transformers and prints one JSON object; see
// scripts/parity.py.

#include "support/parity.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    cy_parity p;
    if (argc != 4) {
        fprintf(stderr, "usage: %s FOLDER FIGURES TENSOR_PARALLEL_RANKS\n", argv[0]);
        return 2;
    }
    if (cy_parity_measure(&p, argv[1], argv[2], (int)strtol(argv[3], NULL, 10)) != CY_OK) {
        fprintf(stderr, "parity: %s\n", cy_error_text());
        return 1;
    }
    printf("{\"shapes\": %d, \"logits\": %.3g, \"gradients\": %d, \"gradient\": %.3g, "
           "\"tensor\": \"%s\", \"steps\": %d, \"loss\": %.3g, \"tokens\": %lld, "
           "\"greedy\": %lld, \"penalised\": %lld}\n",
        p.shapes, p.logits, p.gradients, p.gradient, p.tensor, p.steps, p.loss, (long long)p.tokens,
        (long long)p.greedy, (long long)p.penalised);
    return 0;
}
