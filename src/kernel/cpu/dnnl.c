#include "kernel/cpu/dnnl.h"

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

typedef struct product {
    cy_dnnl_key key;
    dnnl_primitive_t primitive; // owned
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
};

// The corner, edge and inner tiles of one call, by (last row of tiles, last column of tiles).
typedef struct call {
    cy_dnnl *dnnl;
    cy_view c, a, b;
    cy_matmul_spec spec;
    cy_tiles tiles;
    size_t products[2][2]; // index into dnnl->products
    char *scratch;         // [workers, scratch_bytes]
    size_t scratch_bytes;
} call;

cy_status cy_dnnl_open(cy_dnnl **dnnl, int workers)
{
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
    *dnnl = made;
    return CY_OK;

close:
    cy_dnnl_close(made);
    return status;
}

void cy_dnnl_close(cy_dnnl *dnnl)
{
    if (dnnl == NULL) return;
    for (size_t i = 0; i < dnnl->product_count; i++) {
        product *item = &dnnl->products[i];
        for (int j = 0; j < dnnl->workers * CY_DNNL_OPERANDS; j++) {
            dnnl_memory_destroy(item->memories[j]);
        }
        dnnl_primitive_destroy(item->primitive);
        cy_memory_free(item->memories);
    }
    for (int i = 0; i < dnnl->workers; i++)
        dnnl_stream_destroy(dnnl->streams[i]);
    if (dnnl->engine != NULL) dnnl_engine_destroy(dnnl->engine);
    cy_memory_free(dnnl->streams);
    cy_memory_free(dnnl->products);
    cy_memory_free(dnnl);
}

int64_t cy_dnnl_primitives(const cy_dnnl *dnnl)
{
    return (int64_t)dnnl->product_count;
}

static cy_status add_product(cy_dnnl *dnnl, const cy_dnnl_key *key)
{
    void *products = dnnl->products;
    CY_TRY(cy_memory_grow(
        &products, &dnnl->product_capacity, dnnl->product_count + 1, sizeof(product)));
    dnnl->products = products;
    void *memories = NULL;
    CY_TRY(
        cy_memory_take(&memories, (size_t)dnnl->workers * CY_DNNL_OPERANDS, sizeof(dnnl_memory_t)));
    product made = {.key = *key, .memories = memories};

    // A primitive is compiled for the threads that it will find when it runs: one.
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    const cy_status status = cy_dnnl_make(
        &made.primitive, made.memories, &made.scratch_bytes, dnnl->engine, key, dnnl->workers);
    omp_set_num_threads(threads);
    if (status != CY_OK) {
        cy_memory_free(memories);
        return status;
    }
    dnnl->products[dnnl->product_count++] = made;
    return CY_OK;
}

static size_t find_product(cy_dnnl *dnnl, const cy_dnnl_key *key)
{
    for (size_t i = 0; i < dnnl->product_count; i++) {
        if (memcmp(&dnnl->products[i].key, key, sizeof(*key)) == 0) return i;
    }
    // A refusal here is want of memory: all keys that reach this place are shapes oneDNN takes.
    const cy_status status = add_product(dnnl, key);
    CY_ASSERT(status == CY_OK);
    return dnnl->product_count - 1;
}

static void run_tile(void *context, int64_t index, int worker)
{
    const call *self = context;
    const cy_tile tile = cy_tiles_at(&self->tiles, index, self->c.rows, self->c.cols);
    const product *item = &self->dnnl->products[self->products[tile.rows != self->tiles.rows]
                                                              [tile.cols != self->tiles.cols]];
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
    for (int i = 0; i < CY_DNNL_OPERANDS; i++) {
        dnnl_memory_set_data_handle(memories[i], data[i]);
        arguments[i] = (dnnl_exec_arg_t){names[i], memories[i]};
    }
    // The setting is per thread; worker 0 is the caller's own, so it gets its own back.
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    const dnnl_status_t status = dnnl_primitive_execute(
        item->primitive, self->dnnl->streams[worker], CY_DNNL_OPERANDS, arguments);
    omp_set_num_threads(threads);
    CY_ASSERT(status == dnnl_success);
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

static bool takes(cy_view c, cy_view a, cy_matmul_spec spec)
{
    if (a.dtype == CY_F32) return c.dtype == CY_F32;
    if (a.dtype != CY_BF16) return false;
    // A sum in bf16 would round twice.
    return c.dtype == CY_F32 || (c.dtype == CY_BF16 && !spec.accumulate);
}

void cy_matmul_dnnl(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    const int64_t depth = spec.transpose_a ? a.rows : a.cols;
    if (!takes(c, a, spec) || depth == 0) {
        cy_kernels_ref()->matmul(queue, c, a, b, spec);
        return;
    }
    cy_cpu_state *state = queue->kernel_state;
    call self = {.dnnl = state->dnnl, .c = c, .a = a, .b = b, .spec = spec};
    self.tiles = cy_tiles_cut(c.rows, c.cols, TILE_ROWS, TILE_COLS, TILES, false);
    const int64_t last_rows = c.rows - (self.tiles.row_count - 1) * self.tiles.rows;
    const int64_t last_cols = c.cols - (self.tiles.col_count - 1) * self.tiles.cols;
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            const cy_dnnl_key key = key_of(&self, depth, i != 0 ? last_rows : self.tiles.rows,
                j != 0 ? last_cols : self.tiles.cols);
            self.products[i][j] = find_product(self.dnnl, &key);
            const size_t bytes = self.dnnl->products[self.products[i][j]].scratch_bytes;
            if (bytes > self.scratch_bytes) self.scratch_bytes = bytes;
        }
    }
    self.scratch_bytes = cy_arena_bytes(self.scratch_bytes);

    const size_t mark = cy_arena_mark(queue->scratch);
    self.scratch =
        cy_arena_take(queue->scratch, self.scratch_bytes * (size_t)cy_queue_workers(queue));
    cy_queue_run(queue, run_tile, &self, cy_tiles_count(&self.tiles));
    cy_arena_rewind(queue->scratch, mark);
}
