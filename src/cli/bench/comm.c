// `cyclotron bench comm`: what moving data between ranks costs on this machine.

#include "cli/bench/comm.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"

#include "base/memory.h"
#include "build_info.h"

#include <stdio.h>
#include <string.h>

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
    const bool inside = bench_launched();
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
    if (CY_HAVE_MPI && strcmp(v->backend, "threads") != 0) return bench_run_under_mpi(v, t);
    return CY_OK;
}

static int print_results(const bench_values *v, const bench_table *t)
{
    if (!bench_is_rank_zero()) return CY_EXIT_DONE;
    if (v->json) {
        cy_text text = {0};
        return cy_report_text(bench_rows_to_json(&text, t), &text);
    }
    const cy_status status = bench_print(t, v);
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
