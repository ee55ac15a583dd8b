#define _GNU_SOURCE
#include "base/cpu.h"

#include "base/cores.h"
#include "base/file.h"
#include "build_info.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

// From asm/prctl.h, which older systems lack.
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA  18

// State that the operating system saves: bits of XCR0.
#define XCR0_AVX    0x6u     // xmm and ymm
#define XCR0_AVX512 0xe0u    // masks and both halves of zmm
#define XCR0_AMX    0x60000u // tile configuration and data

static bool bit(unsigned value, int index)
{
    return ((value >> index) & 1u) != 0;
}

static uint64_t saved_state(void)
{
    uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

static bool saves(uint64_t state, uint64_t wanted)
{
    return (state & wanted) == wanted;
}

static void detect_features(cy_cpu *cpu)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return;
    const bool fma = bit(ecx, 12), osxsave = bit(ecx, 27), f16c = bit(ecx, 29);
    if (!osxsave) return;
    const uint64_t state = saved_state();

    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return;
    cpu->avx2 = bit(ebx, 5) && fma && f16c && saves(state, XCR0_AVX);
    cpu->avx512 = cpu->avx2 && bit(ebx, 16) && bit(ebx, 30) && bit(ebx, 17) && bit(ebx, 31) &&
        saves(state, XCR0_AVX512);
    const bool tiles = bit(edx, 24) && bit(edx, 22) && saves(state, XCR0_AMX);

    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0) return;
    cpu->avx512_bf16 = cpu->avx512 && bit(eax, 5);
    cpu->amx = cpu->avx512_bf16 && tiles &&
        syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static void detect_name(cy_cpu *cpu)
{
    unsigned words[12] = {0};
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) < 0x80000004u) return;
    for (size_t i = 0; i < 3; i++) {
        __get_cpuid(0x80000002u + (unsigned)i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
            &words[4 * i + 3]);
    }
    memcpy(cpu->name, words, sizeof(words));
    cpu->name[sizeof(words)] = '\0';
}
#elif defined(__aarch64__)
static void detect_features(cy_cpu *cpu)
{
    cpu->neon = (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0;
}

// There are no words to read, only the numbers of the maker and of the part, which the kernel lets
// programs read.
static void detect_name(cy_cpu *cpu)
{
    if ((getauxval(AT_HWCAP) & HWCAP_CPUID) == 0) return;
    uint64_t id = 0;
    __asm__("mrs %0, midr_el1" : "=r"(id));
    snprintf(cpu->name, sizeof(cpu->name), "aarch64, maker 0x%02x, part 0x%03x",
        (unsigned)(id >> 24) & 0xffu, (unsigned)(id >> 4) & 0xfffu);
}
#else
static void detect_features(cy_cpu *cpu)
{
    (void)cpu;
}

static void detect_name(cy_cpu *cpu)
{
    (void)cpu;
}
#endif

// What Linux tells of the first core's cache, where the C library does not, as on aarch64: that of
// this level which is not for instructions alone.
static size_t told_bytes(int level)
{
    for (int i = 0; i < 8; i++) {
        char path[96], text[16];
        const char *const folder = "/sys/devices/system/cpu/cpu0/cache/index";
        snprintf(path, sizeof(path), "%s%d/level", folder, i);
        if (cy_file_read_some(path, text, sizeof(text)) == 0) break;
        if (strtol(text, NULL, 10) != level) continue;
        snprintf(path, sizeof(path), "%s%d/type", folder, i);
        if (cy_file_read_some(path, text, sizeof(text)) == 0 || text[0] == 'I') continue;
        snprintf(path, sizeof(path), "%s%d/size", folder, i);
        if (cy_file_read_some(path, text, sizeof(text)) == 0) break;
        char *unit;
        const long count = strtol(text, &unit, 10);
        const int shift = *unit == 'M' ? 20 : *unit == 'K' ? 10 : 0;
        return count > 0 ? (size_t)count << shift : 0;
    }
    return 0;
}

static size_t cache_bytes(int name, int level)
{
    const long bytes = sysconf(name);
    return bytes > 0 ? (size_t)bytes : told_bytes(level);
}

void cy_cpu_limit(cy_cpu *cpu, const char *level)
{
    static const char *const names[] = {"avx2", "avx512", "avx512_bf16", "amx"};
    bool *const features[] = {&cpu->avx2, &cpu->avx512, &cpu->avx512_bf16, &cpu->amx};
    bool beyond = strcmp(level, "ref") == 0;
    if (beyond) cpu->neon = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (beyond) *features[i] = false;
        beyond = beyond || strcmp(level, names[i]) == 0;
    }
}

void cy_cpu_detect(cy_cpu *cpu)
{
    *cpu = (cy_cpu){.cores = cy_cores_allowed()};
    detect_features(cpu);
    cy_cpu_limit(cpu, CY_MAX_ISA);
    detect_name(cpu);
    cpu->l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 1);
    cpu->l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 2);
    cpu->l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE, 3);
}
