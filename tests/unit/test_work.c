// What a model of many layers and a checkpoint of many tensors take: in proportion to their number,
// in instructions. A configuration can claim a hundred thousand layers, an index as many tensors.

#define _GNU_SOURCE
#include "support/count_work.h"
#include "support/configs.h"

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "model/storage.h"
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void open_and_find_layers(int layers)
{
    const cy_model_shape shape = {.layers = layers,
        .hidden = 16,
        .ffn = 32,
        .heads = 2,
        .kv_heads = 1,
        .head_dim = 8,
        .vocab = 64,
        .norm_eps = 1e-5,
        .init_std = 0.02,
        .rope = {.theta = 1e4},
        .max_positions = 64,
        .architecture = "llama"};
    const cy_segment whole = {.layer_count = layers, .embedding = true, .head = true};
    const cy_model_shard part = {.segments = &whole, .segment_count = 1, .tp_size = 1};
    cy_storage storage;
    CY_ASSERT(cy_storage_open(&storage, &shape, &part, cy_precision_of(CY_BF16)) == CY_OK);
    for (int layer = -1; layer <= layers; layer++)
        CY_ASSERT(cy_storage_unit(&storage, layer) == layers - layer);
    cy_storage_close(&storage);
}

static void layers_of_a_model(void **state)
{
    (void)state;
    cy_test_check_linear(open_and_find_layers, 200);
}

// The rehearsal of a step, which is what a plan is made of, visits what a rank owns.
static void plan_layers(int layers)
{
    char option[64];
    snprintf(option, sizeof(option), "model.num_hidden_layers=%d", layers);
    const char *const options[] = {option};
    cy_config config;
    cy_test_read_config(&config,
        "{'model': {'name': 'smollm-135m', 'hidden_size': 64, 'num_attention_heads': 2,"
        "'num_key_value_heads': 1, 'intermediate_size': 64, 'vocab_size': 128},"
        "'training': {'seq_length': 32, 'micro_batch_size': 1, 'total_train_steps': 1}}",
        options, 1, CY_TEST_RESOLVED, NULL);
    const cy_config_machine machine = {.cores = 1};
    cy_plan plan;
    CY_ASSERT(cy_plan_open(&plan, &config, &machine) == CY_OK);
    cy_plan_close(&plan);
}

static void layers_of_a_plan(void **state)
{
    (void)state;
    cy_test_check_linear(plan_layers, 32);
}

#define COLUMNS_MOST 4000

// A tensor that is stored column by column.
static void check_columns(int count)
{
    static cy_tensor_shard pieces[COLUMNS_MOST];
    for (int i = 0; i < count; i++) {
        pieces[i] =
            (cy_tensor_shard){.rectangle = {0, 2, i * 7 % count, 1}, .count = 2, .dtype = CY_F32};
    }
    CY_ASSERT(cy_tensor_shards_check_cover(pieces, count, "w", 2, count) == CY_OK);
}

static void pieces_of_a_tensor(void **state)
{
    (void)state;
    cy_test_check_linear(check_columns, COLUMNS_MOST / 4);
}

#define TENSORS_MOST 800

// A checkpoint of one file, whose tensors have four elements each..
static cy_checkpoint made;
static cy_stored_tensor stored[TENSORS_MOST];
static cy_stored_shard pieces[TENSORS_MOST];
static cy_checkpoint_file file = {.bytes = TENSORS_MOST * 16};
static cy_global_tensor listed[TENSORS_MOST];
static char names[TENSORS_MOST][32];
static char folder[] = "/tmp/cyclotron-work-XXXXXX";

static void make_checkpoint(int count)
{
    static char file_name[] = "w";
    file.name = file_name;
    file.fd = -1;
    made = (cy_checkpoint){.path = folder,
        .files = &file,
        .file_count = 1,
        .tensors = stored,
        .tensor_count = count,
        .pieces = pieces,
        .piece_count = count};
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "layers.%04d.w", i);
        listed[i] = (cy_global_tensor){.name = names[i],
            .kind = CY_TENSOR_WEIGHT,
            .dtype = CY_F32,
            .dimensions = 1,
            .rows = 1,
            .cols = 4};
        pieces[i] = (cy_stored_shard){.piece = {.tensor = i,
                                          .rectangle = {0, 1, 0, 4},
                                          .count = 4,
                                          .dtype = CY_F32,
                                          .stride = 4},
            .offset = (uint64_t)i * 16};
        stored[i] = (cy_stored_tensor){.tensor = listed[i], .pieces = &pieces[i], .piece_count = 1};
    }
}

static void compare_tensors(int count)
{
    make_checkpoint(count);
    CY_ASSERT(cy_checkpoint_check_tensors(&made, listed, made.tensor_count) == CY_OK);
}

static void tensors_of_a_checkpoint_are_compared(void **state)
{
    (void)state;
    cy_test_check_linear(compare_tensors, TENSORS_MOST / 4);
}

// As export does: one after the other.
static void load_tensors(int count)
{
    make_checkpoint(count);
    cy_checkpoint_traffic traffic = {0};
    for (int i = 0; i < made.tensor_count; i++) {
        float data[4] = {0};
        const cy_tensor_shard piece =
            cy_tensor_shard_of_range(i, (cy_rectangle){0, 1, 0, 4}, 0, 4, data, CY_F32);
        CY_ASSERT(cy_checkpoint_load(&made, listed, &piece, 1, &traffic) == CY_OK);
        CY_ASSERT(data[3] >= 1.0f);
    }
    close(file.fd);
    file.fd = -1;
}

static void tensors_of_a_checkpoint_are_loaded(void **state)
{
    (void)state;
    char path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/w", folder);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (int i = 0; i < TENSORS_MOST * 4; i++) {
        const float value = 1.0f + (float)i;
        assert_int_equal(fwrite(&value, sizeof(value), 1, out), 1);
    }
    assert_int_equal(fclose(out), 0);
    cy_test_check_linear(load_tensors, TENSORS_MOST / 4);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_a_model),
        cmocka_unit_test(layers_of_a_plan),
        cmocka_unit_test(pieces_of_a_tensor),
        cmocka_unit_test(tensors_of_a_checkpoint_are_compared),
        cmocka_unit_test(tensors_of_a_checkpoint_are_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
