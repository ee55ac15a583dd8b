// checkpoint/convert.h: elements from one float type to another, on the way out of a file.
//
// Rounds to nearest even. Pure; safe from any thread.

#ifndef CY_CHECKPOINT_CONVERT_H
#define CY_CHECKPOINT_CONVERT_H

#include <cyclotron/dtype.h>

#include <stdbool.h>
#include <stdint.h>

// True for equal types and between bf16, fp16, fp32 and fp64.
bool cy_convert_is_known(cy_dtype to, cy_dtype from);

// out [count] of type `to` = in [count] of type `from`. They do not overlap; neither need be
// aligned.
void cy_convert(void *out, cy_dtype to, const void *in, cy_dtype from, int64_t count);

// How many of in [count] are not finite, or would not be as numbers of type `to`: of fp32 numbers
// as fp16 those from 65520 on. `in` is aligned.
int64_t cy_convert_not_finite(cy_dtype to, const void *in, cy_dtype from, int64_t count);

#endif
