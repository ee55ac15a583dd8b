// cli/bench/comm.h: the inside of `cyclotron bench comm`. Included by cli/bench_comm*.c only.
//
// Rows are measured between threads by this process and between processes by a copy of it that runs
// under mpirun and hands its rows over as JSON. The table owns its rows; rank 0 alone fills it.

#ifndef CY_CLI_BENCH_COMM_H
#define CY_CLI_BENCH_COMM_H

#include "base/text.h"
#include "comm/world.h"

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
    BENCH_NEIGHBOUR, // everybody to the right, at the same time
} bench_op;

#define BENCH_OPS 8

// "all_reduce", ... Static storage.
const char *bench_op_name(bench_op op);

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

CY_MUST_CHECK cy_status bench_add_row(bench_table *table, bench_row row);

// NULL where it was not measured.
const bench_row *bench_find_row(const bench_table *table, const char *backend, bench_op op,
    const char *algorithm, int64_t bytes);

// ---- bench_comm_measure.c

typedef struct bench_run {
    const bench_values *values; // borrowed
    bench_table *table;         // borrowed
} bench_run;

// A rank function; the context is a bench_run.
cy_status bench_measure(cy_world *world, void *context);

// ---- bench_comm_job.c

// Whether mpirun or srun started this process, and whether it is the one that prints.
bool bench_launched(void);
bool bench_is_rank_zero(void);

// Starts this program again under mpirun and takes over what it measured.
CY_MUST_CHECK cy_status bench_run_under_mpi(const bench_values *values, bench_table *table);

// ---- bench_comm_table.c

CY_MUST_CHECK cy_status bench_rows_to_json(cy_text *text, const bench_table *table);

// What a person reads, on stdout.
CY_MUST_CHECK cy_status bench_print(const bench_table *table, const bench_values *values);

#endif
