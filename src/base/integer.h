// base/integer.h: arithmetic of sizes and counts that are int64_t.

#ifndef CY_BASE_INTEGER_H
#define CY_BASE_INTEGER_H

#include <stdint.h>

static inline int64_t cy_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t cy_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// How many chunks of `step` cover `size`; the last one may be shorter.
static inline int64_t cy_ceil_div(int64_t size, int64_t step)
{
    return (size + step - 1) / step;
}

// The smallest multiple of `step` that is at least `size`.
static inline int64_t cy_round_up(int64_t size, int64_t step)
{
    return cy_ceil_div(size, step) * step;
}

#endif
