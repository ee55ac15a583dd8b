#include "data/source.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/corpus.h"
#include "data/shard.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

void cy_source_close(cy_token_source *source)
{
    if (source == NULL) return;
    cy_memory_free(source->path);
    source->ops->close(source);
}

cy_status cy_source_read(const cy_token_source *source, int32_t *out, int64_t first, int64_t count)
{
    CY_ASSERT(first >= 0 && count >= 0 && count <= source->token_count - first);
    cy_activity_begin(CY_ACTIVITY_READ, "the data set", -1);
    const cy_status status = source->ops->read(source, out, first, count);
    cy_activity_end();
    CY_TRY(status);
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

// ---- fingerprints

#define WHOLE_TOKENS ((int64_t)1 << 22)
#define SAMPLE_RUN   ((int64_t)1 << 14)
#define SAMPLE_RUNS  256

// Goes on over ids [count], two at a time: it runs over all of a text at each start. Kept in files.
static uint64_t check_ids(uint64_t check, const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i += 2) {
        const uint64_t second = i + 1 < count ? (uint32_t)ids[i + 1] : UINT32_MAX;
        const uint64_t pair = (uint32_t)ids[i] | second << 32;
        check = (check ^ (pair + 1)) * 0x9e3779b97f4a7c15u;
        check ^= check >> 29;
    }
    return check;
}

// ids [SAMPLE_RUN] is work space.
static cy_status check_tokens(
    uint64_t *check, const cy_token_source *source, int32_t *ids, int64_t first, int64_t count)
{
    while (count > 0) {
        const int64_t step = count < SAMPLE_RUN ? count : SAMPLE_RUN;
        CY_TRY(source->ops->read(source, ids, first, step));
        *check = check_ids(*check, ids, step);
        first += step;
        count -= step;
    }
    return CY_OK;
}

// The last stretch ends with the last token.
static cy_status sample_tokens(
    uint64_t *check, const cy_token_source *source, int32_t *ids, int64_t tokens)
{
    if (tokens <= WHOLE_TOKENS) return check_tokens(check, source, ids, 0, tokens);
    const int64_t gaps = SAMPLE_RUNS - 1, room = tokens - SAMPLE_RUN;
    for (int64_t i = 0; i < SAMPLE_RUNS; i++) {
        const int64_t first = room / gaps * i + room % gaps * i / gaps;
        CY_TRY(check_tokens(check, source, ids, first, SAMPLE_RUN));
    }
    return CY_OK;
}

cy_status cy_source_fingerprint(
    cy_fingerprint *fingerprint, const cy_token_source *source, int64_t tokens)
{
    CY_ASSERT(0 <= tokens && tokens <= source->token_count);
    cy_fingerprint made = {.tokens = tokens};
    void *ids = NULL;
    CY_TRY(cy_memory_alloc(&ids, (size_t)SAMPLE_RUN, sizeof(int32_t)));
    cy_activity_begin(CY_ACTIVITY_READ, "the data set", -1);
    cy_status status = source->ops->check(source, &made);
    if (status == CY_OK) status = sample_tokens(&made.sample, source, ids, tokens);
    cy_activity_end();
    cy_memory_free(ids);
    if (status == CY_OK) *fingerprint = made;
    return status;
}

bool cy_fingerprint_equal(const cy_fingerprint *one, const cy_fingerprint *other)
{
    if (one->tokens != other->tokens || one->sample != other->sample) return false;
    return one->cuts == 0 || one->cuts != other->cuts || one->checks == other->checks;
}

// ---- text, tokenized when it is opened

typedef struct text_source {
    cy_token_source base;
    cy_tokens tokens;
} text_source;

static cy_status text_read(const cy_token_source *base, int32_t *out, int64_t first, int64_t count)
{
    const text_source *source = (const text_source *)base;
    memcpy(out, source->tokens.ids + first, (size_t)count * sizeof(int32_t));
    return CY_OK;
}

// All of it: the tokens are in memory, and a word may be replaced by another of one token.
static cy_status text_check(const cy_token_source *base, cy_fingerprint *fingerprint)
{
    const text_source *source = (const text_source *)base;
    fingerprint->cuts = 1;
    fingerprint->checks = check_ids(0, source->tokens.ids, fingerprint->tokens);
    return CY_OK;
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
    .check = text_check,
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
    int fd = -1; // every process of a run reads the text, so it is no stream
    CY_TRY(cy_file_open(&fd, path));
    cy_io_close(fd);
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(text_source)));
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

// Whether the tokenizer.json beside shards is the one that made them, which their hash tells, and
// gives the ids of this tokenizer, laid out in another way.
static cy_status is_same_tokenizer(
    bool *same, const cy_token_source *source, const cy_tokenizer *tokenizer)
{
    cy_text path = {0};
    cy_tokenizer *other = NULL;
    *same = false;
    cy_status status = cy_text_add(&path, "%s/tokenizer.json", source->path);
    bool there = false;
    if (status == CY_OK) status = cy_path_find(&there, path.bytes);
    if (there) {
        status = cy_tokenizer_open(&other, path.bytes);
        if (status == CY_OK) {
            *same = cy_tokenizer_hash(other) == source->tokenizer_hash &&
                cy_tokenizer_fingerprint(other) == cy_tokenizer_fingerprint(tokenizer);
        }
    }
    cy_tokenizer_close(other);
    cy_text_free(&path);
    return status;
}

static cy_status check_tokenizer(const cy_token_source *source, const cy_tokenizer *tokenizer)
{
    if (tokenizer == NULL || source->tokenizer_hash == 0) return CY_OK;
    if (source->tokenizer_hash == cy_tokenizer_hash(tokenizer)) return CY_OK;
    bool same = false;
    CY_TRY(is_same_tokenizer(&same, source, tokenizer));
    if (same) return CY_OK;
    const cy_status status = CY_FAIL(CY_ERR_REQUEST,
        "%s was prepared with another tokenizer (hash %016" PRIx64 ", this one has %016" PRIx64 ")",
        source->path, source->tokenizer_hash, cy_tokenizer_hash(tokenizer));
    cy_error_set_hint(
        "give the tokenizer.json that it was prepared with, which 'data prepare' leaves "
        "in that folder; checkpoint.accept = tokenizer, or eval's --accept-tokenizer, takes the "
        "ids "
        "as they are");
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
    bool there = false, shards = false;
    CY_TRY(cy_path_find(&there, path));
    if (!there) return CY_FAIL(CY_ERR_REQUEST, "dataset %s: no such file", path);
    CY_TRY(cy_path_find_folder(&shards, path));
    if (!shards) CY_TRY(cy_shard_is_file(&shards, path));
    if (shards) {
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
    if (status == CY_OK && !options->any_tokenizer) {
        status = check_tokenizer(made, options->tokenizer);
    }
    if (status != CY_OK) {
        cy_source_close(made);
        return status;
    }
    *source = made;
    return CY_OK;
}
