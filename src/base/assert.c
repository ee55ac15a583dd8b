#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void cy_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "cyclotron: error: %s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}
