// Finite differences through the whole split graph: tensor and context parallel ranks together.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include <math.h>

#define ELEMENTS 4 // of each tensor

// Where element `global` of a tensor lies on this rank, or NULL.
static double *find(const cy_tensor *tensor, void *base, int64_t global)
{
    const cy_slice *slice = &tensor->slice;
    const int64_t row = global / tensor->param->cols - slice->row_first;
    const int64_t col = global % tensor->param->cols - slice->col_first;
    if (row < 0 || row >= slice->rows || col < 0 || col >= slice->cols) return NULL;
    return (double *)base + tensor->offset + row * slice->cols + col;
}

// The loss of the whole microbatch with one weight moved, on every rank that holds it.
static cy_status loss_at(
    cy_engine *engine, const cy_batch_source *source, double *weight, double change, double *loss)
{
    const double kept = weight != NULL ? *weight : 0.0;
    if (weight != NULL) *weight += change;
    const cy_status status = cy_engine_evaluate(engine, source, 0, loss);
    if (weight != NULL) *weight = kept;
    CY_TRY(status);
    return cy_group_all_reduce(
        engine->options.groups.gradient, &engine->queue, cy_view_of(loss, CY_F64, 1, 1), CY_SUM);
}

static cy_status check_element(
    cy_engine *engine, const cy_batch_source *source, const cy_tensor *tensor, int64_t global)
{
    const double step = 1e-5;
    const cy_unit_part *unit = cy_storage_part_of(&engine->storage, tensor);
    double *weight = find(tensor, unit->weights, global);
    const double *grad = find(tensor, unit->grads, global);
    double above = 0, below = 0;
    CY_TRY(loss_at(engine, source, weight, step, &above));
    CY_TRY(loss_at(engine, source, weight, -step, &below));
    const double measured = (above - below) / (2 * step);
    if (grad == NULL || fabs(measured - *grad) <= 1e-6 * fmax(1.0, fabs(*grad))) return CY_OK;
    return CY_FAIL(CY_ERR_CORRUPT, "%s[%lld]: gradient %.12g, differences %.12g",
        tensor->param->name, (long long)global, *grad, measured);
}

static cy_status check_all(cy_engine *engine, const cy_rank *rank, void *context)
{
    (void)context;
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    const cy_adamw_spec still = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step = 1};
    cy_step_result result;
    CY_TRY(cy_engine_initialize(engine));
    CY_TRY(cy_engine_train_step(engine, &source, &still, &result)); // a rate of 0 moves nothing
    for (int t = 0; t < engine->storage.tensor_count; t++) {
        const cy_tensor *tensor = &engine->storage.tensors[t];
        const int64_t count = tensor->param->rows * tensor->param->cols;
        for (int i = 0; i < ELEMENTS; i++)
            CY_TRY(check_element(
                engine, &source, tensor, count * (2 * i + 1) / (INT64_C(2) * ELEMENTS)));
    }
    return CY_OK;
}

static void gradients_are_those_of_the_loss(void **state)
{
    (void)state;
    for (int style = 0; style < 3; style++) {
        cy_config config;
        cy_test_config(&config, CY_F64);
        config.distributed.tp_size = 2;
        config.distributed.cp_size = 2;
        config.distributed.sequence_parallel = style > 0;
        config.distributed.cp_style = (cy_context_style)style;
        config.training.gradient_accumulation_steps = 1;
        config.shape.kv_heads = 1;
        config.shape.qkv_bias = true;
        config.shape.out_bias = true;
        config.shape.tied = style == 1;
        CY_CHECK_OK(cy_test_on_mesh(&config, "ref", NULL, check_all, NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_the_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
