// Compiles the vector operators for AVX-512.

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/vector/tuned.h"

void cy_cpu_avx512_override(cy_kernels *table)
{
    override_with_tuned(table);
}
