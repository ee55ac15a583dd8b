#include "kernel/cpu/avx512/lanes.h"

#include "kernel/cpu/attention_lanes.h"

const cy_attention_rows *cy_attention_rows_avx512(void)
{
    return &rows;
}
