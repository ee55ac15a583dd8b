// Pieces of a tensor that cover each element once, and every way in which they do not.

#include "support/support.h"

#include "checkpoint/tensor_shard.h"

#include <stdint.h>

#define ROWS 6
#define COLS 4

// A range of the elements of a rectangle; without rows there is none.
typedef struct part {
    cy_rectangle rectangle;
    int64_t first, count;
} part;

static cy_status cover(const part *parts)
{
    cy_tensor_shard pieces[4];
    int64_t count = 0;
    while (count < 4 && parts[count].rectangle.cols != 0) {
        const part *p = &parts[count];
        pieces[count] = (cy_tensor_shard){
            .rectangle = p->rectangle, .first = p->first, .count = p->count, .dtype = CY_F32};
        count++;
    }
    return cy_tensor_shards_check_cover(pieces, count, "w", ROWS, COLS);
}

static void whole_tensors_pass(void **state)
{
    (void)state;
    CY_CHECK_OK(cover((part[4]){{{0, ROWS, 0, COLS}, 0, INT64_C(24)}}));
    // In any order: two halves of the rows, of which the lower in two ranges.
    CY_CHECK_OK(
        cover((part[4]){{{3, 3, 0, 4}, 5, 7}, {{0, 3, 0, 4}, 0, 12}, {{3, 3, 0, 4}, 0, 5}}));
    CY_CHECK_OK(cover((part[4]){{{0, 6, 1, 3}, 0, 18}, {{0, 6, 0, 1}, 0, 6}}));
    CY_CHECK_OK(cover((part[4]){{{0, 2, 0, 4}, 0, 8}, {{2, 4, 0, 2}, 0, 8}, {{2, 4, 2, 2}, 0, 8}}));
}

#define NO_RECTANGLE(range) "w: rows " range " do not lie in a tensor of 6 x 4"
#define NO_RANGE(range)     "w: elements " range " do not lie in a rectangle of 6 x 4"
#define ARE(range, how)     "w: elements " range " of rows 0+6, columns 0+4 are there " how
#define TWICE(range)        "w: rows " range " are there twice"

static void others_are_told_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        part parts[4];
        const char *text;
    } cases[] = {
        {{{{0, 7, 0, 4}, 0, 28}}, NO_RECTANGLE("0+7, columns 0+4")},
        {{{{1, 6, 0, 4}, 0, 24}}, NO_RECTANGLE("1+6, columns 0+4")},
        {{{{-1, 6, 0, 4}, 0, 24}}, NO_RECTANGLE("-1+6, columns 0+4")},
        {{{{0, 6, -1, 4}, 0, 24}}, NO_RECTANGLE("0+6, columns -1+4")},
        {{{{0, 6, 1, 4}, 0, 24}}, NO_RECTANGLE("0+6, columns 1+4")},
        {{{{0, 6, 0, 5}, 0, 24}}, NO_RECTANGLE("0+6, columns 0+5")},
        {{{{0, 0, 0, 4}, 0, 24}}, NO_RECTANGLE("0+0, columns 0+4")},
        {{{{0, 6, 0, -4}, 0, 24}}, NO_RECTANGLE("0+6, columns 0+-4")},
        {{{{INT64_MAX, 6, 0, 4}, 0, 24}}, NO_RECTANGLE("9223372036854775807+6, columns 0+4")},
        {{{{0, 6, INT64_MAX, 4}, 0, 24}}, NO_RECTANGLE("0+6, columns 9223372036854775807+4")},
        {{{{0, 6, 0, 4}, -1, 25}}, NO_RANGE("-1+25")},
        {{{{0, 6, 0, 4}, 0, 25}}, NO_RANGE("0+25")},
        {{{{0, 6, 0, 4}, 25, 1}}, NO_RANGE("25+1")},
        {{{{0, 6, 0, 4}, 24, 1}}, NO_RANGE("24+1")},
        {{{{0, 6, 0, 4}, 4, INT64_MAX}}, NO_RANGE("4+9223372036854775807")},
        {{{{0, 6, 0, 4}, 24, 0}}, NO_RANGE("24+0")},
        {{{{0, 6, 0, 4}, 4, -1}}, NO_RANGE("4+-1")},
        {{{{0, 6, 0, 4}, 0, 23}}, ARE("23 to 24", "not at all")},
        {{{{0, 6, 0, 4}, 1, 23}}, ARE("0 to 1", "not at all")},
        {{{{0, 6, 0, 4}, 13, 11}, {{0, 6, 0, 4}, 0, 12}}, ARE("12 to 13", "not at all")},
        {{{{0, 6, 0, 4}, 0, 20}, {{0, 6, 0, 4}, 12, 12}}, ARE("12 to 20", "twice")},
        {{{{0, 6, 0, 4}, 0, 24}, {{0, 6, 0, 4}, 23, 1}}, ARE("23 to 24", "twice")},
        {{{{0, 4, 0, 4}, 0, 16}, {{3, 3, 0, 4}, 0, 12}}, TWICE("3+3, columns 0+4")},
        {{{{0, 6, 0, 3}, 0, 18}, {{5, 1, 2, 2}, 0, 2}}, TWICE("5+1, columns 2+2")},
        {{{{0, 3, 1, 3}, 0, 9}, {{2, 4, 0, 2}, 0, 8}}, TWICE("2+4, columns 0+2")},
        {{{{0, 6, 0, 2}, 0, 12}, {{0, 6, 1, 2}, 0, 12}, {{0, 6, 3, 1}, 0, 6}},
            TWICE("0+6, columns 1+2")},
        {{{{0, 6, 0, 2}, 0, 12}, {{0, 6, 0, 3}, 0, 18}}, TWICE("0+6, columns 0+3")},
        {{{{0, 5, 0, 4}, 0, 20}, {{0, 6, 0, 4}, 0, 24}}, TWICE("0+6, columns 0+4")},
        {{{{0, 6, 0, 3}, 0, 18}}, "w: 18 of 24 elements are there"},
        {{{{0, 3, 0, 4}, 0, 12}, {{4, 2, 0, 4}, 0, 8}}, "w: 20 of 24 elements are there"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(cover(cases[i].parts), CY_ERR_CORRUPT);
        assert_string_equal(cy_error_text(), cases[i].text);
    }
}

static void kinds_have_names(void **state)
{
    (void)state;
    static const char *const names[] = {"weight", "adam_m", "adam_v", "other", "unknown"};
    for (int kind = 0; kind <= CY_TENSOR_KINDS; kind++)
        assert_string_equal(cy_tensor_kind_name((cy_tensor_kind)kind), names[kind]);
}

static void elements_lie_where_the_piece_says(void **state)
{
    (void)state;
    float memory[40];
    const cy_view view = {.data = memory, .rows = 3, .cols = 4, .stride = 7, .dtype = CY_F32};
    cy_tensor_shard piece = cy_tensor_shard_of_view(2, view, 10, 20);
    assert_int_equal(piece.tensor, 2);
    assert_int_equal(piece.rectangle.row_first, 10);
    assert_int_equal(piece.rectangle.col_first, 20);
    assert_int_equal(piece.first, 0);
    assert_int_equal(piece.count, 12);
    assert_ptr_equal(cy_tensor_shard_at(&piece, 0), memory);
    assert_ptr_equal(cy_tensor_shard_at(&piece, 3), memory + 3);
    assert_ptr_equal(cy_tensor_shard_at(&piece, 4), memory + 7);
    assert_ptr_equal(cy_tensor_shard_at(&piece, 11), memory + 17);
    assert_false(cy_tensor_shard_dense(&piece));
    // Rows that lie apart are dense within one row.
    static const struct {
        int64_t first, count;
        bool dense;
    } ranges[] = {{0, 4, true}, {0, 5, false}, {3, 1, true}, {3, 2, false}, {4, 4, true},
        {5, 4, false}, {0, 0, true}, {3, 0, true}};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        piece.first = ranges[i].first;
        piece.count = ranges[i].count;
        assert_int_equal(cy_tensor_shard_dense(&piece), ranges[i].dense);
    }
    const cy_rectangle r = {10, 3, 20, 4};
    const cy_tensor_shard range = cy_tensor_shard_of_range(1, r, 5, 7, memory, CY_BF16);
    assert_int_equal(range.tensor, 1);
    assert_int_equal(range.stride, 4);
    assert_true(cy_tensor_shard_dense(&range));
    for (int64_t index = 5; index < 12; index++) {
        assert_ptr_equal(cy_tensor_shard_at(&range, index), (char *)memory + 2 * (index - 5));
    }
}

// The global place of an element of a piece's rectangle; -1 where the piece does not hold it.
static int64_t place_of(const cy_tensor_shard *piece, int64_t index)
{
    const cy_rectangle *r = &piece->rectangle;
    if (index < piece->first || index >= piece->first + piece->count) return -1;
    return (r->row_first + index / r->cols) * COLS + r->col_first + index % r->cols;
}

typedef struct walked {
    const cy_tensor_shard *a, *b;
    int seen[ROWS * COLS];
    int64_t last; // place of the last element of the run before
    int runs;
} walked;

static cy_status walk(void *context, int64_t a_index, int64_t b_index, int64_t count)
{
    walked *w = context;
    assert_true(count > 0);
    assert_true(place_of(w->a, a_index) > w->last);
    for (int64_t i = 0; i < count; i++) {
        const int64_t place = place_of(w->a, a_index + i);
        assert_in_range(place, 0, ROWS * COLS - 1);
        assert_int_equal(place_of(w->b, b_index + i), place);
        w->seen[place]++;
        w->last = place;
    }
    w->runs++;
    return CY_OK;
}

// Every two pieces of a list of shapes: the runs give each element that both have once.
static void runs_give_what_two_pieces_share(void **state)
{
    (void)state;
    static const cy_rectangle rectangles[] = {{0, 6, 0, 4}, {0, 3, 0, 4}, {3, 3, 0, 4},
        {2, 3, 0, 4}, {0, 6, 0, 2}, {0, 6, 2, 2}, {1, 4, 1, 2}, {2, 1, 0, 4}, {0, 6, 3, 1},
        {4, 2, 1, 3}};
    static const int parts[][2] = {{0, 4}, {0, 2}, {1, 2}, {2, 3}, {3, 4}, {2, 2}}; // fourths
    cy_tensor_shard pieces[60];
    int count = 0;
    for (size_t r = 0; r < 10; r++) {
        for (int k = 0; k < 6; k++) {
            const int64_t area = rectangles[r].rows * rectangles[r].cols;
            const int64_t first = area * parts[k][0] / 4, end = area * parts[k][1] / 4;
            pieces[count++] =
                cy_tensor_shard_of_range(0, rectangles[r], first, end - first, NULL, CY_F32);
        }
    }
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < count; k++) {
            walked w = {.a = &pieces[i], .b = &pieces[k], .last = -1};
            int in_a[ROWS * COLS] = {0}, in_b[ROWS * COLS] = {0};
            CY_CHECK_OK(cy_tensor_shard_overlap(w.a, w.b, walk, &w));
            for (int64_t e = w.a->first; e < w.a->first + w.a->count; e++)
                in_a[place_of(w.a, e)] = 1;
            for (int64_t e = w.b->first; e < w.b->first + w.b->count; e++)
                in_b[place_of(w.b, e)] = 1;
            for (int e = 0; e < ROWS * COLS; e++)
                assert_int_equal(w.seen[e], in_a[e] && in_b[e]);
            const cy_rectangle *a = &w.a->rectangle, *b = &w.b->rectangle;
            if (a->col_first == b->col_first && a->cols == b->cols) assert_in_range(w.runs, 0, 1);
            assert_in_range(w.runs, 0, ROWS);
        }
    }
}

static cy_status stop_at_second(void *context, int64_t a_index, int64_t b_index, int64_t count)
{
    int *runs = context;
    (void)a_index;
    (void)b_index;
    (void)count;
    return ++*runs == 2 ? CY_FAIL(CY_ERR_STOPPED, "enough") : CY_OK;
}

static void runs_end_with_the_first_failure(void **state)
{
    (void)state;
    const cy_tensor_shard whole =
        cy_tensor_shard_of_range(0, (cy_rectangle){0, 6, 0, 4}, 0, 24, NULL, CY_F32);
    const cy_tensor_shard half =
        cy_tensor_shard_of_range(0, (cy_rectangle){0, 6, 0, 2}, 0, 12, NULL, CY_F32);
    int runs = 0;
    CY_CHECK_FAILS(
        cy_tensor_shard_overlap(&whole, &half, stop_at_second, &runs), CY_ERR_STOPPED, "enough");
    assert_int_equal(runs, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_tensors_pass),
        cmocka_unit_test(others_are_told_what_is_wrong),
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(elements_lie_where_the_piece_says),
        cmocka_unit_test(runs_give_what_two_pieces_share),
        cmocka_unit_test(runs_end_with_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
