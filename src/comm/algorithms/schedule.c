#include "comm/algorithms/schedule.h"

#include "base/memory.h"

cy_coll_chunk cy_coll_chunk_of(int64_t total, int parts, int part)
{
    const int64_t longer = total % parts; // parts that have one element more
    const int64_t before = part < longer ? part : longer;
    return (cy_coll_chunk){
        .first = total / parts * part + before,
        .count = total / parts + (part < longer ? 1 : 0),
    };
}

void cy_coll_schedule_free(cy_coll_schedule *plan)
{
    cy_memory_free(plan->rounds);
    *plan = (cy_coll_schedule){0};
}

cy_status cy_coll_schedule_add(cy_coll_schedule *plan, cy_round round)
{
    void *block = plan->rounds;
    CY_TRY(cy_memory_grow(&block, &plan->capacity, (size_t)plan->count + 1, sizeof(cy_round)));
    plan->rounds = block;
    plan->rounds[plan->count++] = round;
    return CY_OK;
}
