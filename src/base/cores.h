// base/cores.h: which processors the threads of this process may be pinned to, in what order.
//
// From hwloc: one processing unit of every core first, cores that share a cache or a memory node
// next to each other, then the second units of cores with several. Only those that the process is
// allowed to use. Safe from any thread; takes a few milliseconds, so ask once.

#ifndef CY_BASE_CORES_H
#define CY_BASE_CORES_H

// cores [most] get the operating system's numbers; returns how many there are (at most `most`), 0
// where the topology cannot be read.
int cy_cores_find(int *cores, int most);

#endif
