// `cyclotron bench comm`: what moving data between ranks costs on this machine.

#define _GNU_SOURCE
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "build_info.h"
#include "comm/mpi_native.h"
#include "comm/world.h"
#include "kernel/peak.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAMPLES      5
#define SAMPLE_S     0.01
#define REPEATS_MOST 400

typedef struct values {
    int64_t ranks;
    int64_t bytes;
    const char *backend;
    bool json;
} values;

static const cy_option options[] = {
    {"ranks", CY_OPTION_COUNT, offsetof(values, ranks), .initial = "2", .low = 2, .high = 64,
        .doc = "how many ranks; under mpirun, as many as it started"},
    {"bytes", CY_OPTION_COUNT, offsetof(values, bytes), .initial = "67108864", .low = 8,
        .high = 1 << 30, .doc = "the largest message"},
    {"backend", CY_OPTION_CHOICE, offsetof(values, backend), .initial = "all",
        .values = "all|threads|mpi", .doc = "whose ranks; all starts itself under mpirun as well"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print JSON only"},
};

static const cy_usage usage = {
    .name = "bench comm",
    .doc = "Measures every collective and algorithm between ranks of this machine.",
    .more = "bus GB/s is the payload that a link carries: 2 (P - 1) / P n / time for all_reduce.",
    .options = options,
    .option_count = CY_COUNT(options),
};

typedef enum bench_op {
    OP_ALL_REDUCE,
    OP_MPI, // MPI's own all_reduce
    OP_REDUCE_SCATTER,
    OP_ALL_GATHER,
    OP_ALL_TO_ALL,
    OP_BROADCAST,
    OP_BARRIER,
    OP_SEND,
} bench_op;

static const char *const op_names[] = {"all_reduce", "all_reduce", "reduce_scatter", "all_gather",
    "all_to_all", "broadcast", "barrier", "send"};

// One measured row; bytes of the whole data, as the array's field says.
typedef struct row {
    const char *op;
    char algorithm[24];
    char backend[24];
    int ranks;
    int64_t bytes;
    double us;
    double bus_gb_s;
} row;

typedef struct table {
    row *rows; // owned
    size_t capacity;
    int count;
} table;

typedef struct bench {
    const values *values;
    table *table; // of rank 0
} bench;

typedef struct buffers {
    char *in;
    char *out;
    int64_t bytes; // of each
} buffers;

// ---- measuring

static cy_status run_op(bench_op op, cy_group *group, const buffers *b, int64_t bytes, int repeats)
{
    const int size = cy_group_size(group);
    const int rank = cy_group_rank(group);
    const int64_t count = bytes / 4 / size * size;
    const int64_t part = count / size;
    const cy_view all_in = cy_view_of(b->in, CY_F32, size, part);
    const cy_view all_out = cy_view_of(b->out, CY_F32, size, part);
    const cy_view part_in = cy_view_of(b->in, CY_F32, 1, part);
    const cy_view part_out = cy_view_of(b->out, CY_F32, 1, part);
    const cy_view data = cy_view_of(b->in, CY_F32, 1, bytes / 4);
    for (int i = 0; i < repeats; i++) {
        cy_request request = {0};
        switch (op) {
        case OP_ALL_REDUCE:
            CY_TRY(cy_group_all_reduce(group, NULL, data, CY_MAX));
            break;
        case OP_MPI:
#if CY_HAVE_MPI
            CY_TRY(cy_mpi_native_sum((float *)(void *)b->in, bytes / 4, 1));
#endif
            break;
        case OP_REDUCE_SCATTER:
            CY_TRY(cy_group_reduce_scatter(group, NULL, part_out, all_in, CY_MAX));
            break;
        case OP_ALL_GATHER:
            CY_TRY(cy_group_all_gather(group, NULL, all_out, part_in));
            break;
        case OP_ALL_TO_ALL:
            CY_TRY(cy_group_start_all_to_all(group, NULL, &request, all_out, all_in));
            CY_TRY(cy_group_wait(group, NULL, &request));
            break;
        case OP_BROADCAST:
            CY_TRY(cy_group_broadcast(group, NULL, data, 0));
            break;
        case OP_BARRIER:
            CY_TRY(cy_group_barrier(group));
            break;
        case OP_SEND: // there and back between the first two
            for (int turn = 0; turn < 2 && rank < 2; turn++) {
                if (rank == turn) {
                    CY_TRY(cy_group_start_send(group, NULL, &request, data, 1 - rank, 0));
                } else {
                    CY_TRY(cy_group_start_recv(group, NULL, &request, data, 1 - rank, 0));
                }
                CY_TRY(cy_group_wait(group, NULL, &request));
            }
            break;
        }
    }
    return CY_OK;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// Median seconds of one operation, as rank 0 sees it.
static cy_status time_op(
    double *seconds, bench_op op, cy_group *group, cy_group *meet, const buffers *b, int64_t bytes)
{
    CY_TRY(run_op(op, group, b, bytes, 2));
    CY_TRY(cy_group_barrier(meet));
    double start = cy_clock_s();
    CY_TRY(run_op(op, group, b, bytes, 1));
    double wanted = SAMPLE_S / (cy_clock_s() - start + 1e-9);
    CY_TRY(cy_group_broadcast(meet, NULL, cy_view_of(&wanted, CY_F64, 1, 1), 0));
    const int repeats = wanted < 1 ? 1 : wanted > REPEATS_MOST ? REPEATS_MOST : (int)wanted;
    double times[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        CY_TRY(cy_group_barrier(meet));
        start = cy_clock_s();
        CY_TRY(run_op(op, group, b, bytes, repeats));
        times[i] = (cy_clock_s() - start) / repeats;
        if (op == OP_SEND) times[i] /= 2;
    }
    qsort(times, SAMPLES, sizeof(times[0]), ascending);
    *seconds = times[SAMPLES / 2];
    return CY_OK;
}

static double bus_bytes(bench_op op, int size, double bytes)
{
    const double others = (double)(size - 1) / size;
    switch (op) {
    case OP_ALL_REDUCE:
    case OP_MPI:
        return 2.0 * others * bytes;
    case OP_REDUCE_SCATTER:
    case OP_ALL_GATHER:
    case OP_ALL_TO_ALL:
        return others * bytes;
    case OP_BROADCAST:
    case OP_SEND:
        return bytes;
    case OP_BARRIER:
        return 0.0;
    }
    return 0.0;
}

static cy_status add_row(table *t, row added)
{
    void *block = t->rows;
    CY_TRY(cy_memory_grow(&block, &t->capacity, (size_t)t->count + 1, sizeof(row)));
    t->rows = block;
    t->rows[t->count++] = added;
    return CY_OK;
}

static cy_status measure(bench *what, cy_world *world, bench_op op, const char *algorithm,
    cy_group *group, cy_group *meet, const buffers *b)
{
    for (int64_t bytes = op == OP_BARRIER ? 0 : 8; bytes <= b->bytes; bytes = bytes * 8) {
        const int size = cy_group_size(group);
        const bool parts = op >= OP_REDUCE_SCATTER && op <= OP_ALL_TO_ALL;
        if (!parts || bytes >= 4 * size) {
            double seconds = 0.0;
            CY_TRY(time_op(&seconds, op, group, meet, b, bytes));
            row made = {.op = op_names[op],
                .ranks = size,
                .bytes = bytes,
                .us = seconds * 1e6,
                .bus_gb_s = bus_bytes(op, size, (double)bytes) / seconds * 1e-9};
            snprintf(made.algorithm, sizeof(made.algorithm), "%s", algorithm);
            snprintf(made.backend, sizeof(made.backend), "%s", cy_world_backend(world));
            if (cy_world_rank(world) == 0) CY_TRY(add_row(what->table, made));
        }
        if (op == OP_BARRIER) break;
        // Powers of eight, and the largest.
        if (bytes < b->bytes && bytes * 8 > b->bytes) bytes = b->bytes / 8;
    }
    return CY_OK;
}

static cy_status measure_all(bench *what, cy_world *world, cy_group *group, const buffers *b)
{
    static const bench_op ops[] = {OP_ALL_REDUCE, OP_REDUCE_SCATTER, OP_ALL_GATHER, OP_ALL_TO_ALL,
        OP_BROADCAST, OP_BARRIER, OP_SEND};
    for (int i = 0; i < CY_COUNT(ops); i++) {
        CY_TRY(measure(what, world, ops[i], "native", group, group, b));
    }
    if (strcmp(cy_world_backend(world), "mpi") == 0) {
        CY_TRY(measure(what, world, OP_MPI, "MPI_Allreduce", group, group, b));
    }
    const int size = cy_group_size(group);
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS; a++) {
        if (a == CY_ALGORITHM_HIERARCHICAL && (size < 4 || size % 2 != 0)) continue;
        const cy_algorithm_options with = {.table = cy_algorithm_always((cy_algorithm)a),
            .node_ranks = a == CY_ALGORITHM_HIERARCHICAL ? 2 : 0,
            .keep_inside = true};
        cy_group *made = NULL;
        CY_TRY(cy_algorithm_open(&made, group, &with));
        const cy_status status =
            measure(what, world, OP_ALL_REDUCE, cy_algorithm_name((cy_algorithm)a), made, group, b);
        cy_group_close(made);
        CY_TRY(status);
    }
    return CY_OK;
}

static cy_status bench_rank(cy_world *world, void *context)
{
    bench *what = context;
    int ranks[64];
    const int size = cy_world_size(world);
    if (size < 2 || size > 64)
        return CY_FAIL(CY_ERR_REQUEST, "%d ranks: bench comm takes 2 to 64", size);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    cy_group *group = NULL;
    CY_TRY(cy_world_open_group(world, &group, ranks, size, "world"));
    buffers b = {.bytes = what->values->bytes};
    void *block = NULL;
    cy_status status = cy_memory_map(&block, (size_t)b.bytes);
    if (status == CY_OK) {
        b.in = block;
        memset(b.in, 0, (size_t)b.bytes);
        status = cy_memory_map(&block, (size_t)b.bytes);
    }
    if (status == CY_OK) {
        b.out = block;
        memset(b.out, 0, (size_t)b.bytes);
        status = measure_all(what, world, group, &b);
    }
    cy_memory_unmap(b.in, (size_t)b.bytes);
    cy_memory_unmap(b.out, (size_t)b.bytes);
    cy_group_close(group);
    return status;
}

// ---- printing

static cy_status rows_to_json(cy_text *text, const table *t)
{
    CY_TRY(cy_text_add(text, "["));
    for (int i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        CY_TRY(cy_text_add(text,
            "%s\n{\"op\":\"%s\",\"algorithm\":\"%s\",\"backend\":\"%s\",\"ranks\":%d,\"bytes\":%"
            "lld,"
            "\"us\":%.3f,\"bus_gb_s\":%.4f}",
            i == 0 ? "" : ",", r->op, r->algorithm, r->backend, r->ranks, (long long)r->bytes,
            r->us, r->bus_gb_s));
    }
    return cy_text_add(text, "\n]\n");
}

static const row *find_row(
    const table *t, const char *backend, const char *op, const char *algorithm, int64_t bytes)
{
    for (int i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        if (strcmp(r->backend, backend) == 0 && strcmp(r->op, op) == 0 && r->bytes == bytes &&
            strcmp(r->algorithm, algorithm) == 0) {
            return r;
        }
    }
    return NULL;
}

// Microseconds of every algorithm of all_reduce by size; a star marks the fastest.
static void print_algorithms(const table *t, const char *backend)
{
    static const char *const columns[] = {
        "native", "ring", "tree", "doubling", "hierarchical", "server", "MPI_Allreduce"};
    printf("\nall_reduce over %s, microseconds (* the fastest)\n%10s", backend, "bytes");
    for (int c = 0; c < CY_COUNT(columns); c++)
        printf(" %13s", columns[c]);
    printf("\n");
    for (int i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        if (strcmp(r->backend, backend) != 0 || strcmp(r->op, "all_reduce") != 0) continue;
        if (strcmp(r->algorithm, "native") != 0) continue;
        double least = r->us;
        for (int c = 0; c < CY_COUNT(columns); c++) {
            const row *other = find_row(t, backend, "all_reduce", columns[c], r->bytes);
            if (other != NULL && other->us < least) least = other->us;
        }
        printf("%10lld", (long long)r->bytes);
        for (int c = 0; c < CY_COUNT(columns); c++) {
            const row *other = find_row(t, backend, "all_reduce", columns[c], r->bytes);
            if (other == NULL) {
                printf(" %13s", "-");
            } else {
                printf(" %12.2f%c", other->us, other->us <= least ? '*' : ' ');
            }
        }
        printf("\n");
    }
}

static void print_others(const table *t, const char *backend)
{
    printf("\nthe other operations over %s\n%10s %15s %12s %10s\n", backend, "bytes", "operation",
        "us", "bus GB/s");
    for (int i = 0; i < t->count; i++) {
        const row *r = &t->rows[i];
        if (strcmp(r->backend, backend) != 0 || strcmp(r->op, "all_reduce") == 0) continue;
        printf("%10lld %15s %12.2f %10.2f\n", (long long)r->bytes, r->op, r->us, r->bus_gb_s);
    }
}

// A message takes alpha + bytes / beta: from the smallest and the largest that were sent.
static void print_link(const table *t, const values *v, const char *backend)
{
    const row *small = find_row(t, backend, "send", "native", 8);
    const row *large = find_row(t, backend, "send", "native", v->bytes);
    if (small == NULL || large == NULL || large == small) return;
    printf("\nlink over %s: alpha %.2f us, beta %.2f GB/s\n", backend, small->us,
        (double)(large->bytes - small->bytes) / (large->us - small->us) * 1e-3);
}

// The largest all_reduce of threads against what memory allows for the bytes that it must touch:
// every rank's buffer is read once and written once.
static cy_status print_memory(const table *t, const values *v)
{
    const row *r = find_row(t, "threads", "all_reduce", "native", v->bytes);
    if (r == NULL || v->bytes < 1 << 20) return CY_OK;
    cy_pool *pool = NULL;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int workers = cores < r->ranks ? (int)cores : r->ranks;
    CY_TRY(cy_pool_open(&pool, workers, -1, true));
    cy_queue queue = {.pool = pool};
    cy_bandwidth memory;
    const cy_status status = cy_bandwidth_measure(&memory, &queue, (size_t)v->bytes);
    cy_pool_close(pool);
    CY_TRY(status);
    const double rate = 2.0 * (double)r->ranks * (double)r->bytes / r->us * 1e-3;
    printf("\nall_reduce of %lld bytes touches memory at %.1f GB/s; a copy by %d threads at %.1f "
           "GB/s: %.0f %%\n",
        (long long)r->bytes, rate, workers, memory.copy * 1e-9, rate / memory.copy * 1e11);
    return CY_OK;
}

static cy_status print_table(const table *t, const values *v)
{
    static const char *const backends[] = {"threads", "mpi"};
    for (int i = 0; i < 2; i++) {
        if (find_row(t, backends[i], "barrier", "native", 0) == NULL) continue;
        print_algorithms(t, backends[i]);
        print_others(t, backends[i]);
        print_link(t, v, backends[i]);
    }
    return print_memory(t, v);
}

// ---- the command

// Rows that this program printed under mpirun.
static cy_status read_rows(table *t, const char *text, size_t length)
{
    json_error_t error;
    json_t *array = json_loadb(text, length, 0, &error);
    if (array == NULL) return CY_FAIL(CY_ERR_CORRUPT, "the ranks under mpirun: %s", error.text);
    static const char *const ops[] = {
        "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "barrier", "send"};
    cy_status status = CY_OK;
    size_t index;
    json_t *item;
    json_array_foreach(array, index, item)
    {
        row made = {
            .op = "?",
            .ranks = (int)json_integer_value(json_object_get(item, "ranks")),
            .bytes = json_integer_value(json_object_get(item, "bytes")),
            .us = json_number_value(json_object_get(item, "us")),
            .bus_gb_s = json_number_value(json_object_get(item, "bus_gb_s")),
        };
        const char *op = json_string_value(json_object_get(item, "op"));
        const char *algorithm = json_string_value(json_object_get(item, "algorithm"));
        for (int i = 0; i < CY_COUNT(ops); i++) {
            if (op != NULL && strcmp(ops[i], op) == 0) made.op = ops[i];
        }
        snprintf(made.algorithm, sizeof(made.algorithm), "%s", algorithm != NULL ? algorithm : "?");
        snprintf(made.backend, sizeof(made.backend), "mpi");
        if (status == CY_OK) status = add_row(t, made);
    }
    json_decref(array);
    return status;
}

// Starts this program again under mpirun and takes over what it measured.
static cy_status run_under_mpi(const values *v, table *t)
{
    char self[1024];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0) return CY_FAIL_ERRNO(CY_ERR_IO, "read /proc/self/exe");
    self[length] = '\0';
    char ranks[16];
    char bytes[48];
    snprintf(ranks, sizeof(ranks), "%d", (int)v->ranks);
    snprintf(bytes, sizeof(bytes), "--bytes=%lld", (long long)v->bytes);
    // Open MPI refuses root and more ranks than cores unless it is told that this is meant.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    char words[][20] = {
        "mpirun", "--oversubscribe", "-n", "bench", "comm", "--backend=mpi", "--json"};
    char *arguments[] = {words[0], words[1], words[2], ranks, self, words[3], words[4], words[5],
        words[6], bytes, NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "make a pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    pid_t child = 0;
    const int refused = posix_spawnp(&child, "mpirun", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (refused != 0) {
        close(ends[0]);
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
    while ((got = read(ends[0], piece, sizeof(piece))) > 0) {
        if (status == CY_OK) status = cy_text_add_bytes(&text, piece, (size_t)got);
    }
    close(ends[0]);
    int code = 0;
    waitpid(child, &code, 0);
    if (status == CY_OK && code != 0) status = CY_FAIL(CY_ERR_PEER, "mpirun ended with %d", code);
    if (status == CY_OK) status = read_rows(t, text.bytes, text.length);
    cy_text_free(&text);
    return status;
}

static bool launched(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMI_SIZE") != NULL ||
        getenv("PMIX_RANK") != NULL;
}

static bool leads(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank == NULL) rank = getenv("PMI_RANK");
    if (rank == NULL) rank = getenv("PMIX_RANK");
    return rank == NULL || strcmp(rank, "0") == 0;
}

static cy_status run_benchmarks(const values *v, table *t)
{
    bench what = {.values = v, .table = t};
    cy_world_options with = cy_world_defaults();
    with.check = false;
    const bool inside = launched();
    const bool threads = !inside && strcmp(v->backend, "mpi") != 0;
    if (threads) {
        with.ranks = (int)v->ranks;
        CY_TRY(cy_world_run_threads(&with, bench_rank, &what));
    }
    if (inside) {
        with.ranks = 0;
        return cy_world_run_mpi(&with, bench_rank, &what);
    }
    const bool asked = strcmp(v->backend, "mpi") == 0;
    if (asked && !CY_HAVE_MPI)
        return CY_FAIL(CY_ERR_UNSUPPORTED, "backend mpi is not in this build");
    if (CY_HAVE_MPI && strcmp(v->backend, "threads") != 0) return run_under_mpi(v, t);
    return CY_OK;
}

static int print_results(const values *v, const table *t)
{
    if (!leads()) return CY_EXIT_DONE;
    cy_status status;
    if (v->json) {
        cy_text text = {0};
        status = rows_to_json(&text, t);
        if (status == CY_OK) fputs(text.bytes, stdout);
        cy_text_free(&text);
    } else {
        status = print_table(t, v);
    }
    if (status != CY_OK) return cy_report_status(status);
    return cy_report_output(CY_EXIT_DONE);
}

int cy_command_bench_comm(int argc, char **argv)
{
    values v;
    cy_arguments arguments;
    int code = cy_options_parse(&arguments, &v, &usage, argc, argv);
    if (code == CY_GO_ON) {
        v.bytes = v.bytes / 8 * 8;
        table t = {0};
        const cy_status status = run_benchmarks(&v, &t);
        code = status == CY_OK ? print_results(&v, &t) : cy_report_status(status);
        if (status != CY_OK) cy_world_end_job(code);
        cy_memory_free(t.rows);
    }
    cy_arguments_free(&arguments);
    return code;
}
