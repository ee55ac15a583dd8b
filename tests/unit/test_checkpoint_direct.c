// Reading and writing past the page cache: the same bytes as plainly, and counted as they are.
#define _GNU_SOURCE
#include "support/ranks.h"
#include "support/saves.h"
#include "support/support.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/file_io.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

// ---- writing

static unsigned char byte_at(uint64_t offset)
{
    return (unsigned char)((offset * 2654435761u) >> 13);
}

static void fill(unsigned char *bytes, uint64_t offset, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = byte_at(offset + i);
}

// Writes `total` bytes in portions of 1, 7, 49, ... bytes, up to 3 MiB.
static void write_file(const char *path, uint64_t total, int blocks)
{
    cy_file_writer *writer = NULL;
    unsigned char *bytes = malloc(3 * MIB);
    assert_non_null(bytes);
    CY_CHECK_OK(cy_file_writer_open(&writer, path, total, blocks));
    size_t portion = 1;
    for (uint64_t done = 0; done < total;) {
        const size_t some = total - done < portion ? (size_t)(total - done) : portion;
        fill(bytes, done, some);
        CY_CHECK_OK(cy_file_writer_add(writer, bytes, some));
        done += some;
        portion = portion * 7 < 3 * MIB ? portion * 7 : 1 + portion % 1000;
    }
    CY_CHECK_OK(cy_file_writer_close(writer, true));
    free(bytes);
}

static void check_file(const char *path, uint64_t total)
{
    cy_text text = {0};
    CY_CHECK_OK(cy_file_read(&text, path, 64 * MIB));
    assert_int_equal(text.length, total);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < total; i++)
        wrong += (unsigned char)text.bytes[i] != byte_at(i);
    assert_int_equal(wrong, 0);
    cy_text_free(&text);
}

static void a_sink_writes_what_was_added(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 4096, MIB - 1, MIB, MIB + 1, 4 * MIB, 9 * MIB + 4096 + 5};
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    for (int blocks = 0; blocks <= CY_FILE_WRITER_BLOCKS_MAX; blocks++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            snprintf(path, sizeof(path), "%s/%d-%zu", folder, blocks, i);
            write_file(path, sizes[i], blocks);
            check_file(path, sizes[i]);
        }
    }
}

// A write that fails in a thread of the writer is heard of, and none after it is taken for good.
static void a_sink_that_cannot_write_says_so(void **state)
{
    (void)state;
    char folder[256], path[300];
    struct rlimit before;
    unsigned char *bytes = calloc(1, MIB);
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (int blocks = 0; blocks <= CY_FILE_WRITER_BLOCKS_MAX; blocks++) {
        cy_file_writer *writer = NULL;
        CY_CHECK_OK(cy_file_writer_open(&writer, path, 12 * MIB, blocks));
        // The room is there; then somebody lowers what a file may be.
        const struct rlimit limit = {.rlim_cur = 3 * MIB, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        cy_status status = CY_OK;
        for (int i = 0; status == CY_OK && i < 12; i++)
            status = cy_file_writer_add(writer, bytes, MIB);
        if (status == CY_OK) {
            status = cy_file_writer_close(writer, true);
        } else {
            CY_CHECK_OK(cy_file_writer_close(writer, false));
        }
        CY_CHECK_FAILS(status, CY_ERR_IO, "File too large");
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    }
    free(bytes);
}

static void an_unfinished_sink_is_an_error(void **state)
{
    (void)state;
    char folder[256], path[300];
    unsigned char *bytes = calloc(1, 3 * MIB);
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    for (int blocks = 0; blocks <= CY_FILE_WRITER_BLOCKS_MAX; blocks++) {
        cy_file_writer *writer = NULL;
        CY_CHECK_OK(cy_file_writer_open(&writer, path, 3 * MIB, blocks));
        CY_CHECK_OK(cy_file_writer_add(writer, bytes, 3 * MIB - 1));
        CY_CHECK_FAILS(cy_file_writer_close(writer, true), CY_ERR_REQUEST,
            "3145727 of 3145728 bytes were written");
    }
    free(bytes);
}

// ---- reading

// Puts a file that is on disk out of the page cache. False where the file system is memory.
static bool forget(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fdatasync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
    cy_direct_file file;
    cy_direct_open(&file, path, 1);
    const bool cached = file.fd < 0 || cy_direct_is_cached(&file, 0, 1);
    cy_direct_close(&file);
    return !cached;
}

static void what_refuses_direct_reads_has_none(void **state)
{
    (void)state;
    cy_direct_file file;
    const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd >= 0) close(fd);
    assert_true(fd < 0); // as a file system that has none says
    cy_direct_open(&file, "/proc/self/stat", 100);
    assert_int_equal(file.fd, -1);
    cy_direct_close(&file);
}

// A file of `bytes` on disk and out of the page cache, opened, and zeros of a mapping to read into.
typedef struct reading {
    char path[300];
    cy_direct_file file;
    void *memory;
    size_t capacity;
} reading;

// False where the file system is memory.
static bool begin_reading(reading *r, uint64_t bytes, size_t capacity)
{
    char folder[256];
    *r = (reading){.capacity = capacity};
    cy_test_folder(folder, sizeof(folder));
    snprintf(r->path, sizeof(r->path), "%s/file", folder);
    write_file(r->path, bytes, 2);
    if (!forget(r->path)) return false;
    cy_direct_open(&r->file, r->path, bytes);
    assert_true(r->file.fd >= 0);
    CY_CHECK_OK(cy_memory_map(&r->memory, capacity));
    return true;
}

static void end_reading(reading *r)
{
    cy_direct_close(&r->file);
    cy_memory_unmap(r->memory, r->capacity);
}

static void blocks_around_any_range_are_read(void **state)
{
    (void)state;
    static const uint64_t ranges[][2] = {{0, 1}, {4095, 2}, {4096, 4096}, {1, 9000},
        {3 * MIB - 5, 5}, {3 * MIB - 5, 6}, {3 * MIB + 7, 1}, {8, 3 * MIB}};
    reading r;
    if (!begin_reading(&r, 3 * MIB + 8, 4 * MIB)) skip();
    char *bytes = r.memory;
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        const uint64_t offset = ranges[i][0], count = ranges[i][1];
        const uint64_t first = cy_direct_block_offset(offset);
        assert_true(first <= offset && offset - first < CY_DIRECT_ALIGN);
        assert_true(first + cy_direct_block_bytes(offset, count) >= offset + count);
        assert_true(cy_direct_block_bytes(offset, count) < count + 2 * CY_DIRECT_ALIGN);
        memset(bytes, 0, 4 * MIB);
        assert_true(cy_direct_read(&r.file, bytes, offset, count));
        uint64_t wrong = 0;
        for (uint64_t k = 0; k < count; k++)
            wrong += (unsigned char)bytes[offset - first + k] != byte_at(offset + k);
        assert_int_equal(wrong, 0);
    }
    assert_false(cy_direct_is_cached(&r.file, 0, 3 * MIB));       // it went past
    assert_false(cy_direct_read(&r.file, bytes, 3 * MIB + 4, 5)); // ends there
    check_file(r.path, 3 * MIB + 8);
    assert_true(cy_direct_is_cached(&r.file, 0, 3 * MIB));
    end_reading(&r);
}

// The C library's, for this program: at most so many bytes a call, as a disk may give.
static size_t most_at_once = SIZE_MAX;

ssize_t pread(int fd, void *bytes, size_t count, off_t offset)
{
    return syscall(SYS_pread64, fd, bytes, count < most_at_once ? count : most_at_once, offset);
}

static void a_read_that_comes_in_parts_is_put_together(void **state)
{
    (void)state;
    reading r;
    if (!begin_reading(&r, 64 * CY_DIRECT_ALIGN + 8, MIB)) skip();
    char *bytes = r.memory;
    for (uint64_t blocks = 1; blocks < 8; blocks += 2) {
        most_at_once = blocks * CY_DIRECT_ALIGN;
        const uint64_t offset = 3 * CY_DIRECT_ALIGN + 5, hull = 62 * CY_DIRECT_ALIGN;
        assert_int_equal(cy_direct_block_bytes(offset, 61 * CY_DIRECT_ALIGN), hull);
        memset(bytes, 0xa5, MIB);
        assert_true(cy_direct_read(&r.file, bytes, offset, 61 * CY_DIRECT_ALIGN));
        uint64_t wrong = 0;
        for (uint64_t k = 0; k < 61 * CY_DIRECT_ALIGN; k++)
            wrong += (unsigned char)bytes[5 + k] != byte_at(offset + k);
        assert_int_equal(wrong, 0);
        for (uint64_t k = hull; k < MIB; k++)
            assert_int_equal((unsigned char)bytes[k], 0xa5); // never more than was asked for
    }
    most_at_once = CY_DIRECT_ALIGN - 512; // cuts a block before the end of the file
    assert_false(cy_direct_read(&r.file, bytes, 0, 2 * CY_DIRECT_ALIGN));
    most_at_once = SIZE_MAX;
    end_reading(&r);
}

// ---- a whole checkpoint

typedef struct job {
    cy_test_state state;
    cy_status wanted;      // of the load
    atomic_llong files;    // bytes out of files, of all ranks
    atomic_llong verified; // bytes
} job;

// 12 MB.
static job job_of(const char *folder, cy_test_mesh mesh, int gap)
{
    return (job){
        .state = {.folder = folder, .mesh = mesh, .scale = 60, .gap = gap, .run = 1, .step = 1}};
}

static void save_rank(void *context, cy_group *ranks)
{
    const job *j = context;
    CY_CHECK_OK(cy_test_save(&j->state, ranks, 0, (cy_save){.config_json = "{}"}));
}

static void load_rank(void *context, cy_group *ranks)
{
    job *j = context;
    cy_checkpoint checkpoint;
    cy_checkpoint_traffic traffic = {0};
    char path[400];
    snprintf(path, sizeof(path), "%s/step-00000001", j->state.folder);
    CY_CHECK_OK(cy_checkpoint_open(&checkpoint, path));
    checkpoint.read_once = true;
    const cy_status status = cy_test_load(&checkpoint, &j->state, ranks, &traffic);
    if (j->wanted == CY_OK) {
        CY_CHECK_OK(status);
    } else {
        assert_true(status == j->wanted || status == CY_ERR_PEER);
    }
    atomic_fetch_add(&j->files, traffic.file_bytes);
    atomic_fetch_add(&j->verified, traffic.verify_bytes);
    cy_checkpoint_close(&checkpoint);
}

// What of a checkpoint's files the page cache has, after everything of it was put out.
static bool forget_files(const char *folder, bool only_look)
{
    char path[400];
    cy_checkpoint checkpoint;
    snprintf(path, sizeof(path), "%s/step-00000001", folder);
    CY_CHECK_OK(cy_checkpoint_open(&checkpoint, path));
    bool gone = true;
    for (int i = 0; i < checkpoint.file_count; i++) {
        cy_direct_file file;
        snprintf(path, sizeof(path), "%s/step-00000001/%s", folder, checkpoint.files[i].name);
        if (!only_look && !forget(path)) gone = false;
        cy_direct_open(&file, path, checkpoint.files[i].bytes);
        if (only_look && file.fd >= 0 && cy_direct_is_cached(&file, 0, file.bytes)) gone = false;
        cy_direct_close(&file);
    }
    cy_checkpoint_close(&checkpoint);
    return gone;
}

static void a_state_is_read_past_the_page_cache(void **state)
{
    (void)state;
    static const cy_test_mesh meshes[] = {{1, 1, 1}, {2, 1, 1}, {1, 3, 1}, {2, 2, 2}, {1, 8, 1}};
    for (int i = 0; i < 5; i++) {
        char folder[256];
        cy_test_folder(folder, sizeof(folder));
        job j = job_of(folder, meshes[i], i % 2);
        cy_test_ranks(cy_test_mesh_size(j.state.mesh), save_rank, &j);
        if (!forget_files(folder, false)) skip();
        // Whoever wrote it reads each byte once, and whole blocks around what it reads.
        cy_test_ranks(cy_test_mesh_size(j.state.mesh), load_rank, &j);
        assert_true(forget_files(folder, true));
        assert_true(atomic_load(&j.files) > atomic_load(&j.verified));
        assert_true((double)atomic_load(&j.files) < 1.1 * (double)atomic_load(&j.verified));
        // Others read the parts of chunks that another rank checks plainly.
        for (int k = 0; k < 5; k++) {
            j.state.mesh = meshes[k];
            cy_test_ranks(cy_test_mesh_size(j.state.mesh), load_rank, &j);
        }
    }
}

static void what_the_page_cache_has_is_taken_from_there(void **state)
{
    (void)state;
    char folder[256], command[400];
    cy_test_folder(folder, sizeof(folder));
    job j = job_of(folder, (cy_test_mesh){1, 2, 1}, 0);
    cy_test_ranks(2, save_rank, &j);
    snprintf(command, sizeof(command), "cat %s/step-00000001/* >/dev/null", folder);
    assert_int_equal(system(command), 0);
    cy_test_ranks(2, load_rank, &j);
    assert_int_equal(atomic_load(&j.files), atomic_load(&j.verified)); // no byte more
}

static void a_flipped_bit_is_found_past_the_page_cache(void **state)
{
    (void)state;
    static const long offsets[] = {20, 5000, 1 << 20, 3333333, 5000000};
    char folder[256], path[400];
    cy_test_folder(folder, sizeof(folder));
    job j = job_of(folder, (cy_test_mesh){1, 1, 1}, 0);
    cy_test_ranks(1, save_rank, &j);
    snprintf(path, sizeof(path), "%s/step-00000001/optimizer-00000.safetensors", folder);
    for (int i = 0; i < 5; i++) {
        for (int ranks = 1; ranks <= 3; ranks += 2) {
            j.state.mesh = (cy_test_mesh){1, ranks, 1};
            j.wanted = CY_ERR_CORRUPT;
            cy_test_flip(path, offsets[i], 4);
            if (!forget_files(folder, false)) skip();
            cy_test_ranks(ranks, load_rank, &j);
            cy_test_flip(path, offsets[i], 4);
            j.wanted = CY_OK;
            if (!forget_files(folder, false)) skip();
            cy_test_ranks(ranks, load_rank, &j);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sink_writes_what_was_added),
        cmocka_unit_test(a_sink_that_cannot_write_says_so),
        cmocka_unit_test(an_unfinished_sink_is_an_error),
        cmocka_unit_test(what_refuses_direct_reads_has_none),
        cmocka_unit_test(blocks_around_any_range_are_read),
        cmocka_unit_test(a_read_that_comes_in_parts_is_put_together),
        cmocka_unit_test(a_state_is_read_past_the_page_cache),
        cmocka_unit_test(what_the_page_cache_has_is_taken_from_there),
        cmocka_unit_test(a_flipped_bit_is_found_past_the_page_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
