// base/platform.h: what the program runs on: the processor, its cores, and its own build.

#ifndef CY_BASE_PLATFORM_H
#define CY_BASE_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cy_cpu {
    char name[64];    // the maker's words, "" where the processor does not tell
    bool avx2;        // AVX2, FMA and F16C, kept by the operating system
    bool avx512;      // AVX-512 F, BW, DQ and VL, and all of the above
    bool avx512_bf16; // products of bf16 pairs in vectors, and all of the above
    bool amx;         // products of bf16 tiles, granted to this process, and all of the above
    bool neon;        // aarch64 with Advanced SIMD, which all of them that run Linux have
    int cores;        // that this process may use
    size_t l1_bytes;  // data cache of one core
    size_t l2_bytes;
    size_t l3_bytes; // as the system tells it, however many cores share it
} cy_cpu;

// Also asks the kernel for the tile registers, which Linux grants on request only. A build made
// with -DCY_MAX_ISA=LEVEL finds no more than that level has, whatever the processor.
void cy_cpu_detect(cy_cpu *cpu);

// Takes from x86-64's instruction sets those beyond a level: "ref" (none of them), "avx2",
// "avx512", "avx512_bf16" or "amx".
void cy_cpu_limit(cy_cpu *cpu, const char *level);

// ---- cores
//
// the processors that the threads of this process may run on, and in what order they
// are pinned. Safe from any thread.

// Processing units that this process may use; 1 where the system does not say. Quick.
int cy_cores_allowed(void);

// From hwloc: one processing unit of every core first, cores that share a cache or a memory node
// next to each other, then the second units of cores with several. Takes a few milliseconds, so ask
// once. cores [most] get the operating system's numbers; returns how many there are (at most
// `most`), 0 where the topology cannot be read.
int cy_cores_find(int *cores, int most);

// ---- build
//
// which build of the program is running.

// The first 16 hexadecimal digits of the linker's build id of the file that holds this code, a hash
// of its contents; "" where the linker gave it none. `bytes` is at least 17.
void cy_build_id(char *text, size_t bytes);

#endif
