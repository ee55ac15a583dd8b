// What one mesh saves, any other loads: each byte written once, each rank reading its own only.
#define _GNU_SOURCE
#include "support/ranks.h"
#include "support/saves.h"
#include "support/support.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "observe/memory.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cy_model_shape model = {
    .architecture = "llama",
    .layers = 1,
    .hidden = 8,
    .ffn = 16,
    .heads = 2,
    .kv_heads = 1,
    .head_dim = 4,
    .vocab = 11,
    .max_positions = 64,
    .norm_eps = 1e-5,
    .rope = {.theta = 10000},
    .init_std = 0.02,
    .bos = -1,
    .eos = 3,
    .qkv_bias = true,
    .window = 16,
};

typedef struct job {
    cy_test_state state;
    int keep_last;
    const char *tokenizer;
    atomic_llong bytes_read;
    atomic_llong verified;
    atomic_llong out_of_files;
    int64_t most_verified; // by one rank
} job;

static void save_rank(void *context, cy_group *ranks)
{
    const job *j = context;
    const cy_extra_file file = {.name = "tokenizer.json", .source = j->tokenizer};
    const cy_save also = {
        .tokens = j->state.step * 1000,
        .config_json = "{\"training\": {\"learning_rate\": 0.0003}}",
        .state_json = "{\"sample\": 12345678901}",
        .model = &model,
        .files = &file,
        .file_count = j->tokenizer != NULL ? 1 : 0,
    };
    CY_CHECK_OK(cy_test_save(&j->state, ranks, j->keep_last, also));
}

static void open_saved(cy_checkpoint *checkpoint, const cy_test_state *state)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/step-%08lld", state->folder, (long long)state->step);
    CY_CHECK_OK(cy_checkpoint_open(checkpoint, path));
}

static void load_rank(void *context, cy_group *ranks)
{
    job *j = context;
    cy_global_tensor tensors[CY_TEST_TENSORS];
    cy_checkpoint checkpoint;
    cy_checkpoint_traffic traffic = {0};
    open_saved(&checkpoint, &j->state);
    cy_test_tensors(tensors, j->state.scale);
    CY_CHECK_OK(cy_checkpoint_check_tensors(&checkpoint, tensors, CY_TEST_TENSORS));
    CY_CHECK_OK(cy_test_load(&checkpoint, &j->state, ranks, &traffic));
    atomic_fetch_add(&j->bytes_read, traffic.read_bytes);
    atomic_fetch_add(&j->verified, traffic.verify_bytes);
    atomic_fetch_add(&j->out_of_files, traffic.file_bytes);
    cy_checkpoint_close(&checkpoint);
}

static void any_mesh_reads_what_any_other_wrote(void **state)
{
    (void)state;
    static const cy_test_mesh meshes[] = {
        {1, 1, 1},
        {2, 1, 1},
        {1, 2, 1},
        {1, 1, 2},
        {2, 2, 1},
        {3, 1, 1},
        {1, 5, 1},
        {2, 3, 2},
        {4, 2, 1},
        {8, 1, 1},
        {3, 3, 3},
    };
    const int count = (int)(sizeof(meshes) / sizeof(meshes[0]));
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    for (int i = 0; i < count; i++) {
        job j = {.state = {.folder = folder,
                     .mesh = meshes[i],
                     .scale = 3,
                     .gap = i % 3,
                     .step = i,
                     .run = i}};
        cy_test_ranks(cy_test_mesh_size(meshes[i]), save_rank, &j);
    }
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < count; k++) {
            job j = {.state = {.folder = folder,
                         .mesh = meshes[k],
                         .scale = 3,
                         .gap = k % 2,
                         .step = i,
                         .run = i}};
            cy_test_ranks(cy_test_mesh_size(meshes[k]), load_rank, &j);
        }
    }
}

// Shards in memory that the host cannot reach: saved from one device and loaded to another one, and
// by ranks whose shards the host holds.
static void devices_save_and_load(void **state)
{
    (void)state;
    static const cy_test_mesh meshes[] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {2, 1, 2}};
    static const char *const devices[] = {NULL, "test"};
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    for (int i = 0; i < 4; i++) {
        // Some tensors take several chunks, and their rows lie apart in every second state.
        job j = {.state = {.folder = folder,
                     .mesh = meshes[i],
                     .scale = 80,
                     .gap = i % 2 * 3,
                     .step = i,
                     .run = i,
                     .device = "test"}};
        cy_test_ranks(cy_test_mesh_size(meshes[i]), save_rank, &j);
        for (int k = 0; k < 4; k++) {
            j.state.mesh = meshes[(i + k) % 4];
            j.state.gap = k / 2 * 5;
            j.state.device = devices[k % 2];
            cy_test_ranks(cy_test_mesh_size(j.state.mesh), load_rank, &j);
        }
    }
}

// Elements of fp32 become fp64 on their way to a device: a chunk is twice as large there.
static void elements_are_converted_before_a_device(void **state)
{
    (void)state;
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    job j = {.state = {.folder = folder, .mesh = {1, 1, 1}, .scale = 80, .run = 5}};
    cy_test_ranks(1, save_rank, &j);

    cy_global_tensor tensors[CY_TEST_TENSORS];
    cy_checkpoint checkpoint;
    cy_checkpoint_traffic traffic = {0};
    cy_device *device = NULL;
    cy_queue queue = {0};
    void *memory = NULL;
    cy_test_tensors(tensors, j.state.scale);
    const int64_t rows = tensors[0].rows, cols = tensors[0].cols, stride = cols + 1;
    const size_t bytes = (size_t)(rows * stride) * sizeof(double);
    CY_CHECK_OK(cy_device_open(&device, "test", 3));
    CY_CHECK_OK(cy_device_alloc(device, &memory, bytes));
    CY_CHECK_OK(cy_queue_open(&queue, device));
    cy_view view = cy_view_of(memory, CY_F64, rows, cols);
    view.stride = stride;
    const cy_tensor_shard piece = cy_tensor_shard_of_view(0, view, 0, 0);
    open_saved(&checkpoint, &j.state);
    CY_CHECK_OK(cy_checkpoint_load_checked(
        &checkpoint, tensors, &piece, 1, CY_TENSOR_KINDS, cy_group_self(), &queue, &traffic));
    cy_checkpoint_close(&checkpoint);
    double *found = malloc(bytes);
    cy_queue_download(&queue, found, memory, bytes);
    CY_CHECK_OK(cy_queue_synchronize(&queue));
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t col = 0; col < cols; col++) {
            assert_true(found[row * stride + col] == (double)cy_test_value(0, row, col, 5));
        }
    }
    free(found);
    cy_queue_close(&queue);
    cy_device_free(device, memory, bytes);
    cy_device_close(device);
}

// Saving and loading pass through buffers: a state of 78 MB costs a few megabytes more, in pieces
// that are dense and in pieces that are not. What the page cache holds is not the process's.
static void neither_saving_nor_loading_takes_a_copy(void **state)
{
    (void)state;
    if (CY_TEST_SANITIZED) skip(); // what they keep about memory, and of it, is resident, too
    for (int gap = 0; gap <= 1; gap++) {
        char folder[256], path[400];
        cy_test_folder(folder, sizeof(folder));
        snprintf(path, sizeof(path), "%s/step-00000001", folder);
        cy_global_tensor tensors[CY_TEST_TENSORS];
        cy_test_shard shard;
        cy_saver *saver = NULL;
        cy_test_tensors(tensors, 150);
        cy_test_shard_open(&shard, tensors, (cy_test_mesh){1, 1, 1}, 0, gap, true, 0);
        assert_true(shard.bytes > 70 << 20);
        const cy_save save = {
            .step = 1,
            .config_json = "{}",
            .tensors = tensors,
            .tensor_count = CY_TEST_TENSORS,
            .pieces = shard.pieces,
            .piece_count = shard.count,
        };
        cy_rss before, after;
        if (cy_rss_reset_peak() != CY_OK) skip();
        CY_CHECK_OK(cy_rss_read(&before));
        CY_CHECK_OK(cy_saver_open(&saver, folder, 0, cy_group_self(), NULL, NULL));
        CY_CHECK_OK(cy_saver_save(saver, &save, NULL));
        cy_saver_close(saver);
        cy_checkpoint checkpoint;
        cy_checkpoint_traffic traffic = {0};
        CY_CHECK_OK(cy_checkpoint_open(&checkpoint, path));
        CY_CHECK_OK(cy_thread_pool_open(&checkpoint.pool, 4, -1, false));
        CY_CHECK_OK(cy_checkpoint_load_checked(&checkpoint, tensors, shard.pieces, shard.count,
            CY_TENSOR_KINDS, cy_group_self(), NULL, &traffic));
        cy_thread_pool_close(checkpoint.pool);
        cy_checkpoint_close(&checkpoint);
        CY_CHECK_OK(cy_rss_read(&after));
        assert_int_equal(cy_test_shard_wrong(&shard, tensors, gap, 0), 0);
        if (after.peak_bytes > before.now_bytes + ((size_t)8 << 20)) {
            fail_msg("a state of %lld bytes took %zu bytes more", (long long)shard.bytes,
                after.peak_bytes - before.now_bytes);
        }
        cy_test_shard_close(&shard);
    }
}

static int64_t bytes_of_files(const char *path)
{
    cy_checkpoint checkpoint;
    int64_t bytes = 0;
    CY_CHECK_OK(cy_checkpoint_open(&checkpoint, path));
    for (int i = 0; i < checkpoint.file_count; i++)
        bytes += (int64_t)checkpoint.files[i].bytes;
    cy_checkpoint_close(&checkpoint);
    return bytes;
}

static void verify_rank(void *context, cy_group *ranks)
{
    job *j = context;
    cy_checkpoint checkpoint;
    cy_checkpoint_traffic traffic = {0};
    open_saved(&checkpoint, &j->state);
    CY_CHECK_OK(cy_checkpoint_verify(&checkpoint, CY_TENSOR_KINDS, ranks, &traffic));
    cy_checkpoint_close(&checkpoint);
    // An even share, up to chunks that are not full.
    assert_true(traffic.verify_bytes <= j->most_verified);
    atomic_fetch_add(&j->verified, traffic.verify_bytes);
}

static void each_chunk_is_verified_once_by_all_ranks_together(void **state)
{
    (void)state;
    char folder[256], path[400];
    cy_test_folder(folder, sizeof(folder));
    job j = {.state = {.folder = folder, .mesh = {2, 2, 1}, .scale = 60, .step = 1}};
    cy_test_ranks(4, save_rank, &j);
    snprintf(path, sizeof(path), "%s/step-00000001", folder);
    const int64_t bytes = bytes_of_files(path);
    assert_true(bytes > 3 << 20);
    for (int ranks = 1; ranks <= 5; ranks += 2) {
        j.state.mesh = (cy_test_mesh){1, ranks, 1};
        atomic_store(&j.verified, 0);
        cy_test_ranks(ranks, load_rank, &j);
        assert_int_equal(atomic_load(&j.verified), bytes);
        atomic_store(&j.verified, 0);
        j.most_verified = bytes / ranks + (1 << 20);
        cy_test_ranks(ranks, verify_rank, &j);
        assert_int_equal(atomic_load(&j.verified), bytes);
    }
}

// Checked on the way to their place: the mesh that wrote a checkpoint, one rank, and ranks that
// want whole tensors read each byte once; others read beside what they want at most the rest of the
// chunks that they check.
static void a_byte_that_is_checked_is_not_read_again(void **state)
{
    (void)state;
    static const cy_test_mesh once[] = {{2, 3, 1}, {1, 1, 1}, {1, 1, 3}};
    char folder[256], path[400];
    cy_test_folder(folder, sizeof(folder));
    job j = {.state = {.folder = folder, .mesh = {2, 3, 1}, .scale = 60, .step = 1}};
    cy_test_ranks(6, save_rank, &j);
    snprintf(path, sizeof(path), "%s/step-00000001", folder);
    const int64_t bytes = bytes_of_files(path);
    for (int gap = 0; gap <= 1; gap++) {
        for (int i = 0; i < 3; i++) {
            j.state.mesh = once[i];
            j.state.gap = gap;
            atomic_store(&j.out_of_files, 0);
            cy_test_ranks(cy_test_mesh_size(j.state.mesh), load_rank, &j);
            assert_int_equal(atomic_load(&j.out_of_files), bytes);
        }
    }
    j.state.mesh = (cy_test_mesh){1, 4, 1};
    atomic_store(&j.out_of_files, 0);
    atomic_store(&j.bytes_read, 0);
    atomic_store(&j.verified, 0);
    cy_test_ranks(4, load_rank, &j);
    assert_true(atomic_load(&j.out_of_files) >= bytes);
    assert_true(
        atomic_load(&j.out_of_files) < atomic_load(&j.bytes_read) + atomic_load(&j.verified) / 2);
}

static void everything_else_comes_back(void **state)
{
    (void)state;
    char folder[256], path[400], tokenizer[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(tokenizer, sizeof(tokenizer), "%s/any.json", folder);
    CY_CHECK_OK(cy_file_write(tokenizer, "{\"model\": 1}", 12));
    job j = {.state = {.folder = folder, .mesh = {2, 1, 1}, .scale = 1, .step = 7},
        .tokenizer = tokenizer};
    cy_test_ranks(2, save_rank, &j);
    char *found = NULL;
    CY_CHECK_OK(cy_checkpoint_locate(&found, folder));
    snprintf(path, sizeof(path), "%s/step-00000007", folder);
    assert_string_equal(found, path);
    cy_memory_free(found);
    CY_CHECK_OK(cy_checkpoint_locate(&found, path));
    assert_string_equal(found, path);
    cy_memory_free(found);
    cy_checkpoint checkpoint;
    CY_CHECK_OK(cy_checkpoint_open(&checkpoint, path));
    assert_int_equal(checkpoint.step, 7);
    assert_int_equal(checkpoint.tokens, 7000);
    assert_non_null(strstr(checkpoint.state_json, "12345678901"));
    assert_non_null(strstr(checkpoint.config_json, "\"learning_rate\": 0.000"));
    assert_true(checkpoint.has_model && !checkpoint.is_hf);
    assert_memory_equal(&checkpoint.model, &model, sizeof(model));
    CY_CHECK_OK(cy_checkpoint_check_model(&checkpoint, &model));
    cy_model_shape other = model;
    other.heads = 4;
    other.rope.theta = 500000;
    CY_CHECK_FAILS(cy_checkpoint_check_model(&checkpoint, &other), CY_ERR_REQUEST,
        "num_attention_heads: there 2, here 4");
    CY_CHECK_FAILS(cy_checkpoint_check_model(&checkpoint, &other), CY_ERR_REQUEST,
        "rope_theta: there 10000, here 5");
    cy_checkpoint_close(&checkpoint);
    cy_text text = {0};
    snprintf(path, sizeof(path), "%s/step-00000007/tokenizer.json", folder);
    CY_CHECK_OK(cy_file_read(&text, path, 100));
    assert_string_equal(text.bytes, "{\"model\": 1}");
    cy_text_free(&text);
}

static void differences_are_all_named(void **state)
{
    (void)state;
    char folder[256], path[400];
    cy_test_folder(folder, sizeof(folder));
    job j = {.state = {.folder = folder, .mesh = {1, 1, 1}, .scale = 1, .step = 1}};
    cy_test_ranks(1, save_rank, &j);
    snprintf(path, sizeof(path), "%s/step-00000001", folder);
    cy_checkpoint checkpoint;
    cy_global_tensor tensors[CY_TEST_TENSORS];
    cy_test_tensors(tensors, 1);
    tensors[0].rows = 12;
    tensors[3].name = "model.other.weight";
    CY_CHECK_OK(cy_checkpoint_open(&checkpoint, path));
    const cy_status status = cy_checkpoint_check_tensors(&checkpoint, tensors, 5);
    CY_CHECK_FAILS(status, CY_ERR_CORRUPT, "3 of its tensors differ");
    CY_CHECK_FAILS(status, CY_ERR_CORRUPT,
        "weights-00000.safetensors: model.embed_tokens.weight: there 11 x 6, here 12 x 6");
    CY_CHECK_FAILS(status, CY_ERR_CORRUPT, "model.other.weight: missing there");
    CY_CHECK_FAILS(status, CY_ERR_CORRUPT, "model.norm.weight: unknown here");
    float room[72];
    cy_checkpoint_traffic traffic = {0};
    const cy_tensor_shard piece = cy_tensor_shard_of_view(0, cy_view_of(room, CY_F32, 12, 6), 0, 0);
    CY_CHECK_FAILS(cy_checkpoint_load(&checkpoint, tensors, &piece, 1, &traffic), CY_ERR_REQUEST,
        "model.embed_tokens.weight is 11 x 6 there, 12 x 6 here");
    cy_checkpoint_close(&checkpoint);
}

static void dtypes_change_on_the_way(void **state)
{
    (void)state;
    char folder[256], path[400];
    cy_test_folder(folder, sizeof(folder));
    job j = {.state = {.folder = folder, .mesh = {3, 2, 1}, .scale = 1, .step = 1}};
    cy_test_ranks(6, save_rank, &j);
    snprintf(path, sizeof(path), "%s/step-00000001", folder);
    cy_checkpoint checkpoint;
    cy_global_tensor tensors[CY_TEST_TENSORS];
    cy_test_tensors(tensors, 1);
    double wide[80];
    uint16_t half[80];
    int64_t whole[80];
    cy_checkpoint_traffic traffic = {0};
    const cy_tensor_shard pieces[2] = {
        cy_tensor_shard_of_view(1, cy_view_of(wide, CY_F64, 8, 10), 0, 0),
        cy_tensor_shard_of_view(1, cy_view_of(half, CY_BF16, 8, 10), 0, 0),
    };
    const cy_tensor_shard wrong =
        cy_tensor_shard_of_view(1, cy_view_of(whole, CY_I64, 8, 10), 0, 0);
    CY_CHECK_OK(cy_checkpoint_open(&checkpoint, path));
    CY_CHECK_OK(cy_checkpoint_load(&checkpoint, tensors, pieces, 2, &traffic));
    assert_int_equal(traffic.read_bytes, 2 * 80 * 4);
    for (int i = 0; i < 80; i++) {
        const float value = cy_test_value(1, i / 10, i % 10, 0);
        uint32_t bits;
        memcpy(&bits, &value, 4);
        assert_true(wide[i] == (double)value);
        // Round to nearest even by the book.
        const uint32_t up = (bits >> 16) +
            ((bits & 0xffffu) > 0x8000u || ((bits & 0xffffu) == 0x8000u && (bits >> 16 & 1u)));
        assert_int_equal(half[i], up);
    }
    CY_CHECK_FAILS(cy_checkpoint_load(&checkpoint, tensors, &wrong, 1, &traffic), CY_ERR_REQUEST,
        "is fp32 there and cannot become int64");
    cy_checkpoint_close(&checkpoint);
}

typedef struct incomplete {
    const char *folder;
    int gap; // 1: rank 1 leaves its last piece out; 2: it writes what rank 0 writes
} incomplete;

static void save_incomplete(void *context, cy_group *ranks)
{
    const incomplete *j = context;
    const cy_test_mesh mesh = {2, 1, 1};
    cy_global_tensor tensors[CY_TEST_TENSORS];
    cy_test_shard shard;
    cy_saver *saver = NULL;
    cy_test_tensors(tensors, 1);
    cy_test_shard_open(&shard, tensors, mesh, j->gap == 2 ? 0 : cy_group_rank(ranks), 0, true, 0);
    const cy_save save = {
        .step = 9,
        .config_json = "{}",
        .model = &model,
        .tensors = tensors,
        .tensor_count = CY_TEST_TENSORS,
        .pieces = shard.pieces,
        .piece_count = shard.count - (j->gap == 1 && cy_group_rank(ranks) == 1),
    };
    CY_CHECK_OK(cy_saver_open(&saver, j->folder, 0, ranks, NULL, NULL));
    const char *const words[3] = {"", "lm_head.weight", "twice"};
    if (cy_group_rank(ranks) == 0) {
        CY_CHECK_FAILS(cy_saver_save(saver, &save, NULL), CY_ERR_CORRUPT, words[j->gap]);
    } else {
        CY_CHECK_FAILS(cy_saver_save(saver, &save, NULL), CY_ERR_PEER, "another rank failed");
    }
    cy_saver_close(saver);
    cy_test_shard_close(&shard);
}

static int entries(const char *folder, bool hidden)
{
    char command[400], line[32] = "";
    snprintf(command, sizeof(command), "ls %s %s | wc -l", hidden ? "-A" : "", folder);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(line, sizeof(line), pipe));
    pclose(pipe);
    return (int)strtol(line, NULL, 10);
}

static void gaps_and_doubles_are_refused(void **state)
{
    (void)state;
    for (int gap = 1; gap <= 2; gap++) {
        char folder[256];
        cy_test_folder(folder, sizeof(folder));
        incomplete j = {.folder = folder, .gap = gap};
        cy_test_ranks(2, save_incomplete, &j);
        assert_int_equal(entries(folder, true), 1); // only the lock
    }
}

static void keep_last_counts_up_to_the_step_saved(void **state)
{
    (void)state;
    char folder[256], path[400];
    cy_test_folder(folder, sizeof(folder));
    static const int steps[] = {5, 10, 15, 20};
    for (int i = 0; i < 4; i++) {
        job j = {.state = {.folder = folder, .mesh = {1, 1, 1}, .scale = 1, .step = steps[i]}};
        cy_test_ranks(1, save_rank, &j);
    }
    assert_int_equal(entries(folder, false), 4);
    job j = {
        .state = {.folder = folder, .mesh = {1, 1, 1}, .scale = 1, .step = 12}, .keep_last = 2};
    cy_test_ranks(1, save_rank, &j);
    assert_int_equal(entries(folder, true), 5); // 10, 12, 15, 20 and the lock
    snprintf(path, sizeof(path), "%s/step-00000005", folder);
    assert_false(cy_path_exists(path));
    // A step that is there is replaced.
    j.state.run = 3;
    cy_test_ranks(1, save_rank, &j);
    cy_test_ranks(1, load_rank, &j);
    assert_int_equal(entries(folder, true), 5);
}

static void two_runs_do_not_share_a_folder(void **state)
{
    (void)state;
    char folder[256], path[400];
    cy_test_folder(folder, sizeof(folder));
    cy_saver *first = NULL, *second = NULL;
    CY_CHECK_OK(cy_saver_open(&first, folder, 0, cy_group_self(), NULL, NULL));
    CY_CHECK_FAILS(cy_saver_open(&second, folder, 0, cy_group_self(), NULL, NULL), CY_ERR_REQUEST,
        "another run saves its checkpoints in");
    char process[40];
    snprintf(process, sizeof(process), "process %ld", (long)getpid());
    assert_non_null(strstr(cy_error_text(), process));
    cy_saver_close(first);
    // What a dead run left is swept.
    snprintf(path, sizeof(path), "%s/.step-00000003.tmp", folder);
    CY_CHECK_OK(cy_folder_make(path));
    snprintf(path, sizeof(path), "%s/.step-00000003.tmp/weights-00000.safetensors", folder);
    CY_CHECK_OK(cy_file_write(path, "x", 1));
    CY_CHECK_OK(cy_saver_open(&second, folder, 0, cy_group_self(), NULL, NULL));
    assert_int_equal(entries(folder, true), 1);
    cy_saver_close(second);
}

// A place of a checkpoint may be a link to another disk: that is not removed with it.
static void what_links_lead_to_stays(void **state)
{
    (void)state;
    char kept[256], file[400], folder[256], path[400];
    cy_test_folder(kept, sizeof(kept));
    snprintf(file, sizeof(file), "%s/kept", kept);
    CY_CHECK_OK(cy_file_write(file, "x", 1));
    cy_test_folder(folder, sizeof(folder));
    static const struct {
        const char *name, *target; // NULL: a plain file
    } found[] = {
        {".step-00000003.tmp", ""},
        {".step-00000004.old", NULL},
        {".step-00000005.tmp", "/no/such/folder"},
        {"step-00000012", ""},
    };
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, found[i].name);
        if (found[i].target == NULL) {
            CY_CHECK_OK(cy_file_write(path, "x", 1));
        } else {
            assert_int_equal(symlink(found[i].target[0] != '\0' ? found[i].target : kept, path), 0);
        }
    }
    job j = {.state = {.folder = folder, .mesh = {1, 1, 1}, .scale = 1, .step = 12}};
    cy_test_ranks(1, save_rank, &j); // sweeps, and replaces the step
    cy_test_ranks(1, load_rank, &j);
    assert_int_equal(entries(folder, true), 2); // the step and the lock
    assert_true(cy_path_exists(file));
}

static void keep_warning(void *context, cy_log_level level, const char *line)
{
    if (level == CY_LOG_WARNING) snprintf(context, 400, "%s", line);
}

// A rest of a dead run that cannot be removed, such as one that somebody still reads over NFS.
static void a_rest_that_stays_stops_no_run(void **state)
{
    (void)state;
    char folder[256], path[400], warning[400] = "";
    const cy_log log = {.write = keep_warning, .context = warning};
    cy_saver *saver = NULL;
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/.step-00000003.tmp/within", folder);
    CY_CHECK_OK(cy_folder_make(path));
    snprintf(path, sizeof(path), "%s/.step-00000003.tmp/within/file", folder);
    CY_CHECK_OK(cy_file_write(path, "x", 1));
    CY_CHECK_OK(cy_saver_open(&saver, folder, 0, cy_group_self(), NULL, &log));
    assert_non_null(strstr(warning, "what a dead run left stays: remove "));
    assert_non_null(strstr(warning, ".step-00000003.tmp/within: Is a directory"));
    cy_saver_close(saver);
}

static void count_warnings(void *context, cy_log_level level, const char *line)
{
    // That a sweep found no folder may be told, too.
    if (level == CY_LOG_WARNING && strstr(line, "was deleted or moved away") != NULL) {
        ++*(int *)context;
    }
}

// The folder of a run goes: the next save makes it again, and holds it. What another run has taken
// in the meantime is its own.
static void a_folder_that_goes_is_made_again(void **state)
{
    (void)state;
    char parent[256], folder[300], moved[300];
    cy_test_folder(parent, sizeof(parent));
    snprintf(folder, sizeof(folder), "%s/saves", parent);
    snprintf(moved, sizeof(moved), "%s/moved", parent);
    cy_global_tensor tensors[CY_TEST_TENSORS];
    cy_test_shard shard;
    cy_saver *saver = NULL, *other = NULL;
    int warnings = 0;
    const cy_log log = {.write = count_warnings, .context = &warnings};
    cy_test_tensors(tensors, 1);
    cy_test_shard_open(&shard, tensors, (cy_test_mesh){1, 1, 1}, 0, 0, true, 0);
    cy_save save = {
        .step = 1,
        .config_json = "{}",
        .tensors = tensors,
        .tensor_count = CY_TEST_TENSORS,
        .pieces = shard.pieces,
        .piece_count = shard.count,
    };
    CY_CHECK_OK(cy_saver_open(&saver, folder, 0, cy_group_self(), NULL, &log));
    CY_CHECK_OK(cy_saver_save(saver, &save, NULL));
    assert_int_equal(rename(folder, moved), 0);
    save.step = 2;
    CY_CHECK_OK(cy_saver_save(saver, &save, NULL));
    assert_int_equal(warnings, 1);
    assert_int_equal(entries(folder, true), 2); // the step and the lock
    CY_CHECK_FAILS(cy_saver_open(&other, folder, 0, cy_group_self(), NULL, NULL), CY_ERR_REQUEST,
        "another run saves its checkpoints in");
    save.step = 3;
    CY_CHECK_OK(cy_saver_save(saver, &save, NULL));
    assert_int_equal(warnings, 1);

    snprintf(moved, sizeof(moved), "%s/moved2", parent);
    assert_int_equal(rename(folder, moved), 0);
    CY_CHECK_OK(cy_saver_open(&other, folder, 0, cy_group_self(), NULL, NULL));
    save.step = 4;
    CY_CHECK_FAILS(cy_saver_save(saver, &save, NULL), CY_ERR_IO,
        "another run saves its checkpoints in"); // which a training reports and survives
    assert_int_equal(entries(folder, true), 1);
    cy_saver_close(other);
    CY_CHECK_OK(cy_saver_save(saver, &save, NULL));
    assert_int_equal(warnings, 2);
    cy_saver_close(saver);
    cy_test_shard_close(&shard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mesh_reads_what_any_other_wrote),
        cmocka_unit_test(devices_save_and_load),
        cmocka_unit_test(elements_are_converted_before_a_device),
        cmocka_unit_test(neither_saving_nor_loading_takes_a_copy),
        cmocka_unit_test(each_chunk_is_verified_once_by_all_ranks_together),
        cmocka_unit_test(a_byte_that_is_checked_is_not_read_again),
        cmocka_unit_test(everything_else_comes_back),
        cmocka_unit_test(differences_are_all_named),
        cmocka_unit_test(dtypes_change_on_the_way),
        cmocka_unit_test(gaps_and_doubles_are_refused),
        cmocka_unit_test(keep_last_counts_up_to_the_step_saved),
        cmocka_unit_test(two_runs_do_not_share_a_folder),
        cmocka_unit_test(what_links_lead_to_stays),
        cmocka_unit_test(a_rest_that_stays_stops_no_run),
        cmocka_unit_test(a_folder_that_goes_is_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
