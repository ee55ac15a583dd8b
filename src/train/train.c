// Implements cyclotron/train.h, the public interface to training, on top of trainer.h.

#include "base/memory.h"
#include "base/platform.h"
#include "train/trainer.h"

#include <stddef.h>

static void begin(void *context, const char *overview, int64_t first_step, int64_t last_step)
{
    const cy_train_request *request = context;
    (void)first_step;
    (void)last_step;
    if (request->on_note != NULL) request->on_note(request->context, overview);
}

static void line(void *context, const char *text)
{
    const cy_train_request *request = context;
    if (request->on_line != NULL) request->on_line(request->context, text);
}

static void step(void *context, const cy_metrics *metrics)
{
    const cy_train_request *request = context;
    if (request->on_step == NULL) return;
    const cy_train_step told = {
        .step = cy_metrics_count(metrics, CY_METRIC_STEP),
        .tokens = cy_metrics_count(metrics, CY_METRIC_TOKENS),
        .loss = cy_metrics_real(metrics, CY_METRIC_LOSS),
        .grad_norm = cy_metrics_real(metrics, CY_METRIC_GRAD_NORM),
        .learning_rate = cy_metrics_real(metrics, CY_METRIC_LR),
        .seconds = cy_metrics_real(metrics, CY_METRIC_STEP_S),
        .tokens_per_second = cy_metrics_real(metrics, CY_METRIC_TOK_S),
    };
    request->on_step(request->context, &told);
}

static void note(void *context, const char *text)
{
    const cy_train_request *request = context;
    if (request->on_note != NULL) request->on_note(request->context, text);
}

static int should_stop(void *context)
{
    const cy_train_request *request = context;
    return request->should_stop != NULL ? request->should_stop(request->context) : 0;
}

static int never(void *context)
{
    (void)context;
    return 0;
}

static void ignore(void *context)
{
    (void)context;
}

cy_status cy_train(const cy_train_request *request, cy_train_summary *summary)
{
    *summary = (cy_train_summary){0};
    cy_config config;
    cy_config_errors errors = {0};
    const cy_config_machine machine = {
        .cores = cy_cores_allowed(),
        .under_mpi = request->under_mpi != 0,
        .reopens = request->return_failures != 0,
    };
    const cy_status status = cy_config_load(&config, &errors, request->config, request->overrides,
        request->override_count, CY_CONFIG_FOR_TRAIN, &machine);
    cy_config_errors_free(&errors);
    if (status != CY_OK) return status;
    const cy_trainer_callbacks events = {
        .context = cy_memory_writable(request),
        .begin = begin,
        .line = line,
        .step = step,
        .note = note,
        .should_stop = should_stop,
        .should_save = never,
        .saving = ignore,
    };
    return cy_trainer_run(&config, &machine, &events, summary);
}
