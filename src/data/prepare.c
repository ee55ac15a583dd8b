#include "data/prepare.h"

#include "base/output.h"
#include "base/text.h"
#include "data/shard.h"

#define SHARD_TOKENS ((int64_t)1 << 28)

typedef struct preparation {
    const cy_prepare_options *options; // borrowed
    cy_pending_folder place;
    cy_shard_writer writer;
    bool writing;
    cy_shard_header header; // what all shards have in common
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
