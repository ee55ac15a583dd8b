// support/parity.h: a Hugging Face folder computed here against the figures that transformers gave
// for it.
//
// scripts/parity.py writes the figures, one safetensors file a folder:
//   tokens.K       int32 [b, t + 1]    a batch: inputs are the first t, targets the last t
//   logits.K       fp32  [b t, vocab]  of its inputs; K counts from 0
//   grad.NAME      fp32                gradient of the mean loss of batch 0, for every parameter
//   train.tokens   int32 [steps, 4 (t + 1)]  four rows a step, one after another
//   train.losses   fp64  [steps]       AdamW: rate 1e-3, betas 0.9 and 0.999,
//                                     eps 1e-8, decay 0.1 of matrices, gradients clipped to 1
//   greedy.prompt  int32 [n]           a prompt
//   greedy.tokens  int32 [m]           the likeliest tokens after it
//   penalty.tokens int32 [m]           the same with repetition penalty 1.3
// Everything is computed in fp32 from the weights as the folder stores them.

#ifndef CY_TESTS_PARITY_H
#define CY_TESTS_PARITY_H

#include "base/status.h"

#include <stdint.h>

// Largest differences. A NaN anywhere comes through.
typedef struct cy_parity {
    int shapes;        // batches whose logits were compared
    double logits;     // absolute
    int gradients;     // tensors compared: all parameters
    double gradient;   // relative to the largest element of the tensor's gradient
    char tensor[96];   // where that is
    int steps;         // of training
    double loss;       // absolute
    int64_t tokens;    // generated
    int64_t greedy;    // of them the same
    int64_t penalised; // likewise with the repetition penalty
} cy_parity;

// Computes everything with `tp` ranks for the training steps and one for the rest.
CY_MUST_CHECK cy_status cy_parity_measure(
    cy_parity *parity, const char *folder, const char *figures, int tp);

#endif
