#include "train/check_inputs.h"

#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "config/errors.h"
#include "train/data_iterator.h"
#include "train/identity.h"
#include "train/state.h"

static cy_status check_identity(
    const cy_config *config, const cy_run_data *data, const char *path, bool weights_only)
{
    cy_identity identity;
    cy_text lines = {0}; // what a run would tell is no fault
    CY_TRY(cy_identity_of_run(&identity, config, data));
    const cy_status status =
        cy_identity_compare(&lines, &identity, config, data, path, weights_only);
    cy_text_free(&lines);
    cy_identity_free(&identity);
    return status;
}

static cy_status check_model(const cy_config *config, const char *path)
{
    cy_checkpoint checkpoint;
    CY_TRY(cy_checkpoint_open(&checkpoint, path));
    const cy_status status = cy_checkpoint_check_model(&checkpoint, &config->shape);
    cy_checkpoint_close(&checkpoint);
    return status;
}

// `data` is NULL where it could not be opened.
static cy_status check_start(const cy_config *config, const cy_run_data *data)
{
    char *found = NULL;
    bool weights_only;
    CY_TRY(cy_state_locate(&found, &weights_only, config));
    const char *path = found;
    if (path == NULL && config->model.init == CY_CONFIG_INIT_PRETRAINED) {
        path = config->model.name;
        weights_only = true;
    }
    cy_status status = path != NULL ? check_model(config, path) : CY_OK;
    if (status == CY_OK && path != NULL && data != NULL) {
        status = check_identity(config, data, path, weights_only);
    }
    cy_memory_free(found);
    return status;
}

cy_status cy_check_inputs(const cy_config *config, cy_config_errors *errors, int threads)
{
    cy_run_data data;
    const cy_status opened = cy_run_data_open_to_train(&data, config, threads);
    if (opened != CY_OK) cy_config_add_error_of(errors, opened, "dataset: %s", cy_error_text());
    const cy_status status = check_start(config, opened == CY_OK ? &data : NULL);
    if (status != CY_OK) cy_config_add_error_of(errors, status, "checkpoint: %s", cy_error_text());
    if (opened == CY_OK) cy_run_data_close(&data);
    return cy_config_errors_status(errors);
}
