#include "checkpoint/hf/export_texts.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/folder.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX ((size_t)1 << 30)

cy_status cy_export_text(const char *folder, const char *name, const cy_text *text)
{
    char *path = NULL;
    CY_TRY(cy_folder_join(&path, folder, name));
    const cy_status status = cy_file_write_unsynced(path, text->bytes, text->length);
    cy_memory_free(path);
    return status;
}

// Reads a file of the checkpoint; *found says whether there is one.
static cy_status read_text(
    cy_text *text, bool *found, const cy_checkpoint *source, const char *name)
{
    char *path = NULL;
    CY_TRY(cy_folder_join(&path, source->path, name));
    cy_status status = cy_path_find(found, path);
    if (*found) status = cy_file_read(text, path, TEXT_BYTES_MAX);
    cy_memory_free(path);
    return status;
}

static cy_status copy_text(
    bool *found, const cy_checkpoint *source, const char *folder, const char *name)
{
    cy_text text = {0};
    cy_status status = read_text(&text, found, source, name);
    if (status == CY_OK && *found) status = cy_export_text(folder, name, &text);
    cy_text_free(&text);
    return status;
}

static cy_status make_generation(cy_text *json, const cy_model_shape *shape)
{
    CY_TRY(cy_text_add(json, "{\n"));
    if (shape->bos >= 0)
        CY_TRY(cy_text_add(json, "  \"bos_token_id\": %" PRId64 ",\n", shape->bos));
    if (shape->eos >= 0) {
        CY_TRY(cy_text_add(json,
            "  \"eos_token_id\": %" PRId64 ",\n  \"pad_token_id\": %" PRId64 ",\n", shape->eos,
            shape->eos));
    }
    return cy_text_add(json, "  \"_from_model_config\": true\n}\n");
}

// The text of a token of that id among the added tokens, quoted as JSON; NULL where there is none.
// The caller frees it with free().
static char *token_text(const json_t *tokenizer, int64_t id)
{
    size_t i;
    json_t *token;
    if (id < 0) return NULL;
    json_array_foreach(json_object_get(tokenizer, "added_tokens"), i, token)
    {
        if (json_integer_value(json_object_get(token, "id")) != id) continue;
        const json_t *content = json_object_get(token, "content");
        if (json_is_string(content)) return json_dumps(content, JSON_ENCODE_ANY);
    }
    return NULL;
}

static cy_status make_tokenizer(
    cy_text *json, const cy_model_shape *shape, const cy_text *tokenizer, const char *path)
{
    json_error_t error;
    json_t *root = json_loadb(tokenizer->bytes, tokenizer->length, JSON_DISABLE_EOF_CHECK, &error);
    if (root == NULL) {
        return CY_FAIL(
            CY_ERR_CORRUPT, "%s/tokenizer.json: line %d: %s", path, error.line, error.text);
    }
    char *bos = token_text(root, shape->bos), *eos = token_text(root, shape->eos);
    json_decref(root);
    cy_status status = cy_text_add(json,
        "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
        "  \"clean_up_tokenization_spaces\": false,\n");
    if (status == CY_OK && bos != NULL) {
        status = cy_text_add(json, "  \"bos_token\": %s,\n", bos);
    }
    if (status == CY_OK && eos != NULL) {
        status = cy_text_add(json, "  \"eos_token\": %s,\n", eos);
    }
    if (status == CY_OK) {
        status =
            cy_text_add(json, "  \"model_max_length\": %" PRId64 "\n}\n", shape->max_positions);
    }
    free(bos);
    free(eos);
    return status;
}

static cy_status export_tokenizer(const cy_checkpoint *source, const char *folder)
{
    bool found = false, has_config = false, ignored = false;
    cy_text tokenizer = {0}, json = {0};
    cy_status status = read_text(&tokenizer, &found, source, "tokenizer.json");
    if (status == CY_OK && found) status = cy_export_text(folder, "tokenizer.json", &tokenizer);
    if (status == CY_OK && found) {
        status = copy_text(&has_config, source, folder, "tokenizer_config.json");
    }
    if (status == CY_OK && found && !has_config) {
        status = make_tokenizer(&json, &source->model, &tokenizer, source->path);
        if (status == CY_OK) status = cy_export_text(folder, "tokenizer_config.json", &json);
    }
    if (status == CY_OK) status = copy_text(&ignored, source, folder, "special_tokens_map.json");
    if (status == CY_OK) status = copy_text(&ignored, source, folder, "chat_template.jinja");
    cy_text_free(&tokenizer);
    cy_text_free(&json);
    return status;
}

cy_status cy_export_texts(const cy_checkpoint *source, const char *folder)
{
    bool found = false;
    cy_text json = {0};
    CY_TRY(export_tokenizer(source, folder));
    CY_TRY(copy_text(&found, source, folder, "generation_config.json"));
    if (found) return CY_OK;
    cy_status status = make_generation(&json, &source->model);
    if (status == CY_OK) status = cy_export_text(folder, "generation_config.json", &json);
    cy_text_free(&json);
    return status;
}
