#include "kernel/cpu/tables.h"
#include "kernel/cpu/tuned.h"

void cy_cpu_neon_override(cy_kernels *table)
{
    override_with_tuned(table);
}
