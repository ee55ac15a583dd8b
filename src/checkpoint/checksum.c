#include "checkpoint/checksum.h"

#include <string.h>

#define PRIME_1 0x9e3779b185ebca87u
#define PRIME_2 0xc2b2ae3d27d4eb4fu
#define PRIME_3 0x165667b19e3779f9u
#define PRIME_4 0x85ebca77c2b2ae63u
#define PRIME_5 0x27d4eb2f165667c5u

static uint64_t rotate(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

// The format counts in little-endian words.
static uint64_t word_64(const unsigned char *bytes)
{
    uint64_t x;
    memcpy(&x, bytes, sizeof(x));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    return x;
}

static uint32_t word_32(const unsigned char *bytes)
{
    uint32_t x;
    memcpy(&x, bytes, sizeof(x));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap32(x);
#endif
    return x;
}

static uint64_t mix(uint64_t lane, uint64_t input)
{
    return rotate(lane + input * PRIME_2, 31) * PRIME_1;
}

static uint64_t join(uint64_t hash, uint64_t lane)
{
    return (hash ^ mix(0, lane)) * PRIME_1 + PRIME_4;
}

uint64_t cy_checksum(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    size_t left = count;
    uint64_t hash = PRIME_5;
    if (left >= 32) {
        // Four lanes that do not wait for each other.
        uint64_t a = PRIME_1 + PRIME_2, b = PRIME_2, c = 0, d = 0 - PRIME_1;
        for (; left >= 32; left -= 32, at += 32) {
            a = mix(a, word_64(at));
            b = mix(b, word_64(at + 8));
            c = mix(c, word_64(at + 16));
            d = mix(d, word_64(at + 24));
        }
        hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
        hash = join(join(join(join(hash, a), b), c), d);
    }
    hash += count;
    for (; left >= 8; left -= 8, at += 8) {
        hash = rotate(hash ^ mix(0, word_64(at)), 27) * PRIME_1 + PRIME_4;
    }
    for (; left >= 4; left -= 4, at += 4) {
        hash = rotate(hash ^ (word_32(at) * PRIME_1), 23) * PRIME_2 + PRIME_3;
    }
    for (; left > 0; left--, at++) {
        hash = rotate(hash ^ (*at * PRIME_5), 11) * PRIME_1;
    }
    hash = (hash ^ (hash >> 33)) * PRIME_2;
    hash = (hash ^ (hash >> 29)) * PRIME_3;
    return hash ^ (hash >> 32);
}
