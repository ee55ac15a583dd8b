#include "comm/algorithms/plan.h"

#include "base/memory.h"

cy_part cy_part_of(int64_t total, int parts, int part)
{
    const int64_t longer = total % parts; // parts that have one element more
    const int64_t before = part < longer ? part : longer;
    return (cy_part){
        .first = total / parts * part + before,
        .count = total / parts + (part < longer ? 1 : 0),
    };
}

void cy_plan_free(cy_plan *plan)
{
    cy_memory_free(plan->rounds);
    *plan = (cy_plan){0};
}

cy_status cy_plan_add(cy_plan *plan, cy_round round)
{
    void *block = plan->rounds;
    CY_TRY(cy_memory_grow(&block, &plan->capacity, (size_t)plan->count + 1, sizeof(cy_round)));
    plan->rounds = block;
    plan->rounds[plan->count++] = round;
    return CY_OK;
}
