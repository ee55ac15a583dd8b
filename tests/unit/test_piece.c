// Pieces of a tensor that cover each element once, and every way in which they do not.

#include "support/support.h"

#include "checkpoint/piece.h"

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
    cy_piece pieces[4];
    int64_t count = 0;
    while (count < 4 && parts[count].rectangle.cols != 0) {
        const part *p = &parts[count];
        pieces[count] = (cy_piece){
            .rectangle = p->rectangle, .first = p->first, .count = p->count, .dtype = CY_F32};
        count++;
    }
    return cy_piece_check_cover(pieces, count, "w", ROWS, COLS);
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

static void others_are_told_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        part parts[4];
        const char *words;
    } cases[] = {
        {{{{0, 7, 0, 4}, 0, 28}}, "w: rows 0+7, columns 0+4 do not lie in a tensor of 6 x 4"},
        {{{{1, 6, 0, 4}, 0, 24}}, "rows 1+6, columns 0+4 do not lie"},
        {{{{0, 6, -1, 4}, 0, 24}}, "columns -1+4 do not lie"},
        {{{{INT64_MAX, 6, 0, 4}, 0, 24}}, "do not lie in a tensor"},
        {{{{0, 6, 0, 4}, -1, 25}}, "elements -1+25 do not lie in a rectangle of 6 x 4"},
        {{{{0, 6, 0, 4}, 0, 25}}, "elements 0+25 do not lie"},
        {{{{0, 6, 0, 4}, 25, 1}}, "elements 25+1 do not lie"},
        {{{{0, 6, 0, 4}, 4, INT64_MAX}}, "do not lie in a rectangle"},
        {{{{0, 6, 0, 4}, 24, 0}}, "elements 24+0 do not lie"},
        {{{{0, 6, 0, 4}, 0, 23}},
            "elements 23 to 24 of rows 0+6, columns 0+4 are there not at all"},
        {{{{0, 6, 0, 4}, 1, 23}}, "elements 0 to 1 of rows 0+6"},
        {{{{0, 6, 0, 4}, 0, 20}, {{0, 6, 0, 4}, 12, 12}},
            "elements 12 to 20 of rows 0+6, columns 0+4 "
            "are there twice"},
        {{{{0, 4, 0, 4}, 0, 16}, {{3, 3, 0, 4}, 0, 12}}, "rows 3+3, columns 0+4 are there twice"},
        {{{{0, 6, 0, 3}, 0, 18}, {{5, 1, 2, 2}, 0, 2}}, "rows 5+1, columns 2+2 are there twice"},
        {{{{0, 6, 0, 3}, 0, 18}}, "w: 18 of 24 elements are there"},
        {{{{0, 3, 0, 4}, 0, 12}, {{4, 2, 0, 4}, 0, 8}}, "w: 20 of 24 elements are there"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CY_CHECK_FAILS(cover(cases[i].parts), CY_ERR_CORRUPT, cases[i].words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_tensors_pass),
        cmocka_unit_test(others_are_told_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
