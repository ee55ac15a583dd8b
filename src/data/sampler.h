// data/sampler.h: the order of samples as a pure function of (seed, sample number).
//
// There is no shuffle array and no index file: a permutation of the numbers below n is computed for
// one number at a time, so resuming a run is arithmetic.

#ifndef CY_DATA_SAMPLER_H
#define CY_DATA_SAMPLER_H

#include <stdint.h>

// A permutation of 0..count-1 that the key picks: a Feistel network over the next power of four,
// walked until it comes back below count. count >= 1, 0 <= index < count.
int64_t cy_permute(uint64_t key, int64_t index, int64_t count);

#define CY_MIXTURE_SOURCES_MAX 64

// How samples are drawn from several sources. Shares are in units of 2^-32.
typedef struct cy_mixture {
    int count;
    uint64_t share[CY_MIXTURE_SOURCES_MAX]; // of source k in what sources before it left over
} cy_mixture;

// weights [count] > 0, count >= 1.
void cy_mixture_init(cy_mixture *mixture, const double *weights, int count);

typedef struct cy_mixture_sample {
    int source;
    int64_t index; // how many samples of this source come before it
} cy_mixture_sample;

// Where sample `number` >= 0 comes from. Sources take turns as evenly as their weights allow: of
// the first n samples each gives its share of n, within one sample per source.
cy_mixture_sample cy_mixture_pick(const cy_mixture *mixture, int64_t number);

#endif
