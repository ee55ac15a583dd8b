// cyclotron bench checkpoint: times saving and loading a model's state beside plain files.

#define _GNU_SOURCE
#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/random.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/report.h"
#include "optim/adamw.h"
#include "train/state.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)1 << 20)

typedef struct bench_options {
    const char *folder; // borrowed: where everything is written; on the disk in question
    const char *load;   // borrowed: a checkpoint to load instead of saving one, or NULL
    int rounds;         // at least 1
    cy_config_machine machine;
} bench_options;

// Seconds are medians over rounds. "plain" is what `dd bs=1M conv=fsync` does with as many bytes,
// and reading the same files, one after the other, in calls of 1 MiB. Files are dropped from the
// page cache before they are read.
typedef struct bench_result {
    int64_t bytes;        // of the files that the ranks wrote, or found
    double save_s;        // until the checkpoint was on the disk and had its name; 0 with --load
    double plain_write_s; // 0 with --load
    double load_s;        // until it was verified and in the memory of all ranks
    double plain_read_s;
    int64_t read_bytes;   // of all ranks, for their pieces
    int64_t verify_bytes; // of all ranks, compared with checksums
    int64_t file_bytes;   // of all ranks, out of files
    int ranks;
} bench_result;

typedef struct bench_run {
    const cy_config *config;
    const bench_options *options;
    bench_result *result; // written by rank zero
    double *seconds;      // [4, rounds], written by rank zero
    char *saves;          // owned: the folder of checkpoints
    char *path;           // owned: of the checkpoint
    char *plain;          // owned: the file beside it
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

// Drops a file from the page cache, so that it is read from the disk again.
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
    int64_t bytes; // read so far
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

// Reads the checkpoint's files, result->bytes in all, twice and times the second reading: a cache
// behind the disk, such as that of a host, then holds what it will hold during the load.
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

// Returns once all ranks have called it.
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
        engine->options.groups.world, NULL, cy_view_of(bytes, CY_F64, 1, 3), CY_SUM));
    if (rank->rank == 0) {
        bench_result *result = bench->result;
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

// Fills the moments with numbers as in the middle of a run: a disk may store zeros in no space.
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

// Fails with CY_ERR_IO where the folder's disk has no room. Removes what it wrote, except the last
// checkpoint where `load` is NULL: FOLDER/saves/step-00000001.
static cy_status run_rounds(
    const cy_config *config, const bench_options *options, bench_result *result)
{
    void *block = NULL;
    const int rounds = options->rounds;
    CY_TRY(cy_memory_alloc(&block, (size_t)rounds * 4, sizeof(double)));
    *result = (bench_result){0};
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

// ---- the command

typedef struct values {
    int64_t rounds;
    const char *folder;
    const char *load;
    bool json;
} values;

static const cy_option options[] = {
    {"folder", CY_OPTION_TEXT, offsetof(values, folder), .initial = ".",
        .doc = "where to write: saves/ is left there, for --load", .word = "DIR"},
    {"load", CY_OPTION_TEXT, offsetof(values, load),
        .doc = "load this checkpoint, of any mesh, and save none", .word = "DIR"},
    {"rounds", CY_OPTION_COUNT, offsetof(values, rounds), .initial = "3", .low = 1, .high = 1000,
        .doc = "how often; the medians are told", .word = "N"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print one JSON object only"},
};

static const cy_usage usage = {
    .name = "bench checkpoint",
    .positional = "CONFIG",
    .least = 1,
    .most = 1,
    .doc = "Times saving and loading the state of a configuration's model on its mesh, beside\n"
           "writing and reading a plain file of the same size; needs no dataset.",
    .options = options,
    .option_count = CY_COUNT(options),
    .overrides = true,
};

static void print_json(const bench_result *r)
{
    printf("{\"bytes\": %lld, \"save_s\": %s, \"plain_write_s\": %s, \"load_s\": %s, "
           "\"plain_read_s\": %s, \"read_bytes\": %lld, \"verify_bytes\": %lld, "
           "\"file_bytes\": %lld, \"ranks\": %d}\n",
        (long long)r->bytes, cy_json_number(r->save_s, 6).bytes,
        cy_json_number(r->plain_write_s, 6).bytes, cy_json_number(r->load_s, 6).bytes,
        cy_json_number(r->plain_read_s, 6).bytes, (long long)r->read_bytes,
        (long long)r->verify_bytes, (long long)r->file_bytes, r->ranks);
}

static void print_line(const char *what, double seconds, double plain_s, int64_t bytes)
{
    printf("%-5s %7.2f s, %6.2f GB/s: %.2f of a plain file's %.2f GB/s\n", what, seconds,
        (double)bytes * 0x1p-30 / seconds, plain_s / seconds, (double)bytes * 0x1p-30 / plain_s);
}

static void print_table(const bench_result *r)
{
    printf("files %.3f GB, %d rank%s\n", (double)r->bytes * 0x1p-30, r->ranks,
        r->ranks == 1 ? "" : "s");
    if (r->save_s > 0) print_line("save", r->save_s, r->plain_write_s, r->bytes);
    print_line("load", r->load_s, r->plain_read_s, r->bytes);
    printf("read  %.3f GB of files: %.3f GB for the ranks' pieces, %.3f GB checked\n",
        (double)r->file_bytes * 0x1p-30, (double)r->read_bytes * 0x1p-30,
        (double)r->verify_bytes * 0x1p-30);
}

int cy_command_bench_checkpoint(int argc, char **argv)
{
    cy_arguments arguments;
    values given;
    int status = cy_options_parse(&arguments, &given, &usage, argc, argv);
    cy_config config;
    if (status == CY_RUN_COMMAND) status = cy_load_config(&config, &arguments, CY_CONFIG_FOR_SHAPE);
    if (status == CY_RUN_COMMAND) {
        const bench_options wanted = {
            .folder = given.folder,
            .load = given.load,
            .rounds = (int)given.rounds,
            .machine = cy_machine_found(),
        };
        bench_result result;
        const cy_status done = run_rounds(&config, &wanted, &result);
        if (done == CY_OK && wanted.machine.rank == 0) {
            if (given.json) {
                print_json(&result);
            } else {
                print_table(&result);
            }
        }
        status = done == CY_OK ? cy_report_output(CY_EXIT_DONE) : cy_report_ranks(done);
    }
    cy_arguments_free(&arguments);
    return status;
}
