// Compiles the vector operators for AVX2.

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/vector/tuned.h"

void cy_cpu_avx2_override(cy_kernels *table)
{
    override_with_tuned(table);
}
