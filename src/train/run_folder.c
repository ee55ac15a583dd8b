// Opens and closes the folder of a run: its lock, config.json, metrics.jsonl and event file.
#include "train/run_folder.h"

#include "base/file.h"
#include "base/io.h"
#include "base/output.h"
#include "train/check_outputs.h"

#include <unistd.h>

static cy_status write_config(const cy_config *config, const char *folder)
{
    cy_text json = {0}, path = {0};
    cy_status status = cy_config_to_json(&json, config);
    if (status == CY_OK) status = cy_text_add(&path, "%s/config.json", folder);
    if (status == CY_OK)
        status = cy_output_write(path.bytes, &cy_config_kind, json.bytes, json.length);
    cy_text_free(&json);
    cy_text_free(&path);
    return status;
}

static cy_status fill(cy_run_folder *folder, const cy_config *config, int64_t last_step)
{
    const char *run_dir = config->logging.run_dir;
    cy_text path = {0};
    CY_TRY(write_config(config, run_dir));
    CY_TRY(cy_text_add(&path, "%s/metrics.jsonl", run_dir));
    cy_status status = cy_metrics_file_rotate(&folder->rotated, path.bytes, last_step);
    if (status == CY_OK) status = cy_async_writer_open(&folder->writer);
    if (status == CY_OK) {
        status =
            cy_metrics_file_open(&folder->metrics, folder->writer, path.bytes, last_step, NULL);
    }
    if (status == CY_OK && config->logging.tensorboard) {
        status = cy_event_file_open(&folder->events, folder->writer, run_dir);
    }
    cy_text_free(&path);
    return status;
}

static void close_parts(cy_run_folder *folder, double seconds, cy_text *lost)
{
    if (folder->writer != NULL) cy_async_writer_finish(folder->writer, seconds);
    if (folder->writer != NULL && lost != NULL) {
        const bool told = cy_async_take_report(folder->writer, lost);
        (void)told; // nothing to tell is an empty text
    }
    cy_event_file_close(&folder->events);
    cy_metrics_file_close(&folder->metrics);
    cy_async_writer_close(folder->writer);
    if (folder->lock >= 0) cy_io_close(folder->lock);
}

cy_status cy_run_folder_open(cy_run_folder *folder, const cy_config *config, int64_t last_step)
{
    static const cy_folder_lock_kind writing = {
        .file = ".run.lock",
        .doing = "writes its metrics in",
        .hint = "give each run a logging.run_dir of its own",
    };
    const char *run_dir = config->logging.run_dir;
    cy_run_folder opened = {.open = true, .lock = -1};
    CY_TRY(cy_check_run_config(run_dir));
    cy_status status = cy_folder_make(run_dir);
    if (status == CY_OK) status = cy_folder_lock_acquire(&opened.lock, run_dir, &writing);
    if (status == CY_OK) status = fill(&opened, config, last_step);
    if (status == CY_OK) {
        *folder = opened;
    } else {
        close_parts(&opened, 0, NULL);
    }
    return cy_output_status(status, "logging.run_dir", run_dir);
}

void cy_run_folder_close(cy_run_folder *folder, double seconds, cy_text *lost)
{
    if (!folder->open) return;
    close_parts(folder, seconds, lost);
    *folder = (cy_run_folder){0};
}
