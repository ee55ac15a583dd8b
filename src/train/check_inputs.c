#include "train/check_inputs.h"

#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "train/config/errors.h"
#include "train/feed.h"
#include "train/state.h"

static cy_status check_data(const cy_config *config, int threads)
{
    cy_run_data data;
    CY_TRY(cy_run_data_open_to_train(&data, config, threads));
    cy_run_data_close(&data);
    return CY_OK;
}

static cy_status check_model(const cy_config *config, const char *path)
{
    cy_checkpoint checkpoint;
    CY_TRY(cy_checkpoint_open(&checkpoint, path));
    const cy_status status = cy_checkpoint_check_model(&checkpoint, &config->shape);
    cy_checkpoint_close(&checkpoint);
    return status;
}

static cy_status check_start(const cy_config *config)
{
    char *path = NULL;
    bool weights_only;
    CY_TRY(cy_state_locate(&path, &weights_only, config));
    cy_status status = CY_OK;
    if (path != NULL) {
        status = check_model(config, path);
    } else if (config->model.init == CY_CONFIG_INIT_PRETRAINED) {
        status = check_model(config, config->model.name);
    }
    cy_memory_free(path);
    return status;
}

cy_status cy_check_inputs(const cy_config *config, cy_config_errors *errors, int threads)
{
    cy_status status = check_data(config, threads);
    if (status != CY_OK) cy_config_fault_of(errors, status, "dataset: %s", cy_error_text());
    status = check_start(config);
    if (status != CY_OK) cy_config_fault_of(errors, status, "checkpoint: %s", cy_error_text());
    return cy_config_errors_status(errors);
}
