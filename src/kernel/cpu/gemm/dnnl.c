#include "kernel/cpu/gemm/dnnl.h"

#include "base/assert.h"
#include "base/memory.h"
#include "kernel/cpu/dnnl_product.h"
#include "kernel/cpu/state.h"
#include "kernel/cpu/tiles.h"

#include <string.h>

// From omp.h, which clang does not ship with the compiler. Both are in every OpenMP runtime.
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);

// Measured on 2048 tokens of a 135 M model: a tile of 256 rows keeps a's rows in L2 while 1024
// columns of b stream by.
#define TILE_ROWS 256
#define TILE_COLS 1024
#define TILES     16

// That the library is asked about.
static const cy_dtype dtypes[] = {CY_F32, CY_BF16, CY_F16};
#define DTYPES (sizeof(dtypes) / sizeof(*dtypes))

typedef struct product {
    cy_dnnl_key key;
    dnnl_primitive_t primitive; // owned; NULL: the library refuses this product
    dnnl_memory_t *memories;    // owned, [workers, CY_DNNL_OPERANDS]
    size_t scratch_bytes;
} product;

struct cy_dnnl {
    dnnl_engine_t engine;   // owned
    dnnl_stream_t *streams; // owned, [workers]
    int workers;
    product *products; // owned, [product_count]
    size_t product_count;
    size_t product_capacity;
    int64_t failed_tiles;
    bool takes[DTYPES][2][2][2][2]; // [dtype][c is fp32][accumulate][transpose_a][transpose_b]
};

// The corner, edge and inner tiles of one call, by (last row of tiles, last column of tiles).
typedef struct call {
    cy_dnnl *dnnl;
    cy_view c, a, b;
    cy_matmul_spec spec;
    cy_tiles tiles;
    product products[2][2]; // copies: what they point to is the context's
    char *failed;           // [tiles]: not 0 where the library could not run the primitive
    char *scratch;          // [workers, scratch_bytes]
    size_t scratch_bytes;
} call;

// Makes the primitive of made->key, or leaves it NULL where the library refuses. Our own want of
// memory is an error.
static cy_status make_product(cy_dnnl *dnnl, product *made)
{
    void *memories = NULL;
    CY_TRY(
        cy_memory_take(&memories, (size_t)dnnl->workers * CY_DNNL_OPERANDS, sizeof(dnnl_memory_t)));
    // A primitive is compiled for the threads that it will find when it runs: one.
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    const cy_status status = cy_dnnl_make(
        &made->primitive, memories, &made->scratch_bytes, dnnl->engine, &made->key, dnnl->workers);
    omp_set_num_threads(threads);
    if (status != CY_OK) {
        made->primitive = NULL;
        cy_memory_free(memories);
        return CY_OK;
    }
    made->memories = memories;
    return CY_OK;
}

static void destroy_product(const cy_dnnl *dnnl, const product *item)
{
    if (item->primitive == NULL) return;
    for (int i = 0; i < dnnl->workers * CY_DNNL_OPERANDS; i++)
        dnnl_memory_destroy(item->memories[i]);
    dnnl_primitive_destroy(item->primitive);
    cy_memory_free(item->memories);
}

static size_t slot_of(cy_dtype dtype)
{
    size_t slot = 0;
    while (slot < DTYPES && dtypes[slot] != dtype)
        slot++;
    return slot;
}

// Makes a small product of each kind. The shape has nothing particular to it.
static cy_status ask(cy_dnnl *dnnl)
{
    enum { ROWS = 48, COLS = 80, DEPTH = 64 };
    for (int bits = 0; bits < (int)DTYPES * 16; bits++) {
        const cy_dtype dtype = dtypes[bits / 16];
        const bool wide = (bits & 8) != 0, accumulate = (bits & 4) != 0;
        const bool ta = (bits & 2) != 0, tb = (bits & 1) != 0;
        if (dtype == CY_F32 ? !wide : !wide && accumulate) continue;
        product item = {.key = {
                            .rows = ROWS,
                            .cols = COLS,
                            .depth = DEPTH,
                            .a_row = ta ? 1 : DEPTH,
                            .a_col = ta ? ROWS : 1,
                            .b_row = tb ? 1 : COLS,
                            .b_col = tb ? DEPTH : 1,
                            .c_row = COLS,
                            .dtype = (int32_t)dtype,
                            .c_dtype = (int32_t)(wide ? CY_F32 : dtype),
                            .accumulate = accumulate,
                        }};
        CY_TRY(make_product(dnnl, &item));
        dnnl->takes[bits / 16][wide][accumulate][ta][tb] = item.primitive != NULL;
        destroy_product(dnnl, &item);
    }
    return CY_OK;
}

bool cy_dnnl_takes(const cy_dnnl *dnnl, cy_dtype dtype, cy_dtype c_dtype, cy_matmul_spec spec)
{
    const size_t slot = slot_of(dtype);
    if (slot == DTYPES || (c_dtype != dtype && c_dtype != CY_F32)) return false;
    return dnnl
        ->takes[slot][c_dtype == CY_F32][spec.accumulate][spec.transpose_a][spec.transpose_b];
}

cy_status cy_dnnl_open(cy_dnnl **dnnl, int workers, cy_dnnl_limit limit)
{
    if (!cy_dnnl_hold(limit)) {
        return CY_FAIL(CY_ERR_UNSUPPORTED, "oneDNN already uses %s in this process", cy_dnnl_isa());
    }
    void *block = NULL;
    CY_TRY(cy_memory_take(&block, 1, sizeof(cy_dnnl)));
    cy_dnnl *made = block;
    cy_status status = cy_memory_take(&block, (size_t)workers, sizeof(dnnl_stream_t));
    if (status != CY_OK) goto close;
    made->streams = block;
    if (dnnl_engine_create(&made->engine, dnnl_cpu, 0) != dnnl_success) {
        status = CY_FAIL(CY_ERR_UNSUPPORTED, "oneDNN has no processor engine");
        goto close;
    }
    for (int i = 0; i < workers; i++) {
        if (dnnl_stream_create(&made->streams[i], made->engine, dnnl_stream_default_flags) !=
            dnnl_success) {
            status = CY_FAIL(CY_ERR_MEMORY, "oneDNN stream %d of %d", i, workers);
            goto close;
        }
        made->workers = i + 1;
    }
    status = ask(made);
    if (status != CY_OK) goto close;
    *dnnl = made;
    return CY_OK;

close:
    cy_dnnl_close(made);
    return status;
}

void cy_dnnl_close(cy_dnnl *dnnl)
{
    if (dnnl == NULL) return;
    for (size_t i = 0; i < dnnl->product_count; i++)
        destroy_product(dnnl, &dnnl->products[i]);
    for (int i = 0; i < dnnl->workers; i++)
        dnnl_stream_destroy(dnnl->streams[i]);
    if (dnnl->engine != NULL) dnnl_engine_destroy(dnnl->engine);
    cy_memory_free(dnnl->streams);
    cy_memory_free(dnnl->products);
    cy_memory_free(dnnl);
}

int64_t cy_dnnl_primitives(const cy_dnnl *dnnl)
{
    int64_t made = 0;
    for (size_t i = 0; i < dnnl->product_count; i++)
        made += dnnl->products[i].primitive != NULL;
    return made;
}

int64_t cy_dnnl_failed_tiles(const cy_dnnl *dnnl)
{
    return dnnl->failed_tiles;
}

// The product of this key, NULL where the library refuses it or memory is wanting. A refusal is
// remembered like a primitive.
static const product *find_product(cy_dnnl *dnnl, const cy_dnnl_key *key)
{
    for (size_t i = 0; i < dnnl->product_count; i++) {
        const product *item = &dnnl->products[i];
        if (memcmp(&item->key, key, sizeof(*key)) == 0) {
            return item->primitive == NULL ? NULL : item;
        }
    }
    void *products = dnnl->products;
    cy_status status = cy_memory_grow(
        &products, &dnnl->product_capacity, dnnl->product_count + 1, sizeof(product));
    if (status != CY_OK) return NULL;
    dnnl->products = products;
    product made = {.key = *key};
    status = make_product(dnnl, &made);
    if (status != CY_OK) return NULL;
    dnnl->products[dnnl->product_count++] = made;
    return made.primitive == NULL ? NULL : &dnnl->products[dnnl->product_count - 1];
}

static void run_tile(void *context, int64_t index, int worker)
{
    const call *self = context;
    const cy_tile tile = cy_tiles_at(&self->tiles, index, self->c.rows, self->c.cols);
    const product *item =
        &self->products[tile.rows != self->tiles.rows][tile.cols != self->tiles.cols];
    dnnl_memory_t *memories = &item->memories[(size_t)worker * CY_DNNL_OPERANDS];
    void *const data[CY_DNNL_OPERANDS] = {
        self->spec.transpose_a ? cy_view_at(self->a, 0, tile.row)
                               : cy_view_at(self->a, tile.row, 0),
        self->spec.transpose_b ? cy_view_at(self->b, tile.col, 0)
                               : cy_view_at(self->b, 0, tile.col),
        cy_view_at(self->c, tile.row, tile.col),
        self->scratch + (size_t)worker * self->scratch_bytes,
    };
    static const int names[CY_DNNL_OPERANDS] = {
        DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t arguments[CY_DNNL_OPERANDS];
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < CY_DNNL_OPERANDS; i++) {
        if (status == dnnl_success) status = dnnl_memory_set_data_handle(memories[i], data[i]);
        arguments[i] = (dnnl_exec_arg_t){names[i], memories[i]};
    }
    // The setting is per thread; worker 0 is the caller's own, so it gets its own back.
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    if (status == dnnl_success) {
        status = dnnl_primitive_execute(
            item->primitive, self->dnnl->streams[worker], CY_DNNL_OPERANDS, arguments);
    }
    omp_set_num_threads(threads);
    self->failed[index] = status != dnnl_success;
}

static cy_dnnl_key key_of(const call *self, int64_t depth, int64_t rows, int64_t cols)
{
    const bool ta = self->spec.transpose_a, tb = self->spec.transpose_b;
    return (cy_dnnl_key){
        .rows = rows,
        .cols = cols,
        .depth = depth,
        .a_row = ta ? 1 : self->a.stride,
        .a_col = ta ? self->a.stride : 1,
        .b_row = tb ? 1 : self->b.stride,
        .b_col = tb ? self->b.stride : 1,
        .c_row = self->c.stride,
        .dtype = (int32_t)self->a.dtype,
        .c_dtype = (int32_t)self->c.dtype,
        .accumulate = self->spec.accumulate,
    };
}

// The tiles of c that are marked, one by one: portable products take no memory.
static void repair(cy_queue *queue, const call *self)
{
    for (int64_t i = 0; i < cy_tiles_count(&self->tiles); i++) {
        if (self->failed[i] == 0) continue;
        const cy_tile tile = cy_tiles_at(&self->tiles, i, self->c.rows, self->c.cols);
        const cy_view a = self->spec.transpose_a ? cy_view_cols(self->a, tile.row, tile.rows)
                                                 : cy_view_rows(self->a, tile.row, tile.rows);
        const cy_view b = self->spec.transpose_b ? cy_view_rows(self->b, tile.col, tile.cols)
                                                 : cy_view_cols(self->b, tile.col, tile.cols);
        const cy_view c =
            cy_view_cols(cy_view_rows(self->c, tile.row, tile.rows), tile.col, tile.cols);
        cy_kernels_ref()->matmul(queue, c, a, b, self->spec);
        self->dnnl->failed_tiles++;
    }
}

// Cuts c and finds the primitives of its tiles; false where the library refuses one of them.
static bool prepare(call *self, int64_t depth)
{
    self->tiles = cy_tiles_cut(self->c.rows, self->c.cols, TILE_ROWS, TILE_COLS, TILES, false);
    const int64_t last_rows = self->c.rows - (self->tiles.row_count - 1) * self->tiles.rows;
    const int64_t last_cols = self->c.cols - (self->tiles.col_count - 1) * self->tiles.cols;
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            const cy_dnnl_key key = key_of(self, depth, i != 0 ? last_rows : self->tiles.rows,
                j != 0 ? last_cols : self->tiles.cols);
            const product *item = find_product(self->dnnl, &key);
            if (item == NULL) return false;
            self->products[i][j] = *item;
            if (item->scratch_bytes > self->scratch_bytes)
                self->scratch_bytes = item->scratch_bytes;
        }
    }
    self->scratch_bytes = cy_arena_bytes(self->scratch_bytes);
    return true;
}

void cy_matmul_dnnl(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    const int64_t depth = spec.transpose_a ? a.rows : a.cols;
    cy_cpu_state *state = queue->kernel_state;
    call self = {.dnnl = state->dnnl, .c = c, .a = a, .b = b, .spec = spec};
    if (depth == 0 || !cy_dnnl_takes(self.dnnl, a.dtype, c.dtype, spec) || !prepare(&self, depth)) {
        state->product(queue, c, a, b, spec);
        return;
    }
    const size_t mark = cy_arena_mark(queue->scratch);
    const int64_t tiles = cy_tiles_count(&self.tiles);
    self.failed = cy_arena_take(queue->scratch, (size_t)tiles);
    self.scratch =
        cy_arena_take(queue->scratch, self.scratch_bytes * (size_t)cy_queue_workers(queue));
    cy_queue_run(queue, run_tile, &self, tiles);
    if (!queue->dry) repair(queue, &self);
    cy_arena_rewind(queue->scratch, mark);
}
