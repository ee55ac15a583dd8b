#define _GNU_SOURCE
#include "checkpoint/save.h"

#include "base/activity.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/thread.h"
#include "checkpoint/commit.h"
#include "checkpoint/folder.h"
#include "checkpoint/rank_files.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct cy_saver {
    char *folder; // owned
    int keep_last;
    cy_checkpoint_comm ranks;
    const cy_log *log; // borrowed, may be NULL
    int lock;          // rank 0: holds the folder; otherwise -1

    // Rank 0: removes the files of what was replaced or retired while the run goes on.
    pthread_t sweeper;
    bool sweeping;
    cy_status swept; // written by the sweeper, with the text of a failure
    char swept_text[1024];
};

// ---- removing what was replaced

static void *sweep(void *context)
{
    cy_saver *saver = context;
    int count = 0;
    saver->swept = cy_folder_sweep(&count, saver->folder);
    if (saver->swept != CY_OK) {
        snprintf(saver->swept_text, sizeof(saver->swept_text), "%s", cy_error_text());
    }
    return NULL;
}

// The new checkpoint stands; that an old one could not be removed does not undo it.
static void log_sweep(const cy_saver *saver)
{
    if (saver->swept == CY_OK) return;
    cy_log_add(saver->log, CY_LOG_WARNING, "old checkpoints stay: %s", saver->swept_text);
}

// To be called before anything else has a name that a sweep removes.
static void await_sweeper(cy_saver *saver)
{
    if (!saver->sweeping) return;
    cy_activity_begin(CY_ACTIVITY_WAIT, "the thread that removes old checkpoints", -1);
    pthread_join(saver->sweeper, NULL);
    cy_activity_end();
    saver->sweeping = false;
    log_sweep(saver);
}

// Giving back a file's room can take as long as a good part of writing it.
static void start_sweeper(cy_saver *saver)
{
    saver->sweeping = cy_thread_start(&saver->sweeper, sweep, saver) == 0;
    if (saver->sweeping) return;
    sweep(saver);
    log_sweep(saver);
}

// ---- opening and closing

static cy_status agree(const cy_saver *saver, cy_status mine, const char *did)
{
    return cy_checkpoint_agree(&saver->ranks, mine, did, saver->folder);
}

static cy_status open_folder(cy_saver *saver)
{
    int swept = 0;
    CY_TRY(cy_folder_make(saver->folder));
    CY_TRY(cy_folder_lock(&saver->lock, saver->folder));
    const cy_status status = cy_folder_sweep(&swept, saver->folder);
    if (status != CY_OK && status != CY_ERR_IO) return status;
    if (status != CY_OK) {
        // It stops nobody: a file that somebody reads over NFS stays until it is closed.
        cy_log_add(saver->log, CY_LOG_WARNING, "what a dead run left stays: %s", cy_error_text());
    }
    if (swept > 0) {
        cy_log_add(saver->log, CY_LOG_INFO, "%s: removed %d unfinished checkpoint%s of a dead run",
            saver->folder, swept, swept == 1 ? "" : "s");
    }
    return CY_OK;
}

cy_status cy_saver_open(cy_saver **saver_out, const char *folder, int keep_last,
    cy_checkpoint_comm ranks, const cy_log *log)
{
    void *memory = NULL;
    CY_ASSERT(keep_last >= 0);
    CY_TRY(cy_memory_alloc(&memory, 1, sizeof(cy_saver)));
    cy_saver *saver = memory;
    *saver = (cy_saver){.keep_last = keep_last, .ranks = ranks, .log = log, .lock = -1};
    cy_status status = cy_memory_copy_text(&saver->folder, folder);
    if (status == CY_OK && ranks.rank == 0) status = open_folder(saver);
    status = agree(saver, status, "failed while opening the checkpoints in");
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
    await_sweeper(saver);
    if (saver->lock >= 0) cy_io_close(saver->lock);
    cy_memory_free(saver->folder);
    cy_memory_free(saver);
}

// Whether the folder is still the one that rank 0 holds. A lock keeps other runs out as long as its
// file has its name.
static cy_status check_lock(bool *held, const cy_saver *saver)
{
    char *path = NULL;
    struct stat own, named;
    *held = false;
    CY_TRY(cy_folder_join(&path, saver->folder, CY_FOLDER_LOCK_NAME));
    cy_status status = CY_OK;
    if (cy_io_fstat(saver->lock, &own) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "look at %s, which is open", path);
    } else if (cy_io_stat(path, &named) == 0) {
        *held = own.st_dev == named.st_dev && own.st_ino == named.st_ino;
    } else if (errno != ENOENT && errno != ENOTDIR) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "look at %s", path);
    }
    cy_memory_free(path);
    return status;
}

// A folder that was deleted or moved away is made again, and held. Where another run has taken the
// place since, this save fails, and the training goes on.
static cy_status reacquire_folder(cy_saver *saver)
{
    int lock = -1;
    bool held;
    CY_TRY(check_lock(&held, saver));
    if (held) return CY_OK;
    await_sweeper(saver);
    CY_TRY(cy_folder_make(saver->folder));
    const cy_status status = cy_folder_lock(&lock, saver->folder);
    if (status != CY_OK) return CY_FAIL(CY_ERR_IO, "%s", cy_error_text());
    cy_io_close(saver->lock);
    saver->lock = lock;
    cy_log_add(saver->log, CY_LOG_WARNING,
        "%s was deleted or moved away, with the checkpoints in it: it is made again",
        saver->folder);
    return CY_OK;
}

// ---- rank 0: names

static cy_status commit(const cy_saver *saver, int64_t step, const char *pending, const char *place)
{
    char *old = NULL;
    CY_TRY(cy_folder_step_path(&old, saver->folder, ".", step, ".old"));
    const cy_status status = cy_commit_rename(saver->folder, pending, place, old);
    cy_memory_free(old);
    return status;
}

// A checkpoint loses its name before it loses its files, which are swept later.
static cy_status retire(const cy_saver *saver, int64_t step)
{
    char *place = NULL, *old = NULL;
    CY_TRY(cy_folder_step_path(&place, saver->folder, "", step, ""));
    cy_status status = cy_folder_step_path(&old, saver->folder, ".", step, ".old");
    if (status == CY_OK) status = cy_folder_remove_renamed(saver->folder, old);
    if (status == CY_OK && cy_io_rename(place, old) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", place, old);
    }
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

static cy_status save_steps(cy_saver *saver, const cy_save *save, const char *pending,
    const char *place, cy_save_report *report)
{
    const bool first = saver->ranks.rank == 0;
    const double start = cy_clock_s();
    await_sweeper(saver);
    cy_status status = first ? reacquire_folder(saver) : CY_OK;
    if (first && status == CY_OK) status = cy_commit_begin(save, saver->folder, pending);
    CY_TRY(agree(saver, status, "failed while beginning a checkpoint in"));
    status =
        cy_rank_files_write(&report->bytes, save, pending, saver->ranks.rank, saver->ranks.size);
    CY_TRY(agree(saver, status, "failed while writing a checkpoint in"));
    if (first) status = cy_commit_manifest(save, pending, saver->ranks.size);
    if (first && status == CY_OK) status = commit(saver, save->step, pending, place);
    if (first && status == CY_OK && retire_old(saver, save->step) != CY_OK) {
        cy_log_add(saver->log, CY_LOG_WARNING, "old checkpoints stay: %s", cy_error_text());
    }
    if (first && status == CY_OK) start_sweeper(saver);
    CY_TRY(agree(saver, status, "failed while completing a checkpoint in"));
    report->total_s = cy_clock_s() - start;
    return CY_OK;
}

// What a failed save left is removed; its own error is what the caller hears.
static void clean_up(cy_saver *saver, const char *pending, cy_status status)
{
    char text[1024];
    snprintf(text, sizeof(text), "%s", cy_error_text());
    await_sweeper(saver);
    if (cy_folder_remove_renamed(saver->folder, pending) != CY_OK) {
        cy_log_add(saver->log, CY_LOG_WARNING, "%s", cy_error_text());
    }
    const cy_status same = CY_FAIL(status, "%s", text);
    (void)same;
}

cy_status cy_saver_save(cy_saver *saver, const cy_save *save, cy_save_report *report)
{
    char *pending = NULL, *place = NULL;
    cy_save_report own = {0};
    cy_status status = cy_folder_step_path(&pending, saver->folder, ".", save->step, ".tmp");
    if (status == CY_OK) status = cy_folder_step_path(&place, saver->folder, "", save->step, "");
    status = agree(saver, status, "failed while beginning a checkpoint in");
    if (status == CY_OK) status = save_steps(saver, save, pending, place, &own);
    if (status != CY_OK && pending != NULL && saver->ranks.rank == 0) {
        clean_up(saver, pending, status);
    }
    cy_memory_free(pending);
    cy_memory_free(place);
    if (status == CY_OK && report != NULL) *report = own;
    return status;
}
