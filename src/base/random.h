// base/random.h: random numbers as functions of a key and an index, without state.
//
// The generator is Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011). A shard of a tensor draws the numbers that the whole tensor has at its global indices, so
// the split does not change the initial weights. The functions use IEEE basic operations only, so
// the bits are the same on every machine. They are pure; any thread may call them.

#ifndef CY_BASE_RANDOM_H
#define CY_BASE_RANDOM_H

#include "base/numbers.h"

#include <math.h>
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

// ---- inner loops
//
// Files that are compiled for a wider instruction set include the loops of the functions above. The
// bits do not depend on it: the loops use IEEE basic operations only, and the compiler does not
// fuse them.

// One Philox block makes four 32-bit words, hence two pairs of normal numbers.
#define CY_RANDOM_WORDS 4
// Blocks that the vectorised loops of cy_random_normal work on together.
#define CY_RANDOM_BATCH 64

static inline uint64_t cy_random_mix(uint64_t x)
{
    // The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that avalanches.
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x;
}

// cy_random_key_at
static inline uint64_t cy_random_mixed(uint64_t key, uint64_t number)
{
    return cy_random_mix(key ^ cy_random_mix(number + 0x9e3779b97f4a7c15u));
}

static inline void cy_random_philox(uint32_t words[CY_RANDOM_WORDS], uint64_t key, uint64_t counter)
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xd2511f53u * c0;
        const uint64_t p1 = (uint64_t)0xcd9e8d57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        const uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

// Natural logarithm of a normal number in (0, 1], error below 2e-7 relative to 1: the mantissa
// is brought to [sqrt(1/2), sqrt(2)) and log((1+s)/(1-s)) is summed.
static inline float cy_random_log(float x)
{
    const uint32_t bits = cy_f32_bits(x) - 0x3f3504f3u;
    const int exponent = (int)bits >> 23;
    const float m = cy_f32_from_bits((bits & 0x7fffffu) + 0x3f3504f3u);
    const float s = (m - 1.0f) / (m + 1.0f);
    const float z = s * s;
    const float series = 1.0f / 3 + z * (1.0f / 5 + z * (1.0f / 7 + z * (1.0f / 9)));
    return (float)exponent * 0.693147181f + 2.0f * (s + s * z * series);
}

// Cosine and sine of 2 pi (turn / 2^32 + a small offset), by Taylor series within an eighth.
static inline void cy_random_cos_sin(float *cosine, float *sine, uint32_t turn)
{
    const uint32_t octant = (turn + 0x20000000u) >> 30; // nearest quarter turn
    const int32_t rest = (int32_t)(turn - (octant << 30));
    const float a = (float)rest * (6.283185307f / 4294967296.0f); // |a| <= pi/4
    const float z = a * a;
    const float s =
        a * (1.0f + z * (-1.0f / 6 + z * (1.0f / 120 + z * (-1.0f / 5040 + z / 362880))));
    const float c = 1.0f + z * (-0.5f + z * (1.0f / 24 + z * (-1.0f / 720 + z / 40320)));
    const float x = octant & 1 ? s : c;
    const float y = octant & 1 ? c : s;
    *cosine = (octant == 1 || octant == 2) ? -x : x;
    *sine = (octant == 2 || octant == 3) ? -y : y;
}

// Numbers of blocks [first, first + CY_RANDOM_BATCH), four each (Box and Muller 1958).
static inline void cy_random_normal_batch(
    float out[CY_RANDOM_BATCH * CY_RANDOM_WORDS], uint64_t key, uint64_t first)
{
    uint32_t words[CY_RANDOM_BATCH][CY_RANDOM_WORDS];
    for (int i = 0; i < CY_RANDOM_BATCH; i++)
        cy_random_philox(words[i], key, first + (uint64_t)i);
    for (int i = 0; i < CY_RANDOM_BATCH * CY_RANDOM_WORDS; i += 2) {
        const uint32_t *pair = &words[0][0] + i;
        const float unit = ((float)(pair[0] >> 8) + 1.0f) * 0x1p-24f; // in (0, 1]
        const float radius = sqrtf(-2.0f * cy_random_log(unit));
        float cosine, sine;
        cy_random_cos_sin(&cosine, &sine, pair[1]);
        out[i] = radius * cosine;
        out[i + 1] = radius * sine;
    }
}

// cy_random_normal
static inline void cy_random_normal_range(float *out, uint64_t key, uint64_t first, int64_t count)
{
    float batch[CY_RANDOM_BATCH * CY_RANDOM_WORDS];
    uint64_t block = first / CY_RANDOM_WORDS;
    int64_t skip = (int64_t)(first % CY_RANDOM_WORDS);
    int64_t done = 0;
    while (done < count) {
        cy_random_normal_batch(batch, key, block);
        for (int64_t i = skip; i < (int64_t)CY_RANDOM_BATCH * CY_RANDOM_WORDS && done < count;
             i++) {
            out[done++] = batch[i];
        }
        skip = 0;
        block += CY_RANDOM_BATCH;
    }
}

#endif
