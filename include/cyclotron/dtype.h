// cyclotron/dtype.h: the element types of tensors. Pure functions, safe from any thread.

#ifndef CYCLOTRON_DTYPE_H
#define CYCLOTRON_DTYPE_H

#include <cyclotron/status.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cy_dtype {
    CY_F32,
    CY_F64,
    CY_BF16,
    CY_F16,
    CY_I32,
    CY_I64,
    CY_U8,
    CY_FX64, // fixed point: a 64-bit integer times a power of two that stands beside the tensor
} cy_dtype;

// Bytes of one element.
CY_API size_t cy_dtype_size(cy_dtype dtype);

// 1 for fp32, fp64, bf16 and fp16; 0 for the others.
CY_API int cy_dtype_is_float(cy_dtype dtype);

// The short name: "fp32", "fp64", "bf16", "fp16", "int32", "int64", "uint8", "fixed64". Static
// storage.
CY_API const char *cy_dtype_name(cy_dtype dtype);

// Reads a name as configurations spell it: "bf16" or "bfloat16", "fp32" or "float32", and so on.
// Returns 1; or 0, and leaves *dtype alone, when it is none of them.
CY_API int cy_dtype_from_name(cy_dtype *dtype, const char *name);

#ifdef __cplusplus
}
#endif

#endif
