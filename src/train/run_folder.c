// Opens and closes the folder of a run: its lock, config.json, metrics.jsonl and event file. Makes
// the folder again where it is deleted.
#include "train/run_folder.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/output.h"
#include "train/checks.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define LOCK_NAME   ".run.lock"
#define CONFIG_NAME "config.json"

static const cy_folder_lock_kind writing = {
    .file = LOCK_NAME,
    .doing = "writes its metrics in",
    .hint = "give each run a logging.run_dir of its own",
};

// Only the thread of the asynchronous writer uses it while that thread runs, except `remade`.
struct cy_run_folder_keeper {
    char *folder;        // owned
    cy_text lock_path;   // owned
    cy_text config_path; // owned
    cy_text config;      // owned: the content of config.json
    int lock;            // owned: a descriptor; -1 before it is taken
    bool config_due;     // the folder was made again and config.json was not
    atomic_bool remade;
};

static cy_status write_config(const cy_run_folder_keeper *keeper)
{
    return cy_output_write(
        keeper->config_path.bytes, &cy_config_kind, keeper->config.bytes, keeper->config.length);
}

static cy_status keep(void *context)
{
    cy_run_folder_keeper *keeper = context;
    bool held, there = false;
    CY_TRY(cy_folder_lock_is_held(&held, keeper->lock, keeper->lock_path.bytes));
    if (!held) {
        int lock = -1;
        CY_TRY(cy_folder_make(keeper->folder));
        CY_TRY(cy_folder_lock_acquire(&lock, keeper->folder, &writing));
        cy_io_close(keeper->lock);
        keeper->lock = lock;
        keeper->config_due = true;
        atomic_store(&keeper->remade, true);
    }
    CY_TRY(cy_path_find(&there, keeper->config_path.bytes));
    if (there && !keeper->config_due) return CY_OK;
    CY_TRY(write_config(keeper));
    keeper->config_due = false;
    return CY_OK;
}

static void close_keeper(void *context)
{
    cy_run_folder_keeper *keeper = context;
    if (keeper->lock >= 0) cy_io_close(keeper->lock);
    cy_memory_free(keeper->folder);
    cy_text_free(&keeper->lock_path);
    cy_text_free(&keeper->config_path);
    cy_text_free(&keeper->config);
    cy_memory_free(keeper);
}

static cy_status open_keeper(cy_run_folder_keeper **opened, const cy_config *config)
{
    const char *run_dir = config->logging.run_dir;
    cy_run_folder_keeper *keeper;
    CY_TRY(CY_ALLOC(&keeper, 1));
    keeper->lock = -1;
    atomic_init(&keeper->remade, false);
    cy_status status = cy_memory_copy_text(&keeper->folder, run_dir);
    if (status == CY_OK) status = cy_text_add(&keeper->lock_path, "%s/" LOCK_NAME, run_dir);
    if (status == CY_OK) status = cy_text_add(&keeper->config_path, "%s/" CONFIG_NAME, run_dir);
    if (status == CY_OK) status = cy_config_to_json(&keeper->config, config);
    if (status == CY_OK) status = cy_folder_make(run_dir);
    if (status == CY_OK) status = cy_folder_lock_acquire(&keeper->lock, run_dir, &writing);
    if (status == CY_OK) {
        *opened = keeper;
    } else {
        close_keeper(keeper);
    }
    return status;
}

static cy_status open_metrics(
    cy_run_folder *folder, cy_sink **sink, const char *path, int64_t last_step)
{
    const cy_async_keeper keeper = {.context = folder->keeper, .keep = keep, .close = close_keeper};
    CY_TRY(cy_jsonl_rotate(&folder->rotated, path, last_step));
    CY_TRY(cy_async_writer_open(&folder->writer));
    cy_async_writer_keep(folder->writer, &keeper);
    return cy_jsonl_sink_open(sink, folder->writer, path, last_step, NULL);
}

static cy_status fill(
    cy_run_folder *folder, cy_sinks *sinks, const cy_config *config, int64_t last_step)
{
    const char *run_dir = config->logging.run_dir;
    cy_text path = {0};
    CY_TRY(write_config(folder->keeper));
    CY_TRY(cy_text_add(&path, "%s/metrics.jsonl", run_dir));
    cy_sink *metrics = NULL, *events = NULL;
    cy_status status = open_metrics(folder, &metrics, path.bytes, last_step);
    if (status == CY_OK && config->logging.tensorboard) {
        status = cy_tensorboard_sink_open(&events, folder->writer, run_dir);
        if (status != CY_OK) metrics->ops->close(metrics);
    }
    cy_text_free(&path);
    CY_TRY(status);
    cy_sinks_add(sinks, metrics);
    if (events != NULL) cy_sinks_add(sinks, events);
    return CY_OK;
}

static void close_parts(cy_run_folder *folder, double seconds, cy_text *lost)
{
    if (folder->writer == NULL) { // which would close the keeper
        if (folder->keeper != NULL) close_keeper(folder->keeper);
        return;
    }
    cy_async_writer_finish(folder->writer, seconds);
    if (lost != NULL) {
        const bool told = cy_async_take_report(folder->writer, lost);
        (void)told; // without a report the text is empty
    }
    cy_async_writer_close(folder->writer);
}

// A writer without records ends as soon as its thread runs, which takes time on a busy machine.
// Until then it holds the lock of the folder.
#define IDLE_WRITER_S 60

cy_status cy_run_folder_open(
    cy_run_folder *folder, cy_sinks *sinks, const cy_config *config, int64_t last_step)
{
    const char *run_dir = config->logging.run_dir;
    cy_run_folder opened = {.open = true};
    CY_TRY(cy_check_run_config(run_dir));
    cy_status status = open_keeper(&opened.keeper, config);
    if (status == CY_OK) status = fill(&opened, sinks, config, last_step);
    if (status == CY_OK) {
        *folder = opened;
    } else {
        close_parts(&opened, IDLE_WRITER_S, NULL);
    }
    return cy_output_status(status, "logging.run_dir", run_dir);
}

bool cy_run_folder_was_remade(cy_run_folder *folder)
{
    return folder->open && atomic_exchange(&folder->keeper->remade, false);
}

void cy_run_folder_close(cy_run_folder *folder, double seconds, cy_text *lost)
{
    if (!folder->open) return;
    close_parts(folder, seconds, lost);
    *folder = (cy_run_folder){0};
}
