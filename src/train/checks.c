// Checks what a configuration reads and writes before a run starts.
#include "train/checks.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "train/data_iterator.h"
#include "train/identity.h"
#include "train/state.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

// ---- inputs

static cy_status check_identity(
    const cy_config *config, const cy_run_data *data, const char *path, bool weights_only)
{
    cy_identity identity;
    cy_text lines = {0}; // differences that a run would only note
    CY_TRY(cy_identity_of_run(&identity, config, data));
    const cy_status status =
        cy_identity_compare(&lines, &identity, config, data, path, weights_only, NULL);
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

// ---- outputs

// "a/b/" becomes "a", "/a" becomes "/", "a" becomes ".". `path` is not empty.
static void cut_last_part(char *path)
{
    size_t length = strlen(path);
    while (length > 0 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0) path[length++] = '.';
    path[length] = '\0';
}

// Cuts `path` to the nearest path that exists. Returns whether it is a folder that may be written;
// errno is the reason why not. A path below a file gives ENOTDIR, not ENOENT, and is not cut.
static bool may_write_nearest(char *path)
{
    while (cy_io_access(path, F_OK) != 0) {
        if (errno != ENOENT) return false;
        cut_last_part(path);
    }
    return cy_io_access(path, W_OK | X_OK) == 0;
}

cy_status cy_check_output(const char *key, const char *folder)
{
    char *path = NULL;
    CY_ASSERT(folder[0] != '\0');
    CY_TRY(cy_memory_copy_text(&path, folder));
    cy_status status = CY_OK;
    const char *next = cy_path_exists(folder) ? "write into it" : "make folder";
    if (!may_write_nearest(path)) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "%s = \"%s\": %s", key, folder, next);
        cy_error_set_hint("give a folder that you may write to");
    }
    cy_memory_free(path);
    return status;
}

cy_status cy_check_run_config(const char *run_dir)
{
    cy_text path = {0};
    CY_TRY(cy_text_add(&path, "%s/config.json", run_dir));
    const cy_status status = cy_output_check(path.bytes, &cy_config_kind);
    cy_text_free(&path);
    if (status == CY_ERR_REQUEST) {
        cy_error_prefix("logging.run_dir = \"%s\": ", run_dir);
        cy_error_set_hint("give the run a folder of its own");
    }
    return status;
}

static void add_fault(cy_config_errors *errors, const char *key, const char *folder)
{
    if (folder[0] == '\0') return;
    const cy_status status = cy_check_output(key, folder);
    if (status != CY_OK) cy_config_add_error_of(errors, status, "%s", cy_error_text());
}

void cy_check_outputs(const cy_config *config, cy_config_errors *errors)
{
    add_fault(errors, "checkpoint.save_dir", config->checkpoint.save_dir);
    const int before = errors->count;
    add_fault(errors, "logging.run_dir", config->logging.run_dir);
    if (errors->count == before && config->logging.run_dir[0] != '\0') {
        const cy_status status = cy_check_run_config(config->logging.run_dir);
        if (status != CY_OK) cy_config_add_error_of(errors, status, "%s", cy_error_text());
    }
}

cy_status cy_output_status(cy_status status, const char *key, const char *folder)
{
    if (status != CY_ERR_IO) return status;
    CY_TRY(cy_check_output(key, folder));
    cy_error_prefix("%s = \"%s\": ", key, folder);
    return status;
}
