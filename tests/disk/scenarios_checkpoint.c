// Checkpoints are saved, replaced, retired, found and loaded while the disk fails.
#include "disk/case.h"

#include "base/memory.h"
#include "base/thread_pool.h"
#include "checkpoint/folder.h"
#include "support/engines.h"
#include "support/ranks.h"
#include "support/saves.h"
#include "train/state.h"

#include <stdio.h>
#include <string.h>

#define FOLDER "saves"

// ---- saving

typedef struct save_way {
    cy_test_mesh mesh;
    int keep_last;
    bool replaces; // the newest checkpoint there
    bool fresh;    // the folder is not there
    int scale;
} save_way;

static save_way way_of(int variant)
{
    static const cy_test_mesh meshes[] = {{1, 1, 1}, {1, 1, 1}, {2, 1, 1}, {1, 2, 2}};
    if (variant >= 24) return (save_way){{1, 1, 1}, 1, variant == 25, false, 34};
    return (save_way){meshes[variant % 4], variant / 4 % 3, variant >= 12, variant == 1,
        variant % 4 == 1 ? 1 : 4};
}

typedef struct save_job {
    disk_case *c;
    save_way way;
} save_job;

static void save_one(cy_saver *saver, const save_job *job, int rank, int64_t step)
{
    disk_case *c = job->c;
    // All ranks save the same: the number follows from the round.
    const int run = (int)step * 10 + c->round + 1;
    const cy_test_state state = {.folder = disk_path(FOLDER),
        .mesh = job->way.mesh,
        .scale = job->way.scale,
        .run = run,
        .step = step};
    char config[40];
    snprintf(config, sizeof(config), "{\"run\": %d}", run);
    const cy_extra_file file = {.name = "tokenizer.json", .bytes = "{}", .byte_count = 2};
    const cy_save also = {
        .tokens = run, .config_json = config, .state_json = "{}", .files = &file, .file_count = 1};
    const int at = c->saved_count;
    if (rank == 0) c->saved[c->saved_count++] = (disk_saved){.step = step, .run = run};
    const cy_status status = cy_test_save_with(saver, &state, rank, also);
    disk_note(c, status);
    if (rank == 0) c->saved[at].reported = status == CY_OK;
}

static void save_all(void *context, cy_group *ranks)
{
    const save_job *job = context;
    cy_saver *saver = NULL;
    const cy_status status =
        cy_saver_open(&saver, disk_path(FOLDER), job->way.keep_last, ranks, NULL, &job->c->log);
    disk_note(job->c, status);
    if (status != CY_OK) return;
    save_one(saver, job, cy_group_rank(ranks), job->way.replaces ? 2 : 3);
    save_one(saver, job, cy_group_rank(ranks), 4);
    cy_saver_close(saver);
}

static void run_ranks(
    cy_test_mesh mesh, void (*body)(void *context, cy_group *ranks), void *context)
{
    const int size = cy_test_mesh_size(mesh);
    if (size == 1) {
        body(context, cy_group_self());
    } else {
        cy_test_ranks(size, body, context);
    }
}

static void save_work(disk_case *c)
{
    save_job job = {.c = c, .way = way_of(c->variant)};
    if (c->round == 0 && !job.way.fresh) {
        for (int step = 1; step <= 2; step++)
            c->saved[c->saved_count++] =
                (disk_saved){.step = step, .run = step * 10, .reported = true};
    }
    run_ranks(job.way.mesh, save_all, &job);
}

static void save_prepared(int scale)
{
    for (int step = 1; step <= 2; step++) {
        const cy_test_state state = {.folder = disk_path(FOLDER),
            .mesh = {1, 1, 1},
            .scale = scale,
            .run = step * 10,
            .step = step};
        const cy_save also = {.tokens = state.run, .config_json = "{}", .state_json = "{}"};
        disk_must(cy_test_save(&state, cy_group_self(), 0, also), "prepare a checkpoint");
    }
}

static void save_prepare(int variant)
{
    if (!way_of(variant).fresh) save_prepared(way_of(variant).scale);
}

// ---- checking

// Whether a step may hold the values of a run: those of the last save that was reported, or, when
// power was lost, of one that was tried after it.
static bool may_hold(const disk_case *c, int64_t step, int64_t run)
{
    int last = -1;
    for (int i = 0; i < c->saved_count; i++) {
        if (c->saved[i].step == step && c->saved[i].reported) last = i;
    }
    for (int i = last < 0 ? 0 : last; i < c->saved_count; i++) {
        const disk_saved *saved = &c->saved[i];
        if (saved->step != step || saved->run != run) continue;
        // A save whose names cannot be forced to the disk, nor be put back, says that it stands.
        if (c->torn || saved->reported || strstr(c->notes, "is there") != NULL) return true;
    }
    return false;
}

static void check_one(disk_case *c, const char *path, int64_t step, int scale)
{
    cy_checkpoint checkpoint = {0};
    cy_checkpoint_traffic traffic = {0};
    if (cy_checkpoint_open(&checkpoint, path) != CY_OK) {
        disk_wrong(c, "step %lld cannot be opened: %s", (long long)step, cy_error_text());
        return;
    }
    const int run = (int)checkpoint.tokens;
    const cy_test_state state = {.mesh = {1, 1, 1}, .scale = scale, .run = run, .step = step};
    const cy_status loaded = cy_test_load(&checkpoint, &state, cy_group_self(), &traffic);
    if (loaded != CY_OK) {
        disk_wrong(c, "step %lld cannot be loaded: %s", (long long)step, cy_error_text());
    } else if (checkpoint.step != step || !may_hold(c, step, run)) {
        disk_wrong(c, "step %lld holds run %d of step %lld", (long long)step, run,
            (long long)checkpoint.step);
    }
    cy_checkpoint_close(&checkpoint);
}

// Every folder that has a step's name and a manifest is whole, and the newest is not older than the
// newest that was reported.
static void check_saved(disk_case *c, int scale)
{
    int64_t reported = -1, *steps = NULL;
    int count = 0;
    for (int i = 0; i < c->saved_count; i++) {
        if (c->saved[i].reported && c->saved[i].step > reported) reported = c->saved[i].step;
    }
    if (cy_folder_steps(&steps, &count, disk_path(FOLDER)) != CY_OK) {
        if (reported >= 0) disk_wrong(c, "no list of checkpoints: %s", cy_error_text());
        return;
    }
    const int64_t newest = count > 0 ? steps[count - 1] : -1;
    if (newest < reported) {
        disk_wrong(c, "step %lld was reported as saved, the newest is %lld", (long long)reported,
            (long long)newest);
    }
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof(name), FOLDER "/step-%08lld", (long long)steps[i]);
        check_one(c, disk_path(name), steps[i], scale);
    }
    cy_memory_free(steps);
    char *path = NULL;
    if (reported >= 0 && cy_checkpoint_locate(&path, disk_path(FOLDER)) != CY_OK) {
        disk_wrong(c, "no checkpoint is found: %s", cy_error_text());
    }
    cy_memory_free(path);
}

static void save_check(disk_case *c)
{
    check_saved(c, way_of(c->variant).scale);
}

const disk_scenario disk_save = {
    .name = "save",
    .share = 40,
    .variants = 26,
    .writes = true,
    .prepare = save_prepare,
    .work = save_work,
    .check = save_check,
};

// ---- loading

typedef struct load_job {
    disk_case *c;
    cy_checkpoint *checkpoint;
    const char *path;
    int scale;
    cy_test_mesh mesh;
    int gap;
} load_job;

static int load_scale(int variant)
{
    return variant == 5 ? 34 : 4;
}

static void load_rank(void *context, cy_group *ranks)
{
    const load_job *job = context;
    disk_case *c = job->c;
    cy_checkpoint checkpoint = {0};
    cy_checkpoint_traffic traffic = {0};
    cy_thread_pool *pool = NULL;
    // Ranks that failed to open say so to the others in the trainer; here all must meet in the
    // load.
    cy_status status = cy_checkpoint_open_located(&checkpoint, job->path);
    disk_note(c, status);
    status = cy_checkpoint_agree(ranks, status, "could not open", job->path);
    if (status != CY_OK) {
        if (checkpoint.path != NULL) cy_checkpoint_close(&checkpoint);
        return;
    }
    if (c->variant >= 4) disk_must(cy_thread_pool_open(&pool, 2, -1, false), "start threads");
    checkpoint.pool = pool;
    checkpoint.read_once = c->variant == 5;
    const cy_test_state state = {.mesh = job->mesh,
        .scale = job->scale,
        .gap = job->gap,
        .run = (int)checkpoint.tokens,
        .step = checkpoint.step};
    if (c->variant == 3) {
        status = cy_checkpoint_verify(&checkpoint, CY_TENSOR_KINDS, ranks, &traffic);
    } else {
        status = cy_test_load(&checkpoint, &state, ranks, &traffic);
    }
    disk_note(c, status);
    if (status == CY_OK && checkpoint.step != 2) {
        disk_wrong(c, "loads step %lld, 2 is there", (long long)checkpoint.step);
    }
    cy_thread_pool_close(pool);
    cy_checkpoint_close(&checkpoint);
}

static void load_resume(disk_case *c, load_job *job)
{
    static cy_config config;
    bool weights_only = false;
    char *path = NULL;
    cy_test_config(&config, CY_F32);
    config.checkpoint.resume = CY_CONFIG_RESUME_AUTO;
    snprintf(config.checkpoint.save_dir, sizeof(config.checkpoint.save_dir), "%s", job->path);
    const cy_status status = cy_state_locate(&path, &weights_only, &config);
    disk_note(c, status);
    if (status == CY_OK && path == NULL) disk_wrong(c, "the run begins anew beside checkpoints");
    if (path != NULL) {
        job->path = path;
        load_rank(job, cy_group_self());
    }
    cy_memory_free(path);
}

static void load_work(disk_case *c)
{
    load_job job = {.c = c,
        .path = disk_path(FOLDER),
        .scale = load_scale(c->variant),
        .mesh = {1, 1, 1},
        .gap = c->variant == 4 ? 1 : 0};
    if (c->variant == 1) {
        load_resume(c, &job);
        return;
    }
    if (c->variant == 2) job.mesh = (cy_test_mesh){1, 2, 1};
    run_ranks(job.mesh, load_rank, &job);
}

static void load_prepare(int variant)
{
    save_prepared(load_scale(variant));
}

const disk_scenario disk_load = {
    .name = "load",
    .share = 15,
    .variants = 6,
    .names = {FOLDER},
    .prepare = load_prepare,
    .work = load_work,
};
