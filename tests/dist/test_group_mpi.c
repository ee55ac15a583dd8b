// The mpi backend, by the suite that the threads backend passes. The program starts itself again
// under mpirun; without MPI in the build there is nothing to test, and it says so.

#define _GNU_SOURCE
#include "dist/group_suite.h"
#include "support/mpirun.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static void expect_success(int ranks, const char *scenario)
{
    static char printed[1 << 16];
    const int status = cy_test_mpirun_all(ranks, scenario, printed, sizeof(printed));
    if (status != 0) fail_msg("%d ranks, %s: status %d: %s", ranks, scenario, status, printed);
}

static void every_primitive_equals_serial(void **state)
{
    (void)state;
    expect_success(1, "suite");
    expect_success(2, "suite");
    expect_success(3, "suite");
}

static void several_groups_with_threads_of_their_own(void **state)
{
    (void)state;
    expect_success(2, "ring");
}

static void a_long_computation_is_alive(void **state)
{
    (void)state;
    expect_success(3, "compute");
}

static int count_of(const char *text, const char *words)
{
    int count = 0;
    for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words))
        count++;
    return count;
}

static void expect_failure(const char *scenario, int wanted, const char *words)
{
    static char printed[1 << 16];
    const int status = cy_test_mpirun_all(3, scenario, printed, sizeof(printed));
    if (status != wanted || count_of(printed, "cyclotron: error:") != 1 ||
        strstr(printed, words) == NULL) {
        fail_msg("%s: status %d, wanted \"%s\" once: %s", scenario, status, words, printed);
    }
}

static void failures_are_named_once(void **state)
{
    (void)state;
    expect_failure("fail", 1, "error: rank 1 (");
    expect_failure("fail", 1, "): the loss is not finite");
    expect_failure("other", 1, "of 12 fp32, sum");
    expect_failure("sleep", 1, "no sign of life for 0.3 s from rank 1 (");
    expect_failure("stop", 1, "no sign of life for 0.3 s from rank 1 (");
    expect_failure("configuration", 2, "rank 1 (");
    expect_failure("size", 2, "the configuration is for 5 ranks, but 3 were started");
}

// ---- under mpirun

static cy_status run_suite(cy_world *world, void *context)
{
    (void)context;
    return suite_world(world, 30011);
}

// Transfers of several groups in flight, each of which has a thread of its own for progress.
static cy_status run_groups(cy_world *world, void *context)
{
    (void)context;
    enum { GROUPS = 4, TURNS = 300, COUNT = 4000 };
    const int size = cy_world_size(world);
    static float data[GROUPS][COUNT];
    cy_group *groups[GROUPS];
    for (int g = 0; g < GROUPS; g++)
        CY_TRY(cy_test_open_all(world, &groups[g], "dp"));
    for (int turn = 0; turn < TURNS; turn++) {
        cy_request requests[GROUPS] = {0};
        for (int g = 0; g < GROUPS; g++) {
            for (int i = 0; i < COUNT; i++)
                data[g][i] = (float)(cy_world_rank(world) + g + i % 100);
            CY_TRY(cy_group_start_all_reduce(
                groups[g], NULL, &requests[g], cy_view_of(data[g], CY_F32, 1, COUNT), CY_SUM));
        }
        for (int g = GROUPS - 1; g >= 0; g--) {
            CY_TRY(cy_group_wait(groups[g], NULL, &requests[g]));
            for (int i = 0; i < COUNT; i++) {
                const int wanted = size * (size - 1) / 2 + size * (g + i % 100);
                SUITE_EXPECT(
                    data[g][i] == (float)wanted, "turn %d, group %d, element %d", turn, g, i);
            }
        }
    }
    for (int g = 0; g < GROUPS; g++)
        cy_group_close(groups[g]);
    return CY_OK;
}

// All ranks have come, and the sum cannot be made without the one that stops.
static cy_status stop_inside(cy_group *group, int rank)
{
    static float large[1 << 20];
    cy_request request = {0};
    CY_TRY(cy_group_start_all_reduce(
        group, NULL, &request, cy_view_of(large, CY_F32, 1, 1 << 20), CY_SUM));
    if (rank == 1) raise(SIGSTOP);
    CY_TRY(cy_group_wait(group, NULL, &request));
    cy_group_close(group);
    return CY_OK;
}

static cy_status misbehave(cy_world *world, void *context)
{
    const char *scenario = context;
    const int rank = cy_world_rank(world);
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    float data[12] = {0};
    const cy_view view = cy_view_of(data, CY_F32, 1, 12);
    CY_TRY(cy_group_all_reduce(group, NULL, view, CY_SUM));
    if (rank == 1 && strcmp(scenario, "fail") == 0) {
        return CY_FAIL(CY_ERR_NOT_FINITE, "the loss is not finite");
    }
    if (rank == 1 && strcmp(scenario, "other") == 0)
        return cy_group_broadcast(group, NULL, view, 0);
    if (rank == 1 && strcmp(scenario, "sleep") == 0) {
        const struct timespec nap = {.tv_sec = 3};
        nanosleep(&nap, NULL);
    }
    if (strcmp(scenario, "compute") == 0 && rank == 1) {
        // For four times as long as a rank may be silent.
        const struct timespec nap = {.tv_nsec = 100000000};
        for (int i = 0; i < 12; i++) {
            nanosleep(&nap, NULL);
            atomic_fetch_add(cy_world_beat(world), 1);
        }
    }
    if (strcmp(scenario, "stop") == 0) return stop_inside(group, rank);
    CY_TRY(cy_group_all_reduce(group, NULL, view, CY_SUM));
    cy_group_close(group);
    return CY_OK;
}

static int run_rank(char *scenario)
{
    cy_world_options options = cy_world_defaults();
    options.ranks = 0;
    const bool soon = strcmp(scenario, "sleep") == 0 || strcmp(scenario, "stop") == 0 ||
        strcmp(scenario, "compute") == 0;
    options.timeout_s = soon ? 0.3 : 60.0;
    const char *number = getenv("OMPI_COMM_WORLD_RANK");
    if (strcmp(scenario, "configuration") == 0) {
        options.configuration = number != NULL && strcmp(number, "1") == 0 ? 7 : 8;
    }
    if (strcmp(scenario, "size") == 0) options.ranks = 5;
    if (number != NULL) options.launched_rank = (int)strtol(number, NULL, 10);
    cy_rank_function function = strcmp(scenario, "suite") == 0 ? run_suite : misbehave;
    if (strcmp(scenario, "ring") == 0) {
        options.algorithm = "ring";
        function = run_groups;
    }
    const cy_status status = cy_world_run_mpi(&options, function, scenario);
    if (status == CY_OK) return 0;
    const int code = status == CY_ERR_REQUEST ? 2 : 1;
    fprintf(stderr, "cyclotron: error: %s\n", cy_error_text());
    cy_world_end_job(code);
    return code;
}

int main(int argc, char **argv)
{
    if (argc > 1) return run_rank(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_primitive_equals_serial),
        cmocka_unit_test(several_groups_with_threads_of_their_own),
        cmocka_unit_test(a_long_computation_is_alive),
        cmocka_unit_test(failures_are_named_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
