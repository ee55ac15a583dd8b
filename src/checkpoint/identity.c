// Writes and reads the identity of a checkpoint's data.

#include "checkpoint/identity.h"

#include "base/file.h"
#include "base/memory.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cy_identity_free(cy_identity *identity)
{
    cy_memory_free(identity->sources);
    *identity = (cy_identity){0};
}

static cy_status add_fingerprint(cy_text *json, const char *key, const cy_fingerprint *print)
{
    return cy_text_add(json,
        ",\"%s\":{\"tokens\":%" PRId64 ",\"sample\":\"%016" PRIx64 "\",\"cuts\":\"%016" PRIx64
        "\",\"checks\":\"%016" PRIx64 "\"}",
        key, print->tokens, print->sample, print->cuts, print->checks);
}

static cy_status add_source(cy_text *json, const cy_source_identity *source)
{
    CY_TRY(cy_text_add(json, "{\"path\":"));
    CY_TRY(cy_text_add_json_string(json, source->path, strlen(source->path)));
    CY_TRY(cy_text_add(json, ",\"weight\":%s", cy_json_number(source->weight, 17).bytes));
    CY_TRY(add_fingerprint(json, "whole", &source->whole));
    CY_TRY(add_fingerprint(json, "start", &source->start));
    return cy_text_add(json, "}");
}

cy_status cy_identity_to_json(cy_text *json, const cy_identity *identity)
{
    CY_TRY(cy_text_add(json,
        "{\"tokenizer\":\"%016" PRIx64 "\",\"order\":{\"seed\":%" PRId64 ",\"seq_length\":%" PRId64
        ",\"validation_fraction\":%s,\"num_samples\":%" PRId64 ",\"batch_samples\":%" PRId64
        "},\"sources\":[",
        identity->tokenizer, identity->seed, identity->seq_length,
        cy_json_number(identity->validation_fraction, 17).bytes, identity->num_samples,
        identity->batch_samples));
    for (int i = 0; i < identity->source_count; i++) {
        if (i > 0) CY_TRY(cy_text_add(json, ","));
        CY_TRY(add_source(json, &identity->sources[i]));
    }
    return cy_text_add(json, "]}");
}

// ---- reading

static bool get_count(int64_t *count, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    *count = json_integer_value(value);
    return json_is_integer(value) && *count >= 0;
}

static bool get_number(double *number, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    *number = json_number_value(value);
    return json_is_number(value);
}

static bool get_hash(uint64_t *hash, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) return false;
    *hash = strtoull(text, NULL, 16);
    return true;
}

static bool get_fingerprint(cy_fingerprint *print, const json_t *value)
{
    return get_count(&print->tokens, value, "tokens") &&
        get_hash(&print->sample, value, "sample") && get_hash(&print->cuts, value, "cuts") &&
        get_hash(&print->checks, value, "checks");
}

static bool get_source(cy_source_identity *source, const json_t *value)
{
    const char *path = json_string_value(json_object_get(value, "path"));
    if (path == NULL || strlen(path) >= sizeof(source->path)) return false;
    snprintf(source->path, sizeof(source->path), "%s", path);
    return get_number(&source->weight, value, "weight") &&
        get_fingerprint(&source->whole, json_object_get(value, "whole")) &&
        get_fingerprint(&source->start, json_object_get(value, "start")) &&
        source->start.tokens <= source->whole.tokens;
}

static bool get_identity(cy_identity *identity, const json_t *root)
{
    const json_t *order = json_object_get(root, "order");
    if (!get_hash(&identity->tokenizer, root, "tokenizer") ||
        !get_count(&identity->seed, order, "seed") ||
        !get_count(&identity->seq_length, order, "seq_length") ||
        !get_count(&identity->num_samples, order, "num_samples") ||
        !get_count(&identity->batch_samples, order, "batch_samples") ||
        !get_number(&identity->validation_fraction, order, "validation_fraction")) {
        return false;
    }
    for (int i = 0; i < identity->source_count; i++) {
        const json_t *sources = json_object_get(root, "sources");
        if (!get_source(&identity->sources[i], json_array_get(sources, (size_t)i))) return false;
    }
    return true;
}

cy_status cy_identity_read(cy_identity *identity, const cy_checkpoint *checkpoint)
{
    cy_identity made = {0};
    void *block = NULL;
    json_t *root = json_loads(checkpoint->identity_json, 0, NULL);
    const size_t count = json_array_size(json_object_get(root, "sources"));
    cy_status status = CY_OK;
    if (root != NULL && count > 0 && count <= INT32_MAX) {
        status = cy_memory_alloc(&block, count, sizeof(cy_source_identity));
        made.sources = block;
        made.source_count = (int)count;
    }
    if (status == CY_OK && (made.sources == NULL || !get_identity(&made, root))) {
        status = CY_FAIL(CY_ERR_CORRUPT,
            "%s/manifest.json: identity is not as this program writes it", checkpoint->path);
    }
    json_decref(root);
    if (status != CY_OK) {
        cy_identity_free(&made);
        return status;
    }
    *identity = made;
    return CY_OK;
}

// ---- tokenizers

static cy_status fingerprint_stored(uint64_t *fingerprint, const cy_checkpoint *checkpoint)
{
    cy_identity identity;
    CY_TRY(cy_identity_read(&identity, checkpoint));
    *fingerprint = identity.tokenizer;
    cy_identity_free(&identity);
    return CY_OK;
}

cy_status cy_identity_tokenizer(uint64_t *fingerprint, const cy_checkpoint *checkpoint)
{
    *fingerprint = 0;
    if (checkpoint->identity_json != NULL) return fingerprint_stored(fingerprint, checkpoint);
    cy_text path = {0};
    cy_tokenizer *tokenizer = NULL;
    cy_status status = cy_text_add(&path, "%s/tokenizer.json", checkpoint->path);
    bool there = false;
    if (status == CY_OK) status = cy_path_find(&there, path.bytes);
    if (there) status = cy_tokenizer_open(&tokenizer, path.bytes);
    if (there && status == CY_ERR_UNSUPPORTED) {
        *fingerprint = CY_TOKENIZER_OTHER;
        status = CY_OK;
    } else if (there && status == CY_OK) {
        *fingerprint = cy_tokenizer_fingerprint(tokenizer);
    }
    cy_tokenizer_close(tokenizer);
    cy_text_free(&path);
    return status;
}

cy_status cy_identity_check_own_tokenizer(
    const cy_checkpoint *checkpoint, const cy_tokenizer *tokenizer)
{
    uint64_t trained = 0;
    if (checkpoint->identity_json == NULL) return CY_OK;
    CY_TRY(fingerprint_stored(&trained, checkpoint));
    const uint64_t here = cy_tokenizer_fingerprint(tokenizer);
    if (trained == 0 || trained == here) return CY_OK;
    const cy_status status = CY_FAIL(CY_ERR_REQUEST,
        "%s/tokenizer.json is not the tokenizer that the model was trained with (fingerprint "
        "%016" PRIx64 ", the model's is %016" PRIx64 ")",
        checkpoint->path, here, trained);
    cy_error_set_hint("the run's tokenizer.json belongs there; a model that is to have another is "
                      "made by 'cyclotron checkpoint export', whose folder takes any");
    return status;
}
