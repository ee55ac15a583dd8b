// MPI's own collectives, whose time ours is held against: each moves and adds all that it says, as
// often as it is asked to. The program starts itself again under mpirun; without MPI in the build
// there is nothing to test, and it says so.

#define _POSIX_C_SOURCE 200809L
#include "comm/mpi/native.h"
#include "comm/world.h"
#include "support/mpirun.h"
#include "support/support.h"

#include "build_info.h"

#include <stdio.h>
#include <string.h>

static void natives_do_what_they_say(void **context)
{
    (void)context;
    for (int ranks = 2; ranks <= 3; ranks++) {
        static char printed[1 << 14];
        const int status = cy_test_mpirun_all(ranks, "run", printed, sizeof(printed));
        if (status != 0) fail_msg("%d ranks: status %d: %s", ranks, status, printed);
        assert_non_null(strstr(printed, "natives done"));
    }
}

// ---- under mpirun

#if CY_HAVE_MPI

enum { PART = 5, MAX_RANKS = 3 };

// What rank `rank` brings at place `i`: no two are the same, and sums of them are exact.
static float brought(int rank, int i)
{
    return (float)(1 + i + 100 * rank);
}

static float sum_of_all(int ranks, int i)
{
    float sum = 0;
    for (int rank = 0; rank < ranks; rank++)
        sum += brought(rank, i);
    return sum;
}

static cy_status expect(const char *what, float got, float wanted, int i)
{
    if (got == wanted) return CY_OK;
    return CY_FAIL(
        CY_ERR_CORRUPT, "%s: place %d: %g instead of %g", what, i, (double)got, (double)wanted);
}

typedef struct native_job {
    float in[PART * MAX_RANKS], out[PART * MAX_RANKS];
    int rank, ranks, count;
} native_job;

static void bring(native_job *job)
{
    for (int i = 0; i < job->count; i++) {
        job->in[i] = brought(job->rank, i);
        job->out[i] = -1;
    }
}

// What is summed in place grows by the ranks each time: twice adds up the sums.
static cy_status check_all_reduce(native_job *job)
{
    for (int repeats = 0; repeats <= 2; repeats++) {
        bring(job);
        CY_TRY(cy_mpi_native_all_reduce(job->out, job->in, job->count, repeats));
        for (int i = 0; i < job->count; i++) {
            const float sum = sum_of_all(job->ranks, i);
            const float wanted = repeats == 0 ? brought(job->rank, i)
                : repeats == 1                ? sum
                                              : sum * (float)job->ranks;
            CY_TRY(expect("all_reduce", job->in[i], wanted, i));
        }
    }
    return CY_OK;
}

static cy_status check_parts(native_job *job)
{
    bring(job);
    CY_TRY(cy_mpi_native_reduce_scatter(job->out, job->in, job->count, 1));
    for (int i = 0; i < job->count; i++) {
        const float wanted = i < PART ? sum_of_all(job->ranks, job->rank * PART + i) : -1;
        CY_TRY(expect("reduce_scatter", job->out[i], wanted, i));
    }
    bring(job);
    CY_TRY(cy_mpi_native_all_gather(job->out, job->in, job->count, 1));
    for (int i = 0; i < job->count; i++)
        CY_TRY(expect("all_gather", job->out[i], brought(i / PART, i % PART), i));
    bring(job);
    CY_TRY(cy_mpi_native_all_to_all(job->out, job->in, job->count, 1));
    for (int i = 0; i < job->count; i++) {
        const float wanted = brought(i / PART, job->rank * PART + i % PART);
        CY_TRY(expect("all_to_all", job->out[i], wanted, i));
    }
    return CY_OK;
}

// A message goes from rank 0 to rank 1 and back; a third rank keeps what it has.
static cy_status check_messages(native_job *job)
{
    bring(job);
    CY_TRY(cy_mpi_native_broadcast(job->out, job->in, job->count, 1));
    for (int i = 0; i < job->count; i++)
        CY_TRY(expect("broadcast", job->in[i], brought(0, i), i));
    bring(job);
    CY_TRY(cy_mpi_native_send(job->out, job->in, job->count, 1));
    for (int i = 0; i < job->count; i++)
        CY_TRY(expect("send", job->in[i], brought(job->rank == 1 ? 0 : job->rank, i), i));
    return cy_mpi_native_barrier(job->out, job->in, job->count, 1);
}

static cy_status run_all(cy_world *world, void *context)
{
    (void)context;
    native_job job = {.rank = cy_world_rank(world), .ranks = cy_world_size(world)};
    job.count = PART * job.ranks;
    CY_TRY(check_all_reduce(&job));
    CY_TRY(check_parts(&job));
    CY_TRY(check_messages(&job));
    if (job.rank == 0) printf("natives done\n");
    return CY_OK;
}

static int run_rank(void)
{
    cy_world_options options = cy_world_defaults();
    options.ranks = 0;
    options.timeout_s = 20;
    const cy_status status = cy_world_run_mpi(&options, run_all, NULL);
    if (status == CY_OK) return 0;
    fprintf(stderr, "error: %s\n", cy_error_text());
    cy_world_end_job(1);
    return 1;
}

#else

static int run_rank(void)
{
    return 77;
}

#endif

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) return run_rank();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(natives_do_what_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
