// bench/kernel/numbers.h: what operands hold while they are timed.

#ifndef CY_BENCH_KERNEL_NUMBERS_H
#define CY_BENCH_KERNEL_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Numbers from 1/2 to 1 of either sign, as fp32 or as pairs of bf16; zeros are written, too, or all
// pages of them would be one.
static inline void fill_numbers(uint32_t *to, size_t bytes, bool zeros)
{
    uint32_t bits = 1;
    for (size_t i = 0; i < bytes / sizeof(uint32_t); i++) {
        bits = bits * 1664525 + 1013904223;
        to[i] = zeros ? 0 : (bits & 0x80ff80ff) | 0x3f003f00;
    }
}

#endif
