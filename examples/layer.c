// A layer of one's own: forward and backward on the library's operators, its gradients checked
// against finite differences, then some steps of training.
//
// The layer is a feed-forward part with squared relu (So et al., "Primer", 2021), with norm and
// residual:
//
//     n = norm(x) * g      u = n U^T      a = max(u, 0)^2      y = x + a D^T
//
// Products and norm are the library's; squared relu is a loop of our own.
//
//     cc -o layer layer.c $(pkg-config --cflags --libs cyclotron)
//     ./layer            checks the gradients, then trains
//     ./layer wrong      with a factor forgotten in the backward pass: the check says where

#include <cyclotron/gradient.h>
#include <cyclotron/operators.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 6, HIDDEN = 8, WIDE = 12, STEPS = 200 };

typedef struct layer {
    cy_operators *operators;                         // borrowed
    cy_matrix x, g, up, down;                        // x [t, h], g [1, h], up [f, h], down [h, f]
    cy_matrix dx, dg, d_up, d_down;                  // gradients, of the same shapes
    cy_matrix inv_rms, n, u, a, y, dn, du, da, want; // what a pass leaves, and the y we want
    int wrong;                                       // forget a factor
} layer;

// A matrix of our own, zero or filled with numbers between -1 and 1; free() takes its data.
static cy_matrix make(int64_t rows, int64_t cols, unsigned seed)
{
    double *data = calloc((size_t)(rows * cols), sizeof(double));
    if (data == NULL) exit(1);
    for (int64_t i = 0; seed != 0 && i < rows * cols; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (double)(seed >> 8) / (1 << 23) - 1.0;
    }
    return cy_matrix_of(data, CY_F64, rows, cols);
}

static void zero(cy_matrix m)
{
    memset(m.data, 0, (size_t)(m.rows * m.cols) * sizeof(double));
}

static cy_status forward(layer *l)
{
    const cy_product transposed = {0, 1, 0}, added = {0, 1, 1};
    cy_status status = cy_operators_norm_forward(l->operators, l->n, l->inv_rms, l->x, l->g, 1e-5);
    if (status == CY_OK) status = cy_operators_matmul(l->operators, l->u, l->n, l->up, transposed);
    const double *u = l->u.data;
    double *a = l->a.data;
    for (int i = 0; i < TOKENS * WIDE; i++)
        a[i] = u[i] > 0 ? u[i] * u[i] : 0;
    memcpy(l->y.data, l->x.data, TOKENS * HIDDEN * sizeof(double));
    if (status == CY_OK) status = cy_operators_matmul(l->operators, l->y, l->a, l->down, added);
    return status;
}

// dy [t, h] -> adds to dx, dg, d_up, d_down
static cy_status backward(layer *l, cy_matrix dy)
{
    const cy_product plain = {0, 0, 0}, weights = {1, 0, 1};
    cy_status status = cy_operators_matmul(l->operators, l->d_down, dy, l->a, weights);
    if (status == CY_OK) status = cy_operators_matmul(l->operators, l->da, dy, l->down, plain);
    const double *u = l->u.data, *da = l->da.data, *residual = dy.data;
    double *du = l->du.data, *dx = l->dx.data;
    for (int i = 0; i < TOKENS * WIDE; i++)
        du[i] = u[i] > 0 ? (l->wrong ? 1 : 2) * u[i] * da[i] : 0;
    if (status == CY_OK) status = cy_operators_matmul(l->operators, l->d_up, l->du, l->n, weights);
    if (status == CY_OK) status = cy_operators_matmul(l->operators, l->dn, l->du, l->up, plain);
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        dx[i] += residual[i];
    if (status != CY_OK) return status;
    return cy_operators_norm_backward(l->operators, l->dx, l->dg, l->dn, l->x, l->inv_rms, l->g);
}

// Half the squared distance of y from what is wanted: its gradient is the difference.
static cy_status loss(void *context, double *sum)
{
    layer *l = context;
    const cy_status status = forward(l);
    if (status != CY_OK) return status;
    const double *y = l->y.data, *want = l->want.data;
    *sum = 0;
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        *sum += 0.5 * (y[i] - want[i]) * (y[i] - want[i]);
    return CY_OK;
}

static cy_status loss_and_gradients(layer *l, double *sum)
{
    const cy_matrix gradients[] = {l->dx, l->dg, l->d_up, l->d_down};
    for (int i = 0; i < 4; i++)
        zero(gradients[i]);
    const cy_status status = loss(l, sum);
    if (status != CY_OK) return status;
    double *dy = l->y.data; // y has served
    const double *want = l->want.data;
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        dy[i] -= want[i];
    return backward(l, l->y);
}

static int fail(void)
{
    fprintf(stderr, "%s\n", cy_error_text());
    return 1;
}

static int check(layer *l)
{
    double sum;
    if (loss_and_gradients(l, &sum) != CY_OK) return fail();
    const cy_gradient_tensor tensors[] = {{"x", l->x, l->dx}, {"g", l->g, l->dg},
        {"up", l->up, l->d_up}, {"down", l->down, l->d_down}};
    const cy_gradient_problem problem = {l, loss, tensors, 4, 0, 0};
    cy_gradient_report report;
    if (cy_gradient_check(&report, &problem) != CY_OK) return fail();
    printf("gradients %s: furthest off is %s[%lld,%lld], %.9g where differences say %.9g (%.1e)\n",
        report.agrees ? "agree" : "DIFFER", report.tensor, (long long)report.row,
        (long long)report.col, report.gradient, report.difference, report.worst);
    return !report.agrees;
}

static int train(layer *l)
{
    const cy_matrix weights[] = {l->g, l->up, l->down};
    const cy_matrix gradients[] = {l->dg, l->d_up, l->d_down};
    for (int step = 1; step <= STEPS; step++) {
        double sum;
        if (loss_and_gradients(l, &sum) != CY_OK) return fail();
        if (step == 1 || step == STEPS) printf("step %d: loss %.4f\n", step, sum);
        for (int i = 0; i < 3; i++) {
            double *weight = weights[i].data;
            const double *gradient = gradients[i].data;
            for (int64_t k = 0; k < weights[i].rows * weights[i].cols; k++)
                weight[k] -= 0.01 * gradient[k];
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    layer l = {.wrong = argc > 1 && strcmp(argv[1], "wrong") == 0,
        .x = make(TOKENS, HIDDEN, 1),
        .g = make(1, HIDDEN, 2),
        .up = make(WIDE, HIDDEN, 3),
        .down = make(HIDDEN, WIDE, 4),
        .want = make(TOKENS, HIDDEN, 5),
        .dx = make(TOKENS, HIDDEN, 0),
        .dg = make(1, HIDDEN, 0),
        .d_up = make(WIDE, HIDDEN, 0),
        .d_down = make(HIDDEN, WIDE, 0),
        .inv_rms = make(1, TOKENS, 0),
        .n = make(TOKENS, HIDDEN, 0),
        .u = make(TOKENS, WIDE, 0),
        .a = make(TOKENS, WIDE, 0),
        .y = make(TOKENS, HIDDEN, 0),
        .dn = make(TOKENS, HIDDEN, 0),
        .du = make(TOKENS, WIDE, 0),
        .da = make(TOKENS, WIDE, 0)};
    if (cy_operators_open(&l.operators, NULL) != CY_OK) return fail();
    int status = check(&l);
    if (status == 0) status = train(&l);
    cy_operators_close(l.operators);
    const cy_matrix all[] = {l.x, l.g, l.up, l.down, l.want, l.dx, l.dg, l.d_up, l.d_down,
        l.inv_rms, l.n, l.u, l.a, l.y, l.dn, l.du, l.da};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i].data);
    return status;
}
