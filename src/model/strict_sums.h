// model/strict_sums.h: the sums of a model that strict mode keeps in fixed point, and their
// exponents.
//
// One entry for each gradient of a parameter (fused matrices share one) and for each other place of
// a layer where a split cuts a sum. Every rank has the whole table, and it is the same on all of
// them: an exponent is a function of the run's history alone. docs/equivalence.md says how it is
// chosen and why a sum cannot wrap.
//
// The table is host memory of one engine and its thread. Kernels note the sizes of terms in an
// array in device memory, one number for each entry, which cy_sums_bind attaches.

#ifndef CY_MODEL_STRICT_SUMS_H
#define CY_MODEL_STRICT_SUMS_H

#include "device/view.h"
#include "model/manifest.h"

// The sums of one layer; those of the ends of the model are in the layers -1 and `layers`, as in
// cy_param_key. Below CY_ROLE_COUNT: the gradient of that parameter.
typedef enum cy_sum_site {
    CY_SUM_OUT = CY_ROLE_COUNT, // attention's output projection, over heads
    CY_SUM_DOWN,                // the feed-forward's, over its width
    CY_SUM_D_NORM1,             // gradient of q, k, v's input, over their features
    CY_SUM_D_NORM2,             // gradient of gate and up's input
    CY_SUM_D_KEYS,              // gradients of keys and values, over query heads and queries
    CY_SUM_D_HEAD,              // gradient of the head's input, over the vocabulary
    CY_SUM_SITES,
} cy_sum_site;

// Exponents stay within: their units are powers of two that fp32 holds, also when a step is done
// again.
#define CY_SUM_EXPONENT_MOST 80

typedef struct cy_sums {
    cy_fixed *table; // owned, [layers + 2, 1 + experts, CY_SUM_SITES]: dense first
    int64_t count;
    int experts;           // of a layer
    cy_fixed exponentials; // a token's, over the vocabulary; each is at most 1
    cy_fixed loss;         // over tokens
    int square_exponent;   // of sums of squares of gradients
} cy_sums;

// What terms of products are made of: elements of k, chosen from the global sizes alone.
typedef struct cy_sum_blocks {
    int64_t heads;  // of features of heads
    int64_t ffn;    // of the feed-forward's width
    int64_t vocab;  // of the vocabulary
    int64_t tokens; // of a sequence
} cy_sum_blocks;

cy_sum_blocks cy_sum_blocks_of(const cy_model_shape *shape, int64_t seq_length);

CY_MUST_CHECK cy_status cy_sums_open(
    cy_sums *sums, const cy_model_shape *shape, int64_t seq_length);
void cy_sums_close(cy_sums *sums);

// The sum at a place that no expert has; NULL where `sums` is NULL: floating point.
cy_fixed *cy_sums_at(const cy_sums *sums, int layer, int place);

// The sum that a parameter's gradient is; NULL likewise.
cy_fixed *cy_sums_gradient(const cy_sums *sums, const cy_param *param);

// Attaches `largest` [count] uint32 in device memory, where kernels note the largest term of each
// sum. Zeroing it is up to the caller.
void cy_sums_bind(cy_sums *sums, void *largest);

// All exponents become larger by the same amount: a step is done again.
void cy_sums_raise(cy_sums *sums, int by);

// Exponents for the next step from the terms noted in this one, `largest` [count] on the host,
// which was done with exponents raised by `raised`. A sum without terms goes back to where it was.
void cy_sums_update_exponents(cy_sums *sums, const uint32_t *largest, int raised);

// Whether a sum's largest term, as kernels note it, has left the head room or is no number.
bool cy_sums_exceeded(uint32_t largest);

#endif
