// kernel/cpu/neon/transpose.h: eight rows of eight floats become eight columns. Only included under
// neon/.

#ifndef CY_KERNEL_CPU_NEON_TRANSPOSE_H
#define CY_KERNEL_CPU_NEON_TRANSPOSE_H

#include "kernel/cpu/neon/vector.h"

// r[i][j] = r[j][i] of four rows.
NEON_INLINE void transpose4(float32x4_t r[4])
{
    const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
    const float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
    const float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

// Columns become rows: to[j] = column j of the eight rows.
NEON_INLINE void transpose8(float8 to[8], const float8 rows[8])
{
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            float32x4_t square[4];
            for (int k = 0; k < 4; k++)
                square[k] = rows[4 * i + k].val[j];
            transpose4(square);
            for (int k = 0; k < 4; k++)
                to[4 * j + k].val[i] = square[k];
        }
    }
}

#endif
