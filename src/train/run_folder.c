#include "train/run_folder.h"

#include "base/file.h"
#include "base/lock.h"

#include <unistd.h>

static cy_status write_config(const cy_config *config, const char *folder)
{
    cy_text json = {0}, path = {0};
    cy_status status = cy_config_to_json(&json, config);
    if (status == CY_OK) status = cy_text_add(&path, "%s/config.json", folder);
    if (status == CY_OK) status = cy_file_write(path.bytes, json.bytes, json.length);
    cy_text_free(&json);
    cy_text_free(&path);
    return status;
}

static cy_status fill(cy_metrics_file *metrics, const cy_config *config, int64_t last_step)
{
    const char *folder = config->logging.run_dir;
    cy_text path = {0};
    CY_TRY(write_config(config, folder));
    CY_TRY(cy_text_add(&path, "%s/metrics.jsonl", folder));
    const cy_status status = cy_metrics_file_open(metrics, path.bytes, last_step, NULL);
    cy_text_free(&path);
    return status;
}

cy_status cy_run_folder_open(cy_run_folder *folder, const cy_config *config, int64_t last_step)
{
    static const cy_folder_use writing = {
        .file = ".run.lock",
        .doing = "writes its metrics in",
        .hint = "give each run a logging.run_dir of its own",
    };
    cy_run_folder opened = {.open = true};
    CY_TRY(cy_folder_make(config->logging.run_dir));
    CY_TRY(cy_folder_hold(&opened.lock, config->logging.run_dir, &writing));
    const cy_status status = fill(&opened.metrics, config, last_step);
    if (status == CY_OK) {
        *folder = opened;
    } else {
        close(opened.lock);
    }
    return status;
}

void cy_run_folder_close(cy_run_folder *folder)
{
    if (!folder->open) return;
    cy_metrics_file_close(&folder->metrics);
    close(folder->lock);
    *folder = (cy_run_folder){0};
}
