// Every engine run by ranks that MPI started. The program starts itself again under mpirun; without
// MPI in the build there is nothing to test, and it says so.

#define _POSIX_C_SOURCE 200809L
#include "dist/pipeline_stub.h"
#include "support/mpirun.h"

#include <stdio.h>
#include <string.h>

static void run_under_mpi(int ranks)
{
    static char printed[1 << 14];
    const int status = cy_test_mpirun_all(ranks, "run", printed, sizeof(printed));
    if (status != 0) fail_msg("%d ranks: status %d: %s", ranks, status, printed);
    assert_non_null(strstr(printed, "engines done"));
}

static void every_engine(void **context)
{
    (void)context;
    run_under_mpi(2);
    run_under_mpi(4);
}

// ---- under mpirun

static cy_status run_engine(
    cy_world *world, cy_pipeline_engine engine, int chunks, int microbatches)
{
    const cy_schedule_options options = {.engine = engine,
        .stages = cy_world_size(world),
        .microbatches = microbatches,
        .chunks = chunks};
    // Long enough that a message is not sent before its receive has come.
    stub_job j = {.dtype = microbatches % 2 == 0 ? CY_F32 : CY_BF16, .rows = 64, .cols = 512};
    CY_TRY(cy_schedule_open(&j.schedule, &options));
    CY_TRY(cy_schedule_check(&j.cost, &j.schedule, NULL));
    CY_TRY(stub_run_rank(world, &j));
    cy_schedule_cost_close(&j.cost);
    cy_schedule_close(&j.schedule);
    return CY_OK;
}

static cy_status run_all(cy_world *world, void *context)
{
    (void)context;
    for (int m = 1; m <= 8; m += m < 3 ? 1 : 5) {
        CY_TRY(run_engine(world, CY_PIPELINE_AFAB, 1, m));
        CY_TRY(run_engine(world, CY_PIPELINE_1F1B, 1, m));
        CY_TRY(run_engine(world, CY_PIPELINE_INTERLEAVED, 2, m));
        CY_TRY(run_engine(world, CY_PIPELINE_ZERO_BUBBLE, 1, m));
        CY_TRY(run_engine(world, CY_PIPELINE_ZERO_BUBBLE, 2, m));
    }
    if (cy_world_rank(world) == 0) printf("engines done\n");
    return CY_OK;
}

static int run_rank(void)
{
    cy_world_options options = cy_world_defaults();
    options.ranks = 0;
    options.timeout_s = 20;
    options.check = true;
    const cy_status status = cy_world_run_mpi(&options, run_all, NULL);
    if (status == CY_OK) return 0;
    fprintf(stderr, "error: %s\n", cy_error_text());
    cy_world_end_job(1);
    return 1;
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) return run_rank();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
