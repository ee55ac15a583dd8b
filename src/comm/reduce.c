// The arithmetic of reductions: adds operands of every dtype in the fixed order of comm/reduce.h.

#include "comm/reduce.h"

#include "base/numbers.h"
#include "base/status.h"

#include <string.h>

// Partial results of as many operands as there may be take this many blocks.
#define LEVELS 13

// One block of partial results stays in the first-level cache while all operands pass through it.
#define BLOCK 1024

// max and min that a NaN wins: the running value stays if it is NaN, and a NaN operand replaces it.
#define BEFORE(acc, x) (!((acc) <= (x)))
#define BEHIND(acc, x) (!((acc) >= (x)))

// NOLINTBEGIN(bugprone-macro-parentheses): a type has none
#define DEFINE_FOLD(name, type)                                                                    \
    static void name(type *restrict acc, const type *restrict x, int64_t count, cy_reduce_op op)   \
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
    static void name(type *restrict acc, const type *restrict x, int64_t count, cy_reduce_op op)   \
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

static bool fold_fixed(int64_t *acc, const int64_t *x, int64_t count, cy_reduce_op op)
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
static bool fold(void *acc, const void *x, int64_t count, cy_dtype dtype, cy_reduce_op op)
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

bool cy_reduce_into(void *acc, const void *x, int64_t count, cy_dtype dtype, cy_reduce_op op)
{
    CY_ASSERT(dtype == cy_reduce_partial_dtype(dtype));
    return fold(acc, x, count, dtype, op);
}

// there = data + there, in one pass; false where the dtype or the operation is another.
static bool add_before(
    void *there, const void *data, int64_t count, cy_dtype dtype, cy_reduce_op op)
{
    if (op != CY_SUM && op != CY_AVG) return false;
    if (dtype == CY_F32) {
        float *restrict sum = there;
        const float *restrict x = data;
        for (int64_t i = 0; i < count; i++)
            sum[i] = x[i] + sum[i];
        return true;
    }
    if (dtype == CY_F64) {
        double *restrict sum = there;
        const double *restrict x = data;
        for (int64_t i = 0; i < count; i++)
            sum[i] = x[i] + sum[i];
        return true;
    }
    return false;
}

bool cy_reduce_received(void *there, const void *data, int64_t count, cy_dtype dtype,
    cy_reduce_op op, cy_recv_action recv_action)
{
    const size_t size = cy_dtype_size(dtype);
    if (recv_action == CY_RECV_STORE) {
        if (count > 0) memcpy(there, data, (size_t)count * size);
        return false;
    }
    if (recv_action == CY_RECV_REDUCE_AFTER) return cy_reduce_into(there, data, count, dtype, op);
    CY_ASSERT(dtype == cy_reduce_partial_dtype(dtype));
    if (add_before(there, data, count, dtype, op)) return false;
    // What arrives stays as it is: it may be the sender's own data.
    _Alignas(64) char acc[BLOCK * sizeof(double)];
    bool overflow = false;
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t n = count - first < BLOCK ? count - first : BLOCK;
        char *to = (char *)there + (size_t)first * size;
        memcpy(acc, (const char *)data + (size_t)first * size, (size_t)n * size);
        overflow |= fold(acc, to, n, dtype, op);
        memcpy(to, acc, (size_t)n * size);
    }
    return overflow;
}

// out = a (op) b where no bit of width or rounding stands between: one pass instead of three.
static bool fold_pair(
    void *out, const void *a, const void *b, int64_t count, cy_dtype dtype, cy_reduce_op op)
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

// The operands of a reduction, in the order in which they are added.
typedef struct operands {
    const void *const *in;
    int extra;     // the first 2 extra operands are added in pairs
    size_t offset; // of the block, in bytes
    int64_t count; // of its elements
    cy_dtype dtype;
    cy_reduce_op op;
} operands;

static const void *operand(const operands *o, int i)
{
    return (const char *)o->in[i] + o->offset;
}

// One operand, or the pair that stands in its place.
static bool take_leaf(void *acc, const operands *o, int place)
{
    const bool pair = place < o->extra;
    const int first = pair ? 2 * place : place + o->extra;
    if (!pair) {
        cy_reduce_widen(acc, operand(o, first), o->count, o->dtype);
        return false;
    }
    const cy_reduce_op op = o->op == CY_AVG ? CY_SUM : o->op;
    const void *left = operand(o, first);
    const void *right = operand(o, first + 1);
    if (fold_pair(acc, left, right, o->count, o->dtype, op)) return false;
    cy_reduce_widen(acc, left, o->count, o->dtype);
    return fold(acc, right, o->count, o->dtype, o->op);
}

// The reduction of `places` of them, a power of two, into the first block of acc.
static bool take_tree(char *acc, const operands *o, int place, int places)
{
    if (places == 1) return take_leaf(acc, o, place);
    const int half = places / 2;
    const bool plain = half == 1 && place >= o->extra;
    const void *left = operand(o, place + o->extra);
    const void *right = operand(o, place + half + o->extra);
    const cy_reduce_op op = o->op == CY_AVG ? CY_SUM : o->op;
    if (plain && fold_pair(acc, left, right, o->count, o->dtype, op)) return false;
    bool overflow = take_tree(acc, o, place, half);
    if (half == 1 && place + 1 >= o->extra) {
        return fold(acc, right, o->count, o->dtype, o->op) || overflow;
    }
    char *other = acc + BLOCK * sizeof(double);
    overflow |= take_tree(other, o, place + half, half);
    return fold(acc, other, o->count, cy_reduce_partial_dtype(o->dtype), o->op) || overflow;
}

bool cy_reduce_many(void *const *out, int outs, const void *const *in, int ins, int64_t count,
    cy_dtype dtype, cy_reduce_op op)
{
    _Alignas(64) char acc[LEVELS * BLOCK * sizeof(double)];
    const size_t size = cy_dtype_size(dtype);
    const int divisor = op == CY_AVG ? ins : 1;
    int core = 1;
    while (core * 2 <= ins)
        core *= 2;
    CY_ASSERT(core < 1 << LEVELS);
    bool overflow = false;
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t n = count - first < BLOCK ? count - first : BLOCK;
        const size_t offset = (size_t)first * size;
        const operands o = {in, ins - core, offset, n, dtype, op};
        char *result = (char *)out[0] + offset;
        if (ins != 2 || !fold_pair(result, operand(&o, 0), operand(&o, 1), n, dtype, op)) {
            overflow |= take_tree(acc, &o, 0, core);
            cy_reduce_narrow(result, acc, n, dtype, divisor);
        }
        for (int i = 1; i < outs; i++)
            memcpy((char *)out[i] + offset, result, (size_t)n * size);
    }
    return overflow;
}
