#include "kernel/cpu/tables.h"

void cy_cpu_avx2_override(cy_kernels *table)
{
    table->name = "avx2";
}
