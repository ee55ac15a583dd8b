// Which positions context-parallel ranks hold, what their queries meet, and how even that is.

#include "support/support.h"

#include "parallel/context/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static cy_context_layout layout_of(int ranks, bool zigzag, int64_t length, int64_t window)
{
    return (cy_context_layout){
        .ranks = ranks, .zigzag = zigzag, .length = length, .sequences = 2, .window = window};
}

static void positions_are_those_drawn(void **state)
{
    (void)state;
    static const int32_t zigzag[2][8] = {{0, 1, 6, 7, 0, 1, 6, 7}, {2, 3, 4, 5, 2, 3, 4, 5}};
    static const int32_t contiguous[2][8] = {{0, 1, 2, 3, 0, 1, 2, 3}, {4, 5, 6, 7, 4, 5, 6, 7}};
    for (int rank = 0; rank < 2; rank++) {
        int32_t positions[8];
        cy_context_layout layout = layout_of(2, true, 8, 0);
        assert_int_equal(cy_context_tokens_local(&layout), 8);
        cy_context_positions(&layout, rank, positions);
        assert_memory_equal(positions, zigzag[rank], sizeof(positions));
        layout.zigzag = false;
        cy_context_positions(&layout, rank, positions);
        assert_memory_equal(positions, contiguous[rank], sizeof(positions));
    }
}

// Every position is held once, by ranks whose positions ascend.
static void positions_are_cut_without_loss(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks++) {
        for (int zigzag = 0; zigzag < 2; zigzag++) {
            const cy_context_layout layout = layout_of(ranks, zigzag == 1, 48L * ranks, 0);
            const int64_t tokens = cy_context_tokens_local(&layout);
            int32_t *positions = malloc((size_t)tokens * sizeof(int32_t));
            int *seen = calloc((size_t)layout.length, sizeof(int));
            for (int rank = 0; rank < ranks; rank++) {
                cy_context_positions(&layout, rank, positions);
                for (int64_t i = 0; i < tokens; i++) {
                    seen[positions[i]]++;
                    if (i % (tokens / 2) > 0) assert_true(positions[i] > positions[i - 1]);
                }
            }
            for (int64_t i = 0; i < layout.length; i++)
                assert_int_equal(seen[i], layout.sequences);
            free(positions);
            free(seen);
        }
    }
}

static bool in(int64_t first, int64_t count, int64_t at)
{
    return at >= first && at < first + count;
}

// Every pair of a query and a key that see each other is in a span, and the pairs are as counted.
static void check_spans(const cy_context_layout *layout, int q_rank, int k_rank)
{
    cy_attention_span spans[2];
    int32_t q[128], k[128];
    const int count = cy_context_spans(layout, q_rank, k_rank, spans);
    const int64_t length = cy_context_length_local(layout);
    cy_context_positions(layout, q_rank, q);
    cy_context_positions(layout, k_rank, k);
    double pairs = 0;
    for (int64_t i = 0; i < length; i++) {
        for (int64_t j = 0; j < length; j++) {
            const bool sees = k[j] <= q[i] && (layout->window == 0 || k[j] > q[i] - layout->window);
            pairs += sees;
            for (int s = 0; s < 2 && sees; s++) {
                assert_int_equal(count, 2);
                assert_true(in(spans[s].q_first, spans[s].q_count, s * length + i));
                assert_true(in(spans[s].k_first, spans[s].k_count, s * length + j));
            }
        }
    }
    if (pairs == 0) assert_int_equal(count, 0);
    assert_true(fabs(cy_context_pairs(layout, q_rank, k_rank) - pairs) < 0.5);
}

static void spans_hold_all_that_see_each_other(void **state)
{
    (void)state;
    static const int64_t windows[] = {0, 5, 17};
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (int i = 0; i < 6; i++) {
            const cy_context_layout layout =
                layout_of(ranks, i % 2 == 1, 16L * ranks, windows[i / 2]);
            for (int q = 0; q < ranks; q++) {
                for (int k = 0; k < ranks; k++)
                    check_spans(&layout, q, k);
            }
        }
    }
}

// What no query sees is left out of the spans: halves, with zigzag.
static void spans_leave_out_what_is_masked(void **state)
{
    (void)state;
    const cy_context_layout layout = layout_of(2, true, 16, 0);
    cy_attention_span spans[2];
    assert_int_equal(cy_context_spans(&layout, 1, 0, spans), 2);
    assert_int_equal(spans[1].q_count, 8);
    assert_int_equal(spans[1].k_count, 4); // the late half of rank 0's keys is after all of them
    assert_int_equal(cy_context_spans(&layout, 0, 1, spans), 2);
    assert_int_equal(spans[1].q_first, 12); // and only the late half of its queries sees any
    assert_int_equal(spans[1].q_count, 4);
    assert_int_equal(spans[1].k_count, 8);
    const cy_context_layout contiguous = layout_of(2, false, 16, 0);
    assert_int_equal(cy_context_spans(&contiguous, 0, 1, spans), 0);
}

static void zigzag_is_even_and_contiguous_is_not(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        cy_context_layout layout = layout_of(ranks, true, 4096, 0);
        assert_true(fabs(cy_context_imbalance(&layout) - 1.0) < 1e-9);
        layout.zigzag = false;
        const double drawn = 2.0 - 1.0 / ranks; // 1.5 for two ranks, 1.75 for four
        assert_true(fabs(cy_context_imbalance(&layout) - drawn) < 0.01 * drawn);
        layout.zigzag = true;
        layout.window = 1024;
        assert_true(cy_context_imbalance(&layout) < 1.5);
    }
}

// What the kernels are told to be their work: the pairs of all ranks are those of the whole, and
// these a triangle a sequence, less what a window hides.
static void pairs_are_counted_once(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const int ranks = 1 << i;
        const int64_t length = 64, window = i % 2 == 0 ? 0 : 16;
        const cy_context_layout layout = layout_of(ranks, true, length, window);
        double parts = 0, all = 0, whole = 0;
        for (int rank = 0; rank < ranks; rank++) {
            cy_context_tables tables;
            CY_CHECK_OK(cy_context_tables_open(&tables, &layout, rank));
            for (int k = 0; k < ranks; k++)
                parts += tables.parts[k].pairs;
            all += tables.parts[ranks].pairs;
            whole = tables.parts[ranks + 1].pairs;
            cy_context_tables_close(&tables);
        }
        double seen = 0;
        for (int64_t at = 0; at < length; at++)
            seen += (double)(window > 0 && at >= window ? window : at + 1);
        assert_true(whole == 2 * seen);
        assert_true(all == whole);
        assert_true(parts == whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_are_those_drawn),
        cmocka_unit_test(positions_are_cut_without_loss),
        cmocka_unit_test(spans_hold_all_that_see_each_other),
        cmocka_unit_test(spans_leave_out_what_is_masked),
        cmocka_unit_test(zigzag_is_even_and_contiguous_is_not),
        cmocka_unit_test(pairs_are_counted_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
