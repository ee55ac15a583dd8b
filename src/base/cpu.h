// base/cpu.h: what the processor that runs can do, and how large its caches are.
//
// One binary runs everywhere: tuned code is entered only after a look here. Plain data, no owner.
// Detection reads the processor and the operating system's mask; it cannot fail, and what it cannot
// find out is false or 0. Any thread may call it; the answer is the same for all of them.

#ifndef CY_BASE_CPU_H
#define CY_BASE_CPU_H

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

#endif
