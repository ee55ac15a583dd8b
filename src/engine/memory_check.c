#include "engine/memory_check.h"

#include "base/memory.h"
#include "observe/memory.h"

#define GB 0x1p-30

// What a rank tells the others.
typedef struct need {
    int64_t rank;
    int64_t needed_bytes;
    int64_t free_bytes; // INT64_MAX: not told
    int64_t group;      // whose limit that is, see cy_free_memory
} need;

#define NEED_NUMBERS (int64_t)(sizeof(need) / sizeof(int64_t))

static need own_need(const cy_engine *engine)
{
    const cy_world *world = engine->options.world;
    const cy_free_memory memory = cy_free_memory_read("");
    return (need){
        .rank = world != NULL ? cy_world_rank(world) : 0,
        .needed_bytes = (int64_t)engine->memory.total,
        .free_bytes = memory.bytes < INT64_MAX ? (int64_t)memory.bytes : INT64_MAX,
        .group = (int64_t)memory.group,
    };
}

// Ranks that take from the same memory: of one machine, and of one control group where its limit is
// what counts. All of them go by what the first of them found free, so that they come to one
// verdict.
static cy_status compare(const need *mine, const need *needs, int count, const cy_world *world)
{
    int64_t needed = 0, free_bytes = 0;
    for (int i = 0; i < count; i++) {
        const bool shared = needs[i].rank == mine->rank ||
            (world != NULL && needs[i].group == mine->group &&
                cy_world_shares_machine(world, (int)needs[i].rank));
        if (!shared) continue;
        if (needed == 0) free_bytes = needs[i].free_bytes;
        needed += needs[i].needed_bytes;
    }
    if (needed <= free_bytes) return CY_OK;
    const cy_status status =
        CY_FAIL(CY_ERR_MEMORY, "this run needs %.2f GB here, and %.2f GB are free",
            (double)needed * GB, (double)free_bytes * GB);
    cy_error_set_hint("'cyclotron plan CONFIG' shows what takes it; a smaller "
                      "training.micro_batch_size, training.recompute \"full\" or a higher "
                      "distributed.zero_stage take less");
    return status;
}

cy_status cy_engine_check_memory(cy_engine *engine)
{
    const cy_world *world = engine->options.world;
    need mine = own_need(engine);
    if (world == NULL) return compare(&mine, &mine, 1, NULL);
    cy_group *group = engine->options.groups.world;
    const int count = cy_group_size(group);
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)count, sizeof(need)));
    need *needs = block;
    cy_status status = cy_group_all_gather(group, &engine->queue,
        cy_view_of(needs, CY_I64, count, NEED_NUMBERS), cy_view_of(&mine, CY_I64, 1, NEED_NUMBERS));
    if (status == CY_OK) status = compare(&mine, needs, count, world);
    cy_memory_free(block);
    return status;
}
