// What an all_reduce takes by each algorithm's formula, worked out by hand, and the choice that
// follows.

#include "support/support.h"

#include "comm/algorithm.h"

#include <math.h>

#define MOST INT64_MAX

static void expect_ms(cy_algorithm algorithm, const cy_topology *links, double bytes, double wanted)
{
    const double took = cy_algorithm_seconds(algorithm, links, bytes) * 1e3;
    if (fabs(took - wanted) < 1e-9) return;
    fail_msg("%s, %d ranks, nodes of %d: %.9g ms, not %.9g", cy_algorithm_name(algorithm),
        links->ranks, links->node_ranks, took, wanted);
}

// A message takes 1 ms and a microsecond a byte; within a node a tenth of both.
static cy_topology links_of(int ranks, int node_ranks)
{
    return (cy_topology){.ranks = ranks,
        .node_ranks = node_ranks,
        .inside = {.latency_s = node_ranks == ranks ? 1e-3 : 1e-4,
            .bytes_per_s = node_ranks == ranks ? 1e6 : 1e7},
        .between = {.latency_s = 1e-3, .bytes_per_s = 1e6}};
}

static void seconds_of_equal_links(void **state)
{
    (void)state;
    const cy_topology eight = links_of(8, 8);
    expect_ms(CY_ALGORITHM_NATIVE, &eight, 8000, 2 * 7 * (1 + 1));
    expect_ms(CY_ALGORITHM_RING, &eight, 8000, 2 * 7 * (1 + 1));
    expect_ms(CY_ALGORITHM_TREE, &eight, 8000, 2 * (5 + 3 + 2)); // halves, quarters, eighths
    expect_ms(CY_ALGORITHM_DOUBLING, &eight, 8000, 3 * (1 + 8));
    expect_ms(CY_ALGORITHM_HIERARCHICAL, &eight, 8000, 2 * 7 * (1 + 1));
    expect_ms(CY_ALGORITHM_SERVER, &eight, 8000, 2 * (1 + 8));
    const cy_topology six = links_of(6, 6); // no power of two: one more round
    expect_ms(CY_ALGORITHM_RING, &six, 6000, 2 * 5 * (1 + 1));
    expect_ms(
        CY_ALGORITHM_TREE, &six, 6000, 2 * (1 + 6) + 2 * (4 + 2.5)); // two lean on two of four
    expect_ms(CY_ALGORITHM_DOUBLING, &six, 6000, (2 + 2) * (1 + 6));
    const cy_topology two = links_of(2, 2);
    expect_ms(CY_ALGORITHM_RING, &two, 1000, 2 * 1.5);
    expect_ms(CY_ALGORITHM_TREE, &two, 1000, 2 * 1.5);
    expect_ms(CY_ALGORITHM_DOUBLING, &two, 1000, 2);
}

static void seconds_of_nodes(void **state)
{
    (void)state;
    const cy_topology nodes = links_of(8, 4);
    expect_ms(CY_ALGORITHM_RING, &nodes, 8000, 2 * 7 * (1 + 1));
    expect_ms(CY_ALGORITHM_TREE, &nodes, 8000, 2 * (0.5 + 0.3 + 2)); // the farthest are apart
    expect_ms(CY_ALGORITHM_DOUBLING, &nodes, 8000, 0.9 + 0.9 + 9);
    expect_ms(CY_ALGORITHM_HIERARCHICAL, &nodes, 8000, 2 * 3 * 0.3 + 2 * 2);
    expect_ms(CY_ALGORITHM_SERVER, &nodes, 8000, 2 * 9);
    const cy_topology apart = links_of(8, 1);
    expect_ms(CY_ALGORITHM_TREE, &apart, 8000, 2 * (5 + 3 + 2));
    expect_ms(CY_ALGORITHM_DOUBLING, &apart, 8000, 3 * 9);
    const cy_topology pairs = links_of(6, 2);
    expect_ms(CY_ALGORITHM_HIERARCHICAL, &pairs, 6000, 2 * 0.4 + 2 * 2 * 2);
    cy_topology unlimited = links_of(4, 4);
    unlimited.inside.bytes_per_s = 0;
    expect_ms(CY_ALGORITHM_RING, &unlimited, 1e9, 2 * 3);
}

// At sizes in the middle of what a row was made of.
static void expect_fastest(const cy_topology *links)
{
    const cy_algorithm_table table = cy_algorithm_for(links);
    assert_true(table.count >= 1 && table.count <= CY_ALGORITHM_ROWS);
    assert_true(table.rows[table.count - 1].bytes == MOST);
    for (int i = 1; i < table.count; i++) {
        assert_true(table.rows[i].bytes > table.rows[i - 1].bytes);
        assert_true(table.rows[i].algorithm != table.rows[i - 1].algorithm);
    }
    for (size_t bytes = 8; bytes < (size_t)1 << 36; bytes *= 2) {
        const cy_algorithm chosen = cy_algorithm_choose(&table, bytes);
        const double least = cy_algorithm_seconds(chosen, links, (double)bytes);
        const bool nodes = links->node_ranks > 1 && links->node_ranks < links->ranks;
        assert_true(chosen != CY_ALGORITHM_SERVER && chosen != CY_ALGORITHM_NATIVE);
        assert_true(chosen != CY_ALGORITHM_HIERARCHICAL || nodes);
        for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHM_SERVER; a++) {
            if (a == CY_ALGORITHM_HIERARCHICAL && !nodes) continue;
            assert_true(least <= cy_algorithm_seconds((cy_algorithm)a, links, (double)bytes));
        }
    }
}

static void the_fastest_is_chosen(void **state)
{
    (void)state;
    static const int meshes[][2] = {{2, 2}, {3, 3}, {8, 8}, {8, 4}, {8, 1}, {6, 2}, {64, 8}};
    for (size_t i = 0; i < sizeof(meshes) / sizeof(*meshes); i++) {
        const cy_topology links = links_of(meshes[i][0], meshes[i][1]);
        expect_fastest(&links);
    }
    // Few bytes want few rounds, many bytes small parts.
    const cy_topology eight = links_of(8, 8), nodes = links_of(64, 8), six = links_of(48, 8);
    const cy_algorithm_table table = cy_algorithm_for(&eight), far = cy_algorithm_for(&nodes),
                             uneven = cy_algorithm_for(&six);
    assert_int_equal(cy_algorithm_choose(&table, 8), CY_ALGORITHM_DOUBLING);
    assert_int_equal(cy_algorithm_choose(&table, (size_t)1 << 30), CY_ALGORITHM_TREE);
    // Halving sends as little between nodes as two levels do, where all is a power of two.
    assert_int_equal(cy_algorithm_choose(&far, (size_t)1 << 30), CY_ALGORITHM_TREE);
    assert_int_equal(cy_algorithm_choose(&uneven, (size_t)1 << 30), CY_ALGORITHM_HIERARCHICAL);
}

static void rows_of_a_table_are_upper_bounds(void **state)
{
    (void)state;
    const cy_algorithm_table table = {.count = 3,
        .rows = {{100, CY_ALGORITHM_DOUBLING}, {200, CY_ALGORITHM_TREE}, {300, CY_ALGORITHM_RING}}};
    static const struct {
        size_t bytes;
        cy_algorithm wanted;
    } cases[] = {{0, CY_ALGORITHM_DOUBLING}, {100, CY_ALGORITHM_DOUBLING}, {101, CY_ALGORITHM_TREE},
        {200, CY_ALGORITHM_TREE}, {201, CY_ALGORITHM_RING}, {300, CY_ALGORITHM_RING},
        {301, CY_ALGORITHM_RING}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(cy_algorithm_choose(&table, cases[i].bytes), cases[i].wanted);
    const cy_algorithm_table always = cy_algorithm_always(CY_ALGORITHM_TREE);
    assert_int_equal(cy_algorithm_choose(&always, 8), CY_ALGORITHM_TREE);
    assert_int_equal(cy_algorithm_choose(&always, SIZE_MAX / 2), CY_ALGORITHM_TREE);
}

// Native takes as many microseconds as the index of the size, tree `tree` times as many.
static cy_algorithm_times times_of(double tree, int sizes)
{
    cy_algorithm_times times = {0};
    for (int s = 0; s < sizes; s++) {
        times.seconds[s][CY_ALGORITHM_NATIVE] = 1e-6 * (s + 1);
        times.seconds[s][CY_ALGORITHM_TREE] = 1e-6 * (s + 1) * tree;
        times.seconds[s][CY_ALGORITHM_DOUBLING] = s < 2 ? 0.5e-6 * (s + 1) : 1.0;
    }
    return times;
}

static void expect_text(const cy_algorithm_times *times, const char *wanted)
{
    cy_text text = {0};
    const cy_algorithm_table table = cy_algorithm_from_times(times);
    CY_CHECK_OK(cy_algorithm_table_write(&text, &table));
    assert_string_equal(text.bytes, wanted);
    cy_algorithm_table read;
    CY_CHECK_OK(cy_algorithm_table_read(&read, text.bytes, text.length));
    assert_int_equal(read.count, table.count);
    for (int i = 0; i < read.count; i++) {
        assert_int_equal(read.rows[i].algorithm, table.rows[i].algorithm);
        assert_true(read.rows[i].bytes == table.rows[i].bytes);
    }
    cy_text_free(&text);
}

static void the_fastest_that_was_measured_is_chosen(void **state)
{
    (void)state;
    const cy_algorithm_times none = {0}, slower = times_of(2.0, 8), little = times_of(0.96, 8),
                             faster = times_of(0.9, 8), few = times_of(2.0, 2);
    expect_text(&none, "native");
    expect_text(&slower, "doubling<=192,native"); // 8 and 64 bytes were measured, 512 next
    expect_text(&little, "doubling<=192,native"); // by chance
    expect_text(&faster, "doubling<=192,tree");
    expect_text(&few, "doubling"); // no time was left for larger ones
}

static void tables_of_dimensions_are_read(void **state)
{
    (void)state;
    cy_algorithm_table table;
    bool tables = false;
    const char *text = "tp:tree<=1536,native;dp:doubling";
    CY_CHECK_OK(cy_algorithm_find(&table, &tables, text, "tp"));
    assert_true(tables && table.count == 2 && table.rows[0].bytes == 1536);
    assert_int_equal(table.rows[0].algorithm, CY_ALGORITHM_TREE);
    assert_false(cy_algorithm_is_native(&table));
    CY_CHECK_OK(cy_algorithm_find(&table, &tables, text, "dp"));
    assert_int_equal(cy_algorithm_choose(&table, 8), CY_ALGORITHM_DOUBLING);
    CY_CHECK_OK(cy_algorithm_find(&table, &tables, text, "pp"));
    assert_true(cy_algorithm_is_native(&table));
    CY_CHECK_OK(cy_algorithm_find(&table, &tables, "ring", "pp"));
    assert_false(tables);
    static const char *const faults[] = {"tp:", "tp:tree<=8", "tp:tree<=8,",
        "tp:tree<=9,ring<=9,tree", "tp:tree,ring", "tp:forest", "tp:tree;ring", "tp:tree<=x,ring",
        "tp:tree<8,ring", "rings"};
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        if (cy_algorithm_find(&table, &tables, faults[i], "tp") == CY_OK) fail_msg("%s", faults[i]);
    }
}

static void names_are_read_back(void **state)
{
    (void)state;
    for (int a = 0; a < CY_ALGORITHMS; a++) {
        cy_algorithm read = CY_ALGORITHM_NATIVE;
        CY_CHECK_OK(cy_algorithm_from_name(&read, cy_algorithm_name((cy_algorithm)a)));
        assert_int_equal(read, a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seconds_of_equal_links),
        cmocka_unit_test(seconds_of_nodes),
        cmocka_unit_test(the_fastest_is_chosen),
        cmocka_unit_test(rows_of_a_table_are_upper_bounds),
        cmocka_unit_test(the_fastest_that_was_measured_is_chosen),
        cmocka_unit_test(tables_of_dimensions_are_read),
        cmocka_unit_test(names_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
