#include "kernel/cpu/neon/lanes.h"

#include "kernel/cpu/attention/rows.h"

const cy_attention_rows *cy_attention_rows_neon(void)
{
    return &rows;
}
