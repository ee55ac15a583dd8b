#include "support/huggingface.h"

#include "support/shards.h"
#include "support/support.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/convert.h"
#include "checkpoint/hf/hf.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/file_io.h"
#include "model/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cy_model_shape cy_test_shape(void)
{
    return (cy_model_shape){
        .architecture = "llama",
        .layers = 2,
        .hidden = 16,
        .ffn = 40,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = 4,
        .vocab = 64,
        .max_positions = 32,
        .norm_eps = 1e-5,
        .rope = {.theta = 10000},
        .init_std = 0.02,
        .bos = 0,
        .eos = 1,
    };
}

static void put(const char *folder, const char *name, const cy_text *text)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(text->bytes, 1, text->length, file) != text->length) abort();
    fclose(file);
}

static void write_file(
    const char *path, const cy_global_tensor *tensors, int first, int end, cy_dtype dtype)
{
    cy_safetensors_entry entries[64] = {0};
    cy_text header = {0};
    cy_file_writer *writer = NULL;
    for (int i = first; i < end; i++) {
        const bool matrix = tensors[i].dimensions == 2;
        entries[i - first] = (cy_safetensors_entry){
            .name = cy_memory_writable(tensors[i].name),
            .dtype = dtype,
            .dimensions = tensors[i].dimensions,
            .dims = {matrix ? tensors[i].rows : tensors[i].cols, tensors[i].cols},
        };
    }
    CY_CHECK_OK(cy_safetensors_header(&header, entries, end - first, "{\"format\":\"pt\"}"));
    const cy_safetensors_entry *last = &entries[end - first - 1];
    CY_CHECK_OK(cy_file_writer_open(&writer, path, last->offset + last->bytes, 0));
    CY_CHECK_OK(cy_file_writer_add(writer, header.bytes, header.length));
    for (int i = first; i < end; i++) {
        for (int64_t e = 0; e < tensors[i].rows * tensors[i].cols; e++) {
            const float value =
                cy_test_value(i, e / tensors[i].cols, e % tensors[i].cols, 0) / 1e6f;
            char bytes[8];
            cy_convert(bytes, dtype, &value, CY_F32, 1);
            CY_CHECK_OK(cy_file_writer_add(writer, bytes, cy_dtype_size(dtype)));
        }
    }
    CY_CHECK_OK(cy_file_writer_close(writer, true));
    cy_text_free(&header);
}

void cy_test_huggingface(const char *folder, const cy_model_shape *shape, int files, cy_dtype dtype)
{
    cy_global_tensor *tensors = NULL;
    cy_text json = {0}, index = {0}, tokenizer = {0};
    int count = 0;
    CY_CHECK_OK(cy_folder_make(folder));
    CY_CHECK_OK(cy_model_shape_to_config(&json, shape, dtype));
    put(folder, "config.json", &json);
    CY_CHECK_OK(cy_text_add(&tokenizer,
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"<end>\", \"special\": true}],\n"
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"use_regex\": true},\n\"decoder\": {\"type\": \"ByteLevel\"},\n"
        "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"<end>\": 1}, \"merges\": []}}"));
    put(folder, "tokenizer.json", &tokenizer);
    CY_CHECK_OK(cy_checkpoint_weights_of(&tensors, &count, shape));
    CY_CHECK_OK(cy_text_add(&index, "{\"metadata\": {}, \"weight_map\": {"));
    for (int f = 0; f < files; f++) {
        char name[64] = "model.safetensors", path[400];
        const int first = count * f / files, end = count * (f + 1) / files;
        if (files > 1) snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors", f + 1, files);
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        write_file(path, tensors, first, end, dtype);
        for (int i = first; i < end; i++) {
            CY_CHECK_OK(
                cy_text_add(&index, "%s\"%s\": \"%s\"", i > 0 ? ", " : "", tensors[i].name, name));
        }
    }
    CY_CHECK_OK(cy_text_add(&index, "}}"));
    if (files > 1) put(folder, "model.safetensors.index.json", &index);
    cy_memory_free(tensors);
    cy_text_free(&json);
    cy_text_free(&index);
    cy_text_free(&tokenizer);
}
