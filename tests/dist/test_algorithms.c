// Collectives made of messages: the suite of the backends on every algorithm, bytes as they were
// really sent, the delay of links, and what happens when a rank stops.

#define _GNU_SOURCE
#include "dist/segments.h"

#include "base/clock.h"
#include "base/random.h"
#include "comm/algorithm.h"

#include <time.h>

static cy_status run_suite(cy_world *world, void *context)
{
    (void)context;
    return suite_world(world, 3011);
}

static void run(
    int ranks, const char *algorithm, const cy_world_delay *delay, cy_rank_function rank)
{
    cy_world_options options = cy_world_defaults();
    options.ranks = ranks;
    options.algorithm = algorithm;
    options.delay = delay;
    CY_CHECK_OK(cy_world_run_threads(&options, rank, NULL));
}

// On three ranks, and on four those that go another way there: test_algorithms_slow.c has all.
static void every_algorithm_equals_serial(void **state)
{
    (void)state;
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS; a++)
        run(3, cy_algorithm_name((cy_algorithm)a), NULL, run_suite);
    run(4, cy_algorithm_name(CY_ALGORITHM_DOUBLING), NULL, run_suite);
    run(4, cy_algorithm_name(CY_ALGORITHM_HIERARCHICAL), NULL, run_suite);
}

static cy_status count_bytes(cy_world *world, void *context)
{
    (void)context;
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    static float data[4][4000];
    float *mine = data[cy_world_rank(world)];
    for (int i = 0; i < 4000; i++)
        mine[i] = 1.0f;
    CY_TRY(cy_group_all_reduce(group, NULL, cy_view_of(mine, CY_F32, 1, 4000), CY_SUM));
    const cy_algorithm_counters sent = cy_algorithm_count(group);
    SUITE_EXPECT(mine[3999] == 4.0f, "the sum is %g", (double)mine[3999]);
    SUITE_EXPECT(sent.bytes == 2.0 * 3.0 / 4.0 * 16000.0, "sent %g bytes", sent.bytes);
    SUITE_EXPECT(sent.bytes == cy_group_counters(group).bytes, "counted otherwise");
    SUITE_EXPECT(sent.rounds == 6, "%lld rounds", (long long)sent.rounds);
    cy_group_close(group);
    return CY_OK;
}

static void a_ring_sends_what_the_formula_says(void **state)
{
    (void)state;
    run(4, "ring", NULL, count_bytes);
}

// All bytes go through rank 0: P - 1 tensors into it, and as many out of it.
static cy_status count_server(cy_world *world, void *context)
{
    double *sent = context; // [8]
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    const int rank = cy_world_rank(world), size = cy_world_size(world);
    float data[1000];
    for (int i = 0; i < 1000; i++)
        data[i] = (float)(rank + i);
    CY_TRY(cy_group_all_reduce(group, NULL, cy_view_of(data, CY_F32, 1, 1000), CY_SUM));
    const float wanted = (float)(size * (size - 1) / 2 + size * 999);
    SUITE_EXPECT(data[999] == wanted, "the sum is %g", (double)data[999]);
    const cy_algorithm_counters of = cy_algorithm_count(group);
    SUITE_EXPECT(of.rounds == (rank == 0 ? 2 * (size - 1) : 2), "%lld rounds of rank %d",
        (long long)of.rounds, rank);
    sent[rank] = of.bytes;
    cy_group_close(group);
    return CY_OK;
}

static void a_server_carries_everything(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks++) {
        double sent[8] = {0}, into = 0;
        cy_world_options options = cy_world_defaults();
        options.ranks = ranks;
        options.algorithm = "server";
        CY_CHECK_OK(cy_world_run_threads(&options, count_server, sent));
        for (int r = 1; r < ranks; r++)
            into += sent[r];
        assert_true(sent[0] + into == 2.0 * (ranks - 1) * 4000.0);
        assert_true(sent[0] == into);
    }
}

static cy_status run_segments(cy_world *world, void *context)
{
    (void)context;
    return segments_world(world, 4096);
}

// As between processes, whose backend cannot add what arrives; tests/dist/test_group_mpi.c has
// those.
static void pieces_go_in_segments(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks++) {
        cy_world_options options = cy_world_defaults();
        options.ranks = ranks;
        CY_CHECK_OK(cy_world_run_threads(&options, run_segments, NULL));
    }
}

// A message of n bytes takes latency + n / bandwidth, two at once on one link take turns, and
// meanwhile the rank is free: that is what the delay is for.
static cy_status delayed(cy_world *world, void *context)
{
    (void)context;
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "pp"));
    static char data[2][2][20000];
    const int rank = cy_world_rank(world);
    cy_request requests[2] = {0};
    CY_TRY(cy_group_barrier(group));
    const double start = cy_clock_s();
    for (int i = 0; i < 2; i++) {
        const cy_view view = cy_view_of(data[rank][i], CY_U8, 1, 20000);
        memset(data[rank][i], 10 * rank + i, 20000);
        if (rank == 0) CY_TRY(cy_group_start_send(group, NULL, &requests[i], view, 1, i));
        if (rank == 1) CY_TRY(cy_group_start_recv(group, NULL, &requests[i], view, 0, i));
    }
    CY_TRY(cy_group_wait(group, NULL, &requests[0]));
    const double first = cy_clock_s() - start;
    CY_TRY(cy_group_wait(group, NULL, &requests[1]));
    const double second = cy_clock_s() - start;
    // 5 ms and 20000 bytes at 1 MB/s: 25 ms, and 45 ms for the one behind it. Only the sender's
    // clock started with the first message; on a busy machine all of it may take longer.
    if (rank == 0) {
        SUITE_EXPECT(first >= 0.025 && second >= 0.045, "took %g s and %g s", first, second);
    }
    if (rank == 1) SUITE_EXPECT(data[1][0][19999] == 0 && data[1][1][0] == 1, "wrong bytes");
    cy_group_close(group);
    return CY_OK;
}

// An all_reduce over slow links goes on while this rank computes: after a nap it is over at the
// first look, which a transfer that only goes on inside calls would not be, for it has two rounds.
// Naps grow, for on a busy machine all of it may take longer.
static cy_status overlapped(cy_world *world, void *context)
{
    (void)context;
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "dp"));
    static float data[2][1000];
    const cy_view view = cy_view_of(data[cy_world_rank(world)], CY_F32, 1, 1000);
    bool done = false;
    for (int attempt = 0; attempt < 7; attempt++) { // both ranks make as many
        cy_request request = {0};
        bool over = false;
        CY_TRY(cy_group_start_all_reduce(group, NULL, &request, view, CY_SUM));
        // Two rounds of 5 ms + 2 ms each. Asleep, as if computing on another device.
        const int64_t nap_ns = INT64_C(40000000) << attempt;
        const struct timespec work = {
            .tv_sec = (time_t)(nap_ns / 1000000000), .tv_nsec = (long)(nap_ns % 1000000000)};
        nanosleep(&work, NULL);
        CY_TRY(cy_group_test(group, &request, &over));
        CY_TRY(cy_group_wait(group, NULL, &request));
        done = done || over;
        float both = over ? 1.0f : 0.0f;
        CY_TRY(cy_group_all_reduce(group, NULL, cy_view_of(&both, CY_F32, 1, 1), CY_MIN));
        if (both > 0.0f) break;
    }
    SUITE_EXPECT(done, "a transfer does not go on while its rank sleeps");
    cy_group_close(group);
    return CY_OK;
}

static void links_are_slow_and_leave_the_rank_free(void **state)
{
    (void)state;
    const cy_world_delay delay = {.inside = {0.005, 1e6}, .between = {0.005, 1e6}, .node_ranks = 2};
    run(2, "ring", &delay, delayed);
    run(2, "ring", &delay, overlapped);
    const cy_world_delay fast = {.inside = {0}, .between = {0.00002, 1e9}, .node_ranks = 2};
    run(4, "hierarchical", &fast, run_suite);
}

// The rounds of an all_reduce in a group tell which algorithm was taken.
static cy_status expect_rounds(cy_world *world, const int *ranks, int count, int64_t rounds)
{
    bool member = false;
    for (int i = 0; i < count; i++)
        member = member || ranks[i] == cy_world_rank(world);
    if (!member) return CY_OK;
    cy_group *group = NULL;
    float data[600] = {0};
    CY_TRY(cy_world_open_group(world, &group, ranks, count, "dp"));
    CY_TRY(cy_group_all_reduce(group, NULL, cy_view_of(data, CY_F32, 1, 600), CY_SUM));
    const cy_algorithm_counters sent = cy_algorithm_count(group);
    SUITE_EXPECT(sent.rounds == rounds, "%lld rounds among %d ranks from %d on, not %lld",
        (long long)sent.rounds, count, ranks[0], (long long)rounds);
    cy_group_close(group);
    return CY_OK;
}

static cy_status choose(cy_world *world, void *context)
{
    (void)context;
    CY_TRY(expect_rounds(world, (const int[]){0, 1}, 2, 1));    // one node: all at once
    CY_TRY(expect_rounds(world, (const int[]){2, 3}, 2, 1));    // another
    CY_TRY(expect_rounds(world, (const int[]){1, 2}, 2, 2));    // across: a ring
    CY_TRY(expect_rounds(world, (const int[]){0, 2, 4}, 3, 4)); // a rank of each node
    return expect_rounds(world, (const int[]){0, 1, 2}, 3, 4);  // nodes that are not alike
}

// Where messages within a node only wait, few rounds are best; between nodes bytes are what counts.
static void the_links_of_a_group_choose(void **state)
{
    (void)state;
    const cy_world_delay delay = {
        .inside = {.latency_s = 1e-4}, .between = {.bytes_per_s = 2e6}, .node_ranks = 2};
    run(6, "auto", &delay, choose);
}

static cy_status stop(cy_world *world, void *context)
{
    (void)context;
    cy_group *group = NULL;
    CY_TRY(cy_test_open_all(world, &group, "tp"));
    float data[30] = {0};
    const cy_view view = cy_view_of(data, CY_F32, 1, 30);
    cy_status status = cy_group_all_reduce(group, NULL, view, CY_SUM);
    const struct timespec nap = {.tv_sec = 3};
    if (cy_world_rank(world) == 1) nanosleep(&nap, NULL);
    if (status == CY_OK) status = cy_group_all_reduce(group, NULL, view, CY_SUM);
    cy_group_close(group);
    return status;
}

static void a_rank_that_stops_is_named(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 3;
    options.timeout_s = 1;
    options.algorithm = "ring";
    CY_CHECK_FAILS(
        cy_world_run_threads(&options, stop, NULL), CY_ERR_TIMEOUT, "no heartbeat for 1 s");
    CY_CHECK_FAILS(cy_world_run_threads(&options, stop, NULL), CY_ERR_TIMEOUT, "from rank 1 (");
}

// Sums whose bits depend on their order: every algorithm that may be chosen by a clock comes to the
// bits of the backend's own, whatever the number of ranks and the size.
static cy_status compare_orders(cy_world *world, void *context)
{
    (void)context;
    static const int64_t counts[] = {1, 7, 700, 20011};
    static const cy_dtype dtypes[] = {CY_F32, CY_F64, CY_BF16, CY_F16};
    cy_group *inside = NULL;
    CY_TRY(cy_test_open_all(world, &inside, "dp"));
    const int size = cy_group_size(inside);
    cy_group *made = NULL;
    cy_status status = CY_OK;
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS && status == CY_OK; a++) {
        if (!cy_algorithm_keeps_order((cy_algorithm)a, size)) continue;
        const cy_algorithm_options options = {
            .table = cy_algorithm_always((cy_algorithm)a), .keep_inside = true};
        CY_TRY(cy_algorithm_open(&made, inside, &options));
        for (int c = 0; c < 16 && status == CY_OK; c++) {
            double ours[20011];
            double theirs[20011];
            const cy_dtype dtype = dtypes[c / 4];
            const int64_t count = counts[c % 4];
            for (int64_t i = 0; i < count; i++) {
                const double x = cy_random_uniform(7, (uint64_t)(i * size + cy_world_rank(world)));
                suite_set(ours, dtype, i, x);
                suite_set(theirs, dtype, i, x);
            }
            const cy_reduce_op op = c % 3 == 0 ? CY_AVG : c % 3 == 1 ? CY_SUM : CY_PROD;
            CY_TRY(cy_group_all_reduce(inside, NULL, cy_view_of(ours, dtype, 1, count), op));
            CY_TRY(cy_group_all_reduce(made, NULL, cy_view_of(theirs, dtype, 1, count), op));
            if (memcmp(ours, theirs, (size_t)count * cy_dtype_size(dtype)) == 0) continue;
            status = CY_FAIL(CY_ERR_CORRUPT, "%s of %lld %s among %d ranks has other bits",
                cy_algorithm_name((cy_algorithm)a), (long long)count, cy_dtype_name(dtype), size);
        }
        cy_group_close(made);
    }
    cy_group_close(inside);
    return status;
}

static void what_a_clock_may_choose_has_the_same_bits(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 9; ranks++)
        run(ranks, "native", NULL, compare_orders);
}

static cy_status tune(cy_world *world, void *context)
{
    (void)context;
    cy_group *inside = NULL;
    CY_TRY(cy_test_open_all(world, &inside, "dp"));
    cy_algorithm_times times;
    void *data = NULL;
    CY_TRY(cy_memory_map(&data, 1 << 16));
    CY_TRY(cy_algorithm_measure(&times, inside, NULL, data, 1 << 16, 1e9));
    for (int s = 0; s < CY_ALGORITHM_SIZES; s++) {
        for (int a = 0; a < CY_ALGORITHMS; a++) {
            const bool measured = times.seconds[s][a] > 0.0;
            const bool wanted = cy_algorithm_size(s) <= 1 << 16 &&
                cy_algorithm_keeps_order((cy_algorithm)a, cy_group_size(inside)) &&
                a != CY_ALGORITHM_SERVER && a != CY_ALGORITHM_HIERARCHICAL;
            SUITE_EXPECT(measured == wanted, "%s of %lld bytes: %g s",
                cy_algorithm_name((cy_algorithm)a), (long long)cy_algorithm_size(s),
                times.seconds[s][a]);
        }
    }
    SUITE_EXPECT(cy_group_counters(inside).messages == 0, "what is measured is counted");
    cy_algorithm_times first = times;
    cy_view seconds = cy_view_of(first.seconds, CY_F64, CY_ALGORITHM_SIZES, CY_ALGORITHMS);
    CY_TRY(cy_group_broadcast(inside, NULL, seconds, 0));
    SUITE_EXPECT(memcmp(&first, &times, sizeof(times)) == 0, "ranks got different times");
    // Without time only the smallest size is measured.
    CY_TRY(cy_algorithm_measure(&times, inside, NULL, data, 1 << 16, 0.0));
    SUITE_EXPECT(times.seconds[0][0] > 0.0 && times.seconds[1][0] == 0.0, "it went on");
    cy_memory_unmap(data, 1 << 16);
    cy_group_close(inside);
    return CY_OK;
}

static void what_keeps_the_order_is_measured(void **state)
{
    (void)state;
    run(2, "native", NULL, tune);
    run(3, "native", NULL, tune);
    run(4, "native", NULL, tune);
}

static void unknown_names_are_refused(void **state)
{
    (void)state;
    cy_algorithm algorithm;
    CY_CHECK_FAILS(cy_algorithm_from_name(&algorithm, "rings"), CY_ERR_REQUEST, "\"rings\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_equals_serial),
        cmocka_unit_test(a_ring_sends_what_the_formula_says),
        cmocka_unit_test(a_server_carries_everything),
        cmocka_unit_test(pieces_go_in_segments),
        cmocka_unit_test(links_are_slow_and_leave_the_rank_free),
        cmocka_unit_test(the_links_of_a_group_choose),
        cmocka_unit_test(a_rank_that_stops_is_named),
        cmocka_unit_test(what_a_clock_may_choose_has_the_same_bits),
        cmocka_unit_test(what_keeps_the_order_is_measured),
        cmocka_unit_test(unknown_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
