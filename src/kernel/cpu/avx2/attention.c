#include "kernel/cpu/avx2/lanes.h"

#include "kernel/cpu/attention/rows.h"

const cy_attention_rows *cy_attention_rows_avx2(void)
{
    return &rows;
}
