// checkpoint/convert.h: converts elements from one float type to another.
//
// Rounds to nearest even. Pure functions, safe from any thread.

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

// The number of elements of in [count] that are not finite, or would not be finite in type `to`:
// from fp32 to fp16 those of magnitude 65520 and more. `in` is aligned to its type.
int64_t cy_convert_not_finite(cy_dtype to, const void *in, cy_dtype from, int64_t count);

#endif
