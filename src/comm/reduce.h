// comm/reduce.h: the arithmetic of reductions, on plain memory.
//
// Operands are added in a fixed order: with P = 2^k + e of them the first 2 e in pairs, then pairs
// of what there is, pairs of these, and so on. 16-bit floats are added in fp32 with one rounding at
// the end. So a result depends on the operands alone and not on which rank computes it or in which
// chunks, and recursive halving and doubling (algorithms/schedule.c) come to the same bits. A NaN
// operand makes the minimum and the maximum NaN. Pure functions: any thread, nothing owned.

#ifndef CY_COMM_REDUCE_H
#define CY_COMM_REDUCE_H

#include <cyclotron/dtype.h>

#include "comm/group.h"

// The dtype that partial results have while a reduction is under way: fp32 for 16-bit floats,
// otherwise the dtype itself.
cy_dtype cy_reduce_partial_dtype(cy_dtype dtype);

// out[o][i] = the reduction of in[0][i], in[1][i], ... in that order, divided by `ins` for an
// average, for every o and 0 <= i < count. An out may be an in. Returns true when a sum of
// fixed-point numbers overflowed.
bool cy_reduce_many(void *const *out, int outs, const void *const *in, int ins, int64_t count,
    cy_dtype dtype, cy_reduce_op op);

// acc[i] = acc[i] (op) x[i]; an average is a sum here. Same return value.
bool cy_reduce_into(void *acc, const void *x, int64_t count, cy_dtype dtype, cy_reduce_op op);

// What happens to data that have arrived in a message.
typedef enum cy_recv_action {
    CY_RECV_STORE,         // they replace what is there
    CY_RECV_REDUCE_AFTER,  // they are the second operand: there = there (op) data
    CY_RECV_REDUCE_BEFORE, // they are the first operand: there = data (op) there
} cy_recv_action;

// Takes data of a partial dtype in, in one pass over both; they do not overlap what is there. An
// average is a sum here. Same return value.
bool cy_reduce_received(void *there, const void *data, int64_t count, cy_dtype dtype,
    cy_reduce_op op, cy_recv_action recv_action);

// Between a dtype and its partial dtype; the way back divides by `divisor` first.
void cy_reduce_widen(void *partial, const void *x, int64_t count, cy_dtype dtype);
void cy_reduce_narrow(void *x, const void *partial, int64_t count, cy_dtype dtype, int divisor);

#endif
