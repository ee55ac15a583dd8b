// Multiplies matrices: cuts a product into tiles, packs its operands, and runs the microkernel over
// them.

#include "kernel/cpu/gemm/matmul.h"

#include "base/status.h"
#include "kernel/cpu/cpu.h"

// Beyond this depth the rows of a no longer stay in a cache, so tiles are few and large: each reads
// its rows of a and its columns of b once, and no two tiles pack the same b.
#define DEEP 8192

// Depth of a slice of fp32 that is transposed: its rows must not lie a power of two apart, or they
// evict each other from L1.
#define TURNED_DEPTH 528

// The share of L2, which commonly has 1 to 2 MiB, that packed columns may take.
#define PACKED_BYTES ((int64_t)768 << 10)

// The most that b may take when all of it is packed once for all tiles: half of it stays in the
// caches that the cores share, and the widest layers of a model fit. A larger b is packed tile by
// tile.
#define SHARED_BYTES ((int64_t)32 << 20)

// Tile registers compute faster than memory delivers rows of a. So that each row is read only once,
// a slice of b as wide as c must fit into the 2 MiB of L2 that processors with tile registers have,
// and a deep b is cut into slices. Between two slices the sums of all rows of a tile stay in L2, so
// a tile has few rows.
#define SLICED_BYTES ((int64_t)1200 << 10)
#define SLICED_ROWS  256

// Where SLICED_ROWS rows stay in L2, b streams from the shared caches, and tiles have at most this
// many columns of sums.
#define STREAMED_COLS 4096

// Columns that one task packs for all.
#define SHARED_COLS 128

typedef struct call {
    const cy_microkernel *ops;
    cy_view c, a, b;
    cy_matmul_spec spec;
    int64_t depth;
    int64_t depth_block; // depth of one packed slice
    cy_tiles tiles;
    bool share;   // b is packed whole, before the tiles
    char *shared; // slice after slice
    bool pack_left;
    bool wide_c; // c is fp32 and holds the sums itself
    char *scratch;
    size_t left_bytes, right_bytes, sum_bytes; // per worker
} call;

// Bytes of all of b, packed.
static int64_t shared_bytes(const call *self)
{
    return (int64_t)cy_microkernel_right_bytes(self->ops, self->c.cols, self->depth);
}

// How many columns of a slice fit into so many bytes, a multiple of 64.
static int64_t columns_in(const call *self, int64_t bytes)
{
    return bytes / (self->depth_block * self->ops->packed_bytes) / 64 * 64;
}

// Cuts deep products, and those whose c is narrow and long, for operations that ask for it.
static bool cut_slices(call *self, int64_t wanted)
{
    const int64_t depth = self->depth, slice = self->ops->slice_depth;
    if (slice == 0 || shared_bytes(self) > SHARED_BYTES) return false;
    const int64_t slices = (depth + slice - 1) / slice;
    self->depth_block = slices == 1 ? depth : cy_round_up((depth + slices - 1) / slices, 64);
    const bool stay = self->ops->row_block >= SLICED_ROWS;
    const int64_t cols = stay ? STREAMED_COLS : columns_in(self, SLICED_BYTES);
    const bool narrow = self->c.cols <= cols && self->c.rows >= wanted * SLICED_ROWS;
    if (slices == 1 && !narrow) return false;
    self->tiles = cy_tiles_cut(self->c.rows, self->c.cols, SLICED_ROWS, cols, wanted, false);
    return true;
}

// Chooses the tile that costs the least packing. Transposing left costs most, so the tile of a
// transposed left is as wide as c and its depth is cut short. Otherwise packing right costs most,
// so the tile is high, and as wide as half of L2 holds columns.
static void cut(call *self, int64_t workers)
{
    const int64_t depth = self->depth, wanted = 4 * workers; // the tiles do not change the results
    if (self->spec.transpose_a) {
        const int64_t slice = self->ops->dtype == CY_F32 ? TURNED_DEPTH : 1024;
        self->depth_block = cy_min(depth, cy_round_up(slice, self->ops->depth_step));
        self->tiles = cy_tiles_cut(self->c.rows, self->c.cols, 256, 1536, wanted, false);
    } else if (depth > DEEP) {
        self->depth_block = 1024;
        self->tiles = cy_tiles_cut(self->c.rows, self->c.cols, 512, 640, 1, false);
        const int64_t tiles = cy_tiles_count(&self->tiles);
        if (tiles < workers) {
            const int64_t even = (self->tiles.cols * tiles + workers - 1) / workers;
            self->tiles.cols = cy_round_up(even, CY_MICROKERNEL_COLS);
            self->tiles.col_count = (self->c.cols + self->tiles.cols - 1) / self->tiles.cols;
        }
    } else if (!cut_slices(self, wanted)) {
        self->depth_block = cy_min(depth, 4096);
        const int64_t fits = columns_in(self, PACKED_BYTES);
        self->tiles = cy_tiles_cut(self->c.rows, self->c.cols, 1024,
            fits < 128       ? 128
                : fits > 512 ? 512
                             : fits,
            wanted, true);
    }
    self->pack_left = self->spec.transpose_a || !cy_microkernel_left_fits(self->ops, self->a);
    CY_DEBUG_ASSERT(self->depth_block >= depth || self->depth_block % self->ops->depth_step == 0);
}

// Where columns from `col` of the slice at depth k lie in the shared copy. All slices but the last
// are depth_block deep, which is then a multiple of what depths are rounded up to.
static char *shared_at(const call *self, int64_t col, int64_t k, int64_t depth)
{
    const cy_microkernel *ops = self->ops;
    const int64_t cols = cy_round_up(self->c.cols, CY_MICROKERNEL_COLS);
    const int64_t elements = cols * k + col * cy_round_up(depth, ops->depth_step);
    return self->shared + elements * ops->packed_bytes;
}

static void take_scratch(call *self, cy_queue *queue)
{
    const cy_microkernel *ops = self->ops;
    self->share = self->tiles.row_count > 1 && shared_bytes(self) <= SHARED_BYTES;
    if (self->share) self->shared = cy_arena_alloc(queue->scratch, (size_t)shared_bytes(self));
    const int64_t rows = self->wide_c     ? 0
        : self->depth_block < self->depth ? self->tiles.rows
                                          : cy_min(self->tiles.rows, ops->row_block);
    self->right_bytes =
        self->share ? 0 : cy_microkernel_right_bytes(ops, self->tiles.cols, self->depth_block);
    const int64_t left_rows = self->pack_left ? cy_min(self->tiles.rows, ops->row_block) : 0;
    self->left_bytes = cy_microkernel_left_bytes(ops, left_rows, self->depth_block);
    self->sum_bytes = (size_t)(rows * self->tiles.cols) * sizeof(float);
    self->left_bytes = (size_t)cy_round_up((int64_t)self->left_bytes, CY_ARENA_ALIGN);
    self->sum_bytes = (size_t)cy_round_up((int64_t)self->sum_bytes, CY_ARENA_ALIGN);
    self->right_bytes = (size_t)cy_round_up((int64_t)self->right_bytes, CY_ARENA_ALIGN);
    const size_t bytes = self->left_bytes + self->right_bytes + self->sum_bytes;
    self->scratch = cy_arena_alloc(queue->scratch, bytes * (size_t)cy_queue_workers(queue));
}

// Rows [row, row + rows) and depths [k, k + depth) of a, as they are stored.
static cy_view left_of(const call *self, int64_t row, int64_t rows, int64_t k, int64_t depth)
{
    if (self->spec.transpose_a) {
        return cy_view_cols(cy_view_rows(self->a, k, depth), row, rows);
    }
    return cy_view_cols(cy_view_rows(self->a, row, rows), k, depth);
}

static cy_view right_of(const call *self, int64_t col, int64_t cols, int64_t k, int64_t depth)
{
    if (self->spec.transpose_b) {
        return cy_view_cols(cy_view_rows(self->b, col, cols), k, depth);
    }
    return cy_view_cols(cy_view_rows(self->b, k, depth), col, cols);
}

// Packs a few columns of one slice for all tiles.
static void run_pack(void *context, int64_t index, int worker)
{
    (void)worker;
    const call *self = context;
    const int64_t slices = (self->depth + self->depth_block - 1) / self->depth_block;
    const int64_t k = index % slices * self->depth_block;
    const int64_t col = index / slices * SHARED_COLS;
    const int64_t depth = cy_min(self->depth - k, self->depth_block);
    self->ops->pack_right(shared_at(self, col, k, depth),
        right_of(self, col, cy_min(self->c.cols - col, SHARED_COLS), k, depth),
        self->spec.transpose_b);
}

// One row block of a tile over one slice of depth.
static void multiply_rows(const call *self, char *left, const char *right, char *sums,
    const cy_tile *tile, int64_t row, int64_t rows, int64_t k, int64_t depth)
{
    const cy_microkernel *ops = self->ops;
    const bool whole = self->depth_block >= self->depth;
    cy_view c = cy_view_cols(cy_view_rows(self->c, tile->row + row, rows), tile->col, tile->cols);
    cy_view sum = c;
    if (!self->wide_c) {
        sum = cy_view_of(sums, CY_F32, rows, tile->cols);
        if (!whole) sum.data = (float *)(void *)sums + row * tile->cols;
        if (k == 0 && self->spec.accumulate) ops->convert(sum, c);
    }
    const cy_view source = left_of(self, tile->row + row, rows, k, depth);
    const int64_t padded = cy_round_up(depth, ops->depth_step);
    const void *from = source.data;
    int64_t stride = source.stride;
    if (self->pack_left) {
        ops->pack_left(left, source, self->spec.transpose_a);
        from = left;
        stride = padded;
    }
    ops->multiply(sum.data, sum.stride, from, stride, right, rows, tile->cols, padded,
        self->spec.accumulate || k > 0);
    if (!self->wide_c && k + depth == self->depth) ops->convert(c, sum);
}

static void run_tile(void *context, int64_t index, int worker)
{
    const call *self = context;
    const cy_tile tile = cy_tiles_at(&self->tiles, index, self->c.rows, self->c.cols);
    char *right =
        self->scratch + (size_t)worker * (self->left_bytes + self->right_bytes + self->sum_bytes);
    char *left = right + self->right_bytes;
    char *sums = left + self->left_bytes;

    self->ops->enter();
    for (int64_t k = 0; k < self->depth; k += self->depth_block) {
        const int64_t depth = cy_min(self->depth - k, self->depth_block);
        const char *packed = right;
        if (self->share) {
            packed = shared_at(self, tile.col, k, depth);
        } else {
            self->ops->pack_right(
                right, right_of(self, tile.col, tile.cols, k, depth), self->spec.transpose_b);
        }
        const int64_t block = self->ops->row_block;
        for (int64_t row = 0; row < tile.rows; row += block) {
            multiply_rows(
                self, left, packed, sums, &tile, row, cy_min(tile.rows - row, block), k, depth);
        }
    }
    self->ops->leave();
}

static bool is_half(cy_dtype dtype)
{
    return dtype == CY_BF16 || dtype == CY_F16;
}

void cy_matmul_tiled(cy_queue *queue, const cy_microkernel *wide, const cy_microkernel *narrow,
    cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    const int64_t depth = spec.transpose_a ? a.rows : a.cols;
    const bool floats = a.dtype == CY_F32 || is_half(a.dtype);
    if (!floats || (c.dtype != a.dtype && c.dtype != CY_F32) || depth == 0) {
        cy_kernels_ref()->matmul(queue, c, a, b, spec);
        return;
    }
    const bool as_is = narrow != NULL && narrow->dtype == a.dtype;
    call self = {
        .ops = as_is ? narrow : wide,
        .c = c,
        .a = a,
        .b = b,
        .spec = spec,
        .depth = depth,
        .wide_c = c.dtype == CY_F32,
    };
    cut(&self, cy_queue_workers(queue));
    const size_t mark = cy_arena_mark(queue->scratch);
    take_scratch(&self, queue);
    if (self.share) {
        const int64_t slices = (depth + self.depth_block - 1) / self.depth_block;
        cy_queue_run(queue, run_pack, &self, slices * ((c.cols + SHARED_COLS - 1) / SHARED_COLS));
    }
    cy_queue_run(queue, run_tile, &self, cy_tiles_count(&self.tiles));
    cy_arena_rewind(queue->scratch, mark);
}

void cy_matmul_blocks(cy_queue *queue, const cy_microkernel *wide, const cy_microkernel *narrow,
    cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    const bool floats = a.dtype == CY_F32 || is_half(a.dtype);
    const bool supported = floats && (c.dtype == a.dtype || c.dtype == CY_F32) && b.cols > 0;
    if (supported && spec.transpose_b && !spec.transpose_a && c.rows <= CY_MATMUL_FEW) {
        cy_matmul_few(queue, wide, c, a, b, spec);
        return;
    }
    cy_matmul_tiled(queue, wide, narrow, c, a, b, spec);
}

// ---- a few rows

// Columns of a task at least. There is one task a worker, so that each reads one long range of b.
#define FEW_COLS 64

typedef struct few_call {
    const cy_microkernel *ops;
    cy_view c, b;
    const float *a; // [c.rows, b.cols]
    float *sums;    // [workers, 2, CY_MATMUL_FEW, cols]
    int64_t cols;   // of a task
    bool accumulate;
    const void *next; // read after b by the worker of the last task
} few_call;

static void run_few(void *context, int64_t index, int worker)
{
    const few_call *self = context;
    const int64_t first = index * self->cols, rows = self->c.rows;
    const int64_t cols = cy_min(self->c.cols - first, self->cols);
    float *sums = self->sums + self->cols * 2 * CY_MATMUL_FEW * worker;
    float *old = sums + CY_MATMUL_FEW * self->cols;
    const cy_view c = cy_view_cols(self->c, first, cols);
    const void *next = first + cols == self->c.cols ? self->next : NULL;
    self->ops->dot(sums, self->a, rows, cy_view_rows(self->b, first, cols), next);
    if (self->accumulate) {
        self->ops->convert(cy_view_of(old, CY_F32, rows, cols), c);
        for (int64_t i = 0; i < rows * cols; i++)
            sums[i] += old[i];
    }
    self->ops->convert(c, cy_view_of(sums, CY_F32, rows, cols));
}

void cy_matmul_few(cy_queue *queue, const cy_microkernel *ops, cy_view c, cy_view a, cy_view b,
    cy_matmul_spec spec)
{
    few_call self = {.ops = ops, .c = c, .b = b, .accumulate = spec.accumulate, .next = spec.next};
    const int64_t workers = cy_queue_workers(queue);
    self.cols = cy_round_up((c.cols + workers - 1) / workers, FEW_COLS);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view wide = cy_view_alloc(queue->scratch, CY_F32, a.rows, a.cols);
    self.a = wide.data;
    self.sums = cy_arena_alloc(
        queue->scratch, (size_t)workers * 2 * CY_MATMUL_FEW * (size_t)self.cols * sizeof(float));
    if (!queue->dry) ops->convert(wide, a);
    cy_queue_run(queue, run_few, &self, (c.cols + self.cols - 1) / self.cols);
    cy_arena_rewind(queue->scratch, mark);
}

#if defined(__x86_64__)
void cy_matmul_avx2(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    const int64_t depth = spec.transpose_a ? a.rows : a.cols;
    const bool few = spec.transpose_b && !spec.transpose_a && c.rows <= CY_MATMUL_FEW;
    const bool floats = a.dtype == CY_F32 || is_half(a.dtype);
    if (few || !floats || (c.dtype != a.dtype && c.dtype != CY_F32) || depth == 0) {
        cy_matmul_blocks(queue, cy_microkernel_avx2(), NULL, c, a, b, spec);
        return;
    }
    const cy_cpu_state *state = queue->kernel_state;
    const cy_panel_caches caches = {state->cpu.l1_bytes, state->cpu.l2_bytes};
    cy_matmul_panels(queue, cy_panels_avx2(), caches, c, a, b, spec);
}

void cy_matmul_avx512(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    cy_matmul_blocks(queue, cy_microkernel_avx512(), NULL, c, a, b, spec);
}

void cy_matmul_avx512_bf16(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    cy_matmul_blocks(queue, cy_microkernel_avx512(), cy_microkernel_avx512_bf16(), c, a, b, spec);
}

void cy_matmul_amx(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    const cy_microkernel *wide =
        c.rows < CY_MATMUL_SPLIT_ROWS ? cy_microkernel_avx512() : cy_microkernel_amx_split();
    cy_matmul_blocks(queue, wide, cy_microkernel_amx(), c, a, b, spec);
}
#elif defined(__aarch64__)
void cy_matmul_neon(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    cy_matmul_blocks(queue, cy_microkernel_neon(), NULL, c, a, b, spec);
}
#endif

// ---- tiles

#define ROWS_MIN 64
#define COLS_MIN 128

// The smallest even split of `count` into chunks of at most `limit`, in multiples of `step`.
static int64_t split(int64_t count, int64_t limit, int64_t step)
{
    if (count <= limit) return count;
    const int64_t even = cy_ceil_div(count, cy_ceil_div(count, limit));
    return cy_ceil_div(even, step) * step;
}

cy_tiles cy_tiles_cut(
    int64_t rows, int64_t cols, int64_t rows_max, int64_t cols_max, int64_t wanted, bool keep_rows)
{
    cy_tiles tiles;
    for (;;) {
        tiles.rows = split(rows, rows_max, 32);
        tiles.cols = split(cols, cols_max, 64);
        tiles.row_count = cy_ceil_div(rows, tiles.rows);
        tiles.col_count = cy_ceil_div(cols, tiles.cols);
        if (tiles.row_count * tiles.col_count >= wanted) return tiles;
        // The longer side is halved first, the other where that one is short already.
        const bool low = tiles.rows / 2 < ROWS_MIN, narrow = tiles.cols / 2 < COLS_MIN;
        const bool wide = keep_rows || tiles.cols >= 2 * tiles.rows;
        if (low && narrow) return tiles;
        if (!narrow && (wide || low)) {
            cols_max = tiles.cols / 2;
        } else {
            rows_max = tiles.rows / 2;
        }
    }
}

int64_t cy_tiles_count(const cy_tiles *tiles)
{
    return tiles->row_count * tiles->col_count;
}

cy_tile cy_tiles_at(const cy_tiles *tiles, int64_t index, int64_t rows, int64_t cols)
{
    cy_tile tile = {
        .row = index % tiles->row_count * tiles->rows,
        .col = index / tiles->row_count * tiles->cols,
    };
    tile.rows = rows - tile.row < tiles->rows ? rows - tile.row : tiles->rows;
    tile.cols = cols - tile.col < tiles->cols ? cols - tile.col : tiles->cols;
    return tile;
}
