// checkpoint/checksum.h: the checksum of a checkpoint's chunks: XXH64 with seed 0.
//
// 64 bits, several gigabytes a second on one core of any processor, and at hand in other languages
// for whoever wants to check a file without this program. It guards against faults, not attackers.

#ifndef CY_CHECKPOINT_CHECKSUM_H
#define CY_CHECKPOINT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define CY_CHUNK_BYTES     ((size_t)1 << 20)
#define CY_CHECKSUM_DIGITS 16

uint64_t cy_checksum(const void *bytes, size_t count);

#endif
