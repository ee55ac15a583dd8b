// Plans of collectives, played without ranks: results, bytes and rounds against the formulas.

#include "support/support.h"

#include "comm/algorithms/schedule.h"

#include <stdlib.h>
#include <string.h>

#define RANKS 16
#define COUNT 37

typedef cy_status (*planner)(cy_coll_schedule *plan, cy_coll_rank place, int64_t count);

static int64_t data[RANKS][RANKS * COUNT];

typedef struct tally {
    int64_t sent[RANKS]; // elements
    int rounds[RANKS];   // in which something moved
} tally;

// Runs all ranks' plans to the end; messages between a pair arrive in order. Returns false when no
// rank can go on.
static bool play(cy_coll_schedule *plans, int size, tally *counts)
{
    static int64_t wires[RANKS][RANKS][RANKS * COUNT]; // at most one message from one to another
    static int64_t waiting[RANKS][RANKS];              // its length + 1
    memset(waiting, 0, sizeof(waiting));
    *counts = (tally){0};
    int at[RANKS] = {0};
    bool sent[RANKS] = {false};
    bool received[RANKS] = {false};
    int running = size;
    while (running > 0) {
        bool moved = false;
        running = 0;
        for (int r = 0; r < size; r++) {
            if (at[r] == plans[r].count) continue;
            running++;
            const cy_round *round = &plans[r].rounds[at[r]];
            if (!sent[r] && (round->to < 0 || waiting[r][round->to] == 0)) {
                sent[r] = true;
                moved = true;
                if (round->to >= 0) {
                    memcpy(wires[r][round->to], data[r] + round->send_first,
                        (size_t)round->send_count * sizeof(int64_t));
                    waiting[r][round->to] = round->send_count + 1;
                    counts->sent[r] += round->send_count;
                }
            }
            if (sent[r] && !received[r] && (round->from < 0 || waiting[round->from][r] != 0)) {
                received[r] = true;
                moved = true;
                if (round->from >= 0) {
                    assert_int_equal(waiting[round->from][r], round->recv_count + 1);
                    for (int64_t i = 0; i < round->recv_count; i++) {
                        int64_t *there = &data[r][round->recv_first + i];
                        const int64_t piece = wires[round->from][r][i];
                        *there = round->recv_action == CY_RECV_STORE ? piece : *there + piece;
                    }
                    waiting[round->from][r] = 0;
                }
            }
            if (sent[r] && received[r]) {
                counts->rounds[r] += round->to >= 0 || round->from >= 0;
                at[r]++;
                sent[r] = received[r] = false;
            }
        }
        if (!moved && running > 0) return false;
    }
    return true;
}

// Every element ends as the sum over ranks.
static void adds_up(int size, int64_t count, planner make, tally *counts)
{
    cy_coll_schedule plans[RANKS] = {0};
    for (int r = 0; r < size; r++) {
        for (int64_t i = 0; i < count; i++)
            data[r][i] = (r + 1) * (i * 31 + 7) % 1009;
        CY_CHECK_OK(make(&plans[r], (cy_coll_rank){r, size}, count));
    }
    assert_true(play(plans, size, counts));
    for (int64_t i = 0; i < count; i++) {
        int64_t wanted = 0;
        for (int r = 0; r < size; r++)
            wanted += (r + 1) * (i * 31 + 7) % 1009;
        for (int r = 0; r < size; r++)
            assert_int_equal(data[r][i], wanted);
    }
    for (int r = 0; r < size; r++)
        cy_coll_schedule_free(&plans[r]);
}

static int ceil_log2(int size)
{
    int log = 0;
    while (1 << log < size)
        log++;
    return log;
}

static int64_t total(const tally *counts, int size)
{
    int64_t sum = 0;
    for (int r = 0; r < size; r++)
        sum += counts->sent[r];
    return sum;
}

static void ring_costs_what_it_should(void **state)
{
    (void)state;
    tally counts;
    for (int size = 2; size <= RANKS; size++) {
        for (int64_t count = 0; count <= COUNT; count++) { // also counts that size does not divide
            adds_up(size, count, cy_coll_schedule_ring, &counts);
            assert_int_equal(total(&counts, size), count * 2 * (size - 1));
            for (int r = 0; r < size; r++)
                assert_int_equal(counts.rounds[r], 2 * (size - 1));
        }
        adds_up(size, INT64_C(2) * size, cy_coll_schedule_ring, &counts);
        for (int r = 0; r < size; r++)
            assert_int_equal(counts.sent[r], 2 * (size - 1) * 2);
    }
}

static void trees_cost_what_they_should(void **state)
{
    (void)state;
    tally counts;
    for (int size = 2; size <= RANKS; size++) {
        const bool power = (size & (size - 1)) == 0;
        for (int64_t count = 0; count <= COUNT; count++) {
            adds_up(size, count, cy_coll_schedule_tree, &counts);
            for (int r = 0; r < size; r++)
                assert_true(counts.rounds[r] <= 2 * ceil_log2(size));
            assert_int_equal(counts.rounds[0], 2 * ceil_log2(size)); // of the busiest
            if (power) assert_int_equal(total(&counts, size), count * 2 * (size - 1));
            adds_up(size, count, cy_coll_schedule_doubling, &counts);
            const int limit = power ? ceil_log2(size) : ceil_log2(size) - 1 + 2;
            for (int r = 0; r < size; r++)
                assert_true(counts.rounds[r] <= limit);
            if (power) assert_int_equal(counts.sent[0], count * ceil_log2(size));
        }
    }
}

static void server_is_the_bottleneck(void **state)
{
    (void)state;
    tally counts;
    for (int size = 2; size <= RANKS; size++) {
        adds_up(size, COUNT, cy_coll_schedule_server, &counts);
        assert_int_equal(counts.sent[0], (size - 1) * COUNT); // and as many arrive there
        for (int r = 1; r < size; r++)
            assert_int_equal(counts.sent[r], COUNT);
        assert_int_equal(counts.rounds[0], 2 * (size - 1));
    }
}

// The node of each rank: alike and in line, dealt in turn, and of sizes that differ.
static const int *nodes; // of the case

static cy_status on_nodes(cy_coll_schedule *plan, cy_coll_rank place, int64_t count)
{
    return cy_coll_schedule_hierarchical(plan, place, count, nodes);
}

// Between K nodes, 2 (K - 1) / K n elements leave each node.
static void expect_little_between(int size, int node_count, const int *of)
{
    const int64_t count = 720720; // which every number up to 16 divides
    tally counts;
    nodes = of;
    int64_t between[RANKS] = {0};
    for (int r = 0; r < size; r++) {
        cy_coll_schedule plan = {0};
        CY_CHECK_OK(cy_coll_schedule_hierarchical(&plan, (cy_coll_rank){r, size}, count, of));
        for (int i = 0; i < plan.count; i++) {
            const cy_round *round = &plan.rounds[i];
            if (round->to >= 0 && of[round->to] != of[r]) between[of[r]] += round->send_count;
        }
        cy_coll_schedule_free(&plan);
    }
    for (int k = 0; k < node_count; k++)
        assert_int_equal(between[k] * node_count, count * 2 * (node_count - 1));
    for (int64_t some = 0; some <= COUNT; some++) // also counts that nothing divides
        adds_up(size, some, on_nodes, &counts);
}

static void hierarchy_spares_the_links_between_nodes(void **state)
{
    (void)state;
    int in_line[RANKS];
    int in_turn[RANKS];
    for (int size = 1; size <= RANKS; size++) {
        for (int node = 1; node <= size; node++) { // the last one may be smaller
            const int node_count = (size + node - 1) / node;
            for (int r = 0; r < size; r++) {
                in_line[r] = r / node;
                in_turn[r] = r % node_count;
            }
            expect_little_between(size, node_count, in_line);
            expect_little_between(size, node_count, in_turn);
        }
    }
    expect_little_between(8, 3, (const int[]){0, 1, 1, 1, 1, 2, 2, 0});
    expect_little_between(7, 2, (const int[]){0, 1, 1, 1, 1, 1, 1});
    expect_little_between(7, 2, (const int[]){0, 0, 1, 0, 0, 1, 0});
}

static void halves_of_a_ring_end_where_they_should(void **state)
{
    (void)state;
    for (int size = 2; size <= RANKS; size++) {
        cy_coll_schedule plans[RANKS] = {0};
        tally counts;
        for (int r = 0; r < size; r++) {
            for (int64_t i = 0; i < INT64_C(3) * size; i++)
                data[r][i] = INT64_C(100) * r + i;
            CY_CHECK_OK(
                cy_coll_schedule_ring_reduce_scatter(&plans[r], (cy_coll_rank){r, size}, 3));
        }
        assert_true(play(plans, size, &counts));
        for (int r = 0; r < size; r++) {
            assert_int_equal(counts.sent[r], 3 * (size - 1));
            for (int64_t i = INT64_C(3) * r; i < INT64_C(3) * r + 3; i++) {
                assert_int_equal(data[r][i], size * i + 100 * size * (size - 1) / 2);
            }
            plans[r].count = 0;
            for (int64_t i = 0; i < INT64_C(3) * size; i++)
                data[r][i] = i / 3 == r ? 1000 + i : -1;
            CY_CHECK_OK(cy_coll_schedule_ring_all_gather(&plans[r], (cy_coll_rank){r, size}, 3));
        }
        assert_true(play(plans, size, &counts));
        for (int r = 0; r < size; r++) {
            for (int64_t i = 0; i < INT64_C(3) * size; i++)
                assert_int_equal(data[r][i], 1000 + i);
            cy_coll_schedule_free(&plans[r]);
        }
    }
}

static void broadcast_reaches_all(void **state)
{
    (void)state;
    for (int size = 2; size <= RANKS; size++) {
        for (int root = 0; root < size; root++) {
            cy_coll_schedule plans[RANKS] = {0};
            tally counts;
            for (int r = 0; r < size; r++) {
                data[r][0] = r == root ? 42 : 0;
                CY_CHECK_OK(
                    cy_coll_schedule_broadcast(&plans[r], (cy_coll_rank){r, size}, 1, root));
                assert_int_equal(plans[r].count, ceil_log2(size));
            }
            assert_true(play(plans, size, &counts));
            assert_int_equal(total(&counts, size), size - 1);
            for (int r = 0; r < size; r++) {
                assert_int_equal(data[r][0], 42);
                cy_coll_schedule_free(&plans[r]);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_costs_what_it_should),
        cmocka_unit_test(trees_cost_what_they_should),
        cmocka_unit_test(server_is_the_bottleneck),
        cmocka_unit_test(hierarchy_spares_the_links_between_nodes),
        cmocka_unit_test(halves_of_a_ring_end_where_they_should),
        cmocka_unit_test(broadcast_reaches_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
