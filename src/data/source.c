#include "data/source.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/corpus.h"
#include "data/shard.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

void cy_source_close(cy_token_source *source)
{
    if (source == NULL) return;
    cy_memory_free(source->path);
    source->ops->close(source);
}

cy_status cy_source_read(const cy_token_source *source, int32_t *out, int64_t first, int64_t count)
{
    CY_ASSERT(first >= 0 && count >= 0 && count <= source->token_count - first);
    source->ops->read(source, out, first, count);
    // -1 stands for what is no id; it is above every vocabulary as an unsigned number.
    const uint32_t limit = source->vocab_size > 0 ? (uint32_t)source->vocab_size : INT32_MAX;
    uint32_t highest = 0;
    for (int64_t i = 0; i < count; i++) {
        if ((uint32_t)out[i] > highest) highest = (uint32_t)out[i];
    }
    if (highest < limit) return CY_OK;
    int64_t bad = 0;
    while ((uint32_t)out[bad] < limit)
        bad++;
    return CY_FAIL(CY_ERR_CORRUPT,
        "%s: token %" PRId64 " is %" PRIu32 ", the vocabulary has %" PRIu32, source->path,
        first + bad, (uint32_t)out[bad], limit);
}

// ---- text, tokenized when it is opened

typedef struct text_source {
    cy_token_source base;
    cy_tokens tokens;
} text_source;

static void text_read(const cy_token_source *base, int32_t *out, int64_t first, int64_t count)
{
    const text_source *source = (const text_source *)base;
    memcpy(out, source->tokens.ids + first, (size_t)count * sizeof(int32_t));
}

static void text_close(cy_token_source *base)
{
    text_source *source = (text_source *)base;
    cy_tokens_free(&source->tokens);
    cy_memory_free(source);
}

static const cy_token_source_ops text_ops = {
    .name = "text",
    .read = text_read,
    .close = text_close,
};

static cy_status take_tokens(
    void *context, const int32_t *tokens, size_t count, uint64_t text_bytes, uint64_t documents)
{
    text_source *source = context;
    source->base.text_bytes += (int64_t)text_bytes;
    source->base.document_count += (int64_t)documents;
    void *block = source->tokens.ids;
    const size_t wanted = source->tokens.count + count;
    CY_TRY(cy_memory_grow(&block, &source->tokens.capacity, wanted, sizeof(int32_t)));
    source->tokens.ids = block;
    if (count > 0) {
        memcpy(source->tokens.ids + source->tokens.count, tokens, count * sizeof(int32_t));
    }
    source->tokens.count = wanted;
    return CY_OK;
}

cy_status cy_source_open_text(
    cy_token_source **source, const char *path, const cy_source_options *options)
{
    if (options->tokenizer == NULL) {
        return CY_FAIL(CY_ERR_REQUEST, "%s: a tokenizer is needed to read text", path);
    }
    void *block = NULL;
    CY_TRY(cy_memory_take(&block, 1, sizeof(text_source)));
    text_source *made = block;
    made->base.ops = &text_ops;
    const char *const paths[1] = {path};
    const cy_corpus_options corpus = {.tokenizer = options->tokenizer,
        .paths = paths,
        .count = 1,
        .field = options->field,
        .end_token = -1,
        .threads = options->threads};
    const cy_status status = cy_corpus_encode(&corpus, take_tokens, made);
    if (status != CY_OK) {
        text_close(&made->base);
        return status;
    }
    made->base.token_count = (int64_t)made->tokens.count;
    made->base.vocab_size = cy_tokenizer_vocab_size(options->tokenizer);
    made->base.tokenizer_hash = cy_tokenizer_hash(options->tokenizer);
    *source = &made->base;
    return CY_OK;
}

// ---- opening

static cy_status check_tokenizer(const cy_token_source *source, const cy_tokenizer *tokenizer)
{
    if (tokenizer == NULL || source->tokenizer_hash == 0) return CY_OK;
    if (source->tokenizer_hash == cy_tokenizer_hash(tokenizer)) return CY_OK;
    const cy_status status = CY_FAIL(CY_ERR_REQUEST,
        "%s was prepared with another tokenizer (hash %016" PRIx64 ", this one has %016" PRIx64 ")",
        source->path, source->tokenizer_hash, cy_tokenizer_hash(tokenizer));
    cy_error_set_hint("the tokenizer.json in that folder is the one that it was prepared with");
    return status;
}

bool cy_source_is_file(const char *path)
{
    const size_t length = strlen(path);
    return length > 4 &&
        (strcmp(path + length - 4, ".bin") == 0 || strcmp(path + length - 4, ".idx") == 0);
}

cy_status cy_source_open(
    cy_token_source **source, const char *path, const cy_source_options *options)
{
    cy_token_source *made = NULL;
    if (!cy_path_exists(path)) return CY_FAIL(CY_ERR_REQUEST, "dataset %s: no such file", path);
    if (cy_path_is_folder(path)) {
        CY_TRY(cy_source_open_shards(&made, path));
    } else if (cy_source_is_file(path)) {
        CY_TRY(cy_source_open_file(&made, path));
    } else {
        CY_TRY(cy_source_open_text(&made, path, options));
    }
    // Files of other programs do not say how large their vocabulary is.
    if (made->vocab_size == 0 && options->tokenizer != NULL) {
        made->vocab_size = cy_tokenizer_vocab_size(options->tokenizer);
    }
    if (made->vocab_size == 0) made->vocab_size = options->vocab_size;
    cy_status status = cy_memory_copy_text(&made->path, path);
    if (status == CY_OK) status = check_tokenizer(made, options->tokenizer);
    if (status != CY_OK) {
        cy_source_close(made);
        return status;
    }
    *source = made;
    return CY_OK;
}
