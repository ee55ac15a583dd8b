// cli/bench/comm.h: what the two files of `cyclotron bench comm` share: its options and its rows.
//
// Rows are measured between threads by this process, and between processes by a copy of it that
// runs under mpirun and prints its rows as JSON. The table owns its rows; only rank 0 fills it.

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

typedef struct bench_run {
    const bench_values *values; // borrowed
    bench_table *table;         // borrowed
} bench_run;

// A rank function; the context is a bench_run.
cy_status bench_measure(cy_world *world, void *context);

#endif
