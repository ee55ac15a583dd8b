#include "parallel/data/exec_order.h"

#include "base/memory.h"

void cy_exec_order_free(cy_exec_order *order)
{
    cy_memory_free(order->units);
    *order = (cy_exec_order){0};
}

cy_status cy_exec_order_append(cy_exec_order *order, int unit)
{
    void *block = order->units;
    CY_TRY(cy_memory_grow(&block, &order->capacity, order->count + 1, sizeof(int)));
    order->units = block;
    order->units[order->count++] = unit;
    order->at = order->count;
    return CY_OK;
}

void cy_exec_order_rewind(cy_exec_order *order)
{
    order->at = 0;
}

void cy_exec_order_clear(cy_exec_order *order)
{
    order->count = order->at = 0;
}

void cy_exec_order_use(cy_exec_order *order, int unit)
{
    if (order->repeats && order->at == order->count) order->at = 0;
    const bool as_learned = order->at < order->count && order->units[order->at] == unit;
    order->at = as_learned ? order->at + 1 : order->count;
}

int cy_exec_order_next(const cy_exec_order *order, int ahead)
{
    const size_t at = order->at + (size_t)ahead;
    return at < order->count ? order->units[at] : -1;
}
