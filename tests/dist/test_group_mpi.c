// The mpi backend, by the suite that the threads backend passes, with one rank in each process and
// with several. The program starts itself again under mpirun; without MPI in the build there is
// nothing to test, and it says so.

#define _GNU_SOURCE
#include "dist/group_refuses.h"
#include "dist/interleave.h"
#include "dist/segments.h"
#include "support/mpirun.h"

#include "build_info.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#if CY_HAVE_MPI
#include <mpi.h>

static bool one_thread_only;

// MPI's own, which may be made to say that it allows one thread.
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    const int code = PMPI_Init_thread(argc, argv, required, provided);
    if (one_thread_only) *provided = MPI_THREAD_FUNNELED;
    return code;
}
#endif

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

// "SCENARIO THREADS": so many ranks in each process.
static void ranks_share_processes(void **state)
{
    (void)state;
    expect_success(1, "suite 3");
    expect_success(2, "suite 2");
    expect_success(3, "suite 2");
    expect_success(2, "suite 4");
    expect_success(2, "ring 2");
    expect_success(2, "compute 2");
    expect_success(2, "places 3");
    expect_success(4, "interleave 4");
    expect_success(2, "interleave 8");
}

static void several_groups_with_threads_of_their_own(void **state)
{
    (void)state;
    expect_success(2, "ring");
}

// Rings of many fragments in flight at once, on more ranks than cores.
static void rings_do_not_wait_for_each_other(void **state)
{
    (void)state;
    expect_success(2, "rings");
    expect_success(3, "rings");
    expect_success(4, "rings");
    expect_success(8, "rings");
    expect_success(2, "rings 2");
    expect_success(4, "rings 4");
}

// Pieces of a plan go in segments between processes.
static void pieces_longer_than_a_segment(void **state)
{
    (void)state;
    expect_success(2, "segments");
    expect_success(3, "segments");
    expect_success(2, "segments 2");
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

static void expect_failure_of(int processes, const char *scenario, int wanted, const char *words)
{
    static char printed[1 << 16];
    const int status = cy_test_mpirun_all(processes, scenario, printed, sizeof(printed));
    if (status != wanted || count_of(printed, "cyclotron: error:") != 1 ||
        strstr(printed, words) == NULL) {
        fail_msg("%s: status %d, wanted \"%s\" once: %s", scenario, status, words, printed);
    }
}

static void expect_failure(const char *scenario, int wanted, const char *words)
{
    expect_failure_of(3, scenario, wanted, words);
}

static void failures_are_named_once(void **state)
{
    (void)state;
    expect_failure("fail", 1, "error: rank 1 (");
    expect_failure("fail", 1, "): the loss is not finite");
    expect_failure("other", 1, "of 12 fp32, sum");
    expect_failure("sleep", 1, "no heartbeat for 1 s from rank 1 (");
    expect_failure("sleep", 1, "every later call was refused: ");
    expect_failure("sleep_ring", 1, "no heartbeat for 1 s from rank 1 (");
    expect_failure("sleep_ring", 1, "every later call was refused: ");
    expect_failure("stop", 1, "no heartbeat for 1 s from rank 1 (");
    expect_failure("teller", 1, "): the loss is not finite");
    expect_failure("configuration", 2, "rank 1 (");
    expect_failure("size", 2, "the configuration is for 5 ranks, but 3 processes were started");
    expect_failure_of(2, "level", 1,
        "this MPI does not let threads take turns: it offers level MPI_THREAD_FUNNELED");
    // Two were started, and MPI knows of one.
    expect_failure_of(
        1, "lost 2", 2, "the configuration is for 2 ranks, but 1 process was started");
}

// Rank 1 shares its process with rank 0; ranks 2 and 3 are in the other one.
static void failures_of_ranks_that_share_processes_are_named_once(void **state)
{
    (void)state;
    expect_failure_of(2, "fail 2", 1, "error: rank 1 (");
    expect_failure_of(2, "fail 2", 1, "): the loss is not finite");
    expect_failure_of(2, "other 2", 1, "of 12 fp32, sum");
    expect_failure_of(2, "sleep 2", 1, "no heartbeat for 1 s from rank 1 (");
    expect_failure_of(2, "sleep 2", 1, "every later call was refused: ");
    expect_failure_of(2, "stop 2", 1, "no heartbeat for 1 s from rank ");
    expect_failure_of(2, "far 2", 1, "no heartbeat for 1 s from rank 3 (");
    expect_failure_of(2, "near 2", 1, "no heartbeat for 1 s from rank 0 (");
    expect_failure_of(2, "configuration 2", 2, "rank 2 (");
    expect_failure_of(2, "board 2", 1, "a rank has 64 groups open to ranks of other processes");
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
    float(*data)[COUNT] = calloc(GROUPS, sizeof(*data)); // ranks may be threads
    SUITE_EXPECT(data != NULL, "no memory");
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
    free(data);
    return CY_OK;
}

static cy_status run_segments(cy_world *world, void *context)
{
    (void)context;
    return segments_world(world, 0);
}

// Which ranks share what: ranks of a process are neighbours, and all of this is one machine.
static cy_status run_places(cy_world *world, void *context)
{
    (void)context;
    const int rank = cy_world_rank(world);
    const int inside[] = {rank / 3 * 3, rank / 3 * 3 + 1, rank / 3 * 3 + 2};
    const int across[] = {rank % 3, rank % 3 + 3};
    cy_group *group = NULL;
    CY_TRY(cy_world_open_group(world, &group, inside, 3, "tp"));
    SUITE_EXPECT(strcmp(cy_group_backend(group), "threads") == 0, "inside of a process: %s",
        cy_group_backend(group));
    cy_group_close(group);
    CY_TRY(cy_world_open_group(world, &group, across, 2, "dp"));
    SUITE_EXPECT(strcmp(cy_group_backend(group), "mpi") == 0, "between processes: %s",
        cy_group_backend(group));
    cy_group_close(group);
    for (int r = 0; r < cy_world_size(world); r++) {
        SUITE_EXPECT(cy_world_node_of(world, r) == 0 && cy_world_shares_machine(world, r),
            "rank %d is on %d", r, cy_world_node_of(world, r));
    }
    return CY_OK;
}

static cy_status run_interleaved(cy_world *world, void *context)
{
    (void)context;
    return interleave(world, &(interleave_job){.operations = 2000});
}

static cy_status run_interleaved_rings(cy_world *world, void *context)
{
    (void)context;
    return interleave(world,
        &(interleave_job){.operations = 1200 / cy_world_size(world), .fragment_bytes = 8192});
}

// Ranks 0 and 1 are in one process, 1 and 3 talk across: whoever waits for a rank that waits for
// another names that one, whatever carries the messages. The sleeper is rank 3, or rank 0.
static cy_status wait_in_a_chain(cy_world *world, bool far)
{
    static const int inside[] = {0, 1}, across[] = {1, 3};
    const int rank = cy_world_rank(world);
    cy_group *near_group = NULL, *far_group = NULL;
    if (rank < 2) CY_TRY(cy_world_open_group(world, &near_group, inside, 2, "tp"));
    if (rank % 2 == 1) CY_TRY(cy_world_open_group(world, &far_group, across, 2, "dp"));
    if (rank == (far ? 3 : 0)) {
        const struct timespec nap = {.tv_sec = 3};
        nanosleep(&nap, NULL);
    }
    if (far && far_group != NULL) CY_TRY(cy_group_barrier(far_group));
    if (near_group != NULL) CY_TRY(cy_group_barrier(near_group));
    if (!far && far_group != NULL) CY_TRY(cy_group_barrier(far_group));
    return CY_OK;
}

// More groups than there is room for; the world's own are none of these.
static cy_status open_many(cy_world *world)
{
    cy_group *group = NULL;
    for (int i = 0; i < 65; i++)
        CY_TRY(cy_test_open_all(world, &group, "dp"));
    return CY_OK;
}

// All ranks have come, and the sum cannot be made without the one that stops.
static cy_status stop_inside(cy_group *group, int rank)
{
    float *large = calloc(1 << 20, sizeof(float));
    SUITE_EXPECT(large != NULL, "no memory");
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
    if (strcmp(scenario, "far") == 0 || strcmp(scenario, "near") == 0)
        return wait_in_a_chain(world, scenario[0] == 'f');
    if (strcmp(scenario, "board") == 0) return open_many(world);
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    float data[12] = {0};
    const cy_view view = cy_view_of(data, CY_F32, 1, 12);
    CY_TRY(cy_group_all_reduce(group, NULL, view, CY_SUM));
    if (rank == 1 && strcmp(scenario, "teller") == 0) {
        // Stopped after it has failed and before it says why: another one does, and mpirun lets
        // this one go on before it ends it.
        cy_world_abort(world, "the loss is not finite");
        raise(SIGSTOP);
        return CY_FAIL(CY_ERR_NOT_FINITE, "the loss is not finite");
    }
    if (rank == 1 && strcmp(scenario, "fail") == 0) {
        return CY_FAIL(CY_ERR_NOT_FINITE, "the loss is not finite");
    }
    if (rank == 1 && strcmp(scenario, "other") == 0)
        return cy_group_broadcast(group, NULL, view, 0);
    if (rank == 1 && strncmp(scenario, "sleep", 5) == 0) {
        const struct timespec nap = {.tv_sec = 5};
        nanosleep(&nap, NULL);
    }
    if (strcmp(scenario, "compute") == 0 && rank == 1) {
        // For three times as long as a rank may be silent.
        const struct timespec nap = {.tv_nsec = 200000000};
        for (int i = 0; i < 15; i++) {
            nanosleep(&nap, NULL);
            atomic_fetch_add(cy_world_heartbeat(world), 1);
        }
    }
    if (strcmp(scenario, "stop") == 0) return stop_inside(group, rank);
    const cy_status status = cy_group_all_reduce(group, NULL, view, CY_SUM);
    if (status == CY_ERR_TIMEOUT) {
        const cy_status after = refuses_after(group, status, "from rank 1 (");
        if (after == status) cy_error_prefix("every later call was refused: ");
        return after;
    }
    CY_TRY(status);
    cy_group_close(group);
    return CY_OK;
}

static cy_rank_function function_of(const char *scenario)
{
    if (strcmp(scenario, "suite") == 0) return run_suite;
    if (strcmp(scenario, "ring") == 0) return run_groups;
    if (strcmp(scenario, "places") == 0) return run_places;
    if (strcmp(scenario, "segments") == 0) return run_segments;
    if (strcmp(scenario, "rings") == 0) return run_interleaved_rings;
    return strcmp(scenario, "interleave") == 0 ? run_interleaved : misbehave;
}

// A number that mpirun has told this process; 0 without one.
static int told(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? (int)strtol(text, NULL, 10) : 0;
}

static int run_rank(char *scenario, int threads)
{
    cy_world_options options = cy_world_defaults();
    options.launched = told("OMPI_COMM_WORLD_SIZE");
    options.launched_rank = told("OMPI_COMM_WORLD_RANK");
    options.ranks = options.launched * threads; // none where it is not to say
    static const char *const patient[] = {"sleep", "sleep_ring", "stop", "compute", "far", "near"};
    for (size_t i = 0; i < sizeof(patient) / sizeof(*patient); i++) {
        if (strcmp(scenario, patient[i]) == 0) options.timeout_s = 1.0;
    }
    if (strcmp(scenario, "configuration") == 0) {
        options.configuration = options.launched_rank == 1 ? 7 : 8;
    }
    if (strcmp(scenario, "size") == 0) options.ranks = 5;
    if (strcmp(scenario, "lost") == 0) options.launched = 2;
#if CY_HAVE_MPI
    one_thread_only = strcmp(scenario, "level") == 0;
#endif
    if (strcmp(scenario, "ring") == 0 || strcmp(scenario, "sleep_ring") == 0)
        options.algorithm = "ring";
    const cy_status status = cy_world_run_mpi(&options, function_of(scenario), scenario);
    if (status == CY_OK) return 0;
    const int code = status == CY_ERR_REQUEST ? 2 : 1;
    fprintf(stderr, "cyclotron: error: %s\n", cy_error_text());
    cy_world_end_job(code);
    return code;
}

int main(int argc, char **argv)
{
    if (argc > 1) return run_rank(argv[1], argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_primitive_equals_serial),
        cmocka_unit_test(ranks_share_processes),
        cmocka_unit_test(several_groups_with_threads_of_their_own),
        cmocka_unit_test(rings_do_not_wait_for_each_other),
        cmocka_unit_test(pieces_longer_than_a_segment),
        cmocka_unit_test(a_long_computation_is_alive),
        cmocka_unit_test(failures_are_named_once),
        cmocka_unit_test(failures_of_ranks_that_share_processes_are_named_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
