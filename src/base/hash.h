// base/hash.h: a quick hash of a few bytes, for tables in memory. Not kept in files.

#ifndef CY_BASE_HASH_H
#define CY_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

#endif
