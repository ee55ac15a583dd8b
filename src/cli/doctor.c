// cyclotron doctor: shows what this machine offers and lacks, and measures what it reaches.

#define _GNU_SOURCE
#include "base/file.h"
#include "base/io.h"
#include "base/platform.h"
#include "base/thread_pool.h"
#include "build_info.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/options.h"
#include "cli/report.h"
#include "config/config.h"
#include "kernel/dispatch.h"
#include "kernel/peak.h"
#include "observe/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

typedef struct values {
    bool quick;
    bool json;
    int64_t threads;
    const char *isa;
} values;

static const cy_option options[] = {
    {"quick", CY_OPTION_FLAG, offsetof(values, quick), .doc = "measure nothing"},
    {"threads", CY_OPTION_COUNT, offsetof(values, threads), .low = 0, .high = 4096,
        .doc = "threads to measure with (default 0: all cores)"},
    {"isa", CY_OPTION_CHOICE, offsetof(values, isa), .initial = "auto",
        .values = CY_CONFIG_ISA_NAMES, .doc = "measure as this level of instructions does",
        .word = "LEVEL"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print an array of findings only"},
};

static const cy_usage usage = {
    .name = "doctor",
    .doc = "Says what this machine offers and what is missing, and measures its peaks.",
    .more =
        "Peaks are those of matrix products and of memory, on all cores at once: what mfu is a\n"
        "fraction of.",
    .options = options,
    .option_count = CY_COUNT(options),
};

typedef enum finding_kind {
    FINDING_GOOD,
    FINDING_MISSING, // there is something to do about it: the advice
} finding_kind;

// Prints each finding at once, or collects them as JSON.
typedef struct report {
    bool json;
    cy_text text; // owned
    cy_status broken;
} report;

static cy_status add_json(
    cy_text *text, const char *name, const char *kind, const char *words, const char *advice)
{
    json_t *finding = json_pack("{s:s, s:s, s:o}", "name", name, "state", kind, "finding",
        cy_json_string(words, strlen(words)));
    if (advice != NULL) cy_json_set(&finding, "hint", cy_json_string(advice, strlen(advice)));
    cy_status status = cy_text_add(text, text->length == 0 ? "[\n" : ",\n");
    if (status == CY_OK) status = cy_json_add(text, finding, 0);
    return status;
}

static void find(report *r, finding_kind kind, const char *name, const char *advice,
    const char *format, ...) __attribute__((format(printf, 5, 6)));

static void find(
    report *r, finding_kind kind, const char *name, const char *advice, const char *format, ...)
{
    static const char *const words[] = {"ok", "missing"};
    static const char *const colours[] = {"32", "33"};
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (r->json) {
        const cy_status status = add_json(&r->text, name, words[kind], text, advice);
        if (status != CY_OK) r->broken = status;
        return;
    }
    if (cy_colours(stdout)) {
        printf("\033[%sm%-8s\033[0m %-18s %s\n", colours[kind], words[kind], name, text);
    } else {
        printf("%-8s %-18s %s\n", words[kind], name, text);
    }
    if (advice != NULL) printf("  hint: %s\n", advice);
}

static void find_processor(report *r, int cores)
{
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    find(r, FINDING_GOOD, "processor", NULL, "%s", cpu.name[0] != '\0' ? cpu.name : "unnamed");
    find(r, FINDING_GOOD, "cores", NULL, "%d for this process, of %ld; caches %zu K, %zu K, %zu M",
        cores, sysconf(_SC_NPROCESSORS_ONLN), cpu.l1_bytes / 1024, cpu.l2_bytes / 1024,
        cpu.l3_bytes / 1024 / 1024);
    if (cpu.avx2) {
        find(r, FINDING_GOOD, "instructions", NULL, "avx2%s%s%s", cpu.avx512 ? " avx512" : "",
            cpu.avx512_bf16 ? " avx512_bf16" : "", cpu.amx ? " amx" : "");
    } else if (cpu.neon) {
        find(r, FINDING_GOOD, "instructions", NULL, "neon");
    } else {
        find(r, FINDING_MISSING, "instructions", "expect a fraction of the speed",
            "none that kernels are tuned for");
    }
}

static void find_memory(report *r)
{
    const cy_free_memory memory = cy_free_memory_read("");
    const bool limited = memory.bytes < memory.available_bytes;
    const double free_gb = (double)(limited ? memory.bytes : memory.available_bytes) * 0x1p-30;
    find(r, free_gb < 1 ? FINDING_MISSING : FINDING_GOOD, "memory",
        free_gb < 1 ? "'cyclotron plan CONFIG' says what a run needs" : NULL,
        "%.1f GB, %.1f GB available%s", (double)memory.total_bytes * 0x1p-30, free_gb,
        limited ? " under a limit of this process's control group" : "");
    char modes[128] = "";
    (void)cy_file_read_some("/sys/kernel/mm/transparent_hugepage/enabled", modes, sizeof(modes));
    const bool has_huge = strstr(modes, "[always]") != NULL || strstr(modes, "[madvise]") != NULL;
    find(r, has_huge ? FINDING_GOOD : FINDING_MISSING, "huge pages",
        has_huge ? NULL : "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled",
        has_huge ? "given on request" : "not given: arenas take more time to look up");
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        const bool few = files.rlim_cur < 1024;
        find(r, few ? FINDING_MISSING : FINDING_GOOD, "open files", few ? "ulimit -n 4096" : NULL,
            "%llu at most", (unsigned long long)files.rlim_cur);
    }
    struct statvfs disk;
    if (statvfs(".", &disk) == 0) {
        const double disk_gb = (double)disk.f_bavail * (double)disk.f_frsize / 0x1p30;
        find(r, disk_gb < 1 ? FINDING_MISSING : FINDING_GOOD, "disk here",
            disk_gb < 1 ? "checkpoints need room" : NULL, "%.1f GB free", disk_gb);
    }
}

// Whether a folder of PATH has a program of this name.
static bool in_path(const char *name)
{
    const char *path = getenv("PATH");
    while (path != NULL && *path != '\0') {
        const size_t length = strcspn(path, ":");
        char file[1024];
        snprintf(file, sizeof(file), "%.*s/%s", (int)length, path, name);
        if (cy_io_access(file, X_OK) == 0) return true;
        path += length + (path[length] == ':');
    }
    return false;
}

static void find_libraries(report *r)
{
    find(r, FINDING_GOOD, "build", NULL, "cyclotron %s, commit %s, %s", CY_VERSION, CY_COMMIT,
        CY_COMPILER);
    if (!CY_HAVE_DNNL) {
        find(r, FINDING_MISSING, "oneDNN", "install libdnnl-dev and build again",
            "not built in: all matrix products are our own kernels'");
    }
    find(r, CY_HAVE_MPI ? FINDING_GOOD : FINDING_MISSING, "MPI",
        CY_HAVE_MPI ? NULL : "install libopenmpi-dev and build again; one machine needs none",
        CY_HAVE_MPI ? "built in" : "not built in: ranks are threads of one process");
    if (CY_HAVE_MPI) {
        const bool has_mpirun = in_path("mpirun") || in_path("srun");
        find(r, has_mpirun ? FINDING_GOOD : FINDING_MISSING, "mpirun",
            has_mpirun ? NULL : "install openmpi-bin, or load the cluster's module",
            has_mpirun ? "found" : "neither mpirun nor srun is in PATH");
    }
    const bool has_gpu = cy_io_access("/dev/nvidiactl", F_OK) == 0;
    find(r, FINDING_GOOD, "GPU", NULL,
        has_gpu ? "found, but this build trains on the processor"
                : "none found; this build trains on the processor");
}

// The names of the products that `maker` computes; "" where there are none.
static void list_products(
    char *text, size_t bytes, const cy_queue *queue, cy_dtype dtype, cy_matmul_backend maker)
{
    static const char *const names[] = {
        [CY_MATMUL_FORWARD] = "forward",
        [CY_MATMUL_INPUT_GRADIENT] = "input gradients",
        [CY_MATMUL_WEIGHT_GRADIENT] = "weight gradients",
        [CY_MATMUL_FEW_ROWS] = "few rows",
    };
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < CY_MATMUL_KINDS && used < bytes; i++) {
        if (cy_kernels_matmul_backend(queue, dtype, (cy_matmul_kind)i) != maker) continue;
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%s", used == 0 ? "" : ", ", names[i]);
    }
}

static const cy_dtype dtypes[] = {CY_F32, CY_BF16, CY_F16};

// Lists the products of each dtype that oneDNN computes, as it reports itself, and those that are
// our own.
static void find_makers(report *r, const cy_queue *queue)
{
    static const char *const makers[] = {
        [CY_MATMUL_PORTABLE] = "portable", [CY_MATMUL_TUNED] = "ours", [CY_MATMUL_DNNL] = "oneDNN"};
    if (CY_HAVE_DNNL) {
        find(r, FINDING_GOOD, "oneDNN", NULL, "%s", cy_kernels_library(queue));
    }
    for (int i = 0; i < CY_COUNT(dtypes); i++) {
        char text[256] = "", name[64];
        size_t used = 0;
        for (int maker = CY_COUNT(makers) - 1; maker >= 0; maker--) {
            char products[128];
            list_products(products, sizeof(products), queue, dtypes[i], (cy_matmul_backend)maker);
            if (products[0] == '\0') continue;
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s: %s",
                used == 0 ? "" : "; ", makers[maker], products);
        }
        snprintf(name, sizeof(name), "%s is made by", cy_dtype_name(dtypes[i]));
        find(r, FINDING_GOOD, name, NULL, "%s", text);
    }
}

// Measures the table's own choice where the level has no instructions for the dtype: widening is
// part of such products.
static cy_status find_peaks(report *r, const cy_queue *queue)
{
    double fp32 = 0;
    for (int i = 0; i < CY_COUNT(dtypes); i++) {
        double peak = 0, reached = 0;
        char name[64];
        CY_TRY(cy_peak_measure(&peak, queue, dtypes[i]));
        CY_TRY(cy_peak_measure_chosen(&reached, queue, dtypes[i]));
        if (reached > peak) peak = reached; // measured later, on a machine that has grown quieter
        if (dtypes[i] == CY_F32) fp32 = reached;
        const bool slow = reached < fp32 * 0.95; // beyond what a measurement differs by
        char advice[128];
        snprintf(advice, sizeof(advice), "choose model.dtype fp32 for speed here; %s saves memory",
            cy_dtype_name(dtypes[i]));
        snprintf(name, sizeof(name), "products %s", cy_dtype_name(dtypes[i]));
        find(r, FINDING_GOOD, name, slow ? advice : NULL, "%.1f GFLOP/s (measured), peak %.1f%s",
            reached / 1e9, peak / 1e9, slow ? ": slower than fp32" : "");
    }
    return CY_OK;
}

static cy_status look_at_kernels(report *r, const values *v, int threads)
{
    cy_thread_pool *pool = NULL;
    CY_TRY(cy_thread_pool_open(&pool, threads, -1, true));
    cy_queue queue = {.pool = pool};
    cy_kernels table;
    cy_status status = cy_kernels_open(&queue, &table, v->isa);
    if (status != CY_OK) goto close_pool;
    find(r, FINDING_GOOD, "kernels", NULL, "%s, %d threads", table.name, threads);
    find_makers(r, &queue);
    if (v->quick) goto close_kernels;
    status = find_peaks(r, &queue);
    if (status != CY_OK) goto close_kernels;
    cy_bandwidth bandwidth;
    status = cy_bandwidth_measure(&bandwidth, &queue, CY_BANDWIDTH_BYTES); // beyond any cache
    if (status != CY_OK) goto close_kernels;
    find(r, FINDING_GOOD, "memory bandwidth", NULL, "read %.1f GB/s, copy %.1f GB/s (measured)",
        bandwidth.read * 0x1p-30, bandwidth.copy * 0x1p-30);
close_kernels:
    cy_kernels_close(&queue);
close_pool:
    cy_thread_pool_close(pool);
    return status;
}

static int doctor(const values *v)
{
    const cy_config_machine machine = cy_machine_found();
    report r = {.json = v->json};
    find_libraries(&r);
    find_processor(&r, machine.cores);
    find_memory(&r);
    cy_status status = look_at_kernels(&r, v, v->threads > 0 ? (int)v->threads : machine.cores);
    if (status == CY_OK) status = r.broken;
    if (status == CY_OK && v->json) printf("%s\n]\n", r.text.bytes);
    cy_text_free(&r.text);
    if (status != CY_OK) return cy_report_status(status);
    return cy_report_output(CY_EXIT_DONE);
}

int cy_command_doctor(int argc, char **argv)
{
    values v;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &v, &usage, argc, argv);
    if (status == CY_RUN_COMMAND) status = doctor(&v);
    cy_arguments_free(&arguments);
    return status;
}
