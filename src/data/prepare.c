// Writes the tokens of text files into a folder of shards, and checks and describes token files.

#include "data/prepare.h"

#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "base/text.h"
#include "data/shard.h"
#include "data/source.h"

#include <inttypes.h>
#include <string.h>

#define SHARD_TOKENS ((int64_t)1 << 28)

typedef struct preparation {
    const cy_prepare_options *options; // borrowed
    cy_pending_folder place;
    cy_shard_writer writer;
    bool writing;
    cy_shard_header header; // the fields that all shards share
    int64_t shard_tokens;
    cy_prepare_result result;
} preparation;

static cy_status start_shard(preparation *p)
{
    cy_text path = {0};
    cy_status status =
        cy_text_add(&path, "%s/shard-%05d.tokens", p->place.making, p->result.shards);
    if (status == CY_OK) status = cy_shard_create(&p->writer, path.bytes, &p->header);
    cy_text_free(&path);
    CY_TRY(status);
    p->writing = true;
    p->result.shards++;
    return CY_OK;
}

static cy_status finish_shard(preparation *p)
{
    p->writing = false;
    return cy_shard_finish(&p->writer);
}

static cy_status take_tokens(
    void *context, const int32_t *tokens, size_t count, uint64_t text_bytes, uint64_t documents)
{
    preparation *p = context;
    if (!p->writing) CY_TRY(start_shard(p));
    CY_TRY(cy_shard_add(&p->writer, tokens, count, text_bytes));
    p->writer.header.document_count += documents;
    p->result.tokens += (int64_t)count;
    p->result.documents += (int64_t)documents;
    p->result.text_bytes += (int64_t)text_bytes;
    if ((int64_t)p->writer.header.token_count < p->shard_tokens) return CY_OK;
    return finish_shard(p);
}

static cy_status write_all(preparation *p)
{
    CY_TRY(cy_corpus_encode(&p->options->corpus, take_tokens, p));
    if (p->writing) CY_TRY(finish_shard(p));
    if (p->result.shards == 0) {
        return CY_FAIL(CY_ERR_REQUEST, "there is no document in what was given");
    }
    cy_text path = {0};
    cy_status status = cy_text_add(&path, "%s/tokenizer.json", p->place.making);
    if (status == CY_OK) {
        status = cy_tokenizer_save(p->options->corpus.tokenizer, path.bytes);
    }
    cy_text_free(&path);
    return status;
}

cy_status cy_data_prepare(cy_prepare_result *result, const cy_prepare_options *options)
{
    const cy_corpus_options *corpus = &options->corpus;
    const int32_t vocab_size = cy_tokenizer_vocab_size(corpus->tokenizer);
    const int32_t end_token =
        corpus->end_token >= 0 ? corpus->end_token : cy_tokenizer_end_token(corpus->tokenizer);
    preparation p = {.options = options,
        .shard_tokens = options->shard_tokens > 0 ? options->shard_tokens : SHARD_TOKENS,
        .header = {.token_bytes = vocab_size <= 65536 ? 2 : 4,
            .vocab_size = (uint32_t)vocab_size,
            .tokenizer_hash = cy_tokenizer_hash(corpus->tokenizer),
            .end_token = end_token}};
    p.result.token_bytes = (int)p.header.token_bytes;
    CY_TRY(cy_pending_folder_open(&p.place, options->out));
    cy_status status = cy_pending_folder_make(&p.place);
    if (status == CY_OK) status = write_all(&p);
    if (p.writing) cy_shard_abandon(&p.writer);
    CY_TRY(cy_pending_folder_close(&p.place, status));
    *result = p.result;
    return CY_OK;
}

// ---- inspecting

static cy_status verify_shard(const char *path, cy_shard_header *header)
{
    cy_shard shard;
    CY_TRY(cy_shard_open(&shard, path));
    const cy_status status = cy_shard_verify(&shard);
    *header = shard.header;
    cy_shard_close(&shard);
    return status;
}

// Verifies shards by the checks in their headers.
static cy_status verify_shards(const char *path, cy_shard_header *header, int *count)
{
    cy_text name = {0};
    cy_status status = CY_OK;
    bool there = false;
    CY_TRY(cy_path_find_folder(&there, path));
    if (!there) {
        *count = 1;
        return verify_shard(path, header);
    }
    for (*count = 0; status == CY_OK; (*count)++) {
        name.length = 0;
        status = cy_text_add(&name, "%s/shard-%05d.tokens", path, *count);
        if (status == CY_OK) status = cy_path_find(&there, name.bytes);
        if (status != CY_OK || !there) break;
        status = verify_shard(name.bytes, header);
        if (status != CY_OK) break;
    }
    cy_text_free(&name);
    return status;
}

// Reads every token of another kind of source, which compares it with the vocabulary.
static cy_status verify_others(const cy_token_source *source)
{
    int32_t tokens[4096];
    const int64_t step = sizeof(tokens) / sizeof(tokens[0]);
    for (int64_t at = 0; at < source->token_count; at += step) {
        const int64_t left = source->token_count - at;
        CY_TRY(cy_source_read(source, tokens, at, left < step ? left : step));
    }
    return CY_OK;
}

static cy_status describe_json(
    cy_text *out, const cy_token_source *source, const cy_shard_header *header, int shards)
{
    json_t *object = json_pack("{s:o, s:s, s:I, s:I, s:I, s:i}", "path",
        cy_json_string(source->path, strlen(source->path)), "kind", source->ops->name, "tokens",
        (json_int_t)source->token_count, "documents", (json_int_t)source->document_count,
        "text_bytes", (json_int_t)source->text_bytes, "vocab_size", source->vocab_size);
    if (shards > 0) {
        cy_json_set(&object, "shards", json_integer(shards));
        cy_json_set(&object, "token_bytes", json_integer(header->token_bytes));
        cy_json_set(&object, "end_token", json_integer(header->end_token));
        cy_json_set(&object, "tokenizer_hash", json_sprintf("%016" PRIx64, header->tokenizer_hash));
    }
    CY_TRY(cy_json_add(out, object, 0));
    return cy_text_add(out, "\n");
}

static cy_status describe(
    cy_text *out, const cy_token_source *source, const cy_shard_header *header, int shards)
{
    const int64_t tokens = source->token_count;
    CY_TRY(cy_text_add(out, "%s: %s, whole\n  tokens      %" PRId64 "\n", source->path,
        source->ops->name, tokens));
    if (source->document_count >= 0) {
        CY_TRY(cy_text_add(out, "  documents   %" PRId64 "\n", source->document_count));
    }
    if (source->text_bytes > 0 && tokens > 0) {
        CY_TRY(cy_text_add(out, "  text        %" PRId64 " bytes, %.2f a token\n",
            source->text_bytes, (double)source->text_bytes / (double)tokens));
    }
    if (source->vocab_size > 0) {
        CY_TRY(cy_text_add(out, "  vocabulary  %" PRId32 "\n", source->vocab_size));
    }
    if (shards == 0) return CY_OK;
    return cy_text_add(out,
        "  shards      %d, %" PRIu32 " bytes a token\n  end token   %" PRId32
        "\n  tokenizer   hash %016" PRIx64 "\n",
        shards, header->token_bytes, header->end_token, header->tokenizer_hash);
}

cy_status cy_data_inspect(cy_text *out, const char *path, int json)
{
    cy_token_source *source = NULL;
    const cy_source_options options = {0};
    bool there = false, shards_here = false;
    CY_TRY(cy_path_find(&there, path));
    CY_TRY(cy_path_find_folder(&shards_here, path));
    if (!shards_here) CY_TRY(cy_shard_is_file(&shards_here, path));
    if (there && !shards_here && !cy_source_is_file(path)) {
        return CY_FAIL(CY_ERR_REQUEST,
            "%s is neither a folder of token shards, a shard nor a .bin file", path);
    }
    CY_TRY(cy_source_open(&source, path, &options));
    cy_shard_header header = {0};
    int shards = 0;
    cy_status status = shards_here ? verify_shards(path, &header, &shards) : verify_others(source);
    if (status == CY_OK) {
        status = json ? describe_json(out, source, &header, shards)
                      : describe(out, source, &header, shards);
    }
    cy_source_close(source);
    return status;
}
