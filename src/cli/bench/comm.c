// cyclotron bench comm: measures what moving data between ranks costs on this machine, also under
// mpirun.

#define _GNU_SOURCE

#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/text.h"
#include "build_info.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/options.h"
#include "cli/report.h"
#include "comm/mpi/native.h"
#include "comm/world.h"
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

// Rows are measured between threads by this process, and between processes by a copy of it that
// runs under mpirun and prints its rows as JSON. Only rank 0 fills the table.

typedef struct bench_values {
    int64_t ranks;
    int64_t bytes;
    const char *backend; // borrowed: "all", "threads", "mpi"
    const char *op;      // borrowed: "all", or the name of one
    bool json;
} bench_values;

// "MPI" as an algorithm is what the MPI library does by itself.
#define BENCH_MPI "MPI"

typedef enum bench_op {
    BENCH_ALL_REDUCE,
    BENCH_REDUCE_SCATTER,
    BENCH_ALL_GATHER,
    BENCH_ALL_TO_ALL,
    BENCH_BROADCAST,
    BENCH_BARRIER,
    BENCH_SEND,      // there and back between the first two, half of it
    BENCH_NEIGHBOUR, // every rank to the right, at the same time
} bench_op;

#define BENCH_OPS 8

static const char *const op_names[BENCH_OPS] = {
    [BENCH_ALL_REDUCE] = "all_reduce",
    [BENCH_REDUCE_SCATTER] = "reduce_scatter",
    [BENCH_ALL_GATHER] = "all_gather",
    [BENCH_ALL_TO_ALL] = "all_to_all",
    [BENCH_BROADCAST] = "broadcast",
    [BENCH_BARRIER] = "barrier",
    [BENCH_SEND] = "send",
    [BENCH_NEIGHBOUR] = "neighbour",
};

// One measured row; bytes of the whole data, as the array's field says.
typedef struct bench_row {
    bench_op op;
    char algorithm[24];
    char backend[24];
    int ranks;
    int64_t bytes;
    double us;
    double bus_gb_s;
} bench_row;

typedef struct bench_table {
    bench_row *rows; // owned
    size_t capacity;
    int count;
} bench_table;

static cy_status append_row(bench_table *t, bench_row added)
{
    void *block = t->rows;
    CY_TRY(cy_memory_grow(&block, &t->capacity, (size_t)t->count + 1, sizeof(bench_row)));
    t->rows = block;
    t->rows[t->count++] = added;
    return CY_OK;
}

// ---- measuring

#define SAMPLES     15
#define SAMPLE_S    0.005
#define REPEATS_MAX 10000
#define SUBJECTS    32
#define SIZES       16  // up to a gibibyte
#define AUTO_S      2.0 // for what auto measures: enough for every size

#if CY_HAVE_MPI
static const cy_mpi_native natives[BENCH_OPS] = {
    [BENCH_ALL_REDUCE] = cy_mpi_native_all_reduce,
    [BENCH_REDUCE_SCATTER] = cy_mpi_native_reduce_scatter,
    [BENCH_ALL_GATHER] = cy_mpi_native_all_gather,
    [BENCH_ALL_TO_ALL] = cy_mpi_native_all_to_all,
    [BENCH_BROADCAST] = cy_mpi_native_broadcast,
    [BENCH_BARRIER] = cy_mpi_native_barrier,
    [BENCH_SEND] = cy_mpi_native_send,
};
#endif

typedef struct bench_run {
    const bench_values *values; // borrowed
    bench_table *table;         // borrowed
} bench_run;

typedef struct buffers {
    float *in; // owned, as out
    float *out;
    int64_t bytes; // of each
} buffers;

// The operation that is timed: a group's, or MPI's own.
typedef struct subject {
    bench_op op;
    const char *algorithm;
    cy_group *group; // borrowed
    cy_group *meet;  // borrowed: where samples begin together
} subject;

// Sends a message from rank 0 to rank 1 and back.
static cy_status run_send(cy_group *group, cy_view data)
{
    const int rank = cy_group_rank(group);
    for (int turn = 0; turn < 2 && rank < 2; turn++) {
        if (rank == turn) {
            CY_TRY(cy_group_send(group, NULL, data, 1 - rank, 0));
        } else {
            CY_TRY(cy_group_recv(group, NULL, data, 1 - rank, 0));
        }
    }
    return CY_OK;
}

// Every rank sends the first half of its data to the right and receives the second from the left,
// at the same time: what the links of a ring carry, in as much memory as an all_reduce uses.
static cy_status run_neighbour(cy_group *group, float *data, int64_t half)
{
    const cy_view in = cy_view_of(data, CY_F32, 1, half);
    const cy_view out = cy_view_of(data + half, CY_F32, 1, half);
    const int size = cy_group_size(group);
    const int rank = cy_group_rank(group);
    cy_request send = {0};
    cy_request recv = {0};
    CY_TRY(cy_group_start_recv(group, NULL, &recv, out, (rank + size - 1) % size, 0));
    CY_TRY(cy_group_start_send(group, NULL, &send, in, (rank + 1) % size, 0));
    CY_TRY(cy_group_wait(group, NULL, &recv));
    return cy_group_wait(group, NULL, &send);
}

static cy_status run_group(bench_op op, cy_group *group, const buffers *b, int64_t bytes)
{
    const int size = cy_group_size(group);
    const int64_t part = bytes / 4 / size;
    const cy_view all_in = cy_view_of(b->in, CY_F32, size, part);
    const cy_view all_out = cy_view_of(b->out, CY_F32, size, part);
    const cy_view data = cy_view_of(b->in, CY_F32, 1, bytes / 4);
    switch (op) {
    case BENCH_ALL_REDUCE:
        return cy_group_all_reduce(group, NULL, data, CY_SUM);
    case BENCH_REDUCE_SCATTER:
        return cy_group_reduce_scatter(group, NULL, cy_view_rows(all_out, 0, 1), all_in, CY_SUM);
    case BENCH_ALL_GATHER:
        return cy_group_all_gather(group, NULL, all_out, cy_view_rows(all_in, 0, 1));
    case BENCH_ALL_TO_ALL:
        return cy_group_all_to_all(group, NULL, all_out, all_in);
    case BENCH_BROADCAST:
        return cy_group_broadcast(group, NULL, data, 0);
    case BENCH_BARRIER:
        return cy_group_barrier(group);
    case BENCH_SEND:
        return run_send(group, data);
    case BENCH_NEIGHBOUR:
        return run_neighbour(group, b->in, bytes / 8);
    }
    return CY_OK;
}

static cy_status run(const subject *what, const buffers *b, int64_t bytes, int repeats)
{
#if CY_HAVE_MPI
    if (strcmp(what->algorithm, BENCH_MPI) == 0) {
        return natives[what->op](b->out, b->in, bytes / 4, repeats);
    }
#endif
    for (int i = 0; i < repeats; i++)
        CY_TRY(run_group(what->op, what->group, b, bytes));
    return CY_OK;
}

// Algorithms of all_reduce are compared with each other: the first run is not timed, because it
// finds the data in the caches where another algorithm has left them.
static cy_status run_sample(
    double *seconds, const subject *what, const buffers *b, int64_t bytes, int repeats)
{
    if (what->op == BENCH_ALL_REDUCE) CY_TRY(run(what, b, bytes, 1));
    CY_TRY(cy_group_barrier(what->meet));
    const double start = cy_clock_s();
    CY_TRY(run(what, b, bytes, repeats));
    // A broadcast is over when all have it, not when the root goes on; so are messages.
    if (what->op == BENCH_BROADCAST || what->op == BENCH_NEIGHBOUR)
        CY_TRY(cy_group_barrier(what->meet));
    *seconds = (cy_clock_s() - start) / repeats;
    if (what->op == BENCH_SEND) *seconds /= 2;
    return CY_OK;
}

// How often a subject is run in a sample, on all ranks alike.
static cy_status choose_repeats(int *repeats, const subject *what, const buffers *b, int64_t bytes)
{
    enum { WARM = 3 };
    double seconds = 0.0;
    CY_TRY(run(what, b, bytes, WARM));
    CY_TRY(run_sample(&seconds, what, b, bytes, WARM));
    double wanted = SAMPLE_S / (seconds + 1e-9);
    CY_TRY(cy_group_broadcast(what->meet, NULL, cy_view_of(&wanted, CY_F64, 1, 1), 0));
    *repeats = wanted < 1 ? 1 : wanted > REPEATS_MAX ? REPEATS_MAX : (int)wanted;
    return CY_OK;
}

static double bus_bytes(bench_op op, int size, double bytes)
{
    const double others = (double)(size - 1) / size;
    switch (op) {
    case BENCH_ALL_REDUCE:
        return 2.0 * others * bytes;
    case BENCH_REDUCE_SCATTER:
    case BENCH_ALL_GATHER:
    case BENCH_ALL_TO_ALL:
        return others * bytes;
    case BENCH_BROADCAST:
    case BENCH_SEND:
        return bytes;
    case BENCH_NEIGHBOUR:
        return bytes / 2.0;
    case BENCH_BARRIER:
        return 0.0;
    }
    return 0.0;
}

static bool has_parts(bench_op op)
{
    return op == BENCH_REDUCE_SCATTER || op == BENCH_ALL_GATHER || op == BENCH_ALL_TO_ALL;
}

// What is timed of a backend: subjects, and the groups that were opened for them.
typedef struct field {
    subject subjects[SUBJECTS];
    int count;
    cy_group *made[CY_ALGORITHMS + 1]; // owned
    int made_count;
} field;

static void add_subject(field *all, const char *only, bench_op op, const char *algorithm,
    cy_group *group, cy_group *meet)
{
    if (strcmp(only, "all") != 0 && strcmp(only, op_names[op]) != 0) return;
    CY_ASSERT(all->count < SUBJECTS);
    all->subjects[all->count++] = (subject){op, algorithm, group, meet};
}

static bool has_size(const subject *what, int64_t bytes)
{
    if (what->op == BENCH_BARRIER) return bytes == 0;
    return bytes > 0 && (!has_parts(what->op) || bytes / 4 >= cy_group_size(what->group));
}

// Gives each algorithm of all_reduce the native time times what it took of that within its turn, so
// that a machine that becomes slower for some turns changes no order.
static void compare_algorithms(double times[][SAMPLES], const field *all, int64_t bytes)
{
    double native[SAMPLES], sorted[SAMPLES];
    int first = 0;
    while (first < all->count && all->subjects[first].op != BENCH_ALL_REDUCE)
        first++;
    if (first == all->count || !has_size(&all->subjects[first], bytes)) return;
    memcpy(native, times[first], sizeof(native));
    memcpy(sorted, native, sizeof(sorted));
    const double typical = cy_median(sorted, SAMPLES);
    for (int s = first; s < all->count; s++) {
        for (int i = 0; i < SAMPLES && all->subjects[s].op == BENCH_ALL_REDUCE; i++)
            times[s][i] *= typical / native[i];
    }
}

// Median seconds of all subjects, as rank 0 sees them. They take turns, so that what else the
// machine does in the meantime slows all of them alike.
static cy_status time_size(double *seconds, const field *all, const buffers *b, int64_t bytes)
{
    int repeats[SUBJECTS];
    double times[SUBJECTS][SAMPLES];
    for (int s = 0; s < all->count; s++) {
        if (!has_size(&all->subjects[s], bytes)) continue;
        CY_TRY(choose_repeats(&repeats[s], &all->subjects[s], b, bytes));
    }
    for (int i = 0; i < SAMPLES; i++) {
        for (int s = 0; s < all->count; s++) {
            if (!has_size(&all->subjects[s], bytes)) continue;
            CY_TRY(run_sample(&times[s][i], &all->subjects[s], b, bytes, repeats[s]));
        }
    }
    compare_algorithms(times, all, bytes);
    for (int s = 0; s < all->count; s++)
        seconds[s] = has_size(&all->subjects[s], bytes) ? cy_median(times[s], SAMPLES) : 0.0;
    return CY_OK;
}

static cy_status add_row(
    const bench_run *run, cy_world *world, const subject *what, int64_t bytes, double seconds)
{
    const int size = cy_group_size(what->group);
    bench_row made = {.op = what->op,
        .ranks = size,
        .bytes = bytes,
        .us = seconds * 1e6,
        .bus_gb_s = bus_bytes(what->op, size, (double)bytes) / seconds * 1e-9};
    snprintf(made.algorithm, sizeof(made.algorithm), "%s", what->algorithm);
    snprintf(made.backend, sizeof(made.backend), "%s", cy_world_backend(world));
    return append_row(run->table, made);
}

// No bytes at all for the barrier, then 8 bytes, times eight each, and the largest.
static cy_status measure(const bench_run *run, cy_world *world, const field *all, const buffers *b)
{
    int64_t sizes[SIZES] = {0};
    double seconds[SIZES][SUBJECTS];
    int count = 1;
    for (int64_t bytes = 8; bytes < b->bytes; bytes *= 8)
        sizes[count++] = bytes;
    sizes[count++] = b->bytes;
    for (int i = 0; i < count; i++)
        CY_TRY(time_size(seconds[i], all, b, sizes[i]));
    for (int s = 0; s < all->count && cy_world_rank(world) == 0; s++) {
        for (int i = 0; i < count; i++) {
            if (!has_size(&all->subjects[s], sizes[i])) continue;
            CY_TRY(add_row(run, world, &all->subjects[s], sizes[i], seconds[i][s]));
        }
    }
    return CY_OK;
}

static cy_status add_algorithms(const char *only, field *all, cy_group *group)
{
    int nodes[64]; // of two ranks each
    for (int rank = 0; rank < 64; rank++)
        nodes[rank] = rank / 2;
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS; a++) {
        if (a == CY_ALGORITHM_HIERARCHICAL && cy_group_size(group) < 3) continue;
        const cy_algorithm_options with = {
            .table = cy_algorithm_always((cy_algorithm)a), .nodes = nodes, .keep_inside = true};
        cy_group *made = NULL;
        CY_TRY(cy_algorithm_open(&made, group, &with));
        all->made[all->made_count++] = made;
        add_subject(all, only, BENCH_ALL_REDUCE, cy_algorithm_name((cy_algorithm)a), made, group);
    }
    return CY_OK;
}

// Adds the algorithm that a run's `auto` chooses on this group.
static cy_status add_auto(const char *only, field *all, cy_group *group, const buffers *b)
{
    if (strcmp(only, "all") != 0 && strcmp(only, op_names[BENCH_ALL_REDUCE]) != 0) return CY_OK;
    cy_algorithm_times times;
    CY_TRY(cy_algorithm_measure(&times, group, NULL, b->in, (size_t)b->bytes, AUTO_S));
    const cy_algorithm_options with = {
        .table = cy_algorithm_from_times(&times), .native_others = true, .keep_inside = true};
    cy_group *made = group;
    if (!cy_algorithm_is_native(&with.table)) { // otherwise nothing stands in between
        CY_TRY(cy_algorithm_open(&made, group, &with));
        all->made[all->made_count++] = made;
    }
    add_subject(all, only, BENCH_ALL_REDUCE, "auto", made, group);
    return CY_OK;
}

static cy_status measure_all(
    const bench_run *run, cy_world *world, cy_group *group, const buffers *b)
{
    const char *only = run->values->op;
    const bool mpi = strcmp(cy_world_backend(world), "mpi") == 0;
    field all = {0};
    for (int op = 0; op < BENCH_OPS; op++) {
        add_subject(&all, only, (bench_op)op, "native", group, group);
        // MPI has no such call of its own.
        if (mpi && op != BENCH_NEIGHBOUR)
            add_subject(&all, only, (bench_op)op, BENCH_MPI, group, group);
    }
    cy_status status = add_algorithms(only, &all, group);
    if (status == CY_OK) status = add_auto(only, &all, group, b);
    if (status == CY_OK) status = measure(run, world, &all, b);
    for (int m = 0; m < all.made_count; m++)
        cy_group_close(all.made[m]);
    return status;
}

static cy_status take_buffer(float **buffer, int64_t bytes)
{
    void *block = NULL;
    CY_TRY(cy_memory_map(&block, (size_t)bytes));
    *buffer = block;
    // Filled before it is timed: its pages must exist, and lines of zeros move faster than data.
    for (int64_t i = 0; i < bytes / (int64_t)sizeof(float); i++)
        (*buffer)[i] = (float)(1 + i % 7);
    return CY_OK;
}

// A rank function; the context is a bench_run.
static cy_status measure_rank(cy_world *world, void *context)
{
    const bench_run *run = context;
    int ranks[64];
    const int size = cy_world_size(world);
    if (size < 2 || size > 64)
        return CY_FAIL(CY_ERR_REQUEST, "%d ranks: bench comm takes 2 to 64", size);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    cy_group *group = NULL;
    CY_TRY(cy_world_open_group(world, &group, ranks, size, "world"));
    buffers b = {.bytes = run->values->bytes};
    cy_status status = take_buffer(&b.in, b.bytes);
    if (status == CY_OK) status = take_buffer(&b.out, b.bytes);
    if (status == CY_OK) status = measure_all(run, world, group, &b);
    cy_memory_unmap(b.in, (size_t)b.bytes);
    cy_memory_unmap(b.out, (size_t)b.bytes);
    cy_group_close(group);
    return status;
}

// ---- printing

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
            i == 0 ? "" : ",", op_names[r->op], r->algorithm, r->backend, r->ranks,
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
        printf("%15s %10lld", op_names[r->op], (long long)r->bytes);
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
        printf("%15s %9.0fn %9.0fn %10.1f %7.0f%%\n", op_names[r->op], bytes.read, bytes.written,
            rate, rate / memory.copy * 1e11);
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
        while (made.op < BENCH_OPS && (op == NULL || strcmp(op_names[made.op], op) != 0))
            made.op++;
        if (made.op == BENCH_OPS || algorithm == NULL) {
            status = CY_FAIL(CY_ERR_CORRUPT, "the ranks under mpirun: row %zu is none", index);
            break;
        }
        snprintf(made.algorithm, sizeof(made.algorithm), "%s", algorithm);
        snprintf(made.backend, sizeof(made.backend), "mpi");
        status = append_row(t, made);
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
        CY_TRY(cy_world_run_threads(&with, measure_rank, &what));
    }
    if (inside) {
        with.ranks = 0;
        return cy_world_run_mpi(&with, measure_rank, &what);
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
