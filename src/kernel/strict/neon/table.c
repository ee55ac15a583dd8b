// Compiles the operators of strict mode for NEON: products use the NEON microkernel, and the
// compiler vectorises the portable vectors by itself.

#define STRICT_NEON
#include "kernel/strict/operators.h"

void cy_strict_neon_override(cy_kernels *table)
{
    override_with_strict(table);
}
