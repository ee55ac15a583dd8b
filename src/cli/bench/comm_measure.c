// Times collectives and messages between the ranks of a world.

#include "cli/bench/comm.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "build_info.h"
#include "comm/mpi/native.h"

#include <stdio.h>
#include <string.h>

#define SAMPLES     15
#define SAMPLE_S    0.005
#define REPEATS_MAX 10000
#define SUBJECTS    32
#define SIZES       16  // up to a gibibyte
#define AUTO_S      2.0 // for what auto measures: enough for every size

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

const char *bench_op_name(bench_op op)
{
    return op_names[op];
}

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

// The first run is not timed: it finds the data in the caches where another subject has left them.
static cy_status run_sample(
    double *seconds, const subject *what, const buffers *b, int64_t bytes, int repeats)
{
    CY_TRY(run(what, b, bytes, 1));
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
    return bench_add_row(run->table, made);
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

cy_status bench_measure(cy_world *world, void *context)
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
