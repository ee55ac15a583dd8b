#define _GNU_SOURCE
#include "train/bench_checkpoint.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/random.h"
#include "base/text.h"
#include "optim/adamw.h"
#include "train/state.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)1 << 20)

typedef struct bench_run {
    const cy_config *config;
    const cy_bench_checkpoint_options *options;
    cy_bench_checkpoint_result *result; // written by rank zero
    double *seconds;                    // [4, rounds], written by rank zero
    char *saves;                        // owned: the folder of checkpoints
    char *path;                         // owned: of the checkpoint
    char *plain;                        // owned: the file beside it
} bench_run;

// ---- plain files

// Calls see(context, descriptor) for each file of a folder.
static cy_status each_file(
    const char *folder, cy_status (*see)(void *context, int fd), void *context)
{
    DIR *entries = cy_io_open_folder(folder);
    if (entries == NULL) return CY_FAIL_ERRNO(CY_ERR_IO, "open folder %s", folder);
    const char *name = NULL;
    cy_status status = cy_folder_next(&name, entries, folder);
    while (status == CY_OK && name != NULL) {
        if (name[0] != '.') {
            const int fd = cy_io_open_at(dirfd(entries), name, O_RDONLY | O_CLOEXEC);
            status =
                fd < 0 ? CY_FAIL_ERRNO(CY_ERR_IO, "open %s/%s", folder, name) : see(context, fd);
            if (fd >= 0) cy_io_close(fd);
        }
        if (status == CY_OK) status = cy_folder_next(&name, entries, folder);
    }
    closedir(entries);
    return status;
}

static cy_status add_size(void *context, int fd)
{
    struct stat info;
    if (cy_io_fstat(fd, &info) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "stat a file");
    *(int64_t *)context += (int64_t)info.st_size;
    return CY_OK;
}

// What is on disk leaves the page cache, so that it is read from there again.
static cy_status forget(void *context, int fd)
{
    (void)context;
    const int error = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return error == 0 ? CY_OK : CY_FAIL(CY_ERR_IO, "fadvise: %s", strerror(error));
}

static cy_status write_blocks(int fd, char *block, int64_t bytes, const char *path)
{
    for (int64_t left = bytes; left > 0;) {
        const size_t some = left < (int64_t)BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
        const ssize_t put = cy_io_write(fd, block, some);
        if (put < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "write %s", path);
        left -= put;
    }
    if (cy_io_sync(fd) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "fsync %s", path);
    return CY_OK;
}

static cy_status time_write(const bench_run *bench, char *block, int64_t bytes, double *seconds)
{
    const double start = cy_clock_s();
    const int fd = cy_io_open(bench->plain, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    if (fd < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "create %s", bench->plain);
    cy_status status = write_blocks(fd, block, bytes, bench->plain);
    *seconds = cy_clock_s() - start;
    if (status == CY_OK) status = forget(NULL, fd);
    cy_io_close(fd);
    return status;
}

typedef struct plain_reading {
    char *block;
    const char *path;
    int64_t bytes; // that came
} plain_reading;

static cy_status read_file(void *context, int fd)
{
    plain_reading *reading = context;
    for (;;) {
        const ssize_t got = cy_io_read(fd, reading->block, BLOCK_BYTES);
        if (got < 0) return CY_FAIL_ERRNO(CY_ERR_IO, "read %s", reading->path);
        if (got == 0) return CY_OK;
        reading->bytes += got;
    }
}

// Reads the checkpoint's own files from the disk, one after the other.
static cy_status time_read(const bench_run *bench, char *block, double *seconds)
{
    plain_reading reading = {.block = block, .path = bench->path};
    CY_TRY(each_file(bench->path, forget, NULL));
    const double start = cy_clock_s();
    CY_TRY(each_file(bench->path, read_file, &reading));
    *seconds = cy_clock_s() - start;
    if (reading.bytes == bench->result->bytes) return CY_OK;
    return CY_FAIL(CY_ERR_IO, "%s: %lld of %lld bytes could be read", bench->path,
        (long long)reading.bytes, (long long)bench->result->bytes);
}

// Bytes that nothing can compress, [BLOCK_BYTES].
static cy_status take_block(char **block)
{
    void *memory = NULL;
    CY_TRY(cy_memory_alloc(&memory, BLOCK_BYTES / sizeof(uint64_t), sizeof(uint64_t)));
    uint64_t *words = memory;
    const uint64_t key = cy_random_key(1, "plain");
    for (size_t i = 0; i < BLOCK_BYTES / sizeof(uint64_t); i++)
        words[i] = cy_random_bits(key, i);
    *block = memory;
    return CY_OK;
}

// Writes one file as large as the checkpoint.
static cy_status time_plain_write(const bench_run *bench, int64_t bytes, double *seconds)
{
    char *block = NULL;
    CY_TRY(take_block(&block));
    cy_status status = time_write(bench, block, bytes, seconds);
    if (cy_io_unlink(bench->plain) != 0 && status == CY_OK) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "remove %s", bench->plain);
    }
    cy_memory_free(block);
    return status;
}

// Reads the checkpoint's files, result->bytes in all, twice and times the second: what stands
// behind the disk, a host's own cache for instance, is then as it will be for the load.
static cy_status time_plain_read(const bench_run *bench, double *seconds)
{
    char *block = NULL;
    CY_TRY(take_block(&block));
    cy_status status = time_read(bench, block, seconds);
    if (status == CY_OK) status = time_read(bench, block, seconds);
    cy_memory_free(block);
    return status;
}

// ---- a round

// All ranks stand at the same place when it returns.
static cy_status meet(cy_engine *engine)
{
    return cy_group_barrier(engine->options.groups.world);
}

static cy_status time_save(
    const bench_run *bench, cy_engine *engine, const cy_rank *rank, double *seconds)
{
    cy_saver *saver = NULL;
    const cy_run_position position = {.step = 1, .tokens = 1};
    cy_save_report report = {0};
    CY_TRY(
        cy_saver_open(&saver, bench->saves, 1, engine->options.groups.world, &engine->queue, NULL));
    cy_status status = meet(engine);
    if (status == CY_OK) status = cy_state_save(engine, rank, saver, position, NULL, &report);
    cy_saver_close(saver);
    *seconds = report.total_s;
    return status;
}

static cy_status time_load(const bench_run *bench, cy_engine *engine, const cy_rank *rank,
    cy_checkpoint_traffic *traffic, double *seconds)
{
    cy_run_position position;
    if (rank->rank == 0) CY_TRY(each_file(bench->path, forget, NULL));
    CY_TRY(meet(engine));
    const double start = cy_clock_s();
    CY_TRY(cy_state_load(engine, rank, bench->path, false, &position, traffic));
    CY_TRY(meet(engine));
    *seconds = cy_clock_s() - start;
    return CY_OK;
}

static cy_status run_round(
    const bench_run *bench, cy_engine *engine, const cy_rank *rank, int round)
{
    const bool saves = bench->options->load == NULL;
    const int rounds = bench->options->rounds;
    double save_s = 0, load_s = 0, write_s = 0, read_s = 0;
    cy_checkpoint_traffic traffic = {0};
    if (saves) CY_TRY(time_save(bench, engine, rank, &save_s));
    if (rank->rank == 0) {
        bench->result->bytes = 0;
        CY_TRY(each_file(bench->path, add_size, &bench->result->bytes));
        CY_TRY(time_plain_read(bench, &read_s));
    }
    CY_TRY(time_load(bench, engine, rank, &traffic, &load_s));
    double bytes[] = {
        (double)traffic.read_bytes, (double)traffic.verify_bytes, (double)traffic.file_bytes};
    CY_TRY(cy_group_all_reduce(
        engine->options.groups.world, &engine->queue, cy_view_of(bytes, CY_F64, 1, 3), CY_SUM));
    if (rank->rank == 0) {
        cy_bench_checkpoint_result *result = bench->result;
        if (saves) CY_TRY(time_plain_write(bench, result->bytes, &write_s));
        result->read_bytes = (int64_t)bytes[0];
        result->verify_bytes = (int64_t)bytes[1];
        result->file_bytes = (int64_t)bytes[2];
        result->ranks = rank->mesh.world;
        const double found[4] = {save_s, write_s, load_s, read_s};
        for (int i = 0; i < 4; i++)
            bench->seconds[i * rounds + round] = found[i];
    }
    return meet(engine);
}

// Moments as they are in the middle of a run: not zeros, which a disk may not store at all.
static void fill_moments(cy_engine *engine)
{
    const uint64_t key = cy_random_key(1, "moments");
    for (int g = 0; g < engine->storage.group_count; g++) {
        const cy_reducer *reducer = engine->storage.groups[g].reducer;
        for (int i = 0; i < cy_reducer_owned_count(reducer); i++) {
            const cy_owned_range range = cy_reducer_owned(reducer, i);
            const uint64_t at = (uint64_t)range.first;
            cy_random_fill(&engine->queue, range.m, key, at, range.m.cols, 1e-3);
            cy_random_fill(&engine->queue, range.v, key, at, range.v.cols, 1e-6);
        }
    }
}

static cy_status measure(cy_engine *engine, const cy_rank *rank, void *context)
{
    const bench_run *bench = context;
    CY_TRY(cy_engine_initialize(engine));
    fill_moments(engine);
    for (int i = 0; i < bench->options->rounds; i++)
        CY_TRY(run_round(bench, engine, rank, i));
    return CY_OK;
}

static cy_status run_rank(const cy_rank *rank, void *context)
{
    const bench_run *bench = context;
    const cy_engine_options options = cy_rank_engine_options(rank, bench->config);
    return cy_rank_with_engine(rank, &options, measure, context);
}

static cy_status make_names(bench_run *run)
{
    cy_text saves = {0}, path = {0}, plain = {0};
    const char *folder = run->options->folder;
    cy_status status = cy_text_add(&saves, "%s/saves", folder);
    if (status == CY_OK) status = cy_text_add(&plain, "%s/plain", folder);
    if (status == CY_OK && run->options->load != NULL) {
        status = cy_checkpoint_locate(&path.bytes, run->options->load);
    } else if (status == CY_OK) {
        status = cy_text_add(&path, "%s/step-00000001", saves.bytes);
    }
    run->saves = saves.bytes;
    run->path = path.bytes;
    run->plain = plain.bytes;
    return status;
}

cy_status cy_bench_checkpoint(const cy_config *config, const cy_bench_checkpoint_options *options,
    cy_bench_checkpoint_result *result)
{
    void *block = NULL;
    const int rounds = options->rounds;
    CY_TRY(cy_memory_alloc(&block, (size_t)rounds * 4, sizeof(double)));
    *result = (cy_bench_checkpoint_result){0};
    bench_run run = {.config = config, .options = options, .result = result, .seconds = block};
    cy_status status = make_names(&run);
    if (status == CY_OK) status = cy_ranks_run(config, &options->machine, run_rank, &run);
    if (status == CY_OK) {
        result->save_s = cy_median(run.seconds, rounds);
        result->plain_write_s = cy_median(run.seconds + rounds, rounds);
        result->load_s = cy_median(run.seconds + (size_t)rounds * 2, rounds);
        result->plain_read_s = cy_median(run.seconds + (size_t)rounds * 3, rounds);
    }
    cy_memory_free(run.saves);
    cy_memory_free(run.path);
    cy_memory_free(run.plain);
    cy_memory_free(run.seconds);
    return status;
}
