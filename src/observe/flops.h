// observe/flops.h: the floating-point operations that training takes per token, from the shape.
//
// N is all parameters, L layers, h hidden, s the sequence. Pure functions, safe from any thread.
//
//   full     6 N + 12 L h s: attention over the whole s x s square, as PaLM (Chowdhery et al.,
//            2022), nanotron and picotron count. What `mfu` divides.
//   causal   6 (N - embedding) + 6 L h s: half the attention, which is what a causal mask leaves to
//            do, and no product for the embedding look-up (a tied table still is the head's
//            matrix, so it stays). What `mfu_causal` divides.
//
// With experts, N counts those that a token goes through: the others do no work for it.

#ifndef CY_OBSERVE_FLOPS_H
#define CY_OBSERVE_FLOPS_H

#include "model/shape.h"

// All parameters that exist, experts included.
int64_t cy_params_all(const cy_model_shape *shape);

// Those that one token goes through; the same for a dense model.
int64_t cy_params_active(const cy_model_shape *shape);

double cy_flops_per_token(const cy_model_shape *shape, int64_t sequence);
double cy_flops_per_token_causal(const cy_model_shape *shape, int64_t sequence);

// The share of the machine's peak that `tok_s` tokens a second reach, both of the same set of
// cores; NaN where the peak is not known (0).
double cy_flops_utilization(double tok_s, double flops_per_token, double peak_flop_s);

#endif
