// cyclotron bench comm: measures what moving data between ranks costs on this machine, also under
// mpirun.

#define _GNU_SOURCE
#include "cli/bench/comm.h"

#include "base/io.h"
#include "base/memory.h"
#include "build_info.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/options.h"
#include "cli/report.h"
#include "kernel/peak.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- rows

cy_status bench_add_row(bench_table *t, bench_row added)
{
    void *block = t->rows;
    CY_TRY(cy_memory_grow(&block, &t->capacity, (size_t)t->count + 1, sizeof(bench_row)));
    t->rows = block;
    t->rows[t->count++] = added;
    return CY_OK;
}

static const bench_row *find_row(
    const bench_table *t, const char *backend, bench_op op, const char *algorithm, int64_t bytes)
{
    for (int i = 0; i < t->count; i++) {
        const bench_row *r = &t->rows[i];
        if (r->op == op && r->bytes == bytes && strcmp(r->backend, backend) == 0 &&
            strcmp(r->algorithm, algorithm) == 0) {
            return r;
        }
    }
    return NULL;
}

static cy_status rows_to_json(cy_text *text, const bench_table *t)
{
    CY_TRY(cy_text_add(text, "["));
    for (int i = 0; i < t->count; i++) {
        const bench_row *r = &t->rows[i];
        CY_TRY(cy_text_add(text,
            "%s\n{\"op\":\"%s\",\"algorithm\":\"%s\",\"backend\":\"%s\",\"ranks\":%d,"
            "\"bytes\":%lld,\"us\":%s,\"bus_gb_s\":%s}",
            i == 0 ? "" : ",", bench_op_name(r->op), r->algorithm, r->backend, r->ranks,
            (long long)r->bytes, cy_json_number(r->us, 6).bytes,
            cy_json_number(r->bus_gb_s, 6).bytes));
    }
    return cy_text_add(text, "\n]\n");
}

static const char *const algorithms[] = {
    "auto", "native", "ring", "tree", "doubling", "hierarchical", "server"};

// The fastest all_reduce of this size over the backend, without "auto".
static const bench_row *fastest(const bench_table *t, const char *backend, int64_t bytes)
{
    const bench_row *best = NULL;
    for (int a = 1; a < CY_COUNT(algorithms); a++) {
        const bench_row *r = find_row(t, backend, BENCH_ALL_REDUCE, algorithms[a], bytes);
        if (r != NULL && (best == NULL || r->us < best->us)) best = r;
    }
    return best;
}

static void print_algorithm_row(const bench_table *t, const char *backend, int64_t bytes)
{
    const bench_row *best = fastest(t, backend, bytes);
    printf("%10lld", (long long)bytes);
    for (int a = 0; a < CY_COUNT(algorithms); a++) {
        const bench_row *r = find_row(t, backend, BENCH_ALL_REDUCE, algorithms[a], bytes);
        if (r == NULL) {
            printf(" %13s", "-");
        } else {
            printf(" %12.2f%c", r->us, r == best ? '*' : ' ');
        }
    }
    printf("\n");
}

// Prints by how many per cent `auto` is slower than the fastest algorithm, at most.
static void print_auto(const bench_table *t, const char *backend)
{
    const bench_row *worst = NULL;
    double most = 1.0;
    bool measured = false;
    for (int i = 0; i < t->count; i++) {
        const bench_row *r = &t->rows[i];
        if (strcmp(r->backend, backend) != 0 || strcmp(r->algorithm, "auto") != 0) continue;
        const bench_row *best = fastest(t, backend, r->bytes);
        if (best == NULL) continue;
        measured = true;
        const double behind = r->us / best->us;
        if (behind > most) {
            most = behind;
            worst = r;
        }
    }
    if (!measured) return;
    if (worst == NULL) {
        printf("auto is as fast as the fastest at every size\n");
    } else {
        printf("auto is within %.0f %% of the fastest, farthest at %lld bytes (%s)\n",
            (most - 1.0) * 100.0, (long long)worst->bytes,
            fastest(t, backend, worst->bytes)->algorithm);
    }
}

// Prints microseconds of every algorithm of all_reduce by size, and the choice of `auto`.
static void print_algorithms(const bench_table *t, const char *backend)
{
    bool titled = false;
    for (int i = 0; i < t->count; i++) {
        const bench_row *r = &t->rows[i];
        if (strcmp(r->backend, backend) != 0 || r->op != BENCH_ALL_REDUCE) continue;
        if (strcmp(r->algorithm, "native") != 0) continue;
        if (!titled) {
            printf("\nall_reduce over %s, microseconds (* the fastest)\n%10s", backend, "bytes");
            for (int a = 0; a < CY_COUNT(algorithms); a++)
                printf(" %13s", algorithms[a]);
            printf("\n");
            titled = true;
        }
        print_algorithm_row(t, backend, r->bytes);
    }
    if (titled) print_auto(t, backend);
}

// Prints one cell: microseconds, or a dash.
static void print_us(const bench_row *r)
{
    if (r == NULL) {
        printf(" %12s", "-");
    } else {
        printf(" %12.2f", r->us);
    }
}

// Prints every operation of the backends beside MPI's own between processes.
static void print_operations(const bench_table *t)
{
    printf("\nmicroseconds of each backend's own, and of the MPI library between processes\n"
           "%15s %10s %12s %12s %12s %12s\n",
        "operation", "bytes", "threads", "mpi", "MPI library", "bus GB/s");
    for (int i = 0; i < t->count; i++) {
        const bench_row *r = &t->rows[i];
        if (strcmp(r->algorithm, "native") != 0) continue;
        const bench_row *threads = find_row(t, "threads", r->op, "native", r->bytes);
        const bench_row *mpi = find_row(t, "mpi", r->op, "native", r->bytes);
        if (r != threads && threads != NULL) continue; // printed with the other backend's
        printf("%15s %10lld", bench_op_name(r->op), (long long)r->bytes);
        print_us(threads);
        print_us(mpi);
        print_us(find_row(t, "mpi", r->op, BENCH_MPI, r->bytes));
        printf(" %12.2f\n", r->bus_gb_s);
    }
}

// Prints alpha and beta of a message, which takes alpha + bytes / beta, from the smallest and the
// largest that were sent.
static void print_link(const bench_table *t, const bench_values *v, const char *backend)
{
    const bench_row *small = find_row(t, backend, BENCH_SEND, "native", 8);
    const bench_row *large = find_row(t, backend, BENCH_SEND, "native", v->bytes);
    if (small == NULL || large == NULL || large == small) return;
    printf("\nlink over %s: alpha %.2f us, ", backend, small->us);
    if (large->us < 2.0 * small->us) { // what sending costs hides what the bytes cost
        printf("beta needs larger messages than %lld bytes\n", (long long)v->bytes);
        return;
    }
    printf(
        "beta %.2f GB/s\n", (double)(large->bytes - small->bytes) / (large->us - small->us) * 1e-3);
}

// Compares the ring with what its links carry when every rank sends to its neighbour at once.
static void print_ring(const bench_table *t, const bench_values *v, const char *backend)
{
    const bench_row *ring = find_row(t, backend, BENCH_ALL_REDUCE, "ring", v->bytes);
    const bench_row *link = find_row(t, backend, BENCH_NEIGHBOUR, "native", v->bytes);
    if (ring == NULL || link == NULL) return;
    printf("ring over %s, %lld bytes: %.2f GB/s, %.0f %% of the %.2f GB/s that neighbours send\n",
        backend, (long long)v->bytes, ring->bus_gb_s, 100.0 * ring->bus_gb_s / link->bus_gb_s,
        link->bus_gb_s);
}

// Bytes that memory reads, each datum once, and writes for an operation of n bytes on P ranks of
// one process, as multiples of n.
typedef struct touched {
    double read;
    double written;
} touched;

static touched touched_by(bench_op op, double ranks)
{
    switch (op) {
    case BENCH_ALL_REDUCE:
    case BENCH_ALL_TO_ALL:
        return (touched){ranks, ranks};
    case BENCH_REDUCE_SCATTER:
        return (touched){ranks, 1.0};
    case BENCH_ALL_GATHER:
        return (touched){1.0, ranks};
    case BENCH_BROADCAST:
        return (touched){1.0, ranks - 1.0};
    case BENCH_SEND:
        return (touched){1.0, 1.0};
    case BENCH_NEIGHBOUR:
        return (touched){ranks / 2.0, ranks / 2.0};
    case BENCH_BARRIER:
        break;
    }
    return (touched){0.0, 0.0};
}

// Compares the largest operations between threads with a copy of as many bytes by as many threads.
static cy_status print_memory(const bench_table *t, const bench_values *v)
{
    if (v->bytes < 1 << 20) return CY_OK;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int workers = cores < v->ranks ? (int)cores : (int)v->ranks;
    cy_thread_pool *pool = NULL;
    CY_TRY(cy_thread_pool_open(&pool, workers, -1, true));
    cy_queue queue = {.pool = pool};
    cy_bandwidth memory;
    const cy_status status = cy_bandwidth_measure(&memory, &queue, (size_t)v->bytes);
    cy_thread_pool_close(pool);
    CY_TRY(status);
    bool titled = false;
    for (int op = 0; op < BENCH_OPS; op++) {
        const bench_row *r = find_row(t, "threads", (bench_op)op, "native", v->bytes);
        if (r == NULL) continue;
        if (!titled) {
            printf("\n%lld bytes over threads against memory: %d threads copy %.1f GB/s, read and "
                   "written bytes counted\n%15s %10s %10s %10s %8s\n",
                (long long)v->bytes, workers, memory.copy * 1e-9, "operation", "read", "written",
                "GB/s", "share");
            titled = true;
        }
        const touched bytes = touched_by((bench_op)op, (double)r->ranks);
        const double rate = (bytes.read + bytes.written) * (double)r->bytes / r->us * 1e-3;
        printf("%15s %9.0fn %9.0fn %10.1f %7.0f%%\n", bench_op_name(r->op), bytes.read,
            bytes.written, rate, rate / memory.copy * 1e11);
    }
    return CY_OK;
}

static cy_status print_rows(const bench_table *t, const bench_values *v)
{
    static const char *const backends[] = {"threads", "mpi"};
    print_operations(t);
    for (int i = 0; i < CY_COUNT(backends); i++) {
        print_algorithms(t, backends[i]);
        print_link(t, v, backends[i]);
        print_ring(t, v, backends[i]);
    }
    return print_memory(t, v);
}

// ---- under mpirun

// Reads the rows that this program printed under mpirun.
static cy_status read_rows(bench_table *t, const char *text, size_t length)
{
    json_error_t error;
    json_t *array = json_loadb(text, length, 0, &error);
    if (array == NULL) return CY_FAIL(CY_ERR_CORRUPT, "the ranks under mpirun: %s", error.text);
    cy_status status = CY_OK;
    size_t index;
    json_t *item;
    json_array_foreach(array, index, item)
    {
        const char *op = json_string_value(json_object_get(item, "op"));
        const char *algorithm = json_string_value(json_object_get(item, "algorithm"));
        bench_row made = {
            .ranks = (int)json_integer_value(json_object_get(item, "ranks")),
            .bytes = json_integer_value(json_object_get(item, "bytes")),
            .us = json_number_value(json_object_get(item, "us")),
            .bus_gb_s = json_number_value(json_object_get(item, "bus_gb_s")),
        };
        while (made.op < BENCH_OPS && (op == NULL || strcmp(bench_op_name(made.op), op) != 0))
            made.op++;
        if (made.op == BENCH_OPS || algorithm == NULL) {
            status = CY_FAIL(CY_ERR_CORRUPT, "the ranks under mpirun: row %zu is none", index);
            break;
        }
        snprintf(made.algorithm, sizeof(made.algorithm), "%s", algorithm);
        snprintf(made.backend, sizeof(made.backend), "mpi");
        status = bench_add_row(t, made);
        if (status != CY_OK) break;
    }
    json_decref(array);
    return status;
}

// Waits for mpirun; fails where it ends in another way than with status 0.
static cy_status wait_for(pid_t child)
{
    int how = 0;
    if (waitpid(child, &how, 0) != child) return CY_FAIL_ERRNO(CY_ERR_IO, "wait for mpirun");
    if (WIFSIGNALED(how)) {
        return CY_FAIL(CY_ERR_PEER, "signal %d ended mpirun", WTERMSIG(how));
    }
    if (WEXITSTATUS(how) == 0) return CY_OK;
    return CY_FAIL(CY_ERR_PEER, "mpirun ended with status %d", WEXITSTATUS(how));
}

// Starts this program again under mpirun and adds the rows that it prints.
static cy_status run_under_mpi(const bench_values *v, bench_table *t)
{
    char self[1024];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0) return CY_FAIL_ERRNO(CY_ERR_IO, "read /proc/self/exe");
    self[length] = '\0';
    char ranks[16];
    char bytes[48];
    snprintf(ranks, sizeof(ranks), "%d", (int)v->ranks);
    snprintf(bytes, sizeof(bytes), "--bytes=%lld", (long long)v->bytes);
    // Open MPI refuses to run as root, or more ranks than cores, unless options allow it.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    char words[][20] = {
        "mpirun", "--oversubscribe", "-n", "bench", "comm", "--backend=mpi", "--json"};
    char op[32];
    snprintf(op, sizeof(op), "--op=%s", v->op);
    char *arguments[] = {words[0], words[1], words[2], ranks, self, words[3], words[4], words[5],
        words[6], bytes, op, NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "make a pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    pid_t child = 0;
    const int refused = posix_spawnp(&child, "mpirun", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    cy_io_close(ends[1]);
    if (refused != 0) {
        cy_io_close(ends[0]);
        if (refused == ENOENT && strcmp(v->backend, "mpi") != 0) {
            cy_report_warning("mpirun is not installed: threads only");
            return CY_OK;
        }
        errno = refused;
        return CY_FAIL_ERRNO(CY_ERR_UNSUPPORTED, "start mpirun");
    }
    cy_text text = {0};
    cy_status status = CY_OK;
    char piece[4096];
    ssize_t got;
    while ((got = cy_io_read(ends[0], piece, sizeof(piece))) > 0) {
        if (status == CY_OK) status = cy_text_add_bytes(&text, piece, (size_t)got);
    }
    cy_io_close(ends[0]);
    if (status == CY_OK) {
        status = wait_for(child);
    } else {
        waitpid(child, NULL, 0); // the earlier failure is the one to report
    }
    if (status == CY_OK) status = read_rows(t, text.bytes, text.length);
    cy_text_free(&text);
    return status;
}

static bool is_launched(void)
{
    return cy_machine_found().under_mpi;
}

static bool is_rank_zero(void)
{
    return cy_machine_found().rank == 0;
}

// ---- the command

static const cy_option options[] = {
    {"ranks", CY_OPTION_COUNT, offsetof(bench_values, ranks), .initial = "2", .low = 2, .high = 64,
        .doc = "how many ranks; under mpirun, as many as it started"},
    {"bytes", CY_OPTION_COUNT, offsetof(bench_values, bytes), .initial = "67108864", .low = 8,
        .high = 1 << 30, .doc = "the largest message"},
    {"backend", CY_OPTION_CHOICE, offsetof(bench_values, backend), .initial = "all",
        .values = "all|threads|mpi", .doc = "whose ranks; all starts itself under mpirun as well"},
    {"op", CY_OPTION_CHOICE, offsetof(bench_values, op), .initial = "all",
        .values = "all|all_reduce|reduce_scatter|all_gather|all_to_all|broadcast|barrier|send|"
                  "neighbour",
        .doc = "one operation alone"},
    {"json", CY_OPTION_FLAG, offsetof(bench_values, json), .doc = "print JSON only"},
};

static const cy_usage usage = {
    .name = "bench comm",
    .doc = "Measures every collective and algorithm between ranks of this machine.",
    .more = "bus GB/s is the payload that a link carries: 2 (P - 1) / P n / time for all_reduce.",
    .options = options,
    .option_count = CY_COUNT(options),
};

static cy_status run_benchmarks(const bench_values *v, bench_table *t)
{
    bench_run what = {.values = v, .table = t};
    cy_world_options with = cy_world_defaults();
    with.check = false;
    const bool inside = is_launched();
    const bool threads = !inside && strcmp(v->backend, "mpi") != 0;
    if (threads) {
        with.ranks = (int)v->ranks;
        CY_TRY(cy_world_run_threads(&with, bench_measure, &what));
    }
    if (inside) {
        with.ranks = 0;
        return cy_world_run_mpi(&with, bench_measure, &what);
    }
    const bool asked = strcmp(v->backend, "mpi") == 0;
    if (asked && !CY_HAVE_MPI)
        return CY_FAIL(CY_ERR_UNSUPPORTED, "backend mpi is not in this build");
    if (CY_HAVE_MPI && strcmp(v->backend, "threads") != 0) return run_under_mpi(v, t);
    return CY_OK;
}

static int print_results(const bench_values *v, const bench_table *t)
{
    if (!is_rank_zero()) return CY_EXIT_DONE;
    if (v->json) {
        cy_text text = {0};
        return cy_report_text(rows_to_json(&text, t), &text);
    }
    const cy_status status = print_rows(t, v);
    if (status != CY_OK) return cy_report_status(status);
    return cy_report_output(CY_EXIT_DONE);
}

int cy_command_bench_comm(int argc, char **argv)
{
    bench_values v;
    cy_arguments arguments;
    int code = cy_options_parse(&arguments, &v, &usage, argc, argv);
    if (code == CY_RUN_COMMAND) {
        v.bytes = v.bytes / 8 * 8;
        bench_table t = {0};
        const cy_status status = run_benchmarks(&v, &t);
        code = status == CY_OK ? print_results(&v, &t) : cy_report_status(status);
        if (status != CY_OK) cy_world_end_job(code);
        cy_memory_free(t.rows);
    }
    cy_arguments_free(&arguments);
    return code;
}
