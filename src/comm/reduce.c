#include "comm/reduce.h"

#include "base/assert.h"
#include "base/half.h"

#include <string.h>

// One block of partial results stays in the first-level cache while all operands pass through it.
#define BLOCK 2048

// max and min that a NaN wins: the running value stays if it is NaN, and a NaN operand replaces it.
#define BEFORE(acc, x) (!((acc) <= (x)))
#define BEHIND(acc, x) (!((acc) >= (x)))

// NOLINTBEGIN(bugprone-macro-parentheses): a type has none
#define DEFINE_FOLD(name, type)                                                                    \
    static void name(type *restrict acc, const type *restrict x, int64_t count, cy_reduce op)      \
    {                                                                                              \
        switch (op) {                                                                              \
        case CY_SUM:                                                                               \
        case CY_AVG:                                                                               \
            for (int64_t i = 0; i < count; i++)                                                    \
                acc[i] = acc[i] + x[i];                                                            \
            break;                                                                                 \
        case CY_MIN:                                                                               \
            for (int64_t i = 0; i < count; i++) {                                                  \
                acc[i] = BEFORE(acc[i], x[i]) && acc[i] == acc[i] ? x[i] : acc[i];                 \
            }                                                                                      \
            break;                                                                                 \
        case CY_MAX:                                                                               \
            for (int64_t i = 0; i < count; i++) {                                                  \
                acc[i] = BEHIND(acc[i], x[i]) && acc[i] == acc[i] ? x[i] : acc[i];                 \
            }                                                                                      \
            break;                                                                                 \
        case CY_PROD:                                                                              \
            for (int64_t i = 0; i < count; i++)                                                    \
                acc[i] = acc[i] * x[i];                                                            \
            break;                                                                                 \
        }                                                                                          \
    }

DEFINE_FOLD(fold_f32, float)
DEFINE_FOLD(fold_f64, double)

// Integers wrap around, as unsigned ones do in C.
#define DEFINE_FOLD_INTEGER(name, type, unsigned_type)                                             \
    static void name(type *restrict acc, const type *restrict x, int64_t count, cy_reduce op)      \
    {                                                                                              \
        switch (op) {                                                                              \
        case CY_SUM:                                                                               \
        case CY_AVG:                                                                               \
            for (int64_t i = 0; i < count; i++) {                                                  \
                acc[i] = (type)((unsigned_type)acc[i] + (unsigned_type)x[i]);                      \
            }                                                                                      \
            break;                                                                                 \
        case CY_MIN:                                                                               \
            for (int64_t i = 0; i < count; i++)                                                    \
                acc[i] = x[i] < acc[i] ? x[i] : acc[i];                                            \
            break;                                                                                 \
        case CY_MAX:                                                                               \
            for (int64_t i = 0; i < count; i++)                                                    \
                acc[i] = x[i] > acc[i] ? x[i] : acc[i];                                            \
            break;                                                                                 \
        case CY_PROD:                                                                              \
            for (int64_t i = 0; i < count; i++) {                                                  \
                acc[i] = (type)((unsigned_type)acc[i] * (unsigned_type)x[i]);                      \
            }                                                                                      \
            break;                                                                                 \
        }                                                                                          \
    }

// NOLINTEND(bugprone-macro-parentheses)

DEFINE_FOLD_INTEGER(fold_i32, int32_t, uint32_t)
DEFINE_FOLD_INTEGER(fold_i64, int64_t, uint64_t)

static bool fold_fixed(int64_t *acc, const int64_t *x, int64_t count, cy_reduce op)
{
    if (op == CY_MIN || op == CY_MAX) {
        fold_i64(acc, x, count, op);
        return false;
    }
    CY_ASSERT(op != CY_PROD); // the exponents would add up
    bool overflow = false;
    for (int64_t i = 0; i < count; i++) {
        overflow |= __builtin_add_overflow(acc[i], x[i], &acc[i]);
    }
    return overflow;
}

cy_dtype cy_reduce_partial_dtype(cy_dtype dtype)
{
    return dtype == CY_BF16 || dtype == CY_F16 ? CY_F32 : dtype;
}

void cy_reduce_widen(void *partial, const void *x, int64_t count, cy_dtype dtype)
{
    if (dtype == CY_BF16) {
        float *wide = partial;
        const cy_bf16 *from = x;
        for (int64_t i = 0; i < count; i++)
            wide[i] = cy_bf16_to_f32(from[i]);
    } else if (dtype == CY_F16) {
        float *wide = partial;
        const cy_f16 *from = x;
        for (int64_t i = 0; i < count; i++)
            wide[i] = cy_f16_to_f32(from[i]);
    } else if (partial != x) {
        memcpy(partial, x, (size_t)count * cy_dtype_size(dtype));
    }
}

static void divide(void *partial, int64_t count, cy_dtype dtype, int divisor)
{
    if (dtype == CY_F32) {
        float *x = partial;
        for (int64_t i = 0; i < count; i++)
            x[i] = x[i] / (float)divisor;
    } else if (dtype == CY_F64) {
        double *x = partial;
        for (int64_t i = 0; i < count; i++)
            x[i] = x[i] / (double)divisor;
    } else if (dtype == CY_I32) {
        int32_t *x = partial;
        for (int64_t i = 0; i < count; i++)
            x[i] = x[i] / divisor;
    } else {
        int64_t *x = partial;
        for (int64_t i = 0; i < count; i++)
            x[i] = x[i] / divisor;
    }
}

void cy_reduce_narrow(void *x, const void *partial, int64_t count, cy_dtype dtype, int divisor)
{
    // Divided before it is rounded, so that an average is rounded once.
    if (dtype == CY_BF16) {
        cy_bf16 *to = x;
        const float *wide = partial;
        for (int64_t i = 0; i < count; i++)
            to[i] = cy_bf16_from_f32(wide[i] / (float)divisor);
    } else if (dtype == CY_F16) {
        cy_f16 *to = x;
        const float *wide = partial;
        for (int64_t i = 0; i < count; i++)
            to[i] = cy_f16_from_f32(wide[i] / (float)divisor);
    } else {
        if (partial != x) memcpy(x, partial, (size_t)count * cy_dtype_size(dtype));
        if (divisor != 1) divide(x, count, dtype, divisor);
    }
}

// acc holds partial results, x is of `dtype`.
static bool fold(void *acc, const void *x, int64_t count, cy_dtype dtype, cy_reduce op)
{
    switch (dtype) {
    case CY_F32:
        fold_f32(acc, x, count, op);
        return false;
    case CY_F64:
        fold_f64(acc, x, count, op);
        return false;
    case CY_BF16:
    case CY_F16: {
        float wide[BLOCK];
        CY_ASSERT(count <= BLOCK);
        cy_reduce_widen(wide, x, count, dtype);
        fold_f32(acc, wide, count, op);
        return false;
    }
    case CY_I32:
        fold_i32(acc, x, count, op);
        return false;
    case CY_I64:
        fold_i64(acc, x, count, op);
        return false;
    case CY_FX64:
        return fold_fixed(acc, x, count, op);
    case CY_U8:
        break;
    }
    CY_ASSERT(dtype != CY_U8);
    return false;
}

bool cy_reduce_into(void *acc, const void *x, int64_t count, cy_dtype dtype, cy_reduce op)
{
    CY_ASSERT(dtype == cy_reduce_partial_dtype(dtype));
    return fold(acc, x, count, dtype, op);
}

// out = a (op) b where no bit of width or rounding stands between: one pass instead of three.
static bool fold_pair(
    void *out, const void *a, const void *b, int64_t count, cy_dtype dtype, cy_reduce op)
{
    if (op != CY_SUM) return false;
    if (dtype == CY_F32) {
        float *sum = out;
        const float *x = a;
        const float *y = b;
        for (int64_t i = 0; i < count; i++)
            sum[i] = x[i] + y[i];
        return true;
    }
    if (dtype == CY_F64) {
        double *sum = out;
        const double *x = a;
        const double *y = b;
        for (int64_t i = 0; i < count; i++)
            sum[i] = x[i] + y[i];
        return true;
    }
    return false;
}

bool cy_reduce_many(void *const *out, int outs, const void *const *in, int ins, int64_t count,
    cy_dtype dtype, cy_reduce op)
{
    _Alignas(64) char acc[BLOCK * sizeof(double)];
    const size_t size = cy_dtype_size(dtype);
    const int divisor = op == CY_AVG ? ins : 1;
    bool overflow = false;
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t n = count - first < BLOCK ? count - first : BLOCK;
        const size_t offset = (size_t)first * size;
        if (ins == 2 &&
            fold_pair((char *)out[0] + offset, (const char *)in[0] + offset,
                (const char *)in[1] + offset, n, dtype, op)) {
            for (int o = 1; o < outs; o++)
                memcpy((char *)out[o] + offset, (char *)out[0] + offset, (size_t)n * size);
            continue;
        }
        cy_reduce_widen(acc, (const char *)in[0] + offset, n, dtype);
        for (int i = 1; i < ins; i++) {
            overflow |= fold(acc, (const char *)in[i] + offset, n, dtype, op);
        }
        char *result = (char *)out[0] + offset;
        cy_reduce_narrow(result, acc, n, dtype, divisor);
        for (int o = 1; o < outs; o++)
            memcpy((char *)out[o] + offset, result, (size_t)n * size);
    }
    return overflow;
}
