// Compiles the operators of strict mode in portable C.

#include "kernel/strict/operators.h"

void cy_strict_portable_override(cy_kernels *table)
{
    override_with_strict(table);
}
