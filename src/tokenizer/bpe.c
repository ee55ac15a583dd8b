#include "tokenizer/bpe.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"

#include <inttypes.h>
#include <string.h>

cy_status cy_tokens_add(cy_tokens *tokens, const int32_t *ids, size_t count)
{
    if (tokens->capacity - tokens->count < count || tokens->ids == NULL) {
        void *block = tokens->ids;
        const size_t wanted = tokens->count + count;
        CY_TRY(cy_memory_grow(&block, &tokens->capacity, wanted, sizeof(*ids)));
        tokens->ids = block;
    }
    if (count > 0) memcpy(tokens->ids + tokens->count, ids, count * sizeof(*ids));
    tokens->count += count;
    return CY_OK;
}

void cy_tokens_free(cy_tokens *tokens)
{
    cy_memory_free(tokens->ids);
    *tokens = (cy_tokens){0};
}

void cy_bpe_free(cy_bpe *bpe)
{
    cy_memory_free(bpe->pool);
    cy_memory_free(bpe->tokens);
    cy_memory_free(bpe->pairs);
    cy_memory_free(bpe->words);
    *bpe = (cy_bpe){0};
}

cy_status cy_bpe_put(cy_bpe *bpe, int32_t id, const void *bytes, size_t count, cy_bpe_kind kind)
{
    CY_ASSERT(0 <= id && id <= CY_BPE_ID_MAX); // who reads a file has looked
    if (id >= bpe->count) {
        void *block = bpe->tokens;
        const size_t wanted = (size_t)id + 1;
        CY_TRY(cy_memory_grow(&block, &bpe->tokens_capacity, wanted, sizeof(cy_bpe_token)));
        bpe->tokens = block;
        memset(bpe->tokens + bpe->count, 0, (wanted - (size_t)bpe->count) * sizeof(cy_bpe_token));
        bpe->count = id + 1;
    }
    if (bpe->tokens[id].kind != CY_BPE_NONE) {
        return CY_FAIL(CY_ERR_CORRUPT, "two tokens have the id %" PRId32, id);
    }
    void *block = bpe->pool;
    CY_TRY(cy_memory_grow(&block, &bpe->pool_capacity, bpe->pool_bytes + count, 1));
    bpe->pool = block;
    if (count > 0) memcpy(bpe->pool + bpe->pool_bytes, bytes, count);
    bpe->tokens[id] =
        (cy_bpe_token){.first = bpe->pool_bytes, .bytes = (uint32_t)count, .kind = kind};
    bpe->pool_bytes += count;
    return CY_OK;
}

// A power of two that leaves half of the slots free.
static size_t slots_for(size_t count)
{
    size_t slots = 16;
    while (slots < 2 * count)
        slots *= 2;
    return slots;
}

cy_status cy_bpe_reserve_merges(cy_bpe *bpe, size_t count)
{
    const size_t slots = slots_for(count);
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, slots, sizeof(cy_bpe_pair)));
    bpe->pairs = block;
    bpe->pairs_mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        bpe->pairs[i].pair = UINT64_MAX;
    return CY_OK;
}

void cy_bpe_put_merge(cy_bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t id)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = cy_hash_pair(pair) & bpe->pairs_mask;
    while (bpe->pairs[at].pair != UINT64_MAX && bpe->pairs[at].pair != pair) {
        at = (at + 1) & bpe->pairs_mask;
    }
    bpe->pairs[at] = (cy_bpe_pair){.pair = pair, .rank = rank, .id = id};
}

cy_status cy_bpe_index(cy_bpe *bpe)
{
    const size_t slots = slots_for((size_t)bpe->count);
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, slots, sizeof(int32_t)));
    bpe->words = block;
    bpe->words_mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        bpe->words[i] = -1;
    for (int32_t id = 0; id < bpe->count; id++) {
        const cy_bpe_token *token = &bpe->tokens[id];
        if (token->kind != CY_BPE_BYTES) continue;
        const unsigned char *bytes = bpe->pool + token->first;
        const int32_t same = cy_bpe_find(bpe, bytes, token->bytes);
        if (same >= 0) {
            return CY_FAIL(
                CY_ERR_CORRUPT, "the tokens %" PRId32 " and %" PRId32 " are the same", same, id);
        }
        size_t at = cy_hash_bytes(bytes, token->bytes) & bpe->words_mask;
        while (bpe->words[at] >= 0)
            at = (at + 1) & bpe->words_mask;
        bpe->words[at] = id;
    }
    for (int byte = 0; byte < 256; byte++) {
        const unsigned char one[1] = {(unsigned char)byte};
        bpe->byte_ids[byte] = cy_bpe_find(bpe, one, 1);
    }
    return CY_OK;
}

int32_t cy_bpe_find(const cy_bpe *bpe, const unsigned char *bytes, size_t count)
{
    size_t at = cy_hash_bytes(bytes, count) & bpe->words_mask;
    for (; bpe->words[at] >= 0; at = (at + 1) & bpe->words_mask) {
        const cy_bpe_token *token = &bpe->tokens[bpe->words[at]];
        if (token->bytes == count && memcmp(bpe->pool + token->first, bytes, count) == 0) {
            return bpe->words[at];
        }
    }
    return -1;
}
