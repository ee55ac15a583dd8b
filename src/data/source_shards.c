// A folder of shards as one row of tokens: shard-00000.tokens, shard-00001.tokens and on, which
// `data prepare` wrote. Also one of them by itself, under any name.

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/shard.h"
#include "data/source.h"

#include <inttypes.h>
#include <stdio.h>

#define SHARDS_MAX 100000

typedef struct shard_source {
    cy_token_source base;
    cy_shard *shards; // owned, [count]
    int64_t *ends;    // owned, [count]: of each shard in the row
    int count;
    size_t shards_capacity;
    size_t ends_capacity;
} shard_source;

static void shards_close(cy_token_source *base)
{
    shard_source *source = (shard_source *)base;
    for (int i = 0; i < source->count; i++)
        cy_shard_close(&source->shards[i]);
    cy_memory_free(source->shards);
    cy_memory_free(source->ends);
    cy_memory_free(source);
}

static cy_status shards_read(
    const cy_token_source *base, int32_t *out, int64_t first, int64_t count)
{
    const shard_source *source = (const shard_source *)base;
    int low = 0, high = source->count - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (source->ends[middle] <= first) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (int i = low; count > 0; i++) {
        const int64_t start = i > 0 ? source->ends[i - 1] : 0;
        const int64_t here = source->ends[i] - first;
        const int64_t taken = count < here ? count : here;
        CY_TRY(cy_shard_read(&source->shards[i], out, first - start, taken));
        out += taken;
        first += taken;
        count -= taken;
    }
    return CY_OK;
}

// Of the headers: nothing is read. A row that ends within a shard has no check of its end.
static cy_status shards_check(const cy_token_source *base, cy_fingerprint *fingerprint)
{
    const shard_source *source = (const shard_source *)base;
    uint64_t cuts = 0, checks = 0;
    int i = 0;
    for (; i < source->count && source->ends[i] <= fingerprint->tokens; i++) {
        const uint64_t end = (uint64_t)source->ends[i], check = source->shards[i].header.check;
        cuts = cy_shard_check(cuts, (const unsigned char *)&end, sizeof(end));
        checks = cy_shard_check(checks, (const unsigned char *)&check, sizeof(check));
    }
    const bool whole = i > 0 && source->ends[i - 1] == fingerprint->tokens;
    fingerprint->cuts = whole ? cuts : 0;
    fingerprint->checks = whole ? checks : 0;
    return CY_OK;
}

static const cy_token_source_ops shard_ops = {
    .name = "shards",
    .read = shards_read,
    .check = shards_check,
    .close = shards_close,
};

static cy_status add_shard(shard_source *source, const char *path)
{
    void *block = source->shards;
    const size_t wanted = (size_t)source->count + 1;
    CY_TRY(cy_memory_grow(&block, &source->shards_capacity, wanted, sizeof(cy_shard)));
    source->shards = block;
    block = source->ends;
    CY_TRY(cy_memory_grow(&block, &source->ends_capacity, wanted, sizeof(int64_t)));
    source->ends = block;
    cy_shard *shard = &source->shards[source->count];
    CY_TRY(cy_shard_open(shard, path));
    const cy_shard_header *header = &shard->header;
    cy_token_source *base = &source->base;
    source->count++;
    if (source->count > 1 &&
        (base->tokenizer_hash != header->tokenizer_hash ||
            base->vocab_size != (int32_t)header->vocab_size)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: of another tokenizer than the shard before it", path);
    }
    base->tokenizer_hash = header->tokenizer_hash;
    base->vocab_size = (int32_t)header->vocab_size;
    base->token_count += (int64_t)header->token_count;
    base->document_count += (int64_t)header->document_count;
    base->text_bytes += (int64_t)header->text_bytes;
    source->ends[source->count - 1] = base->token_count;
    return CY_OK;
}

static cy_status add_folder(shard_source *made, const char *path)
{
    cy_text name = {0};
    cy_status status = CY_OK;
    for (int i = 0; i < SHARDS_MAX && status == CY_OK; i++) {
        name.length = 0;
        status = cy_text_add(&name, "%s/shard-%05d.tokens", path, i);
        bool there = false;
        if (status == CY_OK) status = cy_path_find(&there, name.bytes);
        if (status != CY_OK || !there) break;
        status = add_shard(made, name.bytes);
    }
    if (status == CY_OK && made->count == 0) {
        status = CY_FAIL(CY_ERR_REQUEST, "%s: the folder holds no shard-00000.tokens", path);
        cy_error_set_hint("'cyclotron data prepare --out=%s ...' makes token shards of text", path);
    }
    cy_text_free(&name);
    return status;
}

cy_status cy_source_open_shards(cy_token_source **source, const char *path)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(shard_source)));
    shard_source *made = block;
    made->base.ops = &shard_ops;
    bool folder = false;
    cy_status status = cy_path_find_folder(&folder, path);
    if (status == CY_OK) status = folder ? add_folder(made, path) : add_shard(made, path);
    if (status != CY_OK) {
        shards_close(&made->base);
        return status;
    }
    *source = &made->base;
    return CY_OK;
}
