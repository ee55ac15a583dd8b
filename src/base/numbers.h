// base/numbers.h: small functions of numbers: 16-bit floats, integers, a hash, the median. They
// have no state; any thread may call them.

#ifndef CY_BASE_NUMBERS_H
#define CY_BASE_NUMBERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// ---- 16-bit floats as bits
//
// Conversions give the same bits on every machine. They round to nearest, ties to even, keep
// subnormals, and make every NaN quiet.

typedef uint16_t cy_bf16; // 1 sign, 8 exponent, 7 mantissa bits
typedef uint16_t cy_f16;  // 1 sign, 5 exponent, 10 mantissa bits

static inline uint32_t cy_f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float cy_f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float cy_bf16_to_f32(cy_bf16 x)
{
    return cy_f32_from_bits((uint32_t)x << 16);
}

static inline cy_bf16 cy_bf16_from_f32(float x)
{
    const uint32_t bits = cy_f32_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (cy_bf16)((bits >> 16) | 0x0040u);
    const uint32_t rounding = 0x7fffu + ((bits >> 16) & 1u);
    return (cy_bf16)((bits + rounding) >> 16);
}

static inline float cy_f16_to_f32(cy_f16 x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    const uint32_t exponent = (x >> 10) & 0x1fu;
    const uint32_t mantissa = x & 0x3ffu;
    if (exponent == 0x1fu) {
        const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
        return cy_f32_from_bits(sign | 0x7f800000u | quiet | (mantissa << 13));
    }
    if (exponent == 0) {
        // A subnormal is mantissa * 2^-24, which fp32 holds exactly.
        const float magnitude = (float)mantissa * 0x1p-24f;
        return cy_f32_from_bits(sign | cy_f32_bits(magnitude));
    }
    return cy_f32_from_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

static inline cy_f16 cy_f16_from_f32(float x)
{
    const uint32_t bits = cy_f32_bits(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (cy_f16)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x477ff000u) return (cy_f16)(sign | 0x7c00u); // rounds to infinity
    if (magnitude < 0x38800000u) {
        // Below 2^-14 the spacing is 2^-24: adding 0.5 lines the mantissa up so that the addition
        // itself rounds, to nearest even.
        const float shifted = cy_f32_from_bits(magnitude) + 0.5f;
        return (cy_f16)(sign | (cy_f32_bits(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (cy_f16)(sign | ((rounded - 0x38000000u) >> 13));
}

// ---- sizes and counts

static inline int64_t cy_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t cy_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// The number of chunks of `step` that cover `size`; the last one may be shorter.
static inline int64_t cy_ceil_div(int64_t size, int64_t step)
{
    return (size + step - 1) / step;
}

// The smallest multiple of `step` that is at least `size`.
static inline int64_t cy_round_up(int64_t size, int64_t step)
{
    return cy_ceil_div(size, step) * step;
}

// ---- a fast hash of a few bytes, for tables in memory; no file holds it

#define CY_HASH_A 0x9e3779b97f4a7c15u
#define CY_HASH_B 0xd6e8feb86659fd93u

static inline uint64_t cy_hash_finish(uint64_t h)
{
    h ^= h >> 32;
    h *= CY_HASH_B;
    return h ^ h >> 29;
}

static inline uint64_t cy_hash_load(const unsigned char *s, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, s, bytes);
    return value;
}

// Overlapping loads read every byte without a loop for up to 16 of them.
static inline uint64_t cy_hash_bytes(const unsigned char *s, size_t bytes)
{
    uint64_t h = bytes * CY_HASH_B;
    for (; bytes > 16; s += 8, bytes -= 8)
        h = cy_hash_finish((h ^ cy_hash_load(s, 8)) * CY_HASH_A);
    uint64_t first, last = 0;
    if (bytes >= 8) {
        first = cy_hash_load(s, 8);
        last = cy_hash_load(s + bytes - 8, 8);
    } else if (bytes >= 4) {
        first = cy_hash_load(s, 4) | cy_hash_load(s + bytes - 4, 4) << 32;
    } else {
        first = bytes == 0 ? 0 : s[0] | (uint64_t)s[bytes / 2] << 8 | (uint64_t)s[bytes - 1] << 16;
    }
    h ^= first * CY_HASH_A;
    h ^= (last << 31 | last >> 33) * CY_HASH_B;
    return cy_hash_finish(h);
}

static inline uint64_t cy_hash_pair(uint64_t pair)
{
    return cy_hash_finish(pair * CY_HASH_A);
}

// ---- median

// Sorts values [count] in ascending order and returns their median: the mean of the two in the
// middle where count is even. count is at least 1, and no value is NaN.
double cy_median(double *values, int count);

#endif
