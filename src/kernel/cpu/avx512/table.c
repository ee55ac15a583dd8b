#include "kernel/cpu/tables.h"

void cy_cpu_avx512_override(cy_kernels *table)
{
    table->name = "avx512";
}
