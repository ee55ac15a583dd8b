// Compiles the vector operators for NEON.

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/vector/tuned.h"

void cy_cpu_neon_override(cy_kernels *table)
{
    override_with_tuned(table);
}
