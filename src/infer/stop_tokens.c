#include "infer/stop_tokens.h"

#include "base/file.h"

#include <jansson.h>

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

bool cy_stop_tokens_has(const cy_stop_tokens *stops, int32_t token)
{
    for (int i = 0; i < stops->count; i++) {
        if (stops->tokens[i] == token) return true;
    }
    return false;
}

// Some files say -1 for none.
static cy_status add(cy_stop_tokens *stops, int64_t token, const char *path)
{
    if (token < 0 || token > INT32_MAX || cy_stop_tokens_has(stops, (int32_t)token)) return CY_OK;
    if (stops->count == CY_STOP_TOKENS_MAX) {
        return CY_FAIL(
            CY_ERR_UNSUPPORTED, "%s: eos_token_id: more than %d tokens", path, CY_STOP_TOKENS_MAX);
    }
    stops->tokens[stops->count++] = (int32_t)token;
    return CY_OK;
}

static cy_status add_all(cy_stop_tokens *stops, const json_t *value, const char *path)
{
    if (value == NULL || json_is_null(value)) return CY_OK;
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *token = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(token)) {
            return CY_FAIL(
                CY_ERR_CORRUPT, "%s: eos_token_id is neither a token id nor a list of them", path);
        }
        CY_TRY(add(stops, json_integer_value(token), path));
    }
    return CY_OK;
}

// Adds the tokens of eos_token_id in a file of the folder; no file adds none.
static cy_status add_file(cy_stop_tokens *stops, const char *folder, const char *name)
{
    cy_text path = {0}, text = {0};
    json_error_t error;
    cy_status status = cy_text_add(&path, "%s/%s", folder, name);
    bool there = false;
    if (status == CY_OK) status = cy_path_find(&there, path.bytes);
    if (there) {
        status = cy_file_read(&text, path.bytes, CONFIG_BYTES_MAX);
        if (status == CY_OK) {
            json_t *root = json_loadb(text.bytes, text.length, JSON_REJECT_DUPLICATES, &error);
            status = root == NULL
                ? CY_FAIL(CY_ERR_CORRUPT, "%s: line %d, column %d: %s", path.bytes, error.line,
                      error.column, error.text)
                : add_all(stops, json_object_get(root, "eos_token_id"), path.bytes);
            json_decref(root);
        }
    }
    cy_text_free(&text);
    cy_text_free(&path);
    return status;
}

cy_status cy_stop_tokens_find(
    cy_stop_tokens *stops, const cy_checkpoint *checkpoint, const cy_tokenizer *tokenizer)
{
    cy_stop_tokens found = {0};
    CY_TRY(add_file(&found, checkpoint->path, "generation_config.json"));
    if (found.count == 0) {
        if (checkpoint->is_hf) CY_TRY(add_file(&found, checkpoint->path, "config.json"));
        CY_TRY(add(&found, checkpoint->model.eos, checkpoint->path));
        CY_TRY(add(&found, cy_tokenizer_end_token(tokenizer), checkpoint->path));
    }
    *stops = found;
    return CY_OK;
}
