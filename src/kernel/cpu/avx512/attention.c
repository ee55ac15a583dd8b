#include "kernel/cpu/avx512/lanes.h"

#include "kernel/cpu/attention/rows.h"

const cy_attention_rows *cy_attention_rows_avx512(void)
{
    return &rows;
}
