// base/platform.h: what the program runs on: the processor, its cores, and its own build.

#ifndef CY_BASE_PLATFORM_H
#define CY_BASE_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>

// ---- the processor
//
// One binary runs on all processors: code for an instruction set runs only where cy_cpu_detect has
// found it. Detection cannot fail: what it cannot find out is false or 0. Any thread may call it
// and gets the same answer.

typedef struct cy_cpu {
    char name[64];    // as the processor gives it; "" where it gives none
    bool avx2;        // AVX2, FMA and F16C, with state that the operating system saves
    bool avx512;      // AVX-512 F, BW, DQ and VL, and all of the above
    bool avx512_bf16; // products of bf16 pairs in vectors, and all of the above
    bool amx;         // products of bf16 tiles, granted to this process, and all of the above
    bool neon;        // Advanced SIMD of aarch64
    int cores;        // processing units that this process may use
    size_t l1_bytes;  // data cache of one core
    size_t l2_bytes;
    size_t l3_bytes; // of the whole cache, however many cores share it
} cy_cpu;

// Detects the processor. It also requests the tile registers of AMX, which Linux grants on request
// only. A build with -DCY_MAX_ISA=LEVEL detects nothing beyond that level.
void cy_cpu_detect(cy_cpu *cpu);

// Clears the instruction sets beyond a level: "ref" (which has none), "avx2", "avx512",
// "avx512_bf16" or "amx".
void cy_cpu_limit(cy_cpu *cpu, const char *level);

// ---- cores. Any thread may call these.

// The number of processing units that this process may use; 1 where the system does not say.
int cy_cores_allowed(void);

// Writes the operating system's numbers of the processing units that this process may use to cores
// [most], in the order in which threads are pinned: first one unit of every core, with cores that
// share a cache or a memory node next to each other, then the second units. Returns how many it
// wrote; 0 where hwloc cannot read the topology. It takes a few milliseconds.
int cy_cores_find(int *cores, int most);

// ---- the build

// Writes the first 16 hexadecimal digits of the linker's build id, a hash of the contents of the
// file that holds this code; "" where the linker made none. `bytes` is at least 17.
void cy_build_id(char *text, size_t bytes);

#endif
