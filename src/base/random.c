// Draws random numbers as functions of a key and an index.

#include "base/random.h"

uint64_t cy_random_key(uint64_t seed, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
    for (const char *c = name; *c != '\0'; c++) {
        hash ^= (unsigned char)*c;
        hash *= 0x100000001b3u;
    }
    return cy_random_mix(hash ^ cy_random_mix(seed + 0x9e3779b97f4a7c15u));
}

uint64_t cy_random_key_at(uint64_t key, uint64_t number)
{
    return cy_random_mixed(key, number);
}

uint64_t cy_random_bits(uint64_t key, uint64_t index)
{
    uint32_t words[CY_RANDOM_WORDS];
    cy_random_philox(words, key, index);
    return (uint64_t)words[1] << 32 | words[0];
}

double cy_random_uniform(uint64_t key, uint64_t index)
{
    return (double)(cy_random_bits(key, index) >> 11) * 0x1p-53;
}

void cy_random_normal(float *out, uint64_t key, uint64_t first, int64_t count)
{
    cy_random_normal_range(out, key, first, count);
}
