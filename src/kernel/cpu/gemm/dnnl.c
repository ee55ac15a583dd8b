// Multiplies matrices through oneDNN: keeps its primitives by shape, and runs them on tiles with
// the threads of the rank.

#include "kernel/cpu/gemm/matmul.h"

#include "base/memory.h"
#include "base/status.h"
#include "kernel/cpu/cpu.h"

#include <dnnl.h>
#include <string.h>

// ---- one primitive: the part of oneDNN's API that differs between its versions; this is version 2
//
// A primitive is made once and then run by any number of threads, each with its own handles and
// scratch memory.

// What a primitive is compiled for. Strides are in elements, between rows and between columns of
// the operand as the product reads it: a transposed operand has its strides the other way round.
typedef struct primitive_key {
    int64_t rows, cols, depth; // c [rows, cols] = a [rows, depth] b [depth, cols]
    int64_t a_row, a_col;
    int64_t b_row, b_col;
    int64_t c_row;
    int32_t dtype; // a cy_dtype of a and b
    int32_t c_dtype;
    int64_t accumulate; // 0 or 1; wide, so that the key has no gaps and compares as bytes
} primitive_key;

enum {
    OPERAND_A,
    OPERAND_B,
    OPERAND_C,
    OPERAND_SCRATCH,
    OPERANDS,
};

static dnnl_data_type_t data_type(int32_t dtype)
{
    return dtype == CY_BF16 ? dnnl_bf16 : dtype == CY_F16 ? dnnl_f16 : dnnl_f32;
}

// The setting can be made once and before its first use, and the question for what is in effect is
// a use: whichever thread of the process comes first decides, and all see the same answer. The
// values are sets of bits, each set with those of the instructions that it builds on.
static bool hold(cy_dnnl_limit limit)
{
    static const dnnl_cpu_isa_t most[] = {
        [CY_DNNL_AVX512] = dnnl_cpu_isa_avx512_core,
        [CY_DNNL_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
        [CY_DNNL_AMX] = dnnl_cpu_isa_avx512_core_amx,
    };
    if (limit == CY_DNNL_ANY) return true;
    dnnl_set_max_cpu_isa(most[limit]); // its answer is what follows
    const unsigned used = (unsigned)dnnl_get_effective_cpu_isa();
    return used != (unsigned)dnnl_cpu_isa_all && (used & ~(unsigned)most[limit]) == 0;
}

const char *cy_dnnl_isa(void)
{
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } known[] = {
        {dnnl_cpu_isa_all, "all"},
        {dnnl_cpu_isa_sse41, "sse41"},
        {dnnl_cpu_isa_avx, "avx"},
        {dnnl_cpu_isa_avx2, "avx2"},
        {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
        {dnnl_cpu_isa_avx512_core, "avx512_core"},
        {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
        {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
        {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
    };
    const dnnl_cpu_isa_t used = dnnl_get_effective_cpu_isa();
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (known[i].isa == used) return known[i].name;
    }
    return "another set of instructions";
}

// Whether this version of the library found the call well formed and had memory for it.
static cy_status check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success) return CY_OK;
    return CY_FAIL(status == dnnl_out_of_memory ? CY_ERR_MEMORY : CY_ERR_UNSUPPORTED,
        "oneDNN refused to make %s: status %d", what, (int)status);
}

static cy_status make_attributes(dnnl_primitive_attr_t *attributes, bool accumulate)
{
    CY_TRY(check(dnnl_primitive_attr_create(attributes), "attributes"));
    cy_status status =
        check(dnnl_primitive_attr_set_scratchpad_mode(*attributes, dnnl_scratchpad_mode_user),
            "attributes");
    if (status == CY_OK && accumulate) {
        dnnl_post_ops_t sum = NULL;
        status = check(dnnl_post_ops_create(&sum), "a post operation");
        if (status == CY_OK) status = check(dnnl_post_ops_append_sum(sum, 1.0f), "a sum");
        if (status == CY_OK)
            status = check(dnnl_primitive_attr_set_post_ops(*attributes, sum), "a sum");
        if (sum != NULL) dnnl_post_ops_destroy(sum);
    }
    if (status != CY_OK) dnnl_primitive_attr_destroy(*attributes);
    return status;
}

static cy_status make_descriptor(dnnl_primitive_desc_t *descriptor, dnnl_memory_desc_t operands[3],
    dnnl_engine_t engine, const primitive_key *key)
{
    const dnnl_dims_t dims[3] = {
        {key->rows, key->depth}, {key->depth, key->cols}, {key->rows, key->cols}};
    const dnnl_dims_t strides[3] = {
        {key->a_row, key->a_col}, {key->b_row, key->b_col}, {key->c_row, 1}};
    for (int i = 0; i < 3; i++) {
        const dnnl_data_type_t type = data_type(i == OPERAND_C ? key->c_dtype : key->dtype);
        CY_TRY(check(dnnl_memory_desc_init_by_strides(&operands[i], 2, dims[i], type, strides[i]),
            "an operand"));
    }
    dnnl_matmul_desc_t product;
    CY_TRY(check(dnnl_matmul_desc_init(&product, &operands[OPERAND_A], &operands[OPERAND_B], NULL,
                     &operands[OPERAND_C]),
        "a product"));
    dnnl_primitive_attr_t attributes = NULL;
    CY_TRY(make_attributes(&attributes, key->accumulate != 0));
    const cy_status status = check(
        dnnl_primitive_desc_create(descriptor, &product, attributes, engine, NULL), "a product");
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

static cy_status make_memories(
    dnnl_memory_t *memories, const dnnl_memory_desc_t *operands, dnnl_engine_t engine, int count)
{
    for (int i = 0; i < count; i++) {
        const cy_status status = check(
            dnnl_memory_create(&memories[i], &operands[i % OPERANDS], engine, DNNL_MEMORY_NONE),
            "a handle");
        if (status != CY_OK) {
            while (i-- > 0)
                dnnl_memory_destroy(memories[i]);
            return status;
        }
    }
    return CY_OK;
}

// The library's own reference computes element by element: our kernels are faster.
static cy_status refuse_reference(const_dnnl_primitive_desc_t descriptor)
{
    const char *name = "";
    CY_TRY(check(dnnl_primitive_desc_query(descriptor, dnnl_query_impl_info_str, 0, &name),
        "the name of an implementation"));
    if (strstr(name, "ref") == NULL) return CY_OK;
    return CY_FAIL(CY_ERR_UNSUPPORTED, "oneDNN has only \"%s\" for a product", name);
}

// Makes the primitive, and for each of `workers` workers one handle per operand (without data) in
// memories[worker * OPERANDS + operand]. On failure nothing is left behind: CY_ERR_MEMORY,
// or CY_ERR_UNSUPPORTED where the library refuses the product or has only its slow reference.
static cy_status make_primitive(dnnl_primitive_t *primitive, dnnl_memory_t *memories,
    size_t *scratch_bytes, dnnl_engine_t engine, const primitive_key *key, int workers)
{
    dnnl_memory_desc_t operands[OPERANDS];
    dnnl_primitive_desc_t descriptor = NULL;
    CY_TRY(make_descriptor(&descriptor, operands, engine, key));
    operands[OPERAND_SCRATCH] =
        *dnnl_primitive_desc_query_md(descriptor, dnnl_query_scratchpad_md, 0);
    const size_t bytes = dnnl_memory_desc_get_size(&operands[OPERAND_SCRATCH]);

    dnnl_primitive_t made = NULL;
    cy_status status = refuse_reference(descriptor);
    if (status == CY_OK) status = check(dnnl_primitive_create(&made, descriptor), "a primitive");
    dnnl_primitive_desc_destroy(descriptor);
    CY_TRY(status);
    status = make_memories(memories, operands, engine, workers * OPERANDS);
    if (status != CY_OK) {
        dnnl_primitive_destroy(made);
        return status;
    }
    *primitive = made;
    *scratch_bytes = bytes;
    return CY_OK;
}

// ---- products

// From omp.h, which clang does not ship with the compiler. Both are in every OpenMP runtime.
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);

// Measured on 2048 tokens of a 135 M model: a tile of 256 rows keeps a's rows in L2 while 1024
// columns of b stream by.
#define TILE_ROWS 256
#define TILE_COLS 1024
#define TILES     16

// Room for the code of one primitive: where oneDNN 2.7 gets none it crashes.
#define CODE_BYTES ((size_t)8 << 20)

// That the library is asked about.
static const cy_dtype dtypes[] = {CY_F32, CY_BF16, CY_F16};
#define DTYPES (sizeof(dtypes) / sizeof(*dtypes))

typedef struct product {
    primitive_key key;
    dnnl_primitive_t primitive; // owned; NULL: the library refuses this product
    dnnl_memory_t *memories;    // owned, [workers, OPERANDS]
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
    if (!cy_memory_may_map(CODE_BYTES)) {
        const cy_status status = CY_FAIL(CY_ERR_MEMORY,
            "no memory for the code of a product of oneDNN: the process may not map %zu bytes",
            CODE_BYTES);
        cy_error_set_hint("ulimit -v unlimited, and ulimit -d");
        return status;
    }
    dnnl_memory_t *memories = NULL;
    CY_TRY(CY_ALLOC(&memories, (size_t)dnnl->workers * OPERANDS));
    // A primitive is compiled for the threads that it will find when it runs: one.
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    const cy_status status = make_primitive(
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
    for (int i = 0; i < dnnl->workers * OPERANDS; i++)
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

bool cy_dnnl_supports(const cy_dnnl *dnnl, cy_dtype dtype, cy_dtype c_dtype, cy_matmul_spec spec)
{
    const size_t slot = slot_of(dtype);
    if (slot == DTYPES || (c_dtype != dtype && c_dtype != CY_F32)) return false;
    return dnnl
        ->takes[slot][c_dtype == CY_F32][spec.accumulate][spec.transpose_a][spec.transpose_b];
}

cy_status cy_dnnl_open(cy_dnnl **dnnl, int workers, cy_dnnl_limit limit)
{
    if (!hold(limit)) {
        return CY_FAIL(CY_ERR_UNSUPPORTED, "oneDNN already uses %s in this process", cy_dnnl_isa());
    }
    cy_dnnl *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    cy_status status = CY_ALLOC(&made->streams, (size_t)workers);
    if (status != CY_OK) goto close;
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
static const product *find_product(cy_dnnl *dnnl, const primitive_key *key)
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
    dnnl_memory_t *memories = &item->memories[(size_t)worker * OPERANDS];
    void *const data[OPERANDS] = {
        self->spec.transpose_a ? cy_view_at(self->a, 0, tile.row)
                               : cy_view_at(self->a, tile.row, 0),
        self->spec.transpose_b ? cy_view_at(self->b, tile.col, 0)
                               : cy_view_at(self->b, 0, tile.col),
        cy_view_at(self->c, tile.row, tile.col),
        self->scratch + (size_t)worker * self->scratch_bytes,
    };
    static const int names[OPERANDS] = {
        DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t arguments[OPERANDS];
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < OPERANDS; i++) {
        if (status == dnnl_success) status = dnnl_memory_set_data_handle(memories[i], data[i]);
        arguments[i] = (dnnl_exec_arg_t){names[i], memories[i]};
    }
    // The setting is per thread; worker 0 is the caller's own, so it gets its own back.
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    if (status == dnnl_success) {
        status = dnnl_primitive_execute(
            item->primitive, self->dnnl->streams[worker], OPERANDS, arguments);
    }
    omp_set_num_threads(threads);
    self->failed[index] = status != dnnl_success;
}

static primitive_key key_of(const call *self, int64_t depth, int64_t rows, int64_t cols)
{
    const bool ta = self->spec.transpose_a, tb = self->spec.transpose_b;
    return (primitive_key){
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
            const primitive_key key = key_of(self, depth, i != 0 ? last_rows : self->tiles.rows,
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
    if (depth == 0 || !cy_dnnl_supports(self.dnnl, a.dtype, c.dtype, spec) ||
        !prepare(&self, depth)) {
        state->product(queue, c, a, b, spec);
        return;
    }
    const size_t mark = cy_arena_mark(queue->scratch);
    const int64_t tiles = cy_tiles_count(&self.tiles);
    self.failed = cy_arena_alloc(queue->scratch, (size_t)tiles);
    self.scratch =
        cy_arena_alloc(queue->scratch, self.scratch_bytes * (size_t)cy_queue_workers(queue));
    cy_queue_run(queue, run_tile, &self, tiles);
    if (!queue->dry) repair(queue, &self);
    cy_arena_rewind(queue->scratch, mark);
}
