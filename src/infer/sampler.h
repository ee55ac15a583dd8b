// infer/sampler.h: chooses the next token from the model's logits, on the host.
//
// The steps, in this order: the repetition penalty (Keskar et al., "CTRL", 2019: logits of tokens
// that occurred are divided by it when positive, multiplied when negative), the temperature, the
// top_k largest logits, and of these the fewest whose probability together is at least top_p
// (Holtzman et al., "The curious case of neural text degeneration", 2019). Equal logits rank by
// ascending token id. The draw is a pure function of (seed, position): it does not depend
// on what was generated before, or in which batch.
//
// A cy_sampler owns work space of one vocabulary, so choosing allocates nothing; one thread uses it
// at a time.

#ifndef CY_INFER_SAMPLER_H
#define CY_INFER_SAMPLER_H

#include "base/status.h"

#include <stdint.h>

typedef struct cy_sampling_params {
    double temperature;        // 0: greedy, the largest logit, whatever top_k and top_p are
    int64_t top_k;             // 0: all
    double top_p;              // 1: all
    double repetition_penalty; // 1: none
    uint64_t seed;
} cy_sampling_params;

// Greedy, without a penalty.
cy_sampling_params cy_sampling_defaults(void);

// CY_ERR_REQUEST naming the field that is out of its range.
CY_MUST_CHECK cy_status cy_sampling_check(const cy_sampling_params *spec);

typedef struct cy_sampler {
    double *scores; // owned, [vocab]: logits with penalty, then probabilities
    int32_t *order; // owned, [vocab]: a heap of token ids, the best on top
    int64_t vocab;
} cy_sampler;

CY_MUST_CHECK cy_status cy_sampler_open(cy_sampler *sampler, int64_t vocab);
void cy_sampler_close(cy_sampler *sampler);

// Chooses the token at `position` (the number of tokens before it) from logits [vocab].
// The penalty applies to `history` [history_count], prompt included, which may be NULL when
// history_count is 0. A token whose logit is -inf is never chosen. CY_ERR_NOT_FINITE when a logit
// is NaN or +inf, or all are -inf.
CY_MUST_CHECK cy_status cy_sample_token(int32_t *token, cy_sampler *sampler, const float *logits,
    const cy_sampling_params *spec, int64_t position, const int32_t *history,
    int64_t history_count);

#endif
