#define _GNU_SOURCE
#include "checkpoint/save.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/checksum.h"
#include "checkpoint/folder.h"
#include "checkpoint/shard.h"
#include "checkpoint/table.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPIED_BYTES_MAX ((size_t)1 << 30)

struct cy_saver {
    char *folder; // owned
    int keep_last;
    cy_checkpoint_ranks ranks;
    const cy_log *log; // borrowed, may be NULL
    int lock;          // rank 0: holds the folder; otherwise -1
};

// All ranks learn whether all succeeded; who did not has its own text.
static cy_status agree(const cy_saver *saver, cy_status mine, const char *what)
{
    cy_status worst = mine;
    const cy_status talked = saver->ranks.agree(saver->ranks.context, &worst, mine);
    if (mine != CY_OK) return mine;
    CY_TRY(talked);
    if (worst == CY_OK) return CY_OK;
    return CY_FAIL(CY_ERR_PEER, "another rank failed while %s in %s", what, saver->folder);
}

static cy_status open_folder(cy_saver *saver)
{
    int swept = 0;
    CY_TRY(cy_folder_make(saver->folder));
    CY_TRY(cy_folder_lock(&saver->lock, saver->folder));
    CY_TRY(cy_folder_sweep(&swept, saver->folder));
    if (swept > 0) {
        cy_log_add(saver->log, CY_LOG_INFO, "%s: removed %d unfinished checkpoints of a dead run",
            saver->folder, swept);
    }
    return CY_OK;
}

cy_status cy_saver_open(cy_saver **saver_out, const char *folder, int keep_last,
    cy_checkpoint_ranks ranks, const cy_log *log)
{
    void *memory = NULL;
    CY_ASSERT(keep_last >= 0);
    CY_TRY(cy_memory_take(&memory, 1, sizeof(cy_saver)));
    cy_saver *saver = memory;
    *saver = (cy_saver){.keep_last = keep_last, .ranks = ranks, .log = log, .lock = -1};
    cy_status status = cy_memory_copy_text(&saver->folder, folder);
    if (status == CY_OK && ranks.rank == 0) status = open_folder(saver);
    status = agree(saver, status, "opening the checkpoints");
    if (status != CY_OK) {
        cy_saver_close(saver);
        return status;
    }
    *saver_out = saver;
    return CY_OK;
}

void cy_saver_close(cy_saver *saver)
{
    if (saver == NULL) return;
    if (saver->lock >= 0) close(saver->lock);
    cy_memory_free(saver->folder);
    cy_memory_free(saver);
}

// ---- rank 0's part

static cy_status check_object(const char *json, const char *what)
{
    json_error_t error;
    if (json == NULL) return CY_OK;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &error);
    const bool object = json_is_object(root);
    const char *text = root == NULL ? error.text : "something else";
    json_decref(root);
    if (object) return CY_OK;
    return CY_FAIL(
        CY_ERR_REQUEST, "the %s of a checkpoint is not a JSON object: %s", what, text);
}

static cy_status begin(const cy_save *save, const char *making)
{
    CY_TRY(check_object(save->config_json, "configuration"));
    CY_TRY(check_object(save->state_json, "state"));
    CY_TRY(cy_folder_remove(making)); // of a save that failed and could not clean up
    if (mkdir(making, 0777) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "make folder %s", making);
    return CY_OK;
}

// Copies a file into the checkpoint and its table.
static cy_status copy_file(cy_checkpoint *table, const cy_saved_file *saved, const char *folder)
{
    cy_text text = {0};
    char *path = NULL;
    void *checksums = NULL;
    CY_TRY(cy_file_read(&text, saved->source, COPIED_BYTES_MAX));
    cy_status status = cy_folder_join(&path, folder, saved->name);
    if (status == CY_OK) status = cy_file_write(path, text.bytes, text.length);
    if (status == CY_OK) {
        status = cy_memory_take(&checksums, (size_t)cy_chunk_count(text.length), sizeof(uint64_t));
    }
    if (status == CY_OK) {
        cy_checkpoint_file *file = &table->files[table->file_count++];
        *file = (cy_checkpoint_file){
            .bytes = text.length, .head_bytes = text.length, .checksums = checksums, .fd = -1};
        for (size_t done = 0, i = 0; done < text.length; done += CY_CHUNK_BYTES, i++) {
            const size_t left = text.length - done;
            file->checksums[i] =
                cy_checksum(text.bytes + done, left < CY_CHUNK_BYTES ? left : CY_CHUNK_BYTES);
        }
        status = cy_memory_copy_text(&file->name, saved->name);
    }
    cy_text_free(&text);
    cy_memory_free(path);
    return status;
}

// Files, parts and manifest: all that a checkpoint is, but for its name.
static cy_status complete(const cy_saver *saver, const cy_save *save, const char *making)
{
    cy_checkpoint table = {0};
    cy_text json = {0};
    char *path = NULL;
    cy_status status = cy_shard_collect(&table, save, making, saver->ranks.size);
    for (int i = 0; status == CY_OK && i < save->file_count; i++) {
        status = copy_file(&table, &save->files[i], making);
    }
    if (status == CY_OK && save->config_json != NULL) {
        status = cy_memory_copy_text(&table.config_json, save->config_json);
    }
    if (status == CY_OK && save->state_json != NULL) {
        status = cy_memory_copy_text(&table.state_json, save->state_json);
    }
    table.step = save->step;
    table.tokens = save->tokens;
    if (save->model != NULL) {
        table.model = *save->model;
        table.has_model = true;
    }
    if (status == CY_OK) status = cy_table_to_json(&json, &table);
    if (status == CY_OK) status = cy_folder_join(&path, making, CY_MANIFEST_NAME);
    if (status == CY_OK) status = cy_file_write(path, json.bytes, json.length);
    cy_memory_free(path);
    cy_text_free(&json);
    cy_checkpoint_close(&table);
    for (int i = 0; status == CY_OK && i < saver->ranks.size; i++) {
        char *part = NULL;
        status = cy_shard_part_path(&part, making, i);
        if (status == CY_OK && unlink(part) != 0) {
            status = CY_FAIL_ERRNO(CY_ERR_IO, "remove %s", part);
        }
        cy_memory_free(part);
    }
    if (status == CY_OK) status = cy_folder_sync(making);
    return status;
}

// Gives the finished folder its name. An older folder of that name is taken away in the same
// instant, where the file system can exchange two names.
static cy_status commit(const cy_saver *saver, const char *making, const char *place, int64_t step)
{
    if (!cy_path_exists(place)) {
        if (rename(making, place) == 0) return cy_folder_sync(saver->folder);
        return CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", making, place);
    }
    if (renameat2(AT_FDCWD, making, AT_FDCWD, place, RENAME_EXCHANGE) == 0) {
        CY_TRY(cy_folder_sync(saver->folder));
        return cy_folder_remove(making);
    }
    char *old = NULL;
    CY_TRY(cy_folder_step_path(&old, saver->folder, ".", step, ".old"));
    cy_status status = cy_folder_remove(old);
    if (status == CY_OK && (rename(place, old) != 0 || rename(making, place) != 0)) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", making, place);
    }
    if (status == CY_OK) status = cy_folder_sync(saver->folder);
    if (status == CY_OK) status = cy_folder_remove(old);
    cy_memory_free(old);
    return status;
}

// A checkpoint loses its name before it loses its files.
static cy_status retire(const cy_saver *saver, int64_t step)
{
    char *place = NULL, *old = NULL;
    CY_TRY(cy_folder_step_path(&place, saver->folder, "", step, ""));
    cy_status status = cy_folder_step_path(&old, saver->folder, ".", step, ".old");
    if (status == CY_OK) status = cy_folder_remove(old);
    if (status == CY_OK && rename(place, old) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", place, old);
    }
    if (status == CY_OK) status = cy_folder_remove(old);
    cy_memory_free(place);
    cy_memory_free(old);
    return status;
}

// Steps above this one belong to a run that this one left behind: they are not counted or touched.
static cy_status retire_old(const cy_saver *saver, int64_t step)
{
    int64_t *steps = NULL;
    int count = 0;
    if (saver->keep_last == 0) return CY_OK;
    CY_TRY(cy_folder_steps(&steps, &count, saver->folder));
    cy_status status = CY_OK;
    while (count > 0 && steps[count - 1] > step)
        count--;
    for (int i = 0; status == CY_OK && i < count - saver->keep_last; i++) {
        status = retire(saver, steps[i]);
    }
    cy_memory_free(steps);
    return status;
}

// ---- all ranks

static cy_status save_steps(cy_saver *saver, const cy_save *save, const char *making,
    const char *place, cy_save_report *report)
{
    const bool first = saver->ranks.rank == 0;
    const double start = cy_clock_s();
    cy_status status = first ? begin(save, making) : CY_OK;
    CY_TRY(agree(saver, status, "beginning a checkpoint"));
    status = cy_shard_write(&report->bytes, save, making, saver->ranks.rank);
    report->write_s = cy_clock_s() - start;
    CY_TRY(agree(saver, status, "writing a checkpoint"));
    if (first) status = complete(saver, save, making);
    if (first && status == CY_OK) status = commit(saver, making, place, save->step);
    if (first && status == CY_OK && retire_old(saver, save->step) != CY_OK) {
        // The checkpoint stands; that an old one could not be removed does not undo it.
        cy_log_add(saver->log, CY_LOG_WARNING, "old checkpoints stay: %s", cy_error_text());
    }
    CY_TRY(agree(saver, status, "completing a checkpoint"));
    report->total_s = cy_clock_s() - start;
    return CY_OK;
}

// What a failed save left is removed; its own error is what the caller hears.
static void clean_up(const cy_saver *saver, const char *making, cy_status status)
{
    char text[1024];
    snprintf(text, sizeof(text), "%s", cy_error_text());
    if (cy_folder_remove(making) != CY_OK) {
        cy_log_add(saver->log, CY_LOG_WARNING, "%s", cy_error_text());
    }
    const cy_status same = CY_FAIL(status, "%s", text);
    (void)same;
}

cy_status cy_saver_save(cy_saver *saver, const cy_save *save, cy_save_report *report)
{
    char *making = NULL, *place = NULL;
    cy_save_report own = {0};
    cy_status status = cy_folder_step_path(&making, saver->folder, ".", save->step, ".tmp");
    if (status == CY_OK) status = cy_folder_step_path(&place, saver->folder, "", save->step, "");
    status = agree(saver, status, "beginning a checkpoint");
    if (status == CY_OK) status = save_steps(saver, save, making, place, &own);
    if (status != CY_OK && making != NULL && saver->ranks.rank == 0) {
        clean_up(saver, making, status);
    }
    cy_memory_free(making);
    cy_memory_free(place);
    if (status == CY_OK && report != NULL) *report = own;
    return status;
}
