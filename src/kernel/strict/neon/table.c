// The table with products by NEON. Its vectors are those of portable/: the compiler makes them of
// NEON by itself.
#define STRICT_NEON
#include "kernel/strict/operators.h"

void cy_strict_neon_override(cy_kernels *table)
{
    override_with_strict(table);
}
