// The operators for programs that embed the library. Arguments from outside are checked, and a
// fault returns a status, where the layers of the model assert.

#include "base/memory.h"
#include "base/thread_pool.h"
#include "kernel/dispatch.h"

#include <cyclotron/operators.h>

struct cy_operators {
    cy_queue queue;       // its kernel_state is owned
    cy_kernels kernels;   // what the queue's table is
    cy_thread_pool *pool; // owned
    cy_arena scratch;
    void *memory; // owned, [bytes]: under the scratch arena; NULL before the first need
    size_t bytes;
};

// One call, to be run dry and then for good.
typedef struct operation {
    void (*run)(cy_queue *queue, const struct operation *op);
    cy_view view[6];
    cy_matmul_spec product;
    double eps;
} operation;

// ---- opening

cy_status cy_operators_open(cy_operators **operators, const cy_operators_options *options)
{
    const cy_operators_options chosen = options != NULL ? *options : (cy_operators_options){0};
    if (chosen.threads < 0) {
        return CY_FAIL(CY_ERR_REQUEST, "%d threads: at least 1, or 0 for one", chosen.threads);
    }
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(cy_operators)));
    cy_operators *made = block;
    cy_status status =
        cy_thread_pool_open(&made->pool, chosen.threads > 0 ? chosen.threads : 1, -1, false);
    if (status != CY_OK) goto free_block;
    made->queue = (cy_queue){.pool = made->pool, .scratch = &made->scratch};
    status =
        cy_kernels_open(&made->queue, &made->kernels, chosen.isa != NULL ? chosen.isa : "auto");
    if (status != CY_OK) goto close_pool;
    *operators = made;
    return CY_OK;

close_pool:
    cy_thread_pool_close(made->pool);
free_block:
    cy_memory_free(made);
    return status;
}

void cy_operators_close(cy_operators *operators)
{
    if (operators == NULL) return;
    cy_kernels_close(&operators->queue);
    cy_thread_pool_close(operators->pool);
    if (operators->memory != NULL) cy_memory_unmap(operators->memory, operators->bytes);
    cy_memory_free(operators);
}

const char *cy_operators_isa(const cy_operators *operators)
{
    return operators->kernels.name;
}

// ---- checking

static cy_status misfit(const char *name, cy_matrix m, const char *wanted)
{
    return CY_FAIL(CY_ERR_REQUEST, "%s is [%lld, %lld] with stride %lld, of %s: %s", name,
        (long long)m.rows, (long long)m.cols, (long long)m.stride, cy_dtype_name(m.dtype), wanted);
}

// *view is m, which must be a float matrix.
static cy_status take(cy_view *view, const char *name, cy_matrix m)
{
    if (m.data == NULL) return CY_FAIL(CY_ERR_REQUEST, "%s has no data", name);
    if (!cy_dtype_is_float(m.dtype)) return misfit(name, m, "fp32, fp64, bf16 and fp16 are taken");
    if (m.rows < 1 || m.cols < 1) return misfit(name, m, "at least one row and one column");
    if (m.stride < m.cols && m.rows > 1) return misfit(name, m, "rows overlap");
    *view = cy_view_of(m.data, m.dtype, m.rows, m.cols);
    if (m.rows > 1) view->stride = m.stride; // of one row it says nothing
    return CY_OK;
}

static cy_status fits(const char *name, cy_matrix m, int64_t rows, int64_t cols, cy_dtype dtype)
{
    if (m.rows == rows && m.cols == cols && m.dtype == dtype) return CY_OK;
    return CY_FAIL(CY_ERR_REQUEST, "%s is [%lld, %lld] of %s, must be [%lld, %lld] of %s", name,
        (long long)m.rows, (long long)m.cols, cy_dtype_name(m.dtype), (long long)rows,
        (long long)cols, cy_dtype_name(dtype));
}

// The first `outputs` views share no memory with any other.
static cy_status apart(const operation *op, int outputs, const char *const *names)
{
    for (int i = 0; i < outputs; i++) {
        const cy_view out = op->view[i];
        const char *first = out.data, *end = cy_view_address(out, out.rows - 1, out.cols);
        for (int k = 0; k < 6; k++) {
            const cy_view in = op->view[k];
            if (k == i || cy_view_is_none(in)) continue;
            const char *in_end = cy_view_address(in, in.rows - 1, in.cols);
            if ((const char *)in.data < end && first < in_end) {
                return CY_FAIL(CY_ERR_REQUEST, "%s and %s overlap", names[i], names[k]);
            }
        }
    }
    return CY_OK;
}

// ---- running

// Runs a call dry first: what scratch memory it takes is known only then.
static cy_status run(cy_operators *operators, const operation *op)
{
    cy_arena measure;
    cy_arena_measure(&measure, "scratch");
    cy_queue dry = {.kernels = operators->queue.kernels,
        .kernel_state = operators->queue.kernel_state,
        .pool = operators->pool,
        .scratch = &measure,
        .dry = true};
    op->run(&dry, op);
    if (measure.peak > operators->bytes || operators->memory == NULL) {
        const size_t bytes = measure.peak > 0 ? measure.peak : CY_ARENA_ALIGN;
        void *memory = NULL;
        CY_TRY(cy_memory_map(&memory, bytes));
        if (operators->memory != NULL) cy_memory_unmap(operators->memory, operators->bytes);
        operators->memory = memory;
        operators->bytes = bytes;
    }
    cy_arena_init(&operators->scratch, "scratch", operators->memory, operators->bytes);
    op->run(&operators->queue, op);
    return CY_OK;
}

static void run_matmul(cy_queue *queue, const operation *op)
{
    cy_matmul(queue, op->view[0], op->view[1], op->view[2], op->product);
}

static void run_norm_forward(cy_queue *queue, const operation *op)
{
    cy_norm_forward(
        queue, op->view[0], op->view[1], op->view[2], cy_view_none(), op->view[3], op->eps);
}

static void run_norm_backward(cy_queue *queue, const operation *op)
{
    cy_norm_backward(
        queue, op->view[0], op->view[1], op->view[2], op->view[3], op->view[4], op->view[5]);
}

// ---- the operators

cy_status cy_operators_matmul(
    cy_operators *operators, cy_matrix c, cy_matrix a, cy_matrix b, cy_product product)
{
    static const char *const names[] = {"c", "a", "b"};
    operation made = {.run = run_matmul,
        .product = {.transpose_a = product.transpose_a != 0,
            .transpose_b = product.transpose_b != 0,
            .accumulate = product.accumulate != 0}};
    CY_TRY(take(&made.view[0], "c", c));
    CY_TRY(take(&made.view[1], "a", a));
    CY_TRY(take(&made.view[2], "b", b));
    const int64_t m = product.transpose_a ? a.cols : a.rows;
    const int64_t k = product.transpose_a ? a.rows : a.cols;
    const int64_t n = product.transpose_b ? b.rows : b.cols;
    CY_TRY(fits("b", b, product.transpose_b ? n : k, product.transpose_b ? k : n, a.dtype));
    const bool widened = c.dtype == CY_F32 && (a.dtype == CY_BF16 || a.dtype == CY_F16);
    CY_TRY(fits("c", c, m, n, widened ? CY_F32 : a.dtype));
    CY_TRY(apart(&made, 1, names));
    return run(operators, &made);
}

cy_status cy_operators_norm_forward(cy_operators *operators, cy_matrix y, cy_matrix inv_rms,
    cy_matrix x, cy_matrix weight, double eps)
{
    static const char *const names[] = {"y", "inv_rms", "x", "weight"};
    operation made = {.run = run_norm_forward, .eps = eps};
    CY_TRY(take(&made.view[0], "y", y));
    CY_TRY(take(&made.view[1], "inv_rms", inv_rms));
    CY_TRY(take(&made.view[2], "x", x));
    CY_TRY(take(&made.view[3], "weight", weight));
    CY_TRY(fits("y", y, x.rows, x.cols, x.dtype));
    CY_TRY(fits("inv_rms", inv_rms, 1, x.rows, cy_sum_dtype(x.dtype)));
    CY_TRY(fits("weight", weight, 1, x.cols, x.dtype));
    if (!(eps >= 0)) return CY_FAIL(CY_ERR_REQUEST, "eps is %g, must be 0 or more", eps);
    CY_TRY(apart(&made, 2, names));
    return run(operators, &made);
}

cy_status cy_operators_norm_backward(cy_operators *operators, cy_matrix dx, cy_matrix dweight,
    cy_matrix dy, cy_matrix x, cy_matrix inv_rms, cy_matrix weight)
{
    static const char *const names[] = {"dx", "dweight", "dy", "x", "inv_rms", "weight"};
    const cy_matrix given[] = {dx, dweight, dy, x, inv_rms, weight};
    operation made = {.run = run_norm_backward};
    for (int i = 0; i < 6; i++)
        CY_TRY(take(&made.view[i], names[i], given[i]));
    CY_TRY(fits("dx", dx, x.rows, x.cols, x.dtype));
    CY_TRY(fits("dweight", dweight, 1, x.cols, cy_sum_dtype(x.dtype)));
    CY_TRY(fits("dy", dy, x.rows, x.cols, x.dtype));
    CY_TRY(fits("inv_rms", inv_rms, 1, x.rows, cy_sum_dtype(x.dtype)));
    CY_TRY(fits("weight", weight, 1, x.cols, x.dtype));
    CY_TRY(apart(&made, 2, names));
    return run(operators, &made);
}
