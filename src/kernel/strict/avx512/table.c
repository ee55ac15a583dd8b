// Compiles the operators of strict mode for AVX-512.

#include "kernel/strict/operators.h"

void cy_strict_avx512_override(cy_kernels *table)
{
    override_with_strict(table);
}
