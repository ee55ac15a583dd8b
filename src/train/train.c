// The public face of training, cyclotron/train.h. The loop over steps is in trainer.c.

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

static void step(void *context, const cy_step_metrics *metrics, bool shown)
{
    const cy_train_request *request = context;
    if (shown && request->on_line != NULL) {
        cy_text line = {0};
        // Without memory for the line there is none; the step itself was done.
        if (cy_metrics_add_console(&line, metrics) == CY_OK) {
            request->on_line(request->context, line.bytes);
        }
        cy_text_free(&line);
    }
    if (request->on_step == NULL) return;
    const cy_train_step told = {
        .step = metrics->step,
        .tokens = metrics->tokens,
        .loss = metrics->loss,
        .grad_norm = metrics->grad_norm,
        .learning_rate = metrics->learning_rate,
        .seconds = metrics->step_s,
        .tokens_per_second = metrics->tok_s,
    };
    request->on_step(request->context, &told);
}

static void note(void *context, const char *line)
{
    const cy_train_request *request = context;
    if (request->on_note != NULL) request->on_note(request->context, line);
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
    static const cy_train_summary nothing;
    *summary = nothing;
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
        .step = step,
        .note = note,
        .should_stop = should_stop,
        .should_save = never,
        .saving = ignore,
    };
    return cy_trainer_run(&config, &machine, &events, summary);
}
