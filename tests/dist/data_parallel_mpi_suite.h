// dist/data_parallel_mpi_suite.h: data parallelism with ranks that MPI started, against ranks that
// are threads, bit for bit, and against one rank within the bounds of parity.
//
// The program starts itself again under mpirun with the dtype and the kernels' name as arguments.
// Rank zero then prints a line for each case: losses, norms and the hash of all parameters after 50
// steps. Here every case is trained again with threads, and by one rank.

#ifndef CY_TESTS_DATA_PARALLEL_MPI_SUITE_H
#define CY_TESTS_DATA_PARALLEL_MPI_SUITE_H

#define _POSIX_C_SOURCE 200809L
#include "dist/data_parallel_suite.h"
#include "support/mpirun.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MPI_STEPS 50

typedef struct mpi_cases {
    int ranks;
    int zero_first, zero_last;
    int accumulation_last; // 1, or 1 and 4
    parity_bound bound;
} mpi_cases;

// ---- a rank of MPI

static inline cy_status train_and_print(cy_engine *engine, const cy_rank *rank, void *context)
{
    const cy_config *config = context;
    CY_TRY(cy_engine_initialize(engine));
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    for (int step = 1; step <= MPI_STEPS; step++) {
        const cy_adamw_spec adamw = cy_test_adamw(config->training.learning_rate, step);
        cy_step_result result;
        CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
        if (rank->rank == 0) printf("%a %a ", result.loss, result.grad_norm);
    }
    uint64_t hash;
    CY_TRY(cy_engine_params_hash(engine, &hash));
    if (rank->rank == 0) printf("%" PRIx64 "\n", hash);
    return CY_OK;
}

// All cases run in one job, whose groups are those of ZeRO.
static inline cy_status train_case(const cy_rank *rank, cy_config *config, const char *isa)
{
    cy_rank here = *rank;
    if (config->distributed.zero_stage == 0) here.groups.norm = cy_group_self();
    return cy_test_with_engine(&here, config, isa, train_and_print, config);
}

static inline grid_case case_of(const mpi_cases *cases, int zero, int accumulation)
{
    return (grid_case){cases->ranks, zero, accumulation, accumulation > 1, 0.02};
}

static inline cy_status train_cases(const cy_rank *rank, void *context)
{
    const mpi_cases *cases = context;
    for (int zero = cases->zero_first; zero <= cases->zero_last; zero++) {
        for (int accumulation = 1; accumulation <= cases->accumulation_last; accumulation += 3) {
            const grid_case grid = case_of(cases, zero, accumulation);
            cy_config config = grid_config(&grid, cases->bound.dtype);
            CY_TRY(train_case(rank, &config, cases->bound.isa));
        }
    }
    return CY_OK;
}

static inline int run_mpi_rank(const mpi_cases *cases)
{
    const grid_case grid = case_of(cases, 1, 1);
    cy_config config = grid_config(&grid, cases->bound.dtype);
    config.distributed.backend = CY_CONFIG_BACKEND_MPI;
    const cy_config_machine machine = {
        .cores = 2, .under_mpi = true, .world = cases->ranks, .sharing = cases->ranks};
    if (cy_ranks_run(&config, &machine, train_cases, cy_memory_writable(cases)) == CY_OK) return 0;
    fprintf(stderr, "error: %s\n", cy_error_text());
    cy_world_end_job(1);
    return 1;
}

// ---- the test

static inline void expect_case(
    FILE *lines, const mpi_cases *cases, const grid_case *grid, const char *what)
{
    const cy_config split = grid_config(grid, cases->bound.dtype);
    const cy_config dense = cy_test_dense(&split);
    cy_test_training threads, one;
    cy_test_train(&threads, &split, MPI_STEPS, cases->bound.isa);
    cy_test_train(&one, &dense, MPI_STEPS, cases->bound.isa);
    const double unit = cases->bound.dtype == CY_BF16 ? 1.0 : one.loss[0];
    for (int step = 0; step < MPI_STEPS; step++) {
        double loss, norm;
        if (fscanf(lines, "%la %la", &loss, &norm) != 2) fail_msg("%s: no line", what);
        if (loss != threads.loss[step] || norm != threads.norm[step]) {
            fail_msg("%s, step %d: %a %a, with threads %a %a", what, step + 1, loss, norm,
                threads.loss[step], threads.norm[step]);
        }
        if (!(fabs(loss - one.loss[step]) <= cases->bound.loss * unit)) {
            fail_msg(
                "%s, step %d: loss %.12g, of one rank %.12g", what, step + 1, loss, one.loss[step]);
        }
    }
    uint64_t hash;
    assert_int_equal(fscanf(lines, "%" SCNx64, &hash), 1);
    if (hash != threads.hash) fail_msg("%s: other parameters than with threads", what);
    const double weights = cy_test_weight_difference(&threads, &one, &dense);
    if (cases->bound.weights > 0 && !(weights <= cases->bound.weights)) {
        fail_msg("%s: weights differ by %g from those of one rank", what, weights);
    }
    cy_test_training_close(&threads);
    cy_test_training_close(&one);
}

static inline void expect_cases(const mpi_cases *cases)
{
    char arguments[128];
    snprintf(arguments, sizeof(arguments), "%d %d %d %d %d %s", cases->ranks, cases->zero_first,
        cases->zero_last, cases->accumulation_last, (int)cases->bound.dtype, cases->bound.isa);
    FILE *lines = cy_test_mpirun(cases->ranks, arguments);
    for (int zero = cases->zero_first; zero <= cases->zero_last; zero++) {
        for (int accumulation = 1; accumulation <= cases->accumulation_last; accumulation += 3) {
            char what[96];
            snprintf(what, sizeof(what), "%s, %d ranks, zero %d, accumulation %d",
                cy_dtype_name(cases->bound.dtype), cases->ranks, zero, accumulation);
            const grid_case grid = case_of(cases, zero, accumulation);
            expect_case(lines, cases, &grid, what);
        }
    }
    assert_int_equal(pclose(lines), 0);
}

// The arguments are those of expect_cases' command.
static inline int run_as_mpi_rank(char **argv)
{
    const mpi_cases cases = {
        .ranks = (int)strtol(argv[1], NULL, 10),
        .zero_first = (int)strtol(argv[2], NULL, 10),
        .zero_last = (int)strtol(argv[3], NULL, 10),
        .accumulation_last = (int)strtol(argv[4], NULL, 10),
        .bound = {.dtype = (cy_dtype)strtol(argv[5], NULL, 10), .isa = argv[6]},
    };
    return run_mpi_rank(&cases);
}

static const parity_bound in_fp64 = {CY_F64, MPI_STEPS, "ref", 1e-10, 1e-9};
static const parity_bound in_fp32 = {CY_F32, MPI_STEPS, "auto", 1e-5, 1e-4};
static const parity_bound in_bf16 = {CY_BF16, MPI_STEPS, "auto", 1e-2, 0};

#endif
