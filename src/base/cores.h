// base/cores.h: the processors that the threads of this process may run on, and in what order they
// are pinned. Safe from any thread.

#ifndef CY_BASE_CORES_H
#define CY_BASE_CORES_H

// Processing units that this process may use; 1 where the system does not say. Quick.
int cy_cores_allowed(void);

// From hwloc: one processing unit of every core first, cores that share a cache or a memory node
// next to each other, then the second units of cores with several. Takes a few milliseconds, so ask
// once. cores [most] get the operating system's numbers; returns how many there are (at most
// `most`), 0 where the topology cannot be read.
int cy_cores_find(int *cores, int most);

#endif
