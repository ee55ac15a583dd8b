// Computes the reference operators of a model's layers except attention (attention.c) and the
// optimizer (optimizer.c), and fills the table of all of them.

#include "kernel/ref/ref.h"

#include "base/numbers.h"
#include "base/status.h"

#include <string.h>

// ---- products

// Tiles of a task: small enough for the stack and the first caches. The sum over k ascends whatever
// the tiles, so they do not change the result.
#define ROWS  32
#define COLS  64
#define DEPTH 64

typedef struct product {
    cy_queue *queue;
    cy_view c, a, b; // [m, n], a and b as stored
    cy_matmul_spec spec;
    int64_t depth; // k
    int64_t col_tiles;
} product;

// tile [ROWS, DEPTH] = a[row + i, depth + p] of the product, whichever way a is stored
static void load_a(double tile[ROWS][DEPTH], const product *of, int64_t row, int64_t depth,
    int64_t rows, int64_t depths)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t p = 0; p < depths; p++) {
            tile[i][p] = of->spec.transpose_a ? cy_ref_load(of->a, depth + p, row + i)
                                              : cy_ref_load(of->a, row + i, depth + p);
        }
    }
}

static void load_b(double tile[DEPTH][COLS], const product *of, int64_t depth, int64_t col,
    int64_t depths, int64_t cols)
{
    for (int64_t p = 0; p < depths; p++) {
        for (int64_t j = 0; j < cols; j++) {
            tile[p][j] = of->spec.transpose_b ? cy_ref_load(of->b, col + j, depth + p)
                                              : cy_ref_load(of->b, depth + p, col + j);
        }
    }
}

static void multiply_tile(void *context, int64_t task, int worker)
{
    (void)worker;
    const product *of = context;
    const int64_t row = task / of->col_tiles * ROWS, col = task % of->col_tiles * COLS;
    const int64_t rows = cy_min(ROWS, of->c.rows - row), cols = cy_min(COLS, of->c.cols - col);
    double sum[ROWS][COLS], a[ROWS][DEPTH], b[DEPTH][COLS];
    memset(sum, 0, sizeof(sum));
    memset(b, 0, sizeof(b)); // the loop over j is always COLS long
    for (int64_t depth = 0; depth < of->depth; depth += DEPTH) {
        const int64_t depths = cy_min(DEPTH, of->depth - depth);
        load_a(a, of, row, depth, rows, depths);
        load_b(b, of, depth, col, depths, cols);
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t p = 0; p < depths; p++) {
                for (int j = 0; j < COLS; j++)
                    sum[i][j] += a[i][p] * b[p][j];
            }
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            if (of->spec.accumulate) {
                cy_ref_accumulate(of->queue, of->c, row + i, col + j, sum[i][j]);
            } else {
                cy_ref_store(of->queue, of->c, row + i, col + j, sum[i][j]);
            }
        }
    }
}

void cy_ref_matmul(cy_queue *queue, cy_view c, cy_view a, cy_view b, cy_matmul_spec spec)
{
    product of = {
        .queue = queue,
        .c = c,
        .a = a,
        .b = b,
        .spec = spec,
        .depth = spec.transpose_a ? a.rows : a.cols,
        .col_tiles = (c.cols + COLS - 1) / COLS,
    };
    const int64_t row_tiles = (c.rows + ROWS - 1) / ROWS;
    cy_queue_run(queue, multiply_tile, &of, row_tiles * of.col_tiles);
}

// ---- normalisation

void cy_ref_norm_forward(cy_queue *queue, cy_view y, cy_view inv_rms, cy_view x, cy_view branch,
    cy_view weight, double eps)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < x.rows; t++) {
        // The statistics are those of x as it is stored: the backward pass reads no other.
        double squares = 0.0;
        for (int64_t i = 0; i < x.cols; i++) {
            if (!cy_view_is_none(branch))
                cy_ref_accumulate(queue, x, t, i, cy_ref_load(branch, t, i));
            const double value = cy_ref_load(x, t, i);
            squares += value * value;
        }
        cy_ref_store(queue, inv_rms, 0, t, 1.0 / sqrt(squares / (double)x.cols + eps));
    }
    cy_ref_norm_apply(queue, y, x, inv_rms, weight);
}

void cy_ref_norm_apply(cy_queue *queue, cy_view y, cy_view x, cy_view inv_rms, cy_view weight)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < x.rows; t++) {
        const double inv = cy_ref_load(inv_rms, 0, t);
        for (int64_t i = 0; i < x.cols; i++) {
            const double value = cy_ref_load(x, t, i) * inv * cy_ref_load(weight, 0, i);
            cy_ref_store(queue, y, t, i, value);
        }
    }
}

// With r = inv_rms and g = dy * weight: dx = r g - x r^3 mean(g x), dweight = sum over t of dy x r.
static void norm_backward_x(
    cy_queue *queue, cy_view dx, cy_view dy, cy_view x, cy_view inv_rms, cy_view weight)
{
    for (int64_t t = 0; t < x.rows; t++) {
        const double r = cy_ref_load(inv_rms, 0, t);
        double dot = 0.0;
        for (int64_t i = 0; i < x.cols; i++) {
            dot += cy_ref_load(dy, t, i) * cy_ref_load(weight, 0, i) * cy_ref_load(x, t, i);
        }
        const double pull = r * r * r * dot / (double)x.cols;
        for (int64_t i = 0; i < x.cols; i++) {
            const double g = cy_ref_load(dy, t, i) * cy_ref_load(weight, 0, i);
            cy_ref_accumulate(queue, dx, t, i, r * g - pull * cy_ref_load(x, t, i));
        }
    }
}

static void norm_backward_weight(
    cy_queue *queue, cy_view dweight, cy_view dy, cy_view x, cy_view inv_rms)
{
    const bool fixed = dweight.dtype == CY_FX64;
    for (int64_t i = 0; i < x.cols; i++) {
        double sum = 0.0;
        for (int64_t t = 0; t < x.rows; t++) {
            const double part =
                cy_ref_load(dy, t, i) * cy_ref_load(x, t, i) * cy_ref_load(inv_rms, 0, t);
            if (fixed) {
                cy_ref_accumulate(queue, dweight, 0, i, part);
            } else {
                sum += part;
            }
        }
        if (!fixed) cy_ref_accumulate(queue, dweight, 0, i, sum);
    }
}

void cy_ref_norm_backward(cy_queue *queue, cy_view dx, cy_view dweight, cy_view dy, cy_view x,
    cy_view inv_rms, cy_view weight)
{
    if (queue->dry) return;
    if (!cy_view_is_none(dx)) norm_backward_x(queue, dx, dy, x, inv_rms, weight);
    if (!cy_view_is_none(dweight)) norm_backward_weight(queue, dweight, dy, x, inv_rms);
}

// ---- positions

void cy_ref_rope_table(cy_queue *queue, cy_view table, const double *inv_freq, double scale)
{
    if (queue->dry) return;
    const int64_t half = table.cols / 2;
    for (int64_t p = 0; p < table.rows; p++) {
        for (int64_t i = 0; i < half; i++) {
            const double angle = (double)p * inv_freq[i];
            cy_ref_store(queue, table, p, i, scale * cos(angle));
            cy_ref_store(queue, table, p, half + i, scale * sin(angle));
        }
    }
}

void cy_ref_rope(
    cy_queue *queue, cy_view x, cy_view table, const int32_t *positions, int heads, bool inverse)
{
    if (queue->dry) return;
    const int64_t half = table.cols / 2;
    for (int64_t t = 0; t < x.rows; t++) {
        const int64_t p = positions[t];
        CY_DEBUG_ASSERT(p >= 0 && p < table.rows);
        for (int head = 0; head < heads; head++) {
            for (int64_t i = 0; i < half; i++) {
                const double cosine = cy_ref_load(table, p, i);
                const double turn = cy_ref_load(table, p, half + i);
                const double sine = inverse ? -turn : turn;
                const int64_t col = head * table.cols + i;
                const double a = cy_ref_load(x, t, col), b = cy_ref_load(x, t, col + half);
                cy_ref_store(queue, x, t, col, a * cosine - b * sine);
                cy_ref_store(queue, x, t, col + half, b * cosine + a * sine);
            }
        }
    }
}

// ---- feed-forward

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

void cy_ref_swiglu_forward(cy_queue *queue, cy_view y, cy_view gate_up)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t i = 0; i < y.cols; i++) {
            const double gate = cy_ref_load(gate_up, t, i);
            const double up = cy_ref_load(gate_up, t, y.cols + i);
            cy_ref_store(queue, y, t, i, gate * sigmoid(gate) * up);
        }
    }
}

void cy_ref_swiglu_backward(
    cy_queue *queue, cy_view d_gate_up, cy_view y, cy_view dy, cy_view gate_up)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < dy.rows; t++) {
        for (int64_t i = 0; i < dy.cols; i++) {
            // Read both before writing either: the gradient may take their place.
            const double gate = cy_ref_load(gate_up, t, i);
            const double up = cy_ref_load(gate_up, t, dy.cols + i);
            const double d = cy_ref_load(dy, t, i);
            const double s = sigmoid(gate);
            if (!cy_view_is_none(y)) cy_ref_store(queue, y, t, i, gate * s * up);
            cy_ref_store(queue, d_gate_up, t, i, d * up * s * (1.0 + gate * (1.0 - s)));
            cy_ref_store(queue, d_gate_up, t, dy.cols + i, d * gate * s);
        }
    }
}

// ---- embedding

// The row of the table for a token, or -1 where another rank holds it.
static int64_t local_row(cy_view table, int32_t token, int64_t first)
{
    const int64_t row = token - first;
    return row >= 0 && row < table.rows ? row : -1;
}

void cy_ref_embedding_forward(
    cy_queue *queue, cy_view y, cy_view table, const int32_t *tokens, int64_t first)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < y.rows; t++) {
        const int64_t row = local_row(table, tokens[t], first);
        for (int64_t i = 0; i < y.cols; i++) {
            cy_ref_store(queue, y, t, i, row >= 0 ? cy_ref_load(table, row, i) : 0.0);
        }
    }
}

void cy_ref_embedding_backward(
    cy_queue *queue, cy_view d_table, cy_view dy, const int32_t *tokens, int64_t first)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < dy.rows; t++) {
        const int64_t row = local_row(d_table, tokens[t], first);
        if (row < 0) continue;
        for (int64_t i = 0; i < dy.cols; i++) {
            cy_ref_accumulate(queue, d_table, row, i, cy_ref_load(dy, t, i));
        }
    }
}

// ---- softmax cross-entropy

typedef struct head {
    cy_queue *queue;
    cy_view out, target, logits, max, sum;
    const int32_t *targets;
    cy_vocab_range range;
    int64_t valid; // columns here that are not padding
    double scale;
} head;

static void row_max(void *context, int64_t t, int worker)
{
    (void)worker;
    const head *of = context;
    double max = (double)-INFINITY;
    for (int64_t i = 0; i < of->valid; i++) {
        const double logit = cy_ref_load(of->logits, t, i);
        if (logit > max) max = logit; // a NaN shows in the sum
    }
    cy_ref_store(of->queue, of->out, 0, t, max);
}

void cy_ref_softmax_max(cy_queue *queue, cy_view max, cy_view logits, cy_vocab_range range)
{
    head of = {
        .queue = queue,
        .out = max,
        .logits = logits,
        .valid = cy_vocab_columns(range, logits.cols),
    };
    cy_queue_run(queue, row_max, &of, logits.rows);
}

static void row_sum(void *context, int64_t t, int worker)
{
    (void)worker;
    const head *of = context;
    const double max = cy_ref_load(of->max, 0, t);
    double sum = 0.0;
    for (int64_t i = 0; i < of->valid; i++)
        sum += exp(cy_ref_load(of->logits, t, i) - max);
    cy_ref_store(of->queue, of->out, 0, t, sum);

    const int64_t column = of->targets[t] - of->range.first;
    const bool here = of->targets[t] >= 0 && column >= 0 && column < of->valid;
    cy_ref_store(of->queue, of->target, 0, t, here ? cy_ref_load(of->logits, t, column) : 0.0);
}

void cy_ref_softmax_sum(cy_queue *queue, cy_view sum, cy_view target, cy_view logits, cy_view max,
    const int32_t *targets, cy_vocab_range range)
{
    head of = {
        .queue = queue,
        .out = sum,
        .target = target,
        .logits = logits,
        .max = max,
        .targets = targets,
        .range = range,
        .valid = cy_vocab_columns(range, logits.cols),
    };
    cy_queue_run(queue, row_sum, &of, logits.rows);
}

void cy_ref_softmax_loss(
    cy_queue *queue, cy_view loss, cy_view max, cy_view sum, cy_view target, const int32_t *targets)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < max.cols; t++) {
        if (targets[t] < 0) continue;
        const double of_token =
            cy_ref_load(max, 0, t) + log(cy_ref_load(sum, 0, t)) - cy_ref_load(target, 0, t);
        cy_ref_accumulate(queue, loss, 0, 0, of_token);
    }
}

static void row_grad(void *context, int64_t t, int worker)
{
    (void)worker;
    const head *of = context;
    const double max = cy_ref_load(of->max, 0, t), sum = cy_ref_load(of->sum, 0, t);
    const bool counts = of->targets[t] >= 0;
    const int64_t column = of->targets[t] - of->range.first;
    for (int64_t i = 0; i < of->logits.cols; i++) {
        double gradient = 0.0;
        if (counts && i < of->valid) {
            gradient = exp(cy_ref_load(of->logits, t, i) - max) / sum;
            if (i == column) gradient -= 1.0;
        }
        cy_ref_store(of->queue, of->out, t, i, of->scale * gradient);
    }
}

void cy_ref_softmax_grad(cy_queue *queue, cy_view d_logits, cy_view logits, cy_view max,
    cy_view sum, const int32_t *targets, cy_vocab_range range, double scale)
{
    head of = {
        .queue = queue,
        .out = d_logits,
        .logits = logits,
        .max = max,
        .sum = sum,
        .targets = targets,
        .range = range,
        .valid = cy_vocab_columns(range, logits.cols),
        .scale = scale,
    };
    cy_queue_run(queue, row_grad, &of, logits.rows);
}

// ---- element by element

// An element in the units of a fixed-point view: taken over as it is from one with the same unit.
static int64_t in_units(cy_queue *queue, cy_view of, int64_t row, int64_t col, int exponent)
{
    if (of.dtype == CY_FX64) {
        CY_ASSERT(of.exponent == exponent);
        return ((const int64_t *)of.data)[row * of.stride + col];
    }
    return cy_ref_to_fixed(queue, cy_ref_load(of, row, col), exponent);
}

static void store_units(cy_view y, int64_t row, int64_t col, int64_t units)
{
    ((int64_t *)y.data)[row * y.stride + col] = units;
}

void cy_ref_fill(cy_queue *queue, cy_view y, double value)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t i = 0; i < y.cols; i++)
            cy_ref_store(queue, y, t, i, value);
    }
}

void cy_ref_copy(cy_queue *queue, cy_view y, cy_view x)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t i = 0; i < y.cols; i++) {
            if (y.dtype == CY_FX64) {
                store_units(y, t, i, in_units(queue, x, t, i, y.exponent));
            } else {
                cy_ref_store(queue, y, t, i, cy_ref_load(x, t, i));
            }
        }
    }
}

void cy_ref_add(cy_queue *queue, cy_view y, cy_view a, cy_view b)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t i = 0; i < y.cols; i++) {
            if (y.dtype == CY_FX64) {
                const int64_t left = in_units(queue, a, t, i, y.exponent);
                const int64_t right = in_units(queue, b, t, i, y.exponent);
                store_units(y, t, i, cy_ref_fixed_sum(queue, left, right));
            } else {
                cy_ref_store(queue, y, t, i, cy_ref_load(a, t, i) + cy_ref_load(b, t, i));
            }
        }
    }
}

void cy_ref_add_bias(cy_queue *queue, cy_view y, cy_view bias)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < y.rows; t++) {
        for (int64_t i = 0; i < y.cols; i++) {
            cy_ref_accumulate(queue, y, t, i, cy_ref_load(bias, 0, i));
        }
    }
}

void cy_ref_sum_rows(cy_queue *queue, cy_view sum, cy_view x)
{
    if (queue->dry) return;
    for (int64_t i = 0; i < x.cols; i++) {
        if (sum.dtype == CY_FX64) {
            int64_t units = in_units(queue, sum, 0, i, sum.exponent);
            for (int64_t t = 0; t < x.rows; t++) {
                units = cy_ref_fixed_sum(queue, units, in_units(queue, x, t, i, sum.exponent));
            }
            store_units(sum, 0, i, units);
        } else {
            double total = 0.0;
            for (int64_t t = 0; t < x.rows; t++)
                total += cy_ref_load(x, t, i);
            cy_ref_accumulate(queue, sum, 0, i, total);
        }
    }
}

// ---- the table

#define CY_REFERENCE_SLOT(operator) .operator= cy_ref_##operator,

static const cy_kernels ref_kernels = {.name = "ref", CY_OPERATORS(CY_REFERENCE_SLOT)};

const cy_kernels *cy_kernels_ref(void)
{
    return &ref_kernels;
}
