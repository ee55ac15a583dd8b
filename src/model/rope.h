// model/rope.h: the rotary frequencies of a model, with the published ways to stretch them.

#ifndef CY_MODEL_ROPE_H
#define CY_MODEL_ROPE_H

#include "model/shape.h"

// inv_freq [head_dim / 2]: radians per position of each pair. `length` is the length of sequences,
// which only the dynamic scaling looks at. Returns the factor on cosines and sines (1, except
// YaRN).
//
// Sources: plain, Su et al. 2021; linear, Chen et al. 2023 ("Position interpolation"); dynamic,
// the NTK-aware rule; llama3, Llama 3.1's model card; YaRN, Peng et al. 2023.
double cy_rope_frequencies(double *inv_freq, const cy_model_shape *shape, int64_t length);

#endif
