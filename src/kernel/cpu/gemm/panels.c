// Multiplies matrices by panels: cuts a product into tasks and packs the panels that they read.

#include "kernel/cpu/gemm/matmul.h"

#include "base/status.h"

// The part of right that is packed at once: a quarter of the 32 MiB of L3 that eight cores share.
#define RIGHT_BYTES ((int64_t)8 << 20)

// Deepest slice of right that is packed at once.
#define SLICE_DEPTH 1536

// The most that fp32 sums of 16-bit results may take between two slices.
#define SUMS_BYTES ((int64_t)16 << 20)

// Columns of right that one task packs.
#define PACK_COLS 128

// The sizes of caches where the system does not report them.
#define L1_BYTES ((int64_t)32 << 10)
#define L2_BYTES ((int64_t)512 << 10)

// Rows and columns of a task at least, unless there would be too few tasks.
#define ROWS_LEAST 48
#define COLS_LEAST 128

// Rows and columns of a task at most, so that its sums stay in caches and left is rarely packed
// twice.
#define ROWS_MOST 192
#define COLS_MOST 1536

typedef struct call {
    const cy_panel_ops *ops;
    cy_view c, a, b;
    cy_matmul_spec spec;
    int64_t depth;
    int64_t slice;   // depth of right that is packed at once
    int64_t pass;    // depth that goes through the first-level cache at once
    int64_t columns; // of c for which right is packed at once
    int64_t tile_rows, tile_cols;
    float *right;
    char *scratch; // [workers, left_bytes + sums_bytes]
    size_t left_bytes, sums_bytes;
    cy_view sums; // fp32 [c.rows, columns]; none where c is fp32 or the depth one slice

    // of the tasks that run now
    int64_t col, cols; // of c
    int64_t k, steps;  // of depth
} call;

// The size of the fewest even chunks of `size` that do not exceed `limit`, a multiple of `step`.
static int64_t even(int64_t size, int64_t limit, int64_t step)
{
    return cy_round_up(cy_ceil_div(size, cy_ceil_div(size, limit)), step);
}

static void cut_depth(call *self, cy_panel_caches caches)
{
    const int64_t l1 = caches.l1_bytes > 0 ? (int64_t)caches.l1_bytes : L1_BYTES;
    const int64_t panel = self->ops->cols * (int64_t)sizeof(float);
    const int64_t pass = cy_max(64, l1 / 2 / panel); // half of it holds a panel of right
    self->slice = even(self->depth, SLICE_DEPTH, 4);
    self->pass = even(self->slice, pass, 4);
}

static void cut_columns(call *self)
{
    const int64_t cols = self->c.cols;
    int64_t fit = RIGHT_BYTES / (self->slice * (int64_t)sizeof(float));
    if (self->c.dtype != CY_F32 && self->slice < self->depth) {
        fit = cy_min(fit, SUMS_BYTES / (self->c.rows * (int64_t)sizeof(float)));
    }
    self->columns = cy_min(cols, even(cols, cy_max(fit, COLS_LEAST), CY_MICROKERNEL_COLS));
}

// Cuts rows first, because each task packs its rows of left.
static void cut_tasks(call *self, cy_panel_caches caches, int64_t wanted)
{
    const int64_t rows = self->c.rows, panel = self->ops->rows;
    const int64_t l2 = caches.l2_bytes > 0 ? (int64_t)caches.l2_bytes : L2_BYTES;
    const int64_t fit = l2 / 4 / (self->pass * (int64_t)sizeof(float)) / panel * panel;
    const int64_t limit = cy_max(panel, cy_min(fit, ROWS_MOST));
    self->tile_cols = cy_min(self->columns, even(self->columns, COLS_MOST, CY_MICROKERNEL_COLS));
    const int64_t across = cy_ceil_div(self->columns, self->tile_cols);
    const int64_t down = cy_ceil_div(wanted, across);
    self->tile_rows = even(rows, cy_min(limit, cy_max(cy_ceil_div(rows, down), ROWS_LEAST)), panel);
    const int64_t missing = cy_ceil_div(wanted, cy_ceil_div(rows, self->tile_rows));
    if (missing > across) {
        const int64_t cols = cy_max(COLS_LEAST, cy_ceil_div(self->columns, missing));
        self->tile_cols = cy_min(self->columns, even(self->columns, cols, CY_MICROKERNEL_COLS));
    }
}

static void take_scratch(call *self, cy_queue *queue)
{
    const int64_t floats = (int64_t)sizeof(float);
    const int64_t right = cy_round_up(self->columns, self->ops->cols) * self->slice;
    self->right = cy_arena_alloc(queue->scratch, (size_t)(right * floats));
    const int64_t left = self->tile_rows * self->pass + CY_PANEL_SLACK;
    self->left_bytes = (size_t)cy_round_up(left * floats, CY_ARENA_ALIGN);
    if (self->c.dtype != CY_F32) {
        if (self->slice < self->depth) {
            self->sums = cy_view_alloc(queue->scratch, CY_F32, self->c.rows, self->columns);
        } else {
            self->sums_bytes =
                (size_t)cy_round_up(self->tile_rows * self->tile_cols * floats, CY_ARENA_ALIGN);
        }
    }
    self->scratch = cy_arena_alloc(
        queue->scratch, (self->left_bytes + self->sums_bytes) * (size_t)cy_queue_workers(queue));
}

// Floats from one packed panel of right to the next.
static int64_t right_stride(const call *self)
{
    return self->steps * self->ops->cols;
}

static void run_pack(void *context, int64_t index, int worker)
{
    (void)worker;
    const call *self = context;
    const int64_t first = index * PACK_COLS, cols = cy_min(self->cols - first, PACK_COLS);
    const int64_t col = self->col + first;
    const cy_view from = self->spec.transpose_b
        ? cy_view_cols(cy_view_rows(self->b, col, cols), self->k, self->steps)
        : cy_view_cols(cy_view_rows(self->b, self->k, self->steps), col, cols);
    self->ops->pack_right(
        self->right + first * self->steps, right_stride(self), from, self->spec.transpose_b);
}

// Rows [row, row + rows) and depths [k, k + steps) of a, as they are stored.
static cy_view left_of(const call *self, int64_t row, int64_t rows, int64_t k, int64_t steps)
{
    if (self->spec.transpose_a) {
        return cy_view_cols(cy_view_rows(self->a, k, steps), row, rows);
    }
    return cy_view_cols(cy_view_rows(self->a, row, rows), k, steps);
}

static void run_tile(void *context, int64_t index, int worker)
{
    const call *self = context;
    const cy_panel_ops *ops = self->ops;
    const int64_t down = cy_ceil_div(self->c.rows, self->tile_rows);
    const int64_t row = index % down * self->tile_rows, first = index / down * self->tile_cols;
    const int64_t rows = cy_min(self->c.rows - row, self->tile_rows);
    const int64_t cols = cy_min(self->cols - first, self->tile_cols);
    char *room = self->scratch + (size_t)worker * (self->left_bytes + self->sums_bytes);
    float *left = (float *)(void *)room;

    const cy_view c = cy_view_cols(cy_view_rows(self->c, row, rows), self->col + first, cols);
    cy_view sum = c;
    if (c.dtype != CY_F32) {
        sum = cy_view_is_none(self->sums)
            ? cy_view_of(room + self->left_bytes, CY_F32, rows, cols)
            : cy_view_cols(cy_view_rows(self->sums, row, rows), first, cols);
        if (self->k == 0 && self->spec.accumulate) ops->convert(sum, c);
    }
    for (int64_t k = 0; k < self->steps; k += self->pass) {
        const int64_t depth = cy_min(self->steps - k, self->pass);
        ops->pack_left(left, left_of(self, row, rows, self->k + k, depth), self->spec.transpose_a);
        ops->multiply(sum.data, sum.stride, left, self->right + first * self->steps + k * ops->cols,
            right_stride(self), rows, cols, depth, self->spec.accumulate || self->k + k > 0);
    }
    if (c.dtype != CY_F32 && self->k + self->steps == self->depth) ops->convert(c, sum);
}

void cy_matmul_panels(cy_queue *queue, const cy_panel_ops *ops, cy_panel_caches caches, cy_view c,
    cy_view a, cy_view b, cy_matmul_spec spec)
{
    call self = {.ops = ops, .c = c, .a = a, .b = b, .spec = spec};
    self.depth = spec.transpose_a ? a.rows : a.cols;
    CY_ASSERT(self.depth > 0);
    cut_depth(&self, caches);
    cut_columns(&self);
    cut_tasks(&self, caches, 4 * (int64_t)cy_queue_workers(queue));
    const size_t mark = cy_arena_mark(queue->scratch);
    take_scratch(&self, queue);
    for (self.col = 0; self.col < c.cols; self.col += self.columns) {
        self.cols = cy_min(c.cols - self.col, self.columns);
        for (self.k = 0; self.k < self.depth; self.k += self.slice) {
            self.steps = cy_min(self.depth - self.k, self.slice);
            cy_queue_run(queue, run_pack, &self, cy_ceil_div(self.cols, PACK_COLS));
            cy_queue_run(queue, run_tile, &self,
                cy_ceil_div(c.rows, self.tile_rows) * cy_ceil_div(self.cols, self.tile_cols));
        }
    }
    cy_arena_rewind(queue->scratch, mark);
}
