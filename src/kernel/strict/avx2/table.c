// Compiles the operators of strict mode for AVX2.

#include "kernel/strict/operators.h"

void cy_strict_avx2_override(cy_kernels *table)
{
    override_with_strict(table);
}
