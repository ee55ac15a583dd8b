// Hugging Face folders: opened as they are, imported, exported with the same bits, and refused with
// names when something is wrong with them.
#define _GNU_SOURCE
#include "support/huggingface.h"
#include "support/shards.h"
#include "support/support.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/convert.h"
#include "checkpoint/hf/hf.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Every weight of a folder against the values it was made with.
static void check_values(const char *path, const cy_model_shape *shape, cy_dtype stored)
{
    cy_checkpoint checkpoint;
    cy_global_tensor *tensors = NULL;
    int count = 0;
    cy_checkpoint_traffic traffic = {0};
    static float values[64 * 64];
    CY_CHECK_OK(cy_checkpoint_open(&checkpoint, path));
    CY_CHECK_OK(cy_checkpoint_weights_of(&tensors, &count, shape));
    CY_CHECK_OK(cy_checkpoint_check_tensors(&checkpoint, tensors, count));
    CY_CHECK_OK(cy_checkpoint_check_model(&checkpoint, shape));
    for (int i = 0; i < count; i++) {
        const cy_global_tensor *t = &tensors[i];
        const cy_tensor_shard piece =
            cy_tensor_shard_of_view(i, cy_view_of(values, CY_F32, t->rows, t->cols), 0, 0);
        CY_CHECK_OK(cy_checkpoint_load(&checkpoint, tensors, &piece, 1, &traffic));
        assert_int_equal(
            cy_checkpoint_find(&checkpoint, CY_TENSOR_WEIGHT, t->name)->tensor.dtype, stored);
        for (int64_t e = 0; e < t->rows * t->cols; e++) {
            const float exact = cy_test_value(i, e / t->cols, e % t->cols, 0) / 1e6f;
            char bytes[8];
            float wanted;
            cy_convert(bytes, stored, &exact, CY_F32, 1);
            cy_convert(&wanted, CY_F32, bytes, stored, 1);
            assert_memory_equal(&values[e], &wanted, sizeof(wanted));
        }
    }
    cy_memory_free(tensors);
    cy_checkpoint_close(&checkpoint);
}

static void there_and_back(const cy_model_shape *shape, int files, cy_dtype dtype)
{
    char folder[256], from[300], own[300], back[300], file[400];
    cy_test_folder(folder, sizeof(folder));
    snprintf(from, sizeof(from), "%s/from", folder);
    snprintf(own, sizeof(own), "%s/own", folder);
    snprintf(back, sizeof(back), "%s/back", folder);
    cy_test_huggingface(from, shape, files, dtype);
    check_values(from, shape, dtype);
    CY_CHECK_OK(cy_checkpoint_import(from, own, false));
    check_values(own, shape, dtype);
    cy_export_options options = {
        .keep_dtype = true, .shard_bytes = files > 1 ? 9000 : (uint64_t)1 << 30};
    CY_CHECK_OK(cy_checkpoint_export(own, back, &options));
    check_values(back, shape, dtype);
    snprintf(file, sizeof(file), "%s/model.safetensors.index.json", back);
    assert_int_equal(cy_path_exists(file), files > 1);
    cy_text text = {0};
    snprintf(file, sizeof(file), "%s/tokenizer_config.json", back);
    CY_CHECK_OK(cy_file_read(&text, file, 1 << 20));
    assert_non_null(strstr(text.bytes, "\"eos_token\": \"<end>\""));
    cy_text_free(&text);
    snprintf(file, sizeof(file), "%s/generation_config.json", back);
    CY_CHECK_OK(cy_file_read(&text, file, 1 << 20));
    assert_non_null(strstr(text.bytes, "\"eos_token_id\": 1"));
    cy_text_free(&text);
    // A place that is taken is refused.
    CY_CHECK_FAILS(cy_checkpoint_export(own, back, &options), CY_ERR_REQUEST, "is there already");
    CY_CHECK_FAILS(cy_checkpoint_import(from, own, false), CY_ERR_REQUEST, "is there already");
}

// A model that names its end token keeps it, be it the first of all; where neither the model nor
// the tokenizer names one there is none.
static void end_tokens_of_exports(void **state)
{
    (void)state;
    static const struct {
        int64_t eos;
        const char *said;
    } cases[] = {{0, "\"bos_token_id\": 0,\n  \"eos_token_id\": 0,"},
        {2, "\"bos_token_id\": 0,\n  \"eos_token_id\": 2,"},
        {-1, "\"bos_token_id\": 0,\n  \"_from"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cy_model_shape shape = cy_test_shape();
        shape.eos = cases[i].eos;
        char folder[256], from[300], own[300], back[300], file[400];
        cy_test_folder(folder, sizeof(folder));
        snprintf(from, sizeof(from), "%s/from", folder);
        snprintf(own, sizeof(own), "%s/own", folder);
        snprintf(back, sizeof(back), "%s/back", folder);
        cy_test_huggingface(from, &shape, 1, CY_F32);
        CY_CHECK_OK(cy_checkpoint_import(from, own, false));
        const cy_export_options options = {.keep_dtype = true, .shard_bytes = (uint64_t)1 << 30};
        CY_CHECK_OK(cy_checkpoint_export(own, back, &options));
        cy_text text = {0};
        snprintf(file, sizeof(file), "%s/generation_config.json", back);
        CY_CHECK_OK(cy_file_read(&text, file, 1 << 20));
        assert_non_null(strstr(text.bytes, cases[i].said));
        cy_text_free(&text);
    }
}

// What a folder says of its tokenizer and of generation comes back as it was, byte by byte.
static void texts_there_and_back(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"tokenizer_config.json", "{\"model_max_length\": 77, \"of\": \"ours\"}\n"},
        {"special_tokens_map.json", "{\"eos_token\": \"<end>\"}"},
        {"chat_template.jinja", "{{ messages }}\n\n"},
        {"generation_config.json", "{\"eos_token_id\": [1, 0], \"temperature\": 0.6}"},
    };
    const cy_model_shape shape = cy_test_shape();
    char folder[256], from[300], own[300], back[300], file[400];
    cy_test_folder(folder, sizeof(folder));
    snprintf(from, sizeof(from), "%s/from", folder);
    snprintf(own, sizeof(own), "%s/own", folder);
    snprintf(back, sizeof(back), "%s/back", folder);
    cy_test_huggingface(from, &shape, 1, CY_F32);
    for (size_t i = 0; i < CY_TEST_COUNT(texts); i++) {
        snprintf(file, sizeof(file), "%s/%s", from, texts[i][0]);
        (void)unlink(file);
        CY_CHECK_OK(cy_file_write(file, texts[i][1], strlen(texts[i][1])));
    }
    const cy_export_options options = {.keep_dtype = true, .shard_bytes = (uint64_t)1 << 30};
    CY_CHECK_OK(cy_checkpoint_import(from, own, false));
    CY_CHECK_OK(cy_checkpoint_export(own, back, &options));
    for (size_t i = 0; i < CY_TEST_COUNT(texts); i++) {
        cy_text text = {0};
        snprintf(file, sizeof(file), "%s/%s", back, texts[i][0]);
        CY_CHECK_OK(cy_file_read(&text, file, 1 << 20));
        assert_string_equal(text.bytes, texts[i][1]);
        cy_text_free(&text);
    }
}

static cy_status verified(const char *path)
{
    cy_checkpoint checkpoint;
    cy_checkpoint_traffic traffic = {0};
    CY_TRY(cy_checkpoint_open(&checkpoint, path));
    const cy_status status =
        cy_checkpoint_verify(&checkpoint, CY_TENSOR_KINDS, cy_group_self(), &traffic);
    cy_checkpoint_close(&checkpoint);
    return status;
}

// The folder's own files under a second name: the same inode, and a change of one is found.
static void files_are_linked(void **state)
{
    (void)state;
    cy_model_shape shape = cy_test_shape();
    for (int files = 1; files <= 3; files += 2) {
        char folder[256], from[300], own[300], there[400], here[400];
        cy_test_folder(folder, sizeof(folder));
        snprintf(from, sizeof(from), "%s/from", folder);
        snprintf(own, sizeof(own), "%s/own", folder);
        const char *name = files == 1 ? "model.safetensors" : "model-00002-of-00003.safetensors";
        snprintf(there, sizeof(there), "%s/%s", from, name);
        snprintf(here, sizeof(here), "%s/%s", own, name);
        cy_test_huggingface(from, &shape, files, CY_BF16);
        CY_CHECK_OK(cy_checkpoint_import(from, own, true));
        check_values(own, &shape, CY_BF16);
        CY_CHECK_OK(verified(own));
        struct stat a, b;
        assert_int_equal(stat(there, &a), 0);
        assert_int_equal(stat(here, &b), 0);
        assert_true(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
        cy_test_flip(there, -1, 1);
        CY_CHECK_FAILS(verified(own), CY_ERR_CORRUPT, name);
    }
}

static void links_do_not_cross_file_systems(void **state)
{
    (void)state;
    cy_model_shape shape = cy_test_shape();
    char folder[256], from[300], own[64];
    struct stat here, there;
    cy_test_folder(folder, sizeof(folder));
    snprintf(from, sizeof(from), "%s/from", folder);
    if (stat("/dev/shm", &there) != 0 || access("/dev/shm", W_OK) != 0) skip();
    if (stat(folder, &here) != 0 || here.st_dev == there.st_dev) skip();
    snprintf(own, sizeof(own), "/dev/shm/cy-link-%d", (int)getpid());
    cy_test_huggingface(from, &shape, 1, CY_F32);
    CY_CHECK_FAILS(cy_checkpoint_import(from, own, true), CY_ERR_REQUEST, "model.safetensors");
    assert_non_null(strstr(cy_error_hint(), "--link"));
    assert_false(cy_path_exists(own));
}

static void the_same_bits_come_back(void **state)
{
    (void)state;
    cy_model_shape shape = cy_test_shape();
    there_and_back(&shape, 1, CY_BF16);
    there_and_back(&shape, 4, CY_F32);
    shape.tied = true;
    shape.qkv_bias = true;
    snprintf(shape.architecture, sizeof(shape.architecture), "qwen2");
    there_and_back(&shape, 3, CY_F16);
    shape.qkv_bias = false;
    shape.qk_norm = true;
    snprintf(shape.architecture, sizeof(shape.architecture), "qwen3");
    there_and_back(&shape, 1, CY_F32);
}

static void dtypes_change_on_export(void **state)
{
    (void)state;
    char folder[256], from[300], back[300];
    const cy_model_shape shape = cy_test_shape();
    cy_test_folder(folder, sizeof(folder));
    snprintf(from, sizeof(from), "%s/from", folder);
    snprintf(back, sizeof(back), "%s/back", folder);
    cy_test_huggingface(from, &shape, 1, CY_F32);
    const cy_export_options options = {.dtype = CY_BF16, .shard_bytes = (uint64_t)1 << 30};
    CY_CHECK_OK(cy_checkpoint_export(from, back, &options));
    check_values(back, &shape, CY_BF16);
}

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    while (readdir(entries) != NULL)
        count++;
    closedir(entries);
    return count - 2;
}

static void every_file_cut_at_every_tenth_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"config.json", "model.safetensors.index.json",
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "tokenizer.json",
        "tokenizer_config.json", "generation_config.json"};
    char folder[256], from[300], own[300], file[400];
    const cy_model_shape shape = cy_test_shape();
    cy_test_folder(folder, sizeof(folder));
    snprintf(from, sizeof(from), "%s/from", folder);
    snprintf(own, sizeof(own), "%s/own", folder);
    cy_test_huggingface(from, &shape, 2, CY_BF16);
    for (int i = 5; i < 7; i++) {
        snprintf(file, sizeof(file), "%s/%s", from, names[i]);
        CY_CHECK_OK(cy_file_write(file, "{\"eos_token_id\": 1}", 19));
    }
    for (int i = 0; i < 7; i++) {
        cy_text text = {0};
        snprintf(file, sizeof(file), "%s/%s", from, names[i]);
        CY_CHECK_OK(cy_file_read(&text, file, 1 << 20));
        for (size_t tenth = 0; tenth < 10; tenth++) {
            assert_int_equal(truncate(file, (off_t)(text.length * tenth / 10)), 0);
            CY_CHECK_FAILS(cy_checkpoint_import(from, own, false), CY_ERR_CORRUPT, names[i]);
            assert_int_equal(count_entries(folder), 1); // nothing was written
            FILE *stream = fopen(file, "wb");
            assert_int_equal(fwrite(text.bytes, 1, text.length, stream), text.length);
            fclose(stream);
        }
        cy_text_free(&text);
    }
    snprintf(file, sizeof(file), "%s/model-00001-of-00002.safetensors", from);
    assert_int_equal(unlink(file), 0);
    CY_CHECK_FAILS(cy_checkpoint_import(from, own, false), CY_ERR_CORRUPT,
        "names files that are missing: model-00001-of-00002.safetensors");
    assert_int_equal(count_entries(folder), 1);
}

static void a_tokenizer_of_another_type_is_refused(void **state)
{
    (void)state;
    static const char *const types[] = {
        "{\"type\": \"Unigram\", \"vocab\": [[\"a\", 0]], \"unk_id\": 0}",
        "{\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}}",
    };
    char folder[256], from[300], own[300], file[400], json[400];
    const cy_model_shape shape = cy_test_shape();
    cy_test_folder(folder, sizeof(folder));
    snprintf(from, sizeof(from), "%s/from", folder);
    snprintf(own, sizeof(own), "%s/own", folder);
    cy_test_huggingface(from, &shape, 1, CY_BF16);
    snprintf(file, sizeof(file), "%s/tokenizer.json", from);
    for (int i = 0; i < 2; i++) {
        snprintf(json, sizeof(json), "{\"added_tokens\": [], \"model\": %s}", types[i]);
        assert_int_equal(unlink(file), 0);
        CY_CHECK_OK(cy_file_write(file, json, strlen(json)));
        CY_CHECK_FAILS(
            cy_checkpoint_import(from, own, false), CY_ERR_UNSUPPORTED, "tokenizer.json");
        assert_non_null(strstr(cy_error_hint(), "without its tokenizer.json"));
        assert_int_equal(count_entries(folder), 1);
    }
    assert_int_equal(unlink(file), 0);
    CY_CHECK_OK(cy_checkpoint_import(from, own, false));

    // What belongs to a tokenizer is not exported without one.
    snprintf(file, sizeof(file), "%s/tokenizer_config.json", own);
    CY_CHECK_OK(cy_file_write(file, "{}", 2));
    snprintf(json, sizeof(json), "%s/back", folder);
    const cy_export_options options = {.keep_dtype = true, .shard_bytes = (uint64_t)1 << 30};
    CY_CHECK_OK(cy_checkpoint_export(own, json, &options));
    snprintf(file, sizeof(file), "%s/back/tokenizer_config.json", folder);
    assert_false(cy_path_exists(file));
}

// A folder whose config.json is of another model: all that differs is listed.
static void missing_and_unknown_tensors_are_all_listed(void **state)
{
    (void)state;
    char folder[256], from[300], other[300], own[300], a[400], b[400];
    cy_model_shape shape = cy_test_shape();
    cy_test_folder(folder, sizeof(folder));
    snprintf(from, sizeof(from), "%s/from", folder);
    snprintf(other, sizeof(other), "%s/other", folder);
    snprintf(own, sizeof(own), "%s/own", folder);
    cy_test_huggingface(from, &shape, 1, CY_F32);
    shape.layers = 3;
    shape.ffn = 48;
    shape.qkv_bias = true;
    snprintf(shape.architecture, sizeof(shape.architecture), "qwen2");
    cy_test_huggingface(other, &shape, 1, CY_F32);
    snprintf(a, sizeof(a), "%s/config.json", from);
    snprintf(b, sizeof(b), "%s/config.json", other);
    assert_int_equal(rename(b, a), 0); // the two-layer weights with the three-layer configuration
    const cy_status status = cy_checkpoint_import(from, own, false);
    CY_CHECK_FAILS(status, CY_ERR_CORRUPT, "model.layers.2.mlp.up_proj.weight: missing there");
    CY_CHECK_FAILS(status, CY_ERR_CORRUPT, "model.layers.1.self_attn.k_proj.bias: missing there");
    CY_CHECK_FAILS(status, CY_ERR_CORRUPT,
        "model.safetensors: model.layers.0.mlp.up_proj.weight: there 40 x 16, here 48 x 16");
    cy_test_huggingface(from, &shape, 1, CY_F32);
    shape = cy_test_shape();
    cy_test_huggingface(other, &shape, 1, CY_F32);
    assert_int_equal(rename(b, a), 0);
    const cy_status again = cy_checkpoint_import(from, own, false);
    CY_CHECK_FAILS(again, CY_ERR_CORRUPT,
        "model.safetensors: model.layers.2.mlp.up_proj.weight: unknown here");
    CY_CHECK_FAILS(again, CY_ERR_CORRUPT, "model.layers.0.self_attn.q_proj.bias: unknown here");
    assert_false(cy_path_exists(own));
}

// Two files with an index that says something else.
static void indexes_that_lie_are_refused(void **state)
{
    (void)state;
#define NO_FILE "weight_map: a does not name a file here"
    static const struct {
        const char *index, *words;
    } cases[] = {
        {"{\"weight_map\": {}}", "weight_map is missing or empty"},
        {"{\"weight_map\": [1]}", "weight_map is missing or empty"},
        {"{\"weights\": {\"a\": \"b\"}}", "weight_map is missing or empty"},
        {"{\"weight_map\": ", "line 1, column 15: unexpected token near end of file"},
        {"{\"weight_map\": {\"a\": \"../a.safetensors\"}}", NO_FILE},
        {"{\"weight_map\": {\"a\": \".hidden\"}}", NO_FILE},
        {"{\"weight_map\": {\"a\": \"sub/a.safetensors\"}}", NO_FILE},
        {"{\"weight_map\": {\"a\": \"\"}}", NO_FILE},
        {"{\"weight_map\": {\"a\": 1}}", NO_FILE},
        {"{\"weight_map\": {\"a\": \"x\", \"b\": \"y\", \"c\": \"x\"}}",
            "names files that are missing: x y"},
        {"{\"weight_map\": {\"a\": \"1\", \"b\": \"2\", \"c\": \"3\", \"d\": \"4\", \"e\": \"5\", "
         "\"f\": \"6\", \"g\": \"7\", \"h\": \"8\", \"i\": \"2\", \"j\": \"9\", \"k\": \"10\"}}",
            "names files that are missing: 1 2 3 4 5 6 7 8 and 2 more"},
        {"{\"weight_map\": {\"model.norm.weight\": \"model-00001-of-00002.safetensors\", "
         "\"lm_head.weight\": \"model-00001-of-00002.safetensors\"}}",
            "tensor model.norm.weight is not in model-00001-of-00002.safetensors"},
        {"{\"weight_map\": {\"none\": \"model-00001-of-00002.safetensors\"}}",
            "tensor none is not in model-00001-of-00002.safetensors"},
    };
#undef NO_FILE
    char folder[256], path[300];
    const cy_model_shape shape = cy_test_shape();
    cy_test_folder(folder, sizeof(folder));
    cy_test_huggingface(folder, &shape, 2, CY_F32);
    snprintf(path, sizeof(path), "%s/model.safetensors.index.json", folder);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cy_checkpoint checkpoint;
        char wanted[700];
        CY_CHECK_OK(cy_file_write(path, cases[i].index, strlen(cases[i].index)));
        snprintf(wanted, sizeof(wanted), "%s%s %s", path,
            strncmp(cases[i].words, "names", 5) == 0 ? "" : ":", cases[i].words);
        assert_int_equal(cy_checkpoint_open(&checkpoint, folder), CY_ERR_CORRUPT);
        assert_string_equal(cy_error_text(), wanted);
    }
}

// A model.safetensors of one tensor of F32 in the folder.
static void write_tensor(const char *folder, const char *name, const char *shape, size_t elements)
{
    unsigned char file[600] = {0};
    char path[300];
    const int length = snprintf((char *)file + 8, sizeof(file) - 8,
        "{\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,%zu]}}", name, shape,
        4 * elements);
    assert_in_range(length, 1, 255 + 250);
    file[0] = (unsigned char)(length & 255);
    file[1] = (unsigned char)(length >> 8);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    CY_CHECK_OK(cy_file_write(path, file, 8 + (size_t)length + 4 * elements));
}

// What a file may hold: parameters of one or two dimensions, and what is no parameter.
static void tensors_that_are_no_parameters_are_passed_over(void **state)
{
    (void)state;
    static const struct {
        const char *name, *shape;
        size_t elements;
        bool tied;
        int rows, cols;   // 0: it is passed over
        const char *text; // behind "FOLDER/model.safetensors: tensor NAME: "
    } cases[] = {
        {"a", "[2,3]", 6, false, 2, 3, NULL},
        {"a", "[3]", 3, false, 1, 3, NULL},
        {"a", "[]", 1, false, 1, 1, NULL},
        {"a", "[1,1,3]", 3, false, 0, 0, "3 dimensions, 12 bytes"},
        {"a", "[0]", 0, false, 0, 0, "1 dimensions, 0 bytes"},
        {"a", "[4,0]", 0, false, 0, 0, "2 dimensions, 0 bytes"},
        {"lm_head.weight", "[2,3]", 6, false, 2, 3, NULL},
        {"lm_head.weight", "[2,3]", 6, true, 0, 0, NULL},
        {"lm_head.weights", "[2,3]", 6, true, 2, 3, NULL},
        {"model.layers.0.self_attn.rotary_emb.inv_freq", "[1,1,3]", 3, false, 0, 0, NULL},
        {"a.rotary_emb.inv_freq", "[3]", 3, false, 0, 0, NULL},
        {".rotary_emb.inv_freq", "[3]", 3, false, 1, 3, NULL},
        {"model.rotary_emb.inv_freqs", "[3]", 3, false, 1, 3, NULL},
        {"inv_freq", "[3]", 3, false, 1, 3, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char folder[256], wanted[500];
        cy_checkpoint checkpoint;
        cy_model_shape shape = cy_test_shape();
        cy_test_folder(folder, sizeof(folder));
        shape.tied = cases[i].tied;
        cy_test_huggingface(folder, &shape, 1, CY_F32);
        write_tensor(folder, cases[i].name, cases[i].shape, cases[i].elements);
        const cy_status status = cy_checkpoint_open(&checkpoint, folder);
        if (cases[i].text != NULL) {
            snprintf(wanted, sizeof(wanted), "%s/model.safetensors: tensor %s: %s", folder,
                cases[i].name, cases[i].text);
            assert_int_equal(status, CY_ERR_UNSUPPORTED);
            assert_string_equal(cy_error_text(), wanted);
            continue;
        }
        CY_CHECK_OK(status);
        assert_int_equal(checkpoint.tensor_count, cases[i].rows > 0);
        if (cases[i].rows > 0) {
            assert_int_equal(checkpoint.tensors[0].tensor.rows, cases[i].rows);
            assert_int_equal(checkpoint.tensors[0].tensor.cols, cases[i].cols);
            assert_int_equal(checkpoint.pieces[0].piece.count, cases[i].elements);
        }
        cy_checkpoint_close(&checkpoint);
    }
}

// A run's config.json has its sections; one of a model says its type.
static void the_folder_of_a_run_is_told_from_a_model(void **state)
{
    (void)state;
    static const struct {
        const char *config, *hint; // NULL: it is read as a model's
    } cases[] = {
        {"{\"training\": {}, \"checkpoint\": {\"save_dir\": \"saves\"}}",
            "the run saves its checkpoints in saves: give that folder"},
        {"{\"training\": {}, \"checkpoint\": {}}",
            "the run saves no checkpoints: it has no checkpoint.save_dir"},
        {"{\"training\": {}, \"checkpoint\": {\"save_dir\": \"\"}}",
            "the run saves no checkpoints: it has no checkpoint.save_dir"},
        {"{\"training\": {}, \"checkpoint\": {}, \"model_type\": \"llama\"}", NULL},
        {"{\"training\": {}, \"checkpoint\": 1}", NULL},
        {"{\"training\": 1, \"checkpoint\": {}}", NULL},
        {"{\"checkpoint\": {}}", NULL},
    };
    char folder[256], path[300], wanted[400];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/config.json", folder);
    snprintf(wanted, sizeof(wanted), "%s is the folder of a run, not a checkpoint", folder);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cy_checkpoint checkpoint;
        CY_CHECK_OK(cy_file_write(path, cases[i].config, strlen(cases[i].config)));
        const cy_status status = cy_checkpoint_open(&checkpoint, folder);
        if (cases[i].hint == NULL) {
            assert_int_not_equal(status, CY_OK);
            assert_string_not_equal(cy_error_text(), wanted);
            continue;
        }
        assert_int_equal(status, CY_ERR_REQUEST);
        assert_string_equal(cy_error_text(), wanted);
        assert_string_equal(cy_error_hint(), cases[i].hint);
    }
}

static void no_folder_is_made_in_the_place_of_the_root(void **state)
{
    (void)state;
    char folder[256];
    const cy_model_shape shape = cy_test_shape();
    cy_test_folder(folder, sizeof(folder));
    cy_test_huggingface(folder, &shape, 1, CY_F32);
    CY_CHECK_FAILS(cy_checkpoint_import(folder, "/", false), CY_ERR_REQUEST,
        "\"/\" is not a place for a folder");
    CY_CHECK_FAILS(cy_checkpoint_import(folder, "///", false), CY_ERR_REQUEST, "is not a place");
    CY_CHECK_FAILS(cy_checkpoint_import(folder, "", false), CY_ERR_REQUEST, "\"\" is not a place");
}

// The text of an error is limited; what differs in every layer alike is told once.
static void long_lists_are_folded_not_cut(void **state)
{
    (void)state;
    char folder[256];
    cy_model_shape shape = cy_test_shape();
    cy_checkpoint checkpoint;
    cy_global_tensor *tensors = NULL;
    int count = 0;
    cy_test_folder(folder, sizeof(folder));
    cy_test_huggingface(folder, &shape, 1, CY_F32);
    CY_CHECK_OK(cy_checkpoint_open(&checkpoint, folder));
    shape.layers = 60;
    shape.qkv_bias = true;
    CY_CHECK_OK(cy_checkpoint_weights_of(&tensors, &count, &shape));
    const cy_status status = cy_checkpoint_check_tensors(&checkpoint, tensors, count);
    CY_CHECK_FAILS(status, CY_ERR_CORRUPT, "702 of its tensors differ");
    CY_CHECK_FAILS(
        status, CY_ERR_CORRUPT, "model.layers.{2..59}.mlp.up_proj.weight: missing there");
    CY_CHECK_FAILS(
        status, CY_ERR_CORRUPT, "model.layers.{0..59}.self_attn.v_proj.bias: missing there");
    cy_memory_free(tensors);
    cy_checkpoint_close(&checkpoint);
}

static void pickles_are_refused_with_advice(void **state)
{
    (void)state;
    static const char *const pickles[] = {
        NULL, "pytorch_model.bin", "pytorch_model.bin.index.json"};
    for (int i = 0; i < 3; i++) {
        char folder[256], file[400], wanted[500];
        const cy_model_shape shape = cy_test_shape();
        cy_checkpoint checkpoint;
        cy_test_folder(folder, sizeof(folder));
        cy_test_huggingface(folder, &shape, 1, CY_F32);
        snprintf(file, sizeof(file), "%s/model.safetensors", folder);
        assert_int_equal(unlink(file), 0);
        snprintf(file, sizeof(file), "%s/%s", folder, i > 0 ? pickles[i] : "other");
        CY_CHECK_OK(cy_file_write(file, "x", 1));
        snprintf(wanted, sizeof(wanted),
            "%s: neither model.safetensors nor model.safetensors.index.json is there", folder);
        assert_int_equal(cy_checkpoint_open(&checkpoint, folder), CY_ERR_IO);
        assert_string_equal(cy_error_text(), wanted);
        assert_string_equal(cy_error_hint(),
            i == 0 ? ""
                   : "pytorch_model.bin is a program, not data: save the model as safetensors");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_come_back),
        cmocka_unit_test(end_tokens_of_exports),
        cmocka_unit_test(texts_there_and_back),
        cmocka_unit_test(files_are_linked),
        cmocka_unit_test(links_do_not_cross_file_systems),
        cmocka_unit_test(dtypes_change_on_export),
        cmocka_unit_test(every_file_cut_at_every_tenth_is_named),
        cmocka_unit_test(a_tokenizer_of_another_type_is_refused),
        cmocka_unit_test(missing_and_unknown_tensors_are_all_listed),
        cmocka_unit_test(indexes_that_lie_are_refused),
        cmocka_unit_test(tensors_that_are_no_parameters_are_passed_over),
        cmocka_unit_test(the_folder_of_a_run_is_told_from_a_model),
        cmocka_unit_test(no_folder_is_made_in_the_place_of_the_root),
        cmocka_unit_test(long_lists_are_folded_not_cut),
        cmocka_unit_test(pickles_are_refused_with_advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
