#include "data/sampler.h"

#include "base/random.h"
#include "base/status.h"

#define ROUNDS 6
#define ONE    ((uint64_t)1 << 32)

int64_t cy_permute(uint64_t key, int64_t index, int64_t count)
{
    CY_ASSERT(0 <= index && index < count);
    int half = 1;
    while (half < 31 && (int64_t)1 << (2 * half) < count)
        half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t at = (uint64_t)index;
    do {
        uint64_t left = at >> half, right = at & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            const uint64_t mixed = cy_random_key_at(key + round, right);
            const uint64_t next = left ^ (mixed & mask);
            left = right;
            right = next;
        }
        at = left << half | right;
    } while (at >= (uint64_t)count);
    return (int64_t)at;
}

void cy_mixture_init(cy_mixture *mixture, const double *weights, int count)
{
    CY_ASSERT(1 <= count && count <= CY_MIXTURE_SOURCES_MAX);
    double left = 0;
    for (int k = 0; k < count; k++)
        left += weights[k];
    mixture->count = count;
    for (int k = 0; k < count; k++) {
        CY_ASSERT(weights[k] > 0);
        // The last source takes all that is left, whatever rounding made of the sum.
        const double share = k + 1 == count ? 1.0 : weights[k] / left;
        mixture->share[k] = share >= 1.0 ? ONE : (uint64_t)(share * (double)ONE);
        left -= weights[k];
    }
}

// How many of the first n samples a source with this share gives.
static int64_t given(uint64_t share, int64_t n)
{
    const uint64_t high = (uint64_t)n >> 32, low = (uint64_t)n & (ONE - 1);
    return (int64_t)(high * share + ((low * share + ONE / 2) >> 32));
}

cy_mixture_sample cy_mixture_pick(const cy_mixture *mixture, int64_t number)
{
    CY_ASSERT(number >= 0);
    for (int k = 0;; k++) {
        const int64_t before = given(mixture->share[k], number);
        const int64_t after = given(mixture->share[k], number + 1);
        if (after > before) return (cy_mixture_sample){.source = k, .index = before};
        CY_ASSERT(k + 1 < mixture->count);
        number -= before;
    }
}
