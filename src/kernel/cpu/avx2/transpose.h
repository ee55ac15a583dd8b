// kernel/cpu/avx2/transpose.h: eight rows of eight floats become eight columns. Only included under
// avx2/.

#ifndef CY_KERNEL_CPU_AVX2_TRANSPOSE_H
#define CY_KERNEL_CPU_AVX2_TRANSPOSE_H

#include "kernel/cpu/avx2/vector.h"

// to[i][j] = rows[j][i]; `to` may be `rows`.
static inline void transpose8(float8 to[8], const float8 rows[8])
{
    float8 r[8], t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        to[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        to[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
}

#endif
