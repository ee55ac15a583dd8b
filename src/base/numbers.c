// Looks up the sizes and names of dtypes, and computes the median of measurements.
#include "base/numbers.h"

#include <cyclotron/dtype.h>

#include <stdlib.h>
#include <string.h>

static const struct {
    cy_dtype dtype;
    size_t size;
    const char *names[4]; // the first is the one that is printed
} dtypes[] = {
    {CY_F32, 4, {"fp32", "float32", "float"}},
    {CY_F64, 8, {"fp64", "float64", "double"}},
    {CY_BF16, 2, {"bf16", "bfloat16"}},
    {CY_F16, 2, {"fp16", "float16", "half"}},
    {CY_I32, 4, {"int32"}},
    {CY_I64, 8, {"int64"}},
    {CY_U8, 1, {"uint8"}},
    {CY_FX64, 8, {"fixed64"}},
};

size_t cy_dtype_size(cy_dtype dtype)
{
    return dtypes[dtype].size;
}

int cy_dtype_is_float(cy_dtype dtype)
{
    return dtype == CY_F32 || dtype == CY_F64 || dtype == CY_BF16 || dtype == CY_F16;
}

const char *cy_dtype_name(cy_dtype dtype)
{
    return dtypes[dtype].names[0];
}

int cy_dtype_from_name(cy_dtype *dtype, const char *name)
{
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        for (size_t j = 0; j < 4 && dtypes[i].names[j] != NULL; j++) {
            if (strcmp(dtypes[i].names[j], name) == 0) {
                *dtype = dtypes[i].dtype;
                return 1;
            }
        }
    }
    return 0;
}

// ---- median

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double cy_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(double), ascending);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
