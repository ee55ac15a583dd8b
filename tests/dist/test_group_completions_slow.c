// A million transfers on one group of three ranks, and some on one of two, over threads and over
// MPI: each ends once, with what it was to bring, in whatever order they are waited for.

#include "dist/group_suite.h"
#include "support/mpirun.h"

#include <stdlib.h>

enum { IN_FLIGHT = 63 }; // threes, so that each message ends in its batch

typedef struct flight {
    cy_request request;
    int64_t data;   // what comes
    int64_t wanted; // what is to come
} flight;

// The i-th of every three is a sum over all, the two behind it are a message to the next rank and
// one from the previous.
static cy_status start(cy_group *group, flight *one, int64_t i)
{
    const int rank = cy_group_rank(group);
    const int size = cy_group_size(group);
    const int previous = (rank + size - 1) % size;
    const cy_view view = cy_view_of(&one->data, CY_I64, 1, 1);
    const int64_t number = i / 3;
    const int tag = (int)(number % 1000);
    switch (i % 3) {
    case 0:
        one->data = number * (rank + 1);
        one->wanted = number * size * (size + 1) / 2;
        return cy_group_start_all_reduce(group, NULL, &one->request, view, CY_SUM);
    case 1:
        one->data = one->wanted = number * 100 + rank;
        return cy_group_start_send(group, NULL, &one->request, view, (rank + 1) % size, tag);
    default:
        one->data = -1;
        one->wanted = number * 100 + previous;
        return cy_group_start_recv(group, NULL, &one->request, view, previous, tag);
    }
}

static cy_status finish(cy_group *group, flight *one, int64_t i)
{
    if (i % 5 == 0) {
        for (bool done = false; !done;)
            CY_TRY(cy_group_test(group, &one->request, &done));
    }
    CY_TRY(cy_group_wait(group, NULL, &one->request));
    SUITE_EXPECT(one->data == one->wanted, "transfer %lld: %lld instead of %lld", (long long)i,
        (long long)one->data, (long long)one->wanted);
    return CY_OK;
}

// Batches of transfers, waited for with a stride that visits all of a batch in another order.
static cy_status run_rank(cy_world *world, void *context)
{
    const int64_t operations = *(const int64_t *)context;
    static const int strides[] = {1, IN_FLIGHT - 1, 20, 25, 2, 40}; // no common factor with a batch
    flight flights[IN_FLIGHT];
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    cy_status status = CY_OK;
    int64_t done = 0;
    while (status == CY_OK && done < operations) {
        memset(flights, 0, sizeof(flights));
        for (int i = 0; status == CY_OK && i < IN_FLIGHT; i++)
            status = start(group, &flights[i], done + i);
        const int stride = strides[(done / IN_FLIGHT) % 6];
        for (int i = 0; status == CY_OK && i < IN_FLIGHT; i++) {
            const int at = i * stride % IN_FLIGHT;
            status = finish(group, &flights[at], done + at);
        }
        done += IN_FLIGHT;
    }
    cy_group_close(group);
    return status;
}

static int64_t operations_of(int ranks)
{
    return ranks == 3 ? 1000000 : 100000;
}

static void no_completion_is_lost(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 3; ranks++) {
        cy_world_options options = cy_world_defaults();
        options.ranks = ranks;
        options.timeout_s = 20;
        int64_t operations = operations_of(ranks);
        CY_CHECK_OK(cy_world_run_threads(&options, run_rank, &operations));
    }
}

static void no_completion_is_lost_over_mpi(void **state)
{
    (void)state;
    static char printed[1 << 16];
    for (int ranks = 2; ranks <= 3; ranks++) {
        const int status = cy_test_mpirun_all(ranks, "ranks", printed, sizeof(printed));
        if (status != 0) fail_msg("%d ranks: status %d: %s", ranks, status, printed);
        char wanted[64];
        snprintf(wanted, sizeof(wanted), "%lld transfers", (long long)operations_of(ranks));
        if (strstr(printed, wanted) == NULL)
            fail_msg("%d ranks: no %s: %s", ranks, wanted, printed);
    }
}

// ---- under mpirun

static int told(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? (int)strtol(text, NULL, 10) : 0;
}

static int run_process(void)
{
    cy_world_options options = cy_world_defaults();
    options.launched = told("OMPI_COMM_WORLD_SIZE");
    options.launched_rank = told("OMPI_COMM_WORLD_RANK");
    options.ranks = options.launched;
    int64_t operations = operations_of(options.ranks);
    if (cy_world_run_mpi(&options, run_rank, &operations) == CY_OK) {
        if (options.launched_rank == 0) printf("%lld transfers\n", (long long)operations);
        return 0;
    }
    fprintf(stderr, "cyclotron: error: %s\n", cy_error_text());
    cy_world_end_job(1);
    return 1;
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) return run_process();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_completion_is_lost),
        cmocka_unit_test(no_completion_is_lost_over_mpi),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
