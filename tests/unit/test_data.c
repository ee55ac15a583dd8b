// From text to micro-batches: shards, preparation, the order of samples, the loader.

#include "support/support.h"

#include "base/file.h"
#include "base/random.h"
#include "data/loader.h"
#include "data/prepare.h"
#include "data/shard.h"

#include <stdbool.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[256];

static const char *in_folder(const char *name)
{
    static char path[8][512];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
    return path[turn];
}

// A shard whose token i is i modulo the vocabulary.
static void write_counting_shard(const char *path, int64_t count, uint32_t vocab, uint32_t width)
{
    const cy_shard_header header = {
        .token_bytes = width, .vocab_size = vocab, .tokenizer_hash = 0, .end_token = 0};
    cy_shard_writer writer;
    CY_CHECK_OK(cy_shard_create(&writer, path, &header));
    for (int64_t i = 0; i < count; i++) {
        const int32_t token = (int32_t)(i % vocab);
        CY_CHECK_OK(cy_shard_add(&writer, &token, 1, 1));
    }
    CY_CHECK_OK(cy_shard_finish(&writer));
}

static void make_counting_folder(const char *name, int64_t first, int64_t second)
{
    char path[512];
    CY_CHECK_OK(cy_folder_make(in_folder(name)));
    snprintf(path, sizeof(path), "%s/%s/shard-00000.tokens", folder, name);
    write_counting_shard(path, first, 60000, 2);
    if (second == 0) return;
    snprintf(path, sizeof(path), "%s/%s/shard-00001.tokens", folder, name);
    write_counting_shard(path, second, 60000, 4);
}

static void write_file(const char *name, const void *bytes, size_t count)
{
    CY_CHECK_OK(cy_file_write(in_folder(name), bytes, count));
}

static void shards_hold_what_was_written(void **state)
{
    (void)state;
    for (uint32_t width = 2; width <= 4; width += 2) {
        const char *path = in_folder(width == 2 ? "two" : "four");
        write_counting_shard(path, 1000, 300, width);
        cy_shard shard;
        CY_CHECK_OK(cy_shard_open(&shard, path));
        CY_CHECK_OK(cy_shard_verify(&shard, path));
        int32_t tokens[7];
        cy_shard_read(&shard, tokens, 298, 7);
        const int32_t wanted[7] = {298, 299, 0, 1, 2, 3, 4};
        assert_memory_equal(tokens, wanted, sizeof(wanted));
        cy_shard_close(&shard);
    }
}

// Cut at every length, and with each byte of the header changed: never opened as if whole.
static void damaged_shards_are_refused(void **state)
{
    (void)state;
    write_counting_shard(in_folder("whole"), 100, 300, 2);
    cy_text whole = {0};
    CY_CHECK_OK(cy_file_read(&whole, in_folder("whole"), 1 << 20));
    cy_shard shard;
    for (size_t length = 0; length < whole.length; length++) {
        write_file("cut", whole.bytes, length);
        const cy_status status = cy_shard_open(&shard, in_folder("cut"));
        assert_int_equal(status, CY_ERR_CORRUPT);
        assert_non_null(strstr(cy_error_text(), "/cut: "));
    }
    whole.bytes[70] ^= 1;
    write_file("flipped", whole.bytes, whole.length);
    CY_CHECK_OK(cy_shard_open(&shard, in_folder("flipped")));
    CY_CHECK_FAILS(cy_shard_verify(&shard, "flipped"), CY_ERR_CORRUPT, "check");
    cy_shard_close(&shard);
    whole.bytes[0] ^= 1;
    write_file("foreign", whole.bytes, whole.length);
    CY_CHECK_FAILS(
        cy_shard_open(&shard, in_folder("foreign")), CY_ERR_CORRUPT, "not a token shard");
    cy_text_free(&whole);
}

static void tokens_beyond_the_vocabulary_are_refused(void **state)
{
    (void)state;
    make_counting_folder("beyond", 100, 0);
    cy_text whole = {0};
    const char *path = in_folder("beyond/shard-00000.tokens");
    CY_CHECK_OK(cy_file_read(&whole, path, 1 << 20));
    whole.bytes[sizeof(cy_shard_header) + 83] = (char)0xff;
    CY_CHECK_OK(cy_file_write(path, whole.bytes, whole.length));
    cy_text_free(&whole);
    cy_token_source *source = NULL;
    const cy_source_options options = {0};
    CY_CHECK_OK(cy_source_open(&source, in_folder("beyond"), &options));
    int32_t tokens[50];
    CY_CHECK_OK(cy_source_read(source, tokens, 0, 41));
    CY_CHECK_FAILS(cy_source_read(source, tokens, 0, 50), CY_ERR_CORRUPT, "token 41 is 65321");
    cy_source_close(source);
}

static void sources_read_across_shards(void **state)
{
    (void)state;
    make_counting_folder("across", 10, 10);
    cy_token_source *source = NULL;
    const cy_source_options options = {0};
    CY_CHECK_OK(cy_source_open(&source, in_folder("across"), &options));
    assert_int_equal(source->token_count, 20);
    int32_t tokens[12];
    CY_CHECK_OK(cy_source_read(source, tokens, 6, 12));
    const int32_t wanted[12] = {6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7};
    assert_memory_equal(tokens, wanted, sizeof(wanted));
    cy_source_close(source);
}

static void permutations_visit_all_once(void **state)
{
    (void)state;
    const int64_t counts[] = {1, 2, 3, 4, 5, 16, 17, 1000, 4097};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        bool *seen = calloc((size_t)counts[c], sizeof(bool));
        int64_t moved = 0;
        for (int64_t i = 0; i < counts[c]; i++) {
            const int64_t at = cy_permute(77, i, counts[c]);
            assert_in_range(at, 0, counts[c] - 1);
            assert_false(seen[at]);
            seen[at] = true;
            moved += at != i;
        }
        if (counts[c] >= 1000) assert_true(moved > counts[c] - 20);
        free(seen);
    }
    int64_t same = 0;
    for (int64_t i = 0; i < 1000; i++)
        same += cy_permute(1, i, 1000) == cy_permute(2, i, 1000);
    assert_true(same < 20);
}

// After n samples each source gave its share of n, within one a source, and its own samples
// without a gap.
static void mixtures_keep_their_weights(void **state)
{
    (void)state;
    const double weights[4] = {0.5, 0.3, 0.15, 0.05};
    cy_mixture mixture;
    cy_mixture_init(&mixture, weights, 4);
    int64_t given[4] = {0};
    for (int64_t n = 0; n < 20000; n++) {
        const cy_pick pick = cy_mixture_pick(&mixture, n);
        assert_int_equal(pick.index, given[pick.source]);
        given[pick.source]++;
        for (int k = 0; k < 4; k++) {
            const double wanted = weights[k] * (double)(n + 1);
            assert_true((double)given[k] > wanted - 3 && (double)given[k] < wanted + 3);
        }
    }
    // Far out the arithmetic must not overflow.
    const cy_pick far = cy_mixture_pick(&mixture, (int64_t)1 << 60);
    assert_true(far.index > 0);
}

static cy_dataset *open_dataset(const cy_dataset_entry *entries, int count, int64_t seq_length,
    double validation, int64_t num_samples, uint64_t seed)
{
    cy_dataset *dataset = NULL;
    const cy_dataset_options options = {.entries = entries,
        .count = count,
        .seq_length = seq_length,
        .validation_fraction = validation,
        .num_samples = num_samples,
        .seed = seed};
    CY_CHECK_OK(cy_dataset_open(&dataset, &options));
    return dataset;
}

static void an_epoch_holds_every_sample_once(void **state)
{
    (void)state;
    make_counting_folder("epoch", 1000, 501);
    const cy_dataset_entry entry = {.path = in_folder("epoch")};
    cy_dataset *dataset = open_dataset(&entry, 1, 10, 0.2, 0, 5);
    // 1501 tokens: the last 300 are held out, 1201 make 120 samples of 10 and a target.
    assert_int_equal(cy_dataset_samples(dataset, CY_DATASET_TRAIN), 120);
    assert_int_equal(cy_dataset_samples(dataset, CY_DATASET_VALIDATION), 29);
    int64_t seen[3][120] = {{0}};
    for (int64_t n = 0; n < 360; n++) {
        const cy_sample sample = cy_dataset_find(dataset, CY_DATASET_TRAIN, n);
        assert_int_equal(sample.epoch, n / 120);
        seen[n / 120][sample.first / 10]++;
    }
    for (int e = 0; e < 3; e++) {
        for (int i = 0; i < 120; i++)
            assert_int_equal(seen[e][i], 1);
    }
    int64_t same = 0;
    for (int64_t n = 0; n < 120; n++) {
        same += cy_dataset_find(dataset, CY_DATASET_TRAIN, n).first ==
            cy_dataset_find(dataset, CY_DATASET_TRAIN, n + 120).first;
    }
    assert_true(same < 20);
    // Validation goes through the end of the text as it stands.
    assert_int_equal(cy_dataset_find(dataset, CY_DATASET_VALIDATION, 0).first, 1201);
    assert_int_equal(cy_dataset_find(dataset, CY_DATASET_VALIDATION, 28).first, 1481);
    assert_int_equal(cy_dataset_find(dataset, CY_DATASET_VALIDATION, 29).first, 1201);
    cy_dataset_close(dataset);
}

static void limits_and_weights_hold(void **state)
{
    (void)state;
    make_counting_folder("left", 1001, 0);
    make_counting_folder("right", 501, 0);
    cy_dataset_entry entries[2] = {{.path = in_folder("left")}, {.path = in_folder("right")}};
    cy_dataset *dataset = open_dataset(entries, 2, 10, 0, 30, 1);
    assert_int_equal(cy_dataset_samples(dataset, CY_DATASET_TRAIN), 30);
    cy_dataset_close(dataset);
    entries[0].weight = 1;
    entries[1].weight = 3;
    dataset = open_dataset(entries, 2, 10, 0, 0, 1);
    int64_t right = 0;
    for (int64_t n = 0; n < 1000; n++) {
        right += cy_dataset_find(dataset, CY_DATASET_TRAIN, n).source == 1;
    }
    assert_int_equal(right, 750);
    cy_dataset_close(dataset);
    entries[0].weight = 0;
    cy_dataset_options options = {.entries = entries, .count = 2, .seq_length = 10};
    CY_CHECK_FAILS(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST, "1 of 2 sources");
    entries[1].weight = 0;
    options.seq_length = 1001;
    CY_CHECK_FAILS(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST, "needs 1002");
}

static void what_no_dataset_can_be_is_refused(void **state)
{
    (void)state;
    make_counting_folder("any", 1001, 0);
    cy_dataset_entry entry = {.path = in_folder("any")};
    const cy_dataset_options good = {.entries = &entry, .count = 1, .seq_length = 10};
    cy_dataset *dataset = NULL;
    cy_dataset_options options = good;
    options.count = 0;
    CY_CHECK_FAILS(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST, "0 sources, 1 to ");
    options = good;
    options.seq_length = 0;
    CY_CHECK_FAILS(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST, "seq_length 0 is below 1");
    options = good;
    options.validation_fraction = 1;
    CY_CHECK_FAILS(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST, "1 is not in [0, 1)");
    options.validation_fraction = (double)NAN;
    CY_CHECK_FAILS(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST, "nan is not in [0, 1)");
    options = good;
    options.num_samples = -1;
    CY_CHECK_FAILS(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST, "num_samples -1 is below");
    options = good;
    entry.weight = (double)INFINITY;
    CY_CHECK_FAILS(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST, "weight inf of ");
    entry.weight = -2;
    CY_CHECK_FAILS(cy_dataset_open(&dataset, &options), CY_ERR_REQUEST, "weight -2 of ");
    assert_null(dataset);
}

// The samples of a step are the same on every mesh, and every rank's rows are its own.
static void every_mesh_takes_the_same_samples(void **state)
{
    (void)state;
    const int meshes[][3] = {{12, 1, 1}, {1, 12, 1}, {1, 1, 12}, {2, 3, 2}, {3, 1, 4}};
    for (size_t m = 0; m < sizeof(meshes) / sizeof(meshes[0]); m++) {
        int seen[12] = {0};
        for (int rank = 0; rank < meshes[m][2]; rank++) {
            const cy_batch_shape shape = {.micro_batch_size = meshes[m][0],
                .accumulation = meshes[m][1],
                .dp_rank = rank,
                .dp_size = meshes[m][2]};
            for (int micro = 0; micro < meshes[m][1]; micro++) {
                for (int64_t row = 0; row < meshes[m][0]; row++) {
                    const int64_t sample = cy_batch_sample(&shape, 3, micro, row);
                    assert_in_range(sample, 24, 35);
                    seen[sample - 24]++;
                }
            }
        }
        for (int i = 0; i < 12; i++)
            assert_int_equal(seen[i], 1);
    }
}

static void loaders_give_inputs_targets_and_positions(void **state)
{
    (void)state;
    make_counting_folder("loader", 5001, 0);
    const cy_dataset_entry entry = {.path = in_folder("loader")};
    cy_dataset *dataset = open_dataset(&entry, 1, 8, 0, 0, 9);
    // The zigzag of rank 0 of 2: the first and the last quarter.
    const cy_position_range ranges[2] = {{0, 2}, {6, 2}};
    const cy_loader_options whole = {.dataset = dataset,
        .first_step = 1,
        .shape = {.micro_batch_size = 2, .accumulation = 3, .dp_rank = 1, .dp_size = 2}};
    cy_loader_options part = whole;
    part.shape.ranges = ranges;
    part.shape.range_count = 2;
    cy_loader *loaders[2];
    CY_CHECK_OK(cy_loader_open(&loaders[0], &whole));
    CY_CHECK_OK(cy_loader_open(&loaders[1], &part));
    for (int i = 0; i < 50; i++) {
        cy_batch a, b;
        CY_CHECK_OK(cy_loader_next(loaders[0], &a));
        CY_CHECK_OK(cy_loader_next(loaders[1], &b));
        assert_int_equal(a.step, i / 3 + 1);
        assert_int_equal(a.micro_batch, i % 3);
        assert_int_equal(b.columns, 4);
        for (int64_t row = 0; row < 2; row++) {
            const int64_t number = cy_batch_sample(&whole.shape, a.step, a.micro_batch, row);
            const int64_t first = cy_dataset_find(dataset, CY_DATASET_TRAIN, number).first;
            for (int64_t t = 0; t < 8; t++) {
                assert_int_equal(a.inputs[row * 8 + t], first + t);
                assert_int_equal(a.targets[row * 8 + t], first + t + 1);
                assert_int_equal(a.positions[t], t);
            }
            for (int64_t t = 0; t < 4; t++) {
                const int64_t position = t < 2 ? t : t + 4;
                assert_int_equal(b.positions[t], position);
                assert_int_equal(b.inputs[row * 4 + t], first + position);
                assert_int_equal(b.targets[row * 4 + t], first + position + 1);
            }
        }
        // Going back in the middle of a run of the ring gives that step again.
        if (i == 25) {
            for (int k = 0; k < 2; k++) {
                cy_loader_seek(loaders[k], 2);
                CY_CHECK_OK(cy_loader_next(loaders[k], &a));
                assert_int_equal(a.step, 2);
                assert_int_equal(a.micro_batch, 0);
                cy_loader_seek(loaders[k], 9);
                CY_CHECK_OK(cy_loader_next(loaders[k], &a));
                CY_CHECK_OK(cy_loader_next(loaders[k], &a));
            }
        }
    }
    const cy_loader_counters counters = cy_loader_count(loaders[0]);
    assert_int_equal(counters.batches, 53);
    cy_loader_close(loaders[0]);
    cy_loader_close(loaders[1]);
    cy_dataset_close(dataset);
}

static void a_failing_read_comes_out_of_next(void **state)
{
    (void)state;
    const cy_dataset_entry entry = {.path = in_folder("beyond")}; // token 41 is broken
    cy_dataset *dataset = open_dataset(&entry, 1, 99, 0, 0, 1);
    const cy_loader_options options = {.dataset = dataset,
        .first_step = 1,
        .shape = {.micro_batch_size = 1, .accumulation = 1, .dp_size = 1}};
    cy_loader *loader = NULL;
    CY_CHECK_OK(cy_loader_open(&loader, &options));
    cy_batch batch;
    CY_CHECK_FAILS(cy_loader_next(loader, &batch), CY_ERR_CORRUPT, "token 41 is");
    cy_loader_close(loader);
    cy_dataset_close(dataset);
}

int main(void)
{
    cy_test_folder(folder, sizeof(folder));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_hold_what_was_written),
        cmocka_unit_test(damaged_shards_are_refused),
        cmocka_unit_test(tokens_beyond_the_vocabulary_are_refused),
        cmocka_unit_test(sources_read_across_shards),
        cmocka_unit_test(permutations_visit_all_once),
        cmocka_unit_test(mixtures_keep_their_weights),
        cmocka_unit_test(an_epoch_holds_every_sample_once),
        cmocka_unit_test(limits_and_weights_hold),
        cmocka_unit_test(what_no_dataset_can_be_is_refused),
        cmocka_unit_test(every_mesh_takes_the_same_samples),
        cmocka_unit_test(loaders_give_inputs_targets_and_positions),
        cmocka_unit_test(a_failing_read_comes_out_of_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
