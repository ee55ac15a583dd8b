// The model's column- and row-parallel linear layers against dense ones, with every option; and the
// moves between their sides, each against the move of its gradient.

#include "support/support.h"
#include "support/worlds.h"

#include "base/random.h"
#include "parallel/tensor/overlap.h"
#include "parallel/tensor/linear.h"

#include <math.h>
#include <string.h>

enum { IN = 24, OUT = 36, ARENA_BYTES = 1 << 25 };

typedef struct layer_case {
    int tp;
    int64_t tokens;
    bool sequence, overlap, bias;
    bool wide; // gather_output, or an input that is not parallel
    bool skip; // skip_bias_add
} layer_case;

// Element (row, col) of the matrix called `name`: the same on every rank.
static double value(const char *name, int64_t row, int64_t col)
{
    return cy_random_uniform(cy_random_key(5, name), (uint64_t)(row * 1000 + col)) - 0.5;
}

// Rows and columns from (row, col) on of that matrix.
static cy_view part_of(
    cy_test_machine *m, const char *name, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    const cy_view view = cy_view_alloc(&m->data, CY_F64, rows, cols);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++)
            *(double *)cy_view_at(view, i, j) = value(name, row + i, col + j);
    }
    return view;
}

// The largest difference between `part` and the rows and columns of `whole` from (row, col) on.
static double difference(cy_view part, cy_view whole, int64_t row, int64_t col)
{
    double most = 0;
    for (int64_t i = 0; i < part.rows; i++) {
        for (int64_t j = 0; j < part.cols; j++) {
            const double d = fabs(*(const double *)cy_view_at(part, i, j) -
                *(const double *)cy_view_at(whole, row + i, col + j));
            cy_test_worse(&most, d);
        }
    }
    return most;
}

static cy_status expect(const char *what, const layer_case *c, double difference)
{
    if (difference <= 1e-12) return CY_OK;
    return CY_FAIL(CY_ERR_CORRUPT,
        "tp %d tokens %lld sequence %d overlap %d bias %d wide %d skip %d: %s is off by %g", c->tp,
        (long long)c->tokens, c->sequence, c->overlap, c->bias, c->wide, c->skip, what, difference);
}

// Views of one rank, or of the dense layer.
typedef struct operands {
    cy_view x, y, dx, dy, weight, weight_grad, bias, bias_grad;
} operands;

// Makes its operands, runs forward and backward and the bias where that is the caller's.
typedef cy_status (*layer_run)(
    const layer_case *c, const cy_tensor_parallel *parallel, cy_test_machine *m, operands *o);

// The layer split over the group, and the dense one on the same matrices.
static cy_status run_both(layer_run run, const layer_case *c, cy_group *group, cy_test_machine *m,
    operands *mine, operands *all)
{
    const cy_tensor_parallel split = {
        .group = group, .sequence = c->sequence, .overlap = c->overlap};
    const cy_tensor_parallel dense = {.group = cy_group_self()};
    const layer_case plain = {.tp = 1, .tokens = c->tokens, .bias = c->bias, .wide = c->wide};
    CY_TRY(run(c, &split, m, mine));
    return run(&plain, &dense, m, all);
}

// The bias gradient of own tokens, summed over ranks where each has its own.
static cy_status sum_bias_gradient(
    cy_group *group, cy_test_machine *m, const layer_case *c, cy_view grad)
{
    // Every rank's accumulator began with the same values.
    const cy_view before = part_of(m, "bias_grad", 0, 1, 0, OUT);
    if (!c->sequence || cy_group_size(group) == 1) return CY_OK;
    CY_ASSERT(!cy_view_is_none(grad));
    for (int64_t i = 0; i < OUT; i++)
        ((double *)grad.data)[i] -= ((double *)before.data)[i];
    CY_TRY(cy_group_all_reduce(group, &m->queue, grad, CY_SUM));
    cy_add(&m->queue, grad, grad, before);
    return CY_OK;
}

static cy_status run_column(
    const layer_case *c, const cy_tensor_parallel *parallel, cy_test_machine *m, operands *o)
{
    const int size = cy_group_size(parallel->group), rank = cy_group_rank(parallel->group);
    const int64_t outside = cy_tensor_local_tokens(parallel, c->tokens), out = OUT / size;
    const int64_t token = outside == c->tokens ? 0 : rank * outside, col = rank * out;
    const int64_t y_cols = c->wide ? OUT : out;
    *o = (operands){
        .x = part_of(m, "x", token, outside, 0, IN),
        .y = cy_view_alloc(&m->data, CY_F64, c->tokens, y_cols),
        .dx = cy_view_alloc(&m->data, CY_F64, outside, IN),
        .dy = part_of(m, "dy", 0, c->tokens, c->wide ? 0 : col, y_cols),
        .weight = part_of(m, "weight", col, out, 0, IN),
        .weight_grad = part_of(m, "weight_grad", col, out, 0, IN),
    };
    if (c->bias) {
        o->bias = part_of(m, "bias", 0, 1, col, out);
        o->bias_grad = part_of(m, "bias_grad", 0, 1, col, out);
    }
    const cy_column_linear layer = {
        .parallel = parallel,
        .weight = o->weight,
        .bias = o->bias,
        .gather_output = c->wide,
        .skip_bias = c->skip,
    };
    const cy_linear_gradients to = {.weight = o->weight_grad, .bias = o->bias_grad};
    cy_queue *queue = &m->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_tensor_gather_state x;
    cy_tensor_reduce_state dx;
    CY_TRY(cy_column_linear_forward(
        &layer, queue, o->y, cy_tensor_all_tokens(parallel, queue, o->x), o->x));
    const cy_view x_all = cy_tensor_all_tokens(parallel, queue, o->x);
    CY_TRY(cy_tensor_gather_start(&x, parallel, queue, x_all, o->x));
    cy_tensor_reduce_start(&dx, parallel, queue, o->dx, NULL);
    CY_TRY(cy_column_linear_backward_input(&layer, queue, &dx, o->dy));
    CY_TRY(cy_tensor_gather_finish(&x));
    cy_column_linear_backward_weight(&layer, queue, &to, o->dy, x.all);
    CY_TRY(cy_tensor_reduce_finish(&dx));
    cy_arena_rewind(queue->scratch, mark);
    if (!c->bias || !c->skip) return CY_OK;
    // The bias is the caller's: all columns of y that it has, and the own ones of the gradient.
    cy_add_bias(&m->queue, o->y, part_of(m, "bias", 0, 1, c->wide ? 0 : col, y_cols));
    cy_sum_rows(&m->queue, o->bias_grad, cy_view_cols(o->dy, c->wide ? col : 0, out));
    return CY_OK;
}

static cy_status column_equals_dense(const layer_case *c, cy_group *group, cy_test_machine *m)
{
    operands mine, all;
    CY_TRY(run_both(run_column, c, group, m, &mine, &all));
    const int64_t rank = cy_group_rank(group);
    const int64_t col = rank * (OUT / c->tp), token = c->sequence ? rank * (c->tokens / c->tp) : 0;
    CY_TRY(expect("column y", c, difference(mine.y, all.y, 0, c->wide ? 0 : col)));
    CY_TRY(expect("column dx", c, difference(mine.dx, all.dx, token, 0)));
    CY_TRY(expect("column dW", c, difference(mine.weight_grad, all.weight_grad, col, 0)));
    if (!c->bias) return CY_OK;
    return expect("column db", c, difference(mine.bias_grad, all.bias_grad, 0, col));
}

static cy_status run_row(
    const layer_case *c, const cy_tensor_parallel *parallel, cy_test_machine *m, operands *o)
{
    const int size = cy_group_size(parallel->group), rank = cy_group_rank(parallel->group);
    const int64_t outside = cy_tensor_local_tokens(parallel, c->tokens), in = IN / size;
    const int64_t token = outside == c->tokens ? 0 : rank * outside, col = rank * in;
    const int64_t x_cols = c->wide ? IN : in;
    *o = (operands){
        .x = part_of(m, "x", 0, c->tokens, c->wide ? 0 : col, x_cols),
        .y = cy_view_alloc(&m->data, CY_F64, outside, OUT),
        .dx = cy_view_alloc(&m->data, CY_F64, c->tokens, x_cols),
        .dy = part_of(m, "dy", token, outside, 0, OUT),
        .weight = part_of(m, "weight", 0, OUT, col, in),
        .weight_grad = part_of(m, "weight_grad", 0, OUT, col, in),
    };
    if (c->bias) {
        o->bias = part_of(m, "bias", 0, 1, 0, OUT);
        o->bias_grad = part_of(m, "bias_grad", 0, 1, 0, OUT);
    }
    const cy_row_linear layer = {
        .parallel = parallel,
        .weight = o->weight,
        .bias = o->bias,
        .input_is_parallel = !c->wide,
        .skip_bias = c->skip,
    };
    const cy_linear_gradients to = {.weight = o->weight_grad, .bias = o->bias_grad};
    const size_t mark = cy_arena_mark(m->queue.scratch);
    cy_tensor_gather_state dy;
    CY_TRY(cy_row_linear_forward(&layer, &m->queue, o->y, o->x, NULL));
    const cy_view dy_all = cy_tensor_all_tokens(parallel, &m->queue, o->dy);
    CY_TRY(cy_tensor_gather_start(&dy, parallel, &m->queue, dy_all, o->dy));
    CY_TRY(cy_row_linear_backward_input(&layer, &m->queue, o->dx, &dy));
    cy_row_linear_backward_weight(&layer, &m->queue, &to, &dy, o->x);
    cy_arena_rewind(m->queue.scratch, mark);
    if (!c->bias || !c->skip) return CY_OK;
    cy_add_bias(&m->queue, o->y, o->bias);
    cy_sum_rows(&m->queue, o->bias_grad, o->dy);
    return CY_OK;
}

static cy_status row_equals_dense(const layer_case *c, cy_group *group, cy_test_machine *m)
{
    operands mine, all;
    CY_TRY(run_both(run_row, c, group, m, &mine, &all));
    const int64_t rank = cy_group_rank(group);
    const int64_t col = rank * (IN / c->tp), token = c->sequence ? rank * (c->tokens / c->tp) : 0;
    CY_TRY(expect("row y", c, difference(mine.y, all.y, token, 0)));
    CY_TRY(expect("row dx", c, difference(mine.dx, all.dx, 0, c->wide ? 0 : col)));
    CY_TRY(expect("row dW", c, difference(mine.weight_grad, all.weight_grad, 0, col)));
    if (!c->bias) return CY_OK;
    CY_TRY(sum_bias_gradient(group, m, c, mine.bias_grad));
    return expect("row db", c, difference(mine.bias_grad, all.bias_grad, 0, 0));
}

static cy_status run_case(cy_test_machine *m, cy_group *group, void *context)
{
    CY_TRY(column_equals_dense(context, group, m));
    return row_equals_dense(context, group, m);
}

static cy_status run_world(int ranks, cy_test_machine_use use, void *context)
{
    cy_world_options options = cy_world_defaults();
    options.ranks = ranks;
    options.check = true; // what is used before it has come is NaN
    return cy_test_on_machines(&options, "ref", ARENA_BYTES, use, context);
}

// Few tokens, and as many as are summed in two pieces.
static void every_option_equals_the_dense_layer(void **state)
{
    (void)state;
    for (int tp = 2; tp <= 4; tp++) {
        for (int bits = 0; bits < 64; bits++) {
            layer_case c = {
                .tp = tp,
                .tokens = (bits & 32) != 0 ? 1536 : 12,
                .sequence = (bits & 1) != 0,
                .overlap = (bits & 2) != 0,
                .bias = (bits & 4) != 0,
                .wide = (bits & 8) != 0,
                .skip = (bits & 16) != 0,
            };
            if (c.tokens > 12 && (c.sequence || !c.overlap)) continue; // one piece
            CY_CHECK_OK(run_world(tp, run_case, &c));
        }
    }
}

// ---- moves

// What happens to a matrix between one side of a split layer and the other.
typedef enum move {
    COPY,        // x, the same on every rank, is what a column layer reads
    SUM,         // y of a row layer
    TAKE_COLS,   // x of a row layer that is not parallel
    GATHER_COLS, // y of a column layer that is gathered
    GATHER_ROWS, // x of a column layer, sequence parallel
    SCATTER_SUM, // y of a row layer, sequence parallel
    MOVES,
} move;

static const char *const move_names[MOVES] = {
    "copy", "sum", "take_cols", "gather_cols", "gather_rows", "scatter_sum"};

// How a side of a move is held: the same matrix on every rank counts once in a product over ranks.
typedef struct move_sides {
    move forward, back;
    bool x_same, y_same;
    double y_rows, y_cols; // relative to x, of `size` ranks: 0 stands for 1 / size
} move_sides;

static const move_sides sides[MOVES] = {
    {COPY, SUM, true, false, 1, 1},
    {SUM, COPY, false, true, 1, 1},
    {TAKE_COLS, GATHER_COLS, true, false, 1, 0},
    {GATHER_COLS, TAKE_COLS, false, true, 1, 3},
    {GATHER_ROWS, SCATTER_SUM, false, false, 3, 1},
    {SCATTER_SUM, GATHER_ROWS, false, false, 0, 1},
};

// A sum of parts x, as products make it.
static cy_status sum_parts(
    const cy_tensor_parallel *parallel, cy_queue *queue, cy_view y, cy_view x)
{
    cy_tensor_reduce_state sum;
    cy_tensor_rows rows;
    cy_tensor_reduce_start(&sum, parallel, queue, y, NULL);
    CY_TRY(cy_tensor_reduce_next(&sum, &rows));
    while (rows.count > 0) {
        cy_copy(queue, cy_tensor_rows_of(sum.partial, rows), cy_tensor_rows_of(x, rows));
        CY_TRY(cy_tensor_reduce_next(&sum, &rows));
    }
    return cy_tensor_reduce_finish(&sum);
}

// y = move of x, by the functions that layers use.
static cy_status run_move(
    move kind, bool overlap, cy_group *group, cy_queue *queue, cy_view y, cy_view x)
{
    const bool by_tokens = kind == GATHER_ROWS || kind == SCATTER_SUM;
    const cy_tensor_parallel parallel = {.group = group, .sequence = by_tokens, .overlap = overlap};
    cy_view all;
    switch (kind) {
    case COPY:
    case GATHER_ROWS:
        CY_TRY(cy_tensor_gather(&parallel, queue, &all, x));
        cy_copy(queue, y, all);
        return CY_OK;
    case SUM:
    case SCATTER_SUM:
        return sum_parts(&parallel, queue, y, x);
    case TAKE_COLS:
        cy_tensor_scatter_cols(group, queue, y, x);
        return CY_OK;
    case GATHER_COLS:
        return cy_tensor_gather_cols(group, queue, y, x);
    case MOVES:
        break;
    }
    return CY_OK;
}

enum { MOVE_RANKS = 3 };

static int64_t scaled(int64_t length, double by)
{
    return by == 0 ? length / MOVE_RANKS : (int64_t)((double)length * by);
}

// A random matrix: the same on every rank, or this rank's own.
static cy_view random_side(
    cy_test_machine *m, const char *name, bool same, int rank, int64_t rows, int64_t cols)
{
    return part_of(m, name, same ? 0 : 100 * (rank + 1), rows, 0, cols);
}

// <a, b> over all ranks.
static cy_status product(
    double *sum, cy_group *group, cy_test_machine *m, cy_view p, cy_view q, bool same)
{
    double own = 0;
    for (int64_t i = 0; i < cy_view_count(p); i++)
        own += ((const double *)p.data)[i] * ((const double *)q.data)[i];
    if (!same)
        CY_TRY(cy_group_all_reduce(group, &m->queue, cy_view_of(&own, CY_F64, 1, 1), CY_SUM));
    *sum = own;
    return CY_OK;
}

// A move is linear, so its gradient is the move whose product with it is symmetric:
// <move(x), y> = <x, back(y)> for any x and y.
static cy_status check_move(
    const move_sides *s, int64_t rows_of_x, bool overlap, cy_group *group, cy_test_machine *m)
{
    const int rank = cy_group_rank(group);
    const size_t data_mark = cy_arena_mark(&m->data);
    const size_t mark = cy_arena_mark(m->queue.scratch);
    const cy_view x = random_side(m, "x", s->x_same, rank, rows_of_x, 9);
    const int64_t rows = scaled(rows_of_x, s->y_rows), cols = scaled(9, s->y_cols);
    const cy_view y = random_side(m, "y", s->y_same, rank, rows, cols);
    const cy_view moved = cy_view_alloc(&m->data, CY_F64, rows, cols);
    const cy_view returned = cy_view_alloc(&m->data, CY_F64, rows_of_x, 9);
    CY_TRY(run_move(s->forward, overlap, group, &m->queue, moved, x));
    CY_TRY(run_move(s->back, overlap, group, &m->queue, returned, y));
    double there = 0, back = 0;
    CY_TRY(product(&there, group, m, moved, y, s->y_same));
    CY_TRY(product(&back, group, m, x, returned, s->x_same));
    cy_arena_rewind(m->queue.scratch, mark);
    cy_arena_rewind(&m->data, data_mark);
    if (fabs(there) > 1e-3 && fabs(there - back) <= 1e-11 * fabs(there)) return CY_OK;
    return CY_FAIL(
        CY_ERR_CORRUPT, "%s: %.17g there, %.17g back", move_names[s->forward], there, back);
}

static cy_status run_moves(cy_test_machine *m, cy_group *group, void *context)
{
    (void)context;
    for (int i = 0; i < MOVES; i++) {
        for (int overlap = 0; overlap < 2; overlap++) {
            CY_TRY(check_move(&sides[i], 6, overlap == 1, group, m));
            CY_TRY(check_move(&sides[i], 1536, overlap == 1, group, m));
        }
    }
    return CY_OK;
}

static void each_move_has_its_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < MOVES; i++) {
        assert_int_equal(sides[i].forward, i);
        assert_int_equal(sides[sides[i].back].back, i); // pairs
    }
    CY_CHECK_OK(run_world(MOVE_RANKS, run_moves, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_equals_the_dense_layer),
        cmocka_unit_test(each_move_has_its_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
