// base/random.h: random numbers that are a function of (key, index), with no state.
//
// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A shard
// of a tensor draws the numbers that the whole tensor has at its global indices, so the split does
// not change the initial weights. Only IEEE basic operations are used: the bits are the same on
// every machine. All functions are pure and safe from any thread.

#ifndef CY_BASE_RANDOM_H
#define CY_BASE_RANDOM_H

#include <stdint.h>

// The 64-bit key of a named stream of numbers, such as a parameter, under a seed.
uint64_t cy_random_key(uint64_t seed, const char *name);

// Mixes one more number into a key: a step, a sample.
uint64_t cy_random_key_at(uint64_t key, uint64_t number);

// 64 uniform bits, and a uniform number in [0, 1) with 53 bits, at an index.
uint64_t cy_random_bits(uint64_t key, uint64_t index);
double cy_random_uniform(uint64_t key, uint64_t index);

// out[i] = normal(0, 1) number at index first + i, for 0 <= i < count.
void cy_random_normal(float *out, uint64_t key, uint64_t first, int64_t count);

#endif
