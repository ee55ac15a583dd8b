// Finds what the processor can do, which cores the process may use, and which build is running.
#define _GNU_SOURCE
#include "base/platform.h"

#include "base/file.h"
#include "base/status.h"
#include "build_info.h"

#include <elf.h>
#include <hwloc.h>
#include <link.h>
#include <sched.h>
#include <stdbool.h>
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

// The processor has no name to read, only the numbers of its maker and of its part, which the
// kernel lets programs read.
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

// The size of the first core's data or unified cache of a level as Linux lists it. Used where the C
// library does not know it, as on aarch64.
static size_t listed_bytes(int level)
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
    return bytes > 0 ? (size_t)bytes : listed_bytes(level);
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

// ---- cores

int cy_cores_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Adds processing unit number `turn` of every core that has one, in the order of the tree, which
// has cores with a common cache or memory next to each other.
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
        // Restricts the tree to the units that this process may use.
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

// ---- build

#define DIGEST_BYTES ((size_t)8)

typedef struct search {
    uintptr_t code; // an address in this file
    char *text;
    size_t bytes;
} search;

static bool holds(const struct dl_phdr_info *file, uintptr_t address)
{
    for (int i = 0; i < file->dlpi_phnum; i++) {
        const uintptr_t first = file->dlpi_addr + file->dlpi_phdr[i].p_vaddr;
        if (file->dlpi_phdr[i].p_type != PT_LOAD) continue;
        if (first <= address && address - first < file->dlpi_phdr[i].p_memsz) return true;
    }
    return false;
}

// Each note is a header, a name and contents, each padded to a multiple of 4 bytes.
static bool find_note(const search *wanted, const char *notes, size_t size)
{
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof(note));
        const size_t name = at + sizeof(note);
        const size_t contents = name + ((size_t)note.n_namesz + 3) / 4 * 4;
        const size_t next = contents + ((size_t)note.n_descsz + 3) / 4 * 4;
        if (next > size) return false;
        const bool gnu = note.n_namesz == 4 && memcmp(notes + name, "GNU", 4) == 0;
        if (gnu && note.n_type == NT_GNU_BUILD_ID && note.n_descsz >= DIGEST_BYTES) {
            for (size_t i = 0; i < DIGEST_BYTES; i++) {
                const unsigned char byte = (unsigned char)notes[contents + i];
                snprintf(wanted->text + 2 * i, 3, "%02x", byte);
            }
            return true;
        }
        at = next;
    }
    return false;
}

static int visit(struct dl_phdr_info *file, size_t size, void *context)
{
    (void)size;
    const search *wanted = context;
    if (!holds(file, wanted->code)) return 0;
    for (int i = 0; i < file->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &file->dlpi_phdr[i];
        if (part->p_type != PT_NOTE) continue;
        const char *notes = NULL;
        const uintptr_t address = file->dlpi_addr + part->p_vaddr;
        memcpy(&notes, &address, sizeof(notes));
        if (find_note(wanted, notes, part->p_memsz)) break;
    }
    return 1;
}

void cy_build_id(char *text, size_t bytes)
{
    CY_ASSERT(bytes > 2 * DIGEST_BYTES);
    text[0] = '\0';
    static const char here = 0;
    search wanted = {.code = (uintptr_t)&here, .text = text, .bytes = bytes};
    (void)dl_iterate_phdr(visit, &wanted);
}
