// The threads backend: right results, and a message instead of a hang when ranks disagree.

#define _GNU_SOURCE
#include "dist/group_refuses.h"

#include "base/clock.h"

#include <math.h>
#include <sched.h>
#include <time.h>

static void every_primitive_equals_serial(void **state)
{
    (void)state;
    suite_threads(30011);
}

// ---- failures

// Limits that a busy machine keeps too: a live rank may wait for a core for a second. Who plays
// dead does so for PATIENCE_S at most.
#define LIMIT_S    1.5
#define PATIENCE_S 30.0

typedef struct scenario {
    int kind;
    double long_s;
    atomic_bool over;   // the others have given up
    atomic_int refused; // ranks whose group refused everything after the time was over
} scenario;

// Shows no heartbeat until the others have given up, which must be long before this ends.
static void play_dead(scenario *what)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    const double until = cy_clock_s() + PATIENCE_S;
    while (!atomic_load(&what->over) && cy_clock_s() < until)
        nanosleep(&nap, NULL);
}

// Long because it is one switch with a case for each way to go wrong.
// NOLINTNEXTLINE(readability-function-size)
static cy_status misbehave(cy_world *world, void *context)
{
    scenario *what = context;
    const int rank = cy_world_rank(world);
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    float data[12] = {0};
    static float large[3][20000];
    int64_t rows[3] = {1, 1, 1};
    cy_queue queue = {0};
    cy_request request = {0};
    cy_status status = cy_group_all_reduce(group, NULL, cy_view_of(data, CY_F32, 1, 12), CY_SUM);
    if (status != CY_OK) { // a peer was quick to fail
        cy_group_close(group);
        return status;
    }
    switch (what->kind) {
    case 0: // another operation
        status = rank == 1
            ? cy_group_broadcast(group, NULL, cy_view_of(data, CY_F32, 1, 12), 0)
            : cy_group_all_reduce(group, NULL, cy_view_of(data, CY_F32, 1, 12), CY_SUM);
        break;
    case 1: // another length
        status = cy_group_all_reduce(
            group, NULL, cy_view_of(data, CY_F32, 1, rank == 2 ? 11 : 12), CY_SUM);
        break;
    case 2: // ends too early
        if (rank != 1) status = cy_group_barrier(group);
        break;
    case 3: // fails by itself
        status = rank == 1 ? CY_FAIL(CY_ERR_NOT_FINITE, "the loss is not finite")
                           : cy_group_barrier(group);
        break;
    case 4: // stops without a heartbeat
        if (rank == 1) play_dead(what);
        status = cy_group_barrier(group);
        break;
    case 5: { // computes for long, but lives
        const double until = cy_clock_s() + what->long_s;
        while (rank == 1 && cy_clock_s() < until)
            atomic_fetch_add(cy_world_heartbeat(world), 1);
        status = cy_group_barrier(group);
        break;
    }
    case 6: // uneven parts that do not fit
        if (rank == 2) rows[1] = 0;
        status = cy_group_start_all_to_allv(group, &queue, &request, cy_view_of(data, CY_F32, 3, 2),
            (const int64_t[]){1, 1, 1}, cy_view_of(data + 6, CY_F32, rank == 2 ? 2 : 3, 2), rows);
        if (status == CY_OK) status = cy_group_wait(group, &queue, &request);
        break;
    case 7: // a message of another length
        status = rank == 0
            ? cy_group_start_send(group, NULL, &request, cy_view_of(data, CY_F32, 1, 4), 1, 9)
            : cy_group_start_recv(
                  group, NULL, &request, cy_view_of(data, CY_F32, 1, 5), (rank + 2) % 3, 9);
        if (status == CY_OK) status = cy_group_wait(group, NULL, &request);
        break;
    case 8: // asks for the end
        if (rank == 2) cy_group_abort(group, "enough");
        status = cy_group_barrier(group);
        break;
    case 9: // a chain: 2 waits for 0, 0 waits for 1, 1 is the one to blame
        if (rank == 1) {
            play_dead(what);
            break;
        }
        status = cy_group_start_recv(
            group, NULL, &request, cy_view_of(data, CY_F32, 1, 4), rank == 2 ? 0 : 1, 1);
        if (status == CY_OK) status = cy_group_wait(group, NULL, &request);
        break;
    case 10: // many bytes, while the others have few
        status = cy_group_all_reduce(group, NULL,
            cy_view_of(rank == 1 ? large[1] : data, CY_F32, 1, rank == 1 ? 20000 : 12), CY_SUM);
        break;
    case 11: // few bytes from one that waits for nobody
        status = rank == 0
            ? cy_group_broadcast(group, NULL, cy_view_of(data, CY_F32, 1, 12), 0)
            : cy_group_all_reduce(group, NULL, cy_view_of(large[rank], CY_F32, 1, 20000), CY_SUM);
        break;
    default:
        break;
    }
    if (status == CY_ERR_TIMEOUT) {
        status = refuses_after(group, status, "from rank 1 (");
        atomic_fetch_add(&what->refused, status == CY_ERR_TIMEOUT ? 1 : 0);
    }
    if (status != CY_OK) atomic_store(&what->over, true);
    cy_group_close(group);
    return status;
}

// The world ends with `status`, which tells whether the time limit ended it, and a text with the
// words.
static void fails_with(const char *algorithm, int kind, cy_status status, const char *words)
{
    const bool by_time = status == CY_ERR_TIMEOUT;
    cy_world_options options = cy_world_defaults();
    options.ranks = 3;
    options.timeout_s = by_time ? LIMIT_S : 2 * PATIENCE_S;
    options.algorithm = algorithm;
    scenario what = {.kind = kind};
    CY_CHECK_FAILS(cy_world_run_threads(&options, misbehave, &what), status, words);
    if (by_time) assert_true(atomic_load(&what.refused) > 0);
}

static void fails(int kind, cy_status status, const char *words)
{
    fails_with("auto", kind, status, words);
}

static void failures_are_named(void **state)
{
    (void)state;
    fails(0, CY_ERR_PEER, "collective 1 of dp: rank 0 (");
    fails(0, CY_ERR_PEER, "calls all_reduce of 12 fp32, sum, but rank 1 (");
    fails(0, CY_ERR_PEER, "calls broadcast of 12 fp32 from 0");
    fails(1, CY_ERR_PEER, "calls all_reduce of 11 fp32, sum");
    fails(2, CY_ERR_PEER, "barrier 1 of dp waits for rank 1 (");
    fails(2, CY_ERR_PEER, "which has ended");
    fails(3, CY_ERR_NOT_FINITE, "rank 1 (");
    fails(3, CY_ERR_NOT_FINITE, "): the loss is not finite");
    fails(4, CY_ERR_TIMEOUT, "barrier 1 of dp: no heartbeat for 1.5 s from rank 1 (");
    assert_non_null(strstr(cy_error_text(), "last seen in all_reduce 0 of dp"));
    fails(6, CY_ERR_PEER, "sends 0 rows to rank 1, which expects 1");
    fails(7, CY_ERR_PEER, "sends 4 fp32, rank 1 expects 5 fp32");
    fails(8, CY_ERR_PEER, "dp was aborted by rank 2 (");
    fails(9, CY_ERR_TIMEOUT, "from rank 1 (");
    fails(10, CY_ERR_PEER, "calls all_reduce of 12 fp32, sum, but rank 1 (");
    fails(11, CY_ERR_PEER, "calls broadcast of 12 fp32 from 0, but rank ");
}

// The same of groups that follow plans.
static void plans_refuse_what_comes_after_a_failure(void **state)
{
    (void)state;
    fails_with("ring", 4, CY_ERR_TIMEOUT, "no heartbeat for 1.5 s from rank 1 (");
    fails_with("ring", 9, CY_ERR_TIMEOUT, "from rank 1 (");
}

static void a_long_computation_is_alive(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 3;
    options.timeout_s = 1.0;
    scenario what = {.kind = 5, .long_s = 2.2};
    CY_CHECK_OK(cy_world_run_threads(&options, misbehave, &what));
}

static void wrong_worlds_are_refused(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 0;
    CY_CHECK_FAILS(cy_world_run_threads(&options, misbehave, NULL), CY_ERR_REQUEST, "0 ranks");
}

// ---- rules

static cy_status peek(cy_world *world, void *context)
{
    (void)context;
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "tp"));
    float data[100];
    for (int i = 0; i < 100; i++)
        data[i] = 1.0f;
    cy_request request = {0};
    CY_TRY(
        cy_group_start_all_reduce(group, NULL, &request, cy_view_of(data, CY_F32, 1, 100), CY_SUM));
    const bool hidden = isnan(data[0]) && isnan(data[99]);
    CY_TRY(cy_group_wait(group, NULL, &request));
    SUITE_EXPECT(hidden, "a buffer in flight does not hold NaN");
    SUITE_EXPECT(data[0] == 2.0f && data[99] == 2.0f, "the result did not come back");
    const cy_traffic traffic = cy_group_counters(group);
    SUITE_EXPECT(
        traffic.bytes == 400.0 && traffic.messages == 1, "counted %g bytes", traffic.bytes);
    SUITE_EXPECT(traffic.seconds > 0.0 && traffic.exposed_s > 0.0, "counted %g s, %g s exposed",
        traffic.seconds, traffic.exposed_s);
    cy_group_close(group);
    return CY_OK;
}

static void checked_runs_hide_buffers_in_flight(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 2;
    options.check = true;
    CY_CHECK_OK(cy_world_run_threads(&options, peek, NULL));
}

// Nothing that this rank started has ended when it closes its group; the other's message comes
// after.
static cy_status leave(cy_world *world, void *context)
{
    atomic_bool *left = context;
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "tp"));
    const int rank = cy_world_rank(world);
    float data[2][1000] = {0};
    const cy_view all = cy_view_of(data, CY_F32, 2, 1000), own = cy_view_rows(all, rank, 1);
    cy_request gather = {0}, message = {0};
    if (rank == 0) {
        CY_TRY(cy_group_start_recv(group, NULL, &message, cy_view_rows(all, 0, 1), 1, 7));
    } else {
        while (!atomic_load(left))
            sched_yield();
        CY_TRY(cy_group_start_send(group, NULL, &message, own, 0, 7));
    }
    CY_TRY(cy_group_start_all_gather(group, NULL, &gather, all, own));
    cy_group_close(group);
    atomic_store(left, true);
    return CY_OK;
}

static void a_closed_group_forgets_what_it_had_begun(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 2;
    options.check = true;
    atomic_bool left = false;
    CY_CHECK_OK(cy_world_run_threads(&options, leave, &left));
}

static cy_status overflow(cy_world *world, void *context)
{
    (void)context;
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    cy_thread_pool *pool = NULL;
    CY_TRY(cy_thread_pool_open(&pool, 1, -1, false));
    _Atomic uint32_t overflow = 0;
    cy_queue queue = {.pool = pool, .fixed_overflow = &overflow};
    int64_t data[2] = {INT64_MAX / 2, -5};
    CY_TRY(cy_group_all_reduce(group, &queue, cy_view_of(data, CY_FX64, 1, 2), CY_SUM));
    SUITE_EXPECT(atomic_load(&overflow) == 0, "an overflow that was none");
    data[0] = INT64_MAX / 2 + 2;
    CY_TRY(cy_group_all_reduce(group, &queue, cy_view_of(data, CY_FX64, 1, 2), CY_SUM));
    SUITE_EXPECT(atomic_load(&overflow) == 1, "an overflow that nobody saw");
    cy_thread_pool_close(pool);
    cy_group_close(group);
    return CY_OK;
}

static void fixed_point_overflow_is_seen(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 2;
    CY_CHECK_OK(cy_world_run_threads(&options, overflow, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_primitive_equals_serial),
        cmocka_unit_test(failures_are_named),
        cmocka_unit_test(plans_refuse_what_comes_after_a_failure),
        cmocka_unit_test(a_long_computation_is_alive),
        cmocka_unit_test(wrong_worlds_are_refused),
        cmocka_unit_test(checked_runs_hide_buffers_in_flight),
        cmocka_unit_test(a_closed_group_forgets_what_it_had_begun),
        cmocka_unit_test(fixed_point_overflow_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
