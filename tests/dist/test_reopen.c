// A world that has failed in the middle of its work is closed, and the process opens another one
// with the ranks that are left: nothing of the old world comes through in the new one, and memory
// of the old one may be freed. With ranks as threads and as processes, of one machine and of
// several. The program starts itself again under mpirun; without MPI in the build it says so.

#define _GNU_SOURCE
#include "dist/group_suite.h"
#include "support/mpirun.h"

#include "base/memory.h"

#include "build_info.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#if CY_HAVE_MPI
#include <mpi.h>

static bool machines_apart;

// MPI's own, which may be made to say that every process has a machine of its own.
int MPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm *made)
{
    if (!machines_apart) return PMPI_Comm_split_type(comm, split_type, key, info, made);
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    return PMPI_Comm_split(comm, rank, key, made);
}
#endif

enum {
    ERAS = 100,
    LARGE = 30011, // floats: MPI and threads both hand such messages over in several steps
    TAG_KEPT = 5,  // a large message that is received
    TAG_LARGE = 6, // messages that nobody receives
    TAG_SMALL = 7,
    TAG_NEVER = 9, // a receive of what nobody sends
};

// One world: what its ranks do, and which of them fails.
typedef struct era {
    int number;
    int failing; // a rank; -1: none
} era;

// Memory that transfers use, which is given back to the system when the rank is done.
typedef struct buffers {
    float sum[LARGE];
    float few[8];
    float from_left[LARGE];
    float to_right[LARGE];
    float never[LARGE];
    float gathered[8 * 64];
} buffers;

// What rank `rank` brings in an era at element i.
static float brought(const era *e, int rank, int i)
{
    return (float)(e->number + 3 * rank + i % 7);
}

static cy_status check_sum(cy_group *group, const era *e, float *data, int count)
{
    const int size = cy_group_size(group);
    for (int i = 0; i < count; i++)
        data[i] = brought(e, cy_group_rank(group), i);
    CY_TRY(cy_group_all_reduce(group, NULL, cy_view_of(data, CY_F32, 1, count), CY_SUM));
    for (int i = 0; i < count; i++) {
        float wanted = 0.0f;
        for (int r = 0; r < size; r++)
            wanted += brought(e, r, i);
        SUITE_EXPECT(data[i] == wanted, "era %d: sum of %d, element %d: %g instead of %g",
            e->number, count, i, (double)data[i], (double)wanted);
    }
    return CY_OK;
}

// A message to the right with each tag that failing ranks leave behind.
static cy_status check_messages(cy_group *group, const era *e, buffers *b)
{
    static const struct {
        int tag, count;
    } messages[] = {{TAG_KEPT, LARGE}, {TAG_LARGE, LARGE}, {TAG_SMALL, 8}, {TAG_NEVER, LARGE}};
    const int size = cy_group_size(group), rank = cy_group_rank(group);
    for (size_t m = 0; m < sizeof(messages) / sizeof(*messages); m++) {
        const int count = messages[m].count, tag = messages[m].tag;
        const int left = (rank + size - 1) % size;
        cy_request send = {0}, recv = {0};
        for (int i = 0; i < count; i++)
            b->to_right[i] = brought(e, rank, i) + (float)tag;
        CY_TRY(cy_group_start_send(
            group, NULL, &send, cy_view_of(b->to_right, CY_F32, 1, count), (rank + 1) % size, tag));
        CY_TRY(cy_group_start_recv(
            group, NULL, &recv, cy_view_of(b->from_left, CY_F32, 1, count), left, tag));
        CY_TRY(cy_group_wait(group, NULL, &recv));
        CY_TRY(cy_group_wait(group, NULL, &send));
        for (int i = 0; i < count; i++) {
            SUITE_EXPECT(b->from_left[i] == brought(e, left, i) + (float)tag,
                "era %d: message with tag %d, element %d: %g", e->number, tag, i,
                (double)b->from_left[i]);
        }
    }
    return CY_OK;
}

static cy_status work(cy_group *group, const era *e, buffers *b)
{
    CY_TRY(check_sum(group, e, b->few, 8));
    CY_TRY(check_sum(group, e, b->sum, 4099));
    CY_TRY(check_sum(group, e, b->sum, LARGE));
    CY_TRY(check_messages(group, e, b));
    return cy_group_barrier(group);
}

// Fails, if it is this rank's turn to fail at this place.
static cy_status maybe_fail(cy_group *group, const era *e, int place)
{
    if (cy_group_rank(group) != e->failing || e->number / 2 % 3 != place) return CY_OK;
    return CY_FAIL(CY_ERR_NOT_FINITE, "enough of era %d", e->number);
}

// Everything that can be in flight is when one rank fails.
static cy_status fail_in_flight(cy_group *group, const era *e, buffers *b)
{
    const int size = cy_group_size(group), rank = cy_group_rank(group);
    const int left = (rank + size - 1) % size, right = (rank + 1) % size;
    cy_request requests[8] = {0};
    const cy_view large = cy_view_of(b->to_right, CY_F32, 1, LARGE);
    const cy_view few = cy_view_of(b->few, CY_F32, 1, 8);
    CY_TRY(maybe_fail(group, e, 0));
    CY_TRY(cy_group_start_recv(
        group, NULL, &requests[0], cy_view_of(b->from_left, CY_F32, 1, LARGE), left, TAG_KEPT));
    CY_TRY(cy_group_start_recv(
        group, NULL, &requests[1], cy_view_of(b->never, CY_F32, 1, LARGE), left, TAG_NEVER));
    CY_TRY(cy_group_start_all_reduce(
        group, NULL, &requests[2], cy_view_of(b->sum, CY_F32, 1, LARGE), CY_SUM));
    CY_TRY(cy_group_start_send(group, NULL, &requests[3], large, right, TAG_LARGE));
    CY_TRY(maybe_fail(group, e, 1));
    CY_TRY(cy_group_start_send(group, NULL, &requests[4], few, right, TAG_SMALL));
    CY_TRY(cy_group_start_send(group, NULL, &requests[5], large, right, TAG_KEPT));
    CY_TRY(cy_group_start_all_gather(
        group, NULL, &requests[6], cy_view_of(b->gathered, CY_F32, size, 8), few));
    CY_TRY(maybe_fail(group, e, 2));
    for (int i = 2; i < 8; i++) // the last ones are never waited for
        CY_TRY(cy_group_wait(group, NULL, &requests[(i * 3) % 8]));
    return CY_FAIL(CY_ERR_CORRUPT, "era %d: all transfers ended", e->number);
}

static cy_status run_era(cy_world *world, void *context)
{
    const era *e = context;
    cy_group *group = NULL;
    void *block = NULL;
    CY_TRY(cy_memory_map(&block, sizeof(buffers)));
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    cy_status status = work(group, e, block);
    if (status == CY_OK && e->failing >= 0) status = fail_in_flight(group, e, block);
    const bool closes = status == CY_OK || cy_world_fail(world, status);
    cy_memory_unmap(block, sizeof(buffers));
    if (closes) cy_group_close(group);
    return status;
}

// Whether a run's result is the one of its era: the failing rank's, in every process.
static cy_status expect_end(cy_status status, const era *e, bool mine)
{
    char words[64];
    if (e->failing < 0) return status;
    SUITE_EXPECT(status != CY_OK, "era %d ended well", e->number);
    if (mine && status != CY_ERR_NOT_FINITE) return status;
    if (!mine && status != CY_ERR_PEER) return status;
    snprintf(words, sizeof(words), "): enough of era %d", e->number);
    if (strstr(cy_error_text(), words) == NULL) return status;
    snprintf(words, sizeof(words), "rank %d (", e->failing);
    return strncmp(cy_error_text(), words, strlen(words)) == 0 ? CY_OK : status;
}

// ---- threads

static void threads_reopen(void **state)
{
    (void)state;
    for (int i = 0; i < ERAS; i++) {
        cy_world_options options = cy_world_defaults();
        options.ranks = 4;
        options.generation = 2 * i + 1;
        options.algorithm = i % 4 == 3 ? "ring" : "auto";
        options.check = i % 5 == 4;
        era failing = {2 * i, i % 4}, whole = {2 * i + 1, -1};
        CY_CHECK_OK(expect_end(cy_world_run_threads(&options, run_era, &failing), &failing, true));
        options.ranks = 3;
        options.generation++;
        CY_CHECK_OK(cy_world_run_threads(&options, run_era, &whole));
    }
}

// A rank that calls something else, in a world of this generation.
static cy_status differ(cy_world *world, void *context)
{
    (void)context;
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "tp"));
    float data[8] = {0};
    const cy_view view = cy_view_of(data, CY_F32, 1, 8);
    const cy_status status = cy_world_rank(world) == 1
        ? cy_group_broadcast(group, NULL, view, 0)
        : cy_group_all_reduce(group, NULL, view, CY_SUM);
    if (status == CY_OK || cy_world_fail(world, status)) cy_group_close(group);
    return status;
}

static void failures_name_the_generation(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 2;
    CY_CHECK_FAILS(
        cy_world_run_threads(&options, differ, NULL), CY_ERR_PEER, "collective 0 of tp: rank ");
    options.generation = 2;
    CY_CHECK_FAILS(cy_world_run_threads(&options, differ, NULL), CY_ERR_PEER,
        "collective 0 of tp (generation 2): rank ");
}

// ---- processes

static void expect(int processes, const char *scenario, int wanted, const char *words)
{
    static char printed[1 << 16];
    const int status = cy_test_mpirun_all(processes, scenario, printed, sizeof(printed));
    if (status != wanted || strstr(printed, words) == NULL) {
        fail_msg(
            "%s: status %d, wanted %d and \"%s\": %s", scenario, status, wanted, words, printed);
    }
}

static void processes_reopen(void **state)
{
    (void)state;
    expect(4, "eras 1", 0, "all eras ended");
    expect(2, "eras 2", 0, "all eras ended");
}

static void processes_of_several_machines_reopen(void **state)
{
    (void)state;
    expect(3, "apart 1", 0, "all eras ended");
    expect(3, "apart 2", 0, "all eras ended");
}

// Open MPI ends the others when one is killed, unless it is told not to.
static void a_process_that_is_killed_is_left_behind(void **state)
{
    (void)state;
    setenv("OMPI_MCA_orte_enable_recovery", "1", 1);
    expect(3, "death 1", 0, "the others went on");
    expect(3, "death 2", 0, "the others went on");
    unsetenv("OMPI_MCA_orte_enable_recovery");
}

static void a_job_runs_one_world_at_a_time(void **state)
{
    (void)state;
    expect(2, "again 1", 0, "two worlds ended");
    expect(2, "again 2", 0, "two worlds ended");
    expect(2, "nested 1", 0, "a world of mpi is open in this process already");
    expect(2, "nested 2", 0, "a world of mpi is open in this process already");
    expect(2, "after 1", 2, "the last world of mpi has failed");
    expect(2, "older 1", 0, "generation 3 of the world comes after generation 4");
}

static void worlds_of_different_generations_do_not_meet(void **state)
{
    (void)state;
    expect(3, "generations 1", 2, "rank 1 (");
    expect(3, "generations 1", 2, ") opens generation 5 of the world, rank ");
    expect(2, "alone 1", 1, "start of generation 2 of the world: after 10 s rank 1 has not come");
    expect(2, "differ 1", 1, "collective 0 of tp (generation 7): rank ");
    expect(2, "differ 2", 1, "collective 0 of tp (generation 7): rank ");
}

// ---- under mpirun

#if CY_HAVE_MPI

// This process, as mpirun counts.
typedef struct job {
    int processes;
    int number;
    int threads;
} job;

static int told(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? (int)strtol(text, NULL, 10) : 0;
}

static cy_world_options options_of(const job *j)
{
    cy_world_options options = cy_world_defaults();
    options.launched = j->processes;
    options.launched_rank = j->number;
    options.ranks = j->processes * j->threads;
    options.reopens = true;
    return options;
}

// All processes but one, which takes part again in the next world of all.
static cy_status run_without(const job *j, int left_out, int number)
{
    int members[16], count = 0;
    for (int p = 0; p < j->processes; p++) {
        if (p != left_out) members[count++] = p;
    }
    if (j->number == left_out) return CY_OK;
    era whole = {number, -1};
    cy_world_options options = options_of(j);
    options.generation = number + 1;
    options.members = members;
    options.member_count = count;
    options.ranks = count * j->threads;
    return cy_world_run_mpi(&options, run_era, &whole);
}

static cy_status run_eras(const job *j, int eras)
{
    for (int i = 0; i < eras; i++) {
        era failing = {2 * i, i % (j->processes * j->threads)};
        const int culprit = failing.failing / j->threads;
        cy_world_options options = options_of(j);
        options.generation = failing.number + 1;
        options.algorithm = i % 4 == 3 ? "ring" : "auto";
        CY_TRY(expect_end(
            cy_world_run_mpi(&options, run_era, &failing), &failing, j->number == culprit));
        CY_TRY(run_without(j, culprit, failing.number + 1));
    }
    if (j->number == 0) printf("all eras ended\n");
    return CY_OK;
}

// The last rank is killed with everything in flight.
static cy_status die_in_era(cy_world *world, void *context)
{
    era e = *(const era *)context;
    cy_group *group = NULL;
    void *block = NULL;
    CY_TRY(cy_memory_map(&block, sizeof(buffers)));
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    cy_status status = work(group, &e, block);
    if (status == CY_OK && cy_world_rank(world) == cy_world_size(world) - 1) raise(SIGKILL);
    if (status == CY_OK) status = fail_in_flight(group, &e, block);
    const bool closes = status == CY_OK || cy_world_fail(world, status);
    cy_memory_unmap(block, sizeof(buffers));
    if (closes) cy_group_close(group);
    return status;
}

// A process that is killed is not waited for; the others go on without it.
static cy_status run_with_death(const job *j)
{
    const int dies = j->processes - 1;
    era all = {0, -1};
    cy_world_options options = options_of(j);
    const cy_status status = cy_world_run_mpi(&options, die_in_era, &all);
    SUITE_EXPECT(status == CY_ERR_PEER && strstr(cy_error_text(), "the process is gone of rank"),
        "status %d: %s", status, cy_error_text());
    for (int number = 1; number < 4; number++)
        CY_TRY(run_without(j, dies, number));
    if (j->number == 0) printf("the others went on\n");
    return CY_OK;
}

static cy_status run_again(const job *j)
{
    era first = {10, -1}, second = {11, -1};
    cy_world_options options = options_of(j);
    options.reopens = false;
    CY_TRY(cy_world_run_mpi(&options, run_era, &first));
    CY_TRY(cy_world_run_mpi(&options, run_era, &second));
    if (j->number == 0) printf("two worlds ended\n");
    return CY_OK;
}

// A rank that opens another world from inside of one.
static cy_status open_inside(cy_world *world, void *context)
{
    const job *j = context;
    era inner = {1, -1};
    const cy_world_options options = options_of(j);
    if (cy_world_rank(world) > 0) return CY_OK;
    const cy_status status = cy_world_run_mpi(&options, run_era, &inner);
    SUITE_EXPECT(status == CY_ERR_REQUEST, "a world inside of a world: status %d", status);
    printf("%s\n", cy_error_text());
    return CY_OK;
}

static cy_status fail_at_once(cy_world *world, void *context)
{
    (void)context;
    return cy_world_rank(world) == 0 ? CY_FAIL(CY_ERR_NOT_FINITE, "enough") : CY_OK;
}

// A failure that ends the job, and another world after it.
static cy_status run_after_failure(const job *j)
{
    cy_world_options options = options_of(j);
    options.reopens = false;
    const cy_status status = cy_world_run_mpi(&options, fail_at_once, NULL);
    SUITE_EXPECT(j->number > 0 || status == CY_ERR_NOT_FINITE, "status %d", status);
    return cy_world_run_mpi(&options, fail_at_once, NULL);
}

// A generation that is not after the last one.
static cy_status run_older(const job *j)
{
    era first = {1, -1}, second = {2, -1};
    cy_world_options options = options_of(j);
    options.generation = 4;
    CY_TRY(cy_world_run_mpi(&options, run_era, &first));
    options.generation = 3;
    const cy_status status = cy_world_run_mpi(&options, run_era, &second);
    SUITE_EXPECT(status == CY_ERR_REQUEST, "status %d", status);
    if (j->number == 0) printf("%s\n", cy_error_text());
    return CY_OK;
}

// Worlds that do not meet: of different generations, or of one process alone.
static cy_status run_apart(const job *j, bool later)
{
    era first = {1, -1}, second = {2, -1};
    cy_world_options options = options_of(j);
    options.reopens = false;
    if (later) {
        options.generation = j->number == 1 ? 5 : 0;
        return cy_world_run_mpi(&options, run_era, &first);
    }
    options.timeout_s = 1.0;
    CY_TRY(cy_world_run_mpi(&options, run_era, &first));
    return j->number == 0 ? cy_world_run_mpi(&options, run_era, &second) : CY_OK;
}

static cy_status run_scenario(const char *scenario, job *j)
{
    if (strcmp(scenario, "eras") == 0) return run_eras(j, ERAS);
    machines_apart = strcmp(scenario, "apart") == 0;
    if (machines_apart) return run_eras(j, ERAS / 5);
    if (strcmp(scenario, "again") == 0) return run_again(j);
    if (strcmp(scenario, "death") == 0) return run_with_death(j);
    if (strcmp(scenario, "after") == 0) return run_after_failure(j);
    if (strcmp(scenario, "older") == 0) return run_older(j);
    if (strcmp(scenario, "generations") == 0) return run_apart(j, true);
    if (strcmp(scenario, "alone") == 0) return run_apart(j, false);
    cy_world_options options = options_of(j);
    options.reopens = false;
    options.generation = 7;
    if (strcmp(scenario, "differ") == 0) return cy_world_run_mpi(&options, differ, NULL);
    return cy_world_run_mpi(&options, open_inside, j);
}

static int run_process(const char *scenario, int threads)
{
    job j = {told("OMPI_COMM_WORLD_SIZE"), told("OMPI_COMM_WORLD_RANK"), threads};
    const cy_status status = run_scenario(scenario, &j);
    if (status == CY_OK) return 0;
    const int code = status == CY_ERR_REQUEST ? 2 : 1;
    fprintf(stderr, "process %d: error: %s\n", j.number, cy_error_text());
    cy_world_end_job(code);
    return code;
}

#else

static int run_process(const char *scenario, int threads)
{
    (void)scenario;
    (void)threads;
    return 77;
}

#endif

int main(int argc, char **argv)
{
    if (argc > 2) return run_process(argv[1], (int)strtol(argv[2], NULL, 10));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_reopen),
        cmocka_unit_test(failures_name_the_generation),
        cmocka_unit_test(processes_reopen),
        cmocka_unit_test(processes_of_several_machines_reopen),
        cmocka_unit_test(a_process_that_is_killed_is_left_behind),
        cmocka_unit_test(a_job_runs_one_world_at_a_time),
        cmocka_unit_test(worlds_of_different_generations_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
