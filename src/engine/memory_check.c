// Compares what the ranks of a run need with the memory that is free and that they may map.
#include "engine/memory_check.h"

#include "base/memory.h"
#include "observe/memory.h"

#include <unistd.h>

#define GB 0x1p-30

// Mapped later than the plan's memory: stacks of threads that read and write, heaps, the code of
// kernels that are compiled when they are first asked for.
#define LATER_OF_PROCESS ((int64_t)64 << 20)
#define LATER_OF_RANK    ((int64_t)16 << 20)

// What the C library reserves when a thread other than the first asks for memory.
#define HEAP_OF_THREAD ((int64_t)64 << 20)

// What a rank tells the others.
typedef struct need {
    int64_t rank;
    int64_t needed_bytes;
    int64_t free_bytes; // INT64_MAX: not told
    int64_t group;      // whose limit that is, see cy_free_memory
    int64_t process;    // on the machine of the rank
    int64_t room_bytes; // that it may still map, INT64_MAX: without a limit
} need;

#define NEED_NUMBERS (int64_t)(sizeof(need) / sizeof(int64_t))

static cy_status check_room(int64_t needed, int64_t room_bytes)
{
    if (needed <= room_bytes) return CY_OK;
    const cy_address_room room = cy_address_room_read("");
    const cy_status status = CY_FAIL(CY_ERR_MEMORY,
        "this run needs %.2f GB of addresses in this process, and %s of %.2f GB leaves %.2f GB",
        (double)needed * GB, room.limit, (double)room.limit_bytes * GB, (double)room_bytes * GB);
    cy_error_set_hint(
        "%s unlimited; or what 'cyclotron plan CONFIG' shows to take less", room.limit);
    return status;
}

static int64_t room_here(void)
{
    const cy_address_room room = cy_address_room_read("");
    return room.bytes < INT64_MAX ? (int64_t)room.bytes : INT64_MAX;
}

cy_status cy_engine_check_room(int ranks)
{
    const int64_t heaps = ranks > 1 ? ranks * HEAP_OF_THREAD : 0;
    return check_room(LATER_OF_PROCESS + ranks * LATER_OF_RANK + heaps, room_here());
}

static need own_need(const cy_engine *engine)
{
    const cy_world *world = engine->options.world;
    const cy_free_memory memory = cy_free_memory_read("");
    return (need){
        .rank = world != NULL ? cy_world_rank(world) : 0,
        .needed_bytes = (int64_t)engine->memory.total,
        .free_bytes = memory.bytes < INT64_MAX ? (int64_t)memory.bytes : INT64_MAX,
        .group = (int64_t)memory.group,
        .process = getpid(),
        .room_bytes = room_here(),
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

// The ranks of this process together, by what the first of them found.
static cy_status compare_addresses(
    const need *mine, const need *needs, int count, const cy_world *world)
{
    int64_t needed = 0, room_bytes = 0;
    for (int i = 0; i < count; i++) {
        const bool here = needs[i].rank == mine->rank ||
            (world != NULL && needs[i].process == mine->process &&
                cy_world_shares_machine(world, (int)needs[i].rank));
        if (!here) continue;
        if (needed == 0) room_bytes = needs[i].room_bytes;
        needed += needs[i].needed_bytes + LATER_OF_RANK;
    }
    return check_room(needed + LATER_OF_PROCESS, room_bytes);
}

static cy_status compare_all(const need *mine, const need *needs, int count, const cy_world *world)
{
    CY_TRY(compare(mine, needs, count, world));
    return compare_addresses(mine, needs, count, world);
}

cy_status cy_engine_check_memory(cy_engine *engine)
{
    const cy_world *world = engine->options.world;
    need mine = own_need(engine);
    if (world == NULL) return compare_all(&mine, &mine, 1, NULL);
    cy_group *group = engine->options.groups.world;
    const int count = cy_group_size(group);
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)count, sizeof(need)));
    need *needs = block;
    cy_status status = cy_group_all_gather(group, NULL,
        cy_view_of(needs, CY_I64, count, NEED_NUMBERS), cy_view_of(&mine, CY_I64, 1, NEED_NUMBERS));
    if (status == CY_OK) status = compare_all(&mine, needs, count, world);
    cy_memory_free(block);
    return status;
}
