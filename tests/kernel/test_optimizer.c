// A hundred optimizer steps as the trainer makes them, against the closed form.
//
// The gradients do not depend on the weights, so every state has a closed form: m after t steps is
// (1 - beta1) sum of beta1^(t-i) g_i, v likewise, and a weight is w_0 times the product of its
// decays, less what each step took, decayed since. It is summed from the beginning, in long double,
// for each step: nothing of it is a recurrence like the code under test.

#include "base/random.h"
#include "optim/lr_schedule.h"
#include "support/machine.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

#define BYTES   ((size_t)4 << 20)
#define STEPS   100
#define COUNT   83 // elements: no multiple of a vector
#define DECAYED 51 // the first group has weight decay, the second has none

static const double divisor = 640; // tokens of the global batch
static const double max_norm = 1;

static const cy_lr_schedule rate = {.kind = CY_LR_COSINE,
    .learning_rate = 1e-2,
    .min_learning_rate = 1e-3,
    .warmup_steps = 10,
    .total_steps = STEPS};

static double weight_decay(int i)
{
    return i < DECAYED ? 0.1 : 0;
}

static double start_weight(int i)
{
    return 2 * cy_random_uniform(1, (uint64_t)i) - 1;
}

// The gradient of the sum of losses, some of whose norms pass the limit and some do not. Multiples
// of 2^-10, so that fp32 holds them.
static double gradient(int step, int i)
{
    const double size = step % 3 == 0 ? 16 : 256;
    const double uniform = 2 * cy_random_uniform((uint64_t)step + 2, (uint64_t)i) - 1;
    return floor(uniform * size * 1024) / 1024;
}

static double norm_of(int step)
{
    double sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += gradient(step, i) * gradient(step, i);
    return sqrt(sum) / divisor;
}

static double scale_of(int step)
{
    const double norm = norm_of(step);
    return (norm > max_norm ? max_norm / norm : 1) / divisor;
}

static cy_adamw_spec spec_of(int step, double decay)
{
    return (cy_adamw_spec){
        .learning_rate = cy_lr_at(&rate, step),
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .weight_decay = decay,
        .step = step,
    };
}

typedef struct expected {
    double m, v, weight;
} expected;

// The state of element i after `last` steps.
static expected closed_form(int i, int last, const double *scales)
{
    long double g[STEPS + 1], power1[STEPS + 1], power2[STEPS + 1];
    for (int t = 0; t <= last; t++) {
        g[t] = t > 0 ? (long double)(gradient(t, i) * scales[t]) : 0;
        power1[t] = powl((long double)0.9, t); // as spec_of has it
        power2[t] = powl((long double)0.95, t);
    }
    long double weight = (long double)start_weight(i);
    long double m = 0, v = 0;
    for (int t = 1; t <= last; t++) {
        const cy_adamw_spec spec = spec_of(t, weight_decay(i));
        const long double beta1 = (long double)spec.beta1, beta2 = (long double)spec.beta2;
        const long double learning_rate = (long double)spec.learning_rate;
        m = 0;
        v = 0;
        for (int past = 1; past <= t; past++) {
            m += (1 - beta1) * power1[t - past] * g[past];
            v += (1 - beta2) * power2[t - past] * g[past] * g[past];
        }
        const long double mean = m / (1 - power1[t]);
        const long double spread = sqrtl(v / (1 - power2[t]));
        weight *= 1 - learning_rate * (long double)spec.weight_decay;
        weight -= learning_rate * mean / (spread + (long double)spec.eps);
    }
    return (expected){(double)m, (double)v, (double)weight};
}

typedef struct state {
    cy_test_machine machine;
    cy_view weight, master, m, v, grad; // [1, COUNT]
    cy_view sum, scale, norm;           // [1, 1] fp64
} state;

static void open_state(state *self, const char *isa, cy_dtype dtype)
{
    CY_CHECK_OK(cy_test_machine_open(&self->machine, isa, 2, BYTES));
    self->weight = cy_view_alloc(&self->machine.data, CY_BF16, 1, COUNT);
    self->master = cy_view_alloc(&self->machine.data, dtype, 1, COUNT);
    self->m = cy_view_alloc(&self->machine.data, dtype, 1, COUNT);
    self->v = cy_view_alloc(&self->machine.data, dtype, 1, COUNT);
    self->grad = cy_view_alloc(&self->machine.data, dtype, 1, COUNT);
    self->sum = cy_view_alloc(&self->machine.data, CY_F64, 1, 1);
    self->scale = cy_view_alloc(&self->machine.data, CY_F64, 1, 1);
    self->norm = cy_view_alloc(&self->machine.data, CY_F64, 1, 1);
    cy_fill(&self->machine.queue, self->m, 0);
    cy_fill(&self->machine.queue, self->v, 0);
}

static void close_state(state *self)
{
    CY_CHECK_OK(cy_test_machine_close(&self->machine));
}

static double get(cy_view view, int i)
{
    const void *at = cy_view_at(view, 0, i);
    return view.dtype == CY_F64 ? *(const double *)at : (double)*(const float *)at;
}

static void set(cy_view view, int i, double value)
{
    if (view.dtype == CY_F64) {
        *(double *)cy_view_at(view, 0, i) = value;
    } else {
        *(float *)cy_view_at(view, 0, i) = (float)value;
    }
}

static void near(double value, double wanted, double tolerance, const char *what, int step)
{
    if (fabs(value - wanted) <= tolerance * (1 + fabs(wanted))) return;
    print_error("step %d, %s: %.17g, wanted %.17g\n", step, what, value, wanted);
    fail();
}

static void make_step(state *self, int step)
{
    for (int i = 0; i < COUNT; i++)
        set(self->grad, i, gradient(step, i));
    cy_fill(&self->machine.queue, self->sum, 0);
    cy_sum_squares(&self->machine.queue, self->sum, self->grad);
    cy_clip_scale(&self->machine.queue, self->scale, self->norm, self->sum, divisor, max_norm);
    const struct {
        int64_t first, count;
        double decay;
    } groups[] = {{0, DECAYED, weight_decay(0)}, {DECAYED, COUNT - DECAYED, weight_decay(DECAYED)}};
    for (int g = 0; g < 2; g++) {
        const int64_t first = groups[g].first, count = groups[g].count;
        const cy_adamw_spec spec = spec_of(step, groups[g].decay);
        cy_adamw(&self->machine.queue, cy_view_cols(self->weight, first, count),
            cy_view_cols(self->master, first, count), cy_view_cols(self->m, first, count),
            cy_view_cols(self->v, first, count), cy_view_cols(self->grad, first, count),
            self->scale, &spec);
    }
}

static void follows_the_closed_form(const char *isa, cy_dtype dtype, double tolerance)
{
    state self;
    double scales[STEPS + 1] = {0};
    int clipped = 0;
    open_state(&self, isa, dtype);
    for (int i = 0; i < COUNT; i++)
        set(self.master, i, start_weight(i));
    for (int step = 1; step <= STEPS; step++) {
        make_step(&self, step);
        scales[step] = scale_of(step);
        clipped += norm_of(step) > max_norm;
        near(get(self.norm, 0), norm_of(step), 1e-6, "norm", step);
        near(get(self.scale, 0) * divisor, scales[step] * divisor, 1e-6, "scale", step);
        if (step > 3 && step % 50 != 0) continue; // the sums from the beginning are slow
        for (int i = 0; i < COUNT; i++) {
            const expected wanted = closed_form(i, step, scales);
            near(get(self.m, i), wanted.m, tolerance, "m", step);
            near(get(self.v, i), wanted.v, tolerance, "v", step);
            near(get(self.master, i), wanted.weight, tolerance, "weight", step);
        }
    }
    assert_true(clipped > 10 && clipped < 90); // both cases of the clip have been met
    close_state(&self);
}

static void portable_fp64(void **unused)
{
    (void)unused;
    follows_the_closed_form("ref", CY_F64, 1e-13);
}

static void portable_fp32(void **unused)
{
    (void)unused;
    follows_the_closed_form("ref", CY_F32, 2e-6);
}

static void tuned_fp32(void **unused)
{
    (void)unused;
    follows_the_closed_form("auto", CY_F32, 2e-6);
}

static void tuned_fp64(void **unused)
{
    (void)unused;
    follows_the_closed_form("auto", CY_F64, 1e-13);
}

// A gradient that is not finite leaves everything as it was, whatever the clip says.
static void an_overflow_changes_nothing(void **unused)
{
    (void)unused;
    state self;
    open_state(&self, "auto", CY_F32);
    for (int i = 0; i < COUNT; i++)
        set(self.master, i, start_weight(i));
    make_step(&self, 1);
    float before[3][COUNT];
    const cy_view kept[3] = {self.master, self.m, self.v};
    for (int k = 0; k < 3; k++)
        memcpy(before[k], kept[k].data, sizeof(before[k]));
    const double faults[] = {(double)INFINITY, (double)NAN};
    for (int fault = 0; fault < 2; fault++) {
        for (int i = 0; i < COUNT; i++)
            set(self.grad, i, 1);
        set(self.grad, 40, faults[fault]);
        cy_fill(&self.machine.queue, self.sum, 0);
        cy_sum_squares(&self.machine.queue, self.sum, self.grad);
        cy_clip_scale(&self.machine.queue, self.scale, self.norm, self.sum, divisor, 0);
        const cy_adamw_spec spec = spec_of(2, 0.1);
        cy_adamw(&self.machine.queue, self.weight, self.master, self.m, self.v, self.grad,
            self.scale, &spec);
        assert_false(isfinite(get(self.norm, 0)));
        for (int k = 0; k < 3; k++)
            assert_memory_equal(before[k], kept[k].data, sizeof(before[k]));
    }
    close_state(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(portable_fp64),
        cmocka_unit_test(portable_fp32),
        cmocka_unit_test(tuned_fp64),
        cmocka_unit_test(tuned_fp32),
        cmocka_unit_test(an_overflow_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
