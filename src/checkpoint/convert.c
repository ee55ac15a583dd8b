// Converts between bf16, fp16, fp32 and fp64, and counts what does not fit.

#include "checkpoint/convert.h"

#include "base/numbers.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

bool cy_convert_is_known(cy_dtype to, cy_dtype from)
{
    return to == from || (cy_dtype_is_float(to) && cy_dtype_is_float(from));
}

// Rounds fp64 to fp32 to odd: truncates, and sets the last bit where that lost something. Rounding
// the result to 16 bits then gives what rounding from fp64 would.
static float narrow_to_odd(double x)
{
    const float nearest = (float)x;
    if ((double)nearest == x || nearest != nearest) return nearest;
    uint32_t bits = cy_f32_bits(nearest);
    const bool too_far = x > 0 ? (double)nearest > x : (double)nearest < x;
    if (too_far) bits--; // towards zero; from infinity this is the largest number
    return cy_f32_from_bits(bits | 1u);
}

static void widen(double *out, const char *in, cy_dtype from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint16_t half;
        float single;
        if (from == CY_F64) {
            memcpy(&out[i], in + i * 8, 8);
        } else if (from == CY_F32) {
            memcpy(&single, in + i * 4, 4);
            out[i] = (double)single;
        } else {
            memcpy(&half, in + i * 2, 2);
            out[i] = (double)(from == CY_BF16 ? cy_bf16_to_f32(half) : cy_f16_to_f32(half));
        }
    }
}

static void narrow(char *out, cy_dtype to, const double *in, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (to == CY_F64) {
            memcpy(out + i * 8, &in[i], 8);
        } else if (to == CY_F32) {
            const float single = (float)in[i];
            memcpy(out + i * 4, &single, 4);
        } else {
            const float odd = narrow_to_odd(in[i]);
            const uint16_t half = to == CY_BF16 ? cy_bf16_from_f32(odd) : cy_f16_from_f32(odd);
            memcpy(out + i * 2, &half, 2);
        }
    }
}

// The two conversions whose speed matters: bf16 weights to fp32, and back.
static bool convert_fast(char *out, cy_dtype to, const char *in, cy_dtype from, int64_t count)
{
    float single;
    uint16_t half;
    if (from == CY_BF16 && to == CY_F32) {
        for (int64_t i = 0; i < count; i++) {
            memcpy(&half, in + i * 2, 2);
            single = cy_bf16_to_f32(half);
            memcpy(out + i * 4, &single, 4);
        }
        return true;
    }
    if (from == CY_F32 && to == CY_BF16) {
        for (int64_t i = 0; i < count; i++) {
            memcpy(&single, in + i * 4, 4);
            half = cy_bf16_from_f32(single);
            memcpy(out + i * 2, &half, 2);
        }
        return true;
    }
    return false;
}

void cy_convert(void *out, cy_dtype to, const void *in, cy_dtype from, int64_t count)
{
    double wide[256];
    CY_ASSERT(cy_convert_is_known(to, from));
    if (to == from) {
        memcpy(out, in, (size_t)count * cy_dtype_size(to));
        return;
    }
    if (convert_fast(out, to, in, from, count)) return;
    const int64_t to_size = (int64_t)cy_dtype_size(to);
    const int64_t from_size = (int64_t)cy_dtype_size(from);
    for (int64_t i = 0; i < count; i += 256) {
        const int64_t some = count - i < 256 ? count - i : 256;
        widen(wide, (const char *)in + i * from_size, from, some);
        narrow((char *)out + i * to_size, to, wide, some);
    }
}

// The least magnitude that becomes infinite as a number of this type: half a last place above the
// largest.
static double limit_of(cy_dtype to)
{
    if (to == CY_F16) return 65520.0;
    if (to == CY_BF16) return 0x1.ffp127;
    if (to == CY_F32) return 0x1.ffffffp127;
    return (double)INFINITY;
}

int64_t cy_convert_not_finite(cy_dtype to, const void *in, cy_dtype from, int64_t count)
{
    const double limit = limit_of(to);
    int64_t found = 0;
    if (from == CY_F32) {
        const float *x = in;
        const float most = (float)limit; // for fp32 itself this is infinity
        for (int64_t i = 0; i < count; i++)
            found += !(fabsf(x[i]) < most);
        return found;
    }
    double wide[256];
    const int64_t size = (int64_t)cy_dtype_size(from);
    for (int64_t i = 0; i < count; i += 256) {
        const int64_t some = count - i < 256 ? count - i : 256;
        widen(wide, (const char *)in + i * size, from, some);
        for (int64_t j = 0; j < some; j++)
            found += !(fabs(wide[j]) < limit);
    }
    return found;
}
