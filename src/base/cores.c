#define _GNU_SOURCE
#include "base/cores.h"

#include <hwloc.h>
#include <sched.h>

int cy_cores_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Numbers of the `turn`-th processing unit of every core that has one, in the order of the tree,
// which puts cores with a common cache or memory side by side.
static int add_turn(hwloc_topology_t topology, int turn, int *cores, int count, int most)
{
    const int total = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    for (int i = 0; i < total && count < most; i++) {
        const struct hwloc_obj *core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
        if (core == NULL) break;
        const struct hwloc_obj *unit = hwloc_get_obj_inside_cpuset_by_type(
            topology, core->cpuset, HWLOC_OBJ_PU, (unsigned)turn);
        if (unit != NULL) cores[count++] = (int)unit->os_index;
    }
    return count;
}

int cy_cores_find(int *cores, int most)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return 0;
    int count = 0;
    if (hwloc_topology_load(topology) == 0) {
        hwloc_bitmap_t mine = hwloc_bitmap_alloc();
        // What this process may not use leaves the tree.
        if (mine != NULL && hwloc_get_cpubind(topology, mine, HWLOC_CPUBIND_PROCESS) == 0) {
            hwloc_topology_restrict(topology, mine, 0);
        }
        hwloc_bitmap_free(mine);
        int before = -1;
        for (int turn = 0; before != count && count < most; turn++) {
            before = count;
            count = add_turn(topology, turn, cores, count, most);
        }
    }
    hwloc_topology_destroy(topology);
    return count;
}
