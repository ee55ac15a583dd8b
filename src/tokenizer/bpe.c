// Byte-pair encoding: holds a vocabulary with its merges, and turns words into ids. Of the pairs in
// a word, the one of lowest rank is merged first, the leftmost among equal ones. Results are
// cached, because a text repeats its words.

#include "tokenizer/bpe.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"

#include <inttypes.h>
#include <string.h>

// ---- the vocabulary and its merges

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
    CY_ASSERT(0 <= id && id <= CY_BPE_ID_MAX); // the reader of a file has checked it
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

// The smallest power of two that leaves half of the slots free.
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
    CY_TRY(CY_ALLOC(&bpe->pairs, slots));
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
    CY_TRY(CY_ALLOC(&bpe->words, slots));
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

// ---- encoding

#define SHORT_WORD  32 // bytes; longer words are merged with a heap, in time n log n
#define CACHED_WORD 64 // bytes; longer words are not cached
#define SLOTS_FIRST ((size_t)1 << 12)
#define SLOTS_MAX   ((size_t)1 << 18) // a full cache of this size is emptied
#define NO_RANK     INT32_MAX

struct cy_bpe_cached {
    uint64_t hash;
    uint32_t word;  // first byte in words
    uint32_t ids;   // first in ids
    uint16_t bytes; // 0: the slot is free
    uint16_t count;
};

void cy_bpe_scratch_free(cy_bpe_scratch *scratch)
{
    cy_memory_free(scratch->slots);
    cy_memory_free(scratch->words);
    cy_tokens_free(&scratch->ids);
    cy_memory_free(scratch->long_word);
    *scratch = (cy_bpe_scratch){0};
}

static inline const cy_bpe_pair *find_pair(const cy_bpe *bpe, int32_t left, int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = cy_hash_pair(pair) & bpe->pairs_mask;
    for (;; at = (at + 1) & bpe->pairs_mask) {
        if (bpe->pairs[at].pair == pair) return &bpe->pairs[at];
        if (bpe->pairs[at].pair == UINT64_MAX) return NULL;
    }
}

// Writes the ids of the bytes of a word, before any merge; returns how many.
static size_t first_ids(const cy_bpe *bpe, int32_t *ids, const unsigned char *word, size_t bytes)
{
    size_t count = 0;
    bool was_unknown = false;
    for (size_t i = 0; i < bytes; i++) {
        const int32_t id = bpe->byte_ids[word[i]];
        const bool unknown = id < 0;
        if (!unknown) {
            ids[count++] = id;
        } else if (bpe->unknown >= 0 && !(bpe->fuse_unknown && was_unknown)) {
            ids[count++] = bpe->unknown;
        }
        was_unknown = unknown;
    }
    return count;
}

static size_t merge_short(const cy_bpe *bpe, int32_t *ids, size_t count)
{
    int32_t ranks[SHORT_WORD], merged[SHORT_WORD]; // of the pair that begins at each id
    for (size_t i = 0; i + 1 < count; i++) {
        const cy_bpe_pair *pair = find_pair(bpe, ids[i], ids[i + 1]);
        ranks[i] = pair != NULL ? pair->rank : NO_RANK;
        merged[i] = pair != NULL ? pair->id : 0;
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++) {
            if (ranks[i] < ranks[best]) best = i;
        }
        if (ranks[best] == NO_RANK) break;
        ids[best] = merged[best];
        count--;
        for (size_t i = best + 1; i + 1 < count; i++) {
            ids[i] = ids[i + 1];
            ranks[i] = ranks[i + 1];
            merged[i] = merged[i + 1];
        }
        if (best + 1 < count) ids[count - 1] = ids[count]; // the last begins no pair
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < count; i++) {
            const cy_bpe_pair *pair = find_pair(bpe, ids[i], ids[i + 1]);
            ranks[i] = pair != NULL ? pair->rank : NO_RANK;
            merged[i] = pair != NULL ? pair->id : 0;
        }
    }
    return count;
}

// A symbol of a long word, in a linked list; one that was merged into its neighbour has id -1.
typedef struct symbol {
    int32_t id;
    uint32_t before; // index plus one, 0 at the ends
    uint32_t after;
} symbol;

typedef struct heap {
    uint64_t *entries; // rank << 32 | position: the lowest rank, then the leftmost, is on top
    size_t count;
} heap;

static void heap_push(heap *h, uint64_t entry)
{
    size_t at = h->count++;
    for (; at > 0 && h->entries[(at - 1) / 2] > entry; at = (at - 1) / 2) {
        h->entries[at] = h->entries[(at - 1) / 2];
    }
    h->entries[at] = entry;
}

static uint64_t heap_pop(heap *h)
{
    const uint64_t top = h->entries[0];
    const uint64_t last = h->entries[--h->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= h->count) break;
        if (child + 1 < h->count && h->entries[child + 1] < h->entries[child]) child++;
        if (h->entries[child] >= last) break;
        h->entries[at] = h->entries[child];
        at = child;
    }
    h->entries[at] = last;
    return top;
}

static void heap_push_pair(const cy_bpe *bpe, heap *h, const symbol *symbols, uint32_t at)
{
    const uint32_t after = symbols[at].after;
    if (after == 0) return;
    const cy_bpe_pair *pair = find_pair(bpe, symbols[at].id, symbols[after - 1].id);
    if (pair != NULL) heap_push(h, (uint64_t)(uint32_t)pair->rank << 32 | at);
}

static size_t merge_long(const cy_bpe *bpe, heap *h, symbol *symbols, int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        symbols[i] = (symbol){
            .id = ids[i], .before = (uint32_t)i, .after = i + 1 < count ? (uint32_t)i + 2 : 0};
    }
    for (size_t i = 0; i < count; i++)
        heap_push_pair(bpe, h, symbols, (uint32_t)i);
    while (h->count > 0) {
        const uint64_t entry = heap_pop(h);
        const uint32_t at = (uint32_t)entry;
        const uint32_t after = symbols[at].after;
        if (symbols[at].id < 0 || after == 0) continue;
        const cy_bpe_pair *pair = find_pair(bpe, symbols[at].id, symbols[after - 1].id);
        if (pair == NULL || (uint64_t)(uint32_t)pair->rank != entry >> 32) continue; // out of date
        symbols[at].id = pair->id;
        symbols[at].after = symbols[after - 1].after;
        symbols[after - 1].id = -1;
        if (symbols[at].after != 0) symbols[symbols[at].after - 1].before = at + 1;
        if (symbols[at].before != 0) heap_push_pair(bpe, h, symbols, symbols[at].before - 1);
        heap_push_pair(bpe, h, symbols, at);
    }
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (symbols[i].id >= 0) ids[kept++] = symbols[i].id;
    }
    return kept;
}

static cy_status encode_long(const cy_bpe *bpe, cy_bpe_scratch *scratch, cy_tokens *out,
    const unsigned char *word, size_t bytes)
{
    if (bytes >= UINT32_MAX / 4) {
        return CY_FAIL(CY_ERR_UNSUPPORTED, "a word of %zu bytes is too long", bytes);
    }
    // A merge pushes at most two new pairs, so the heap has at most 3 entries a byte.
    const size_t each = 3 * sizeof(uint64_t) + sizeof(symbol) + sizeof(int32_t);
    CY_TRY(cy_memory_grow(&scratch->long_word, &scratch->long_word_capacity, bytes + 1, each));
    heap h = {.entries = scratch->long_word};
    symbol *symbols = (symbol *)(h.entries + 3 * bytes);
    int32_t *ids = (int32_t *)(symbols + bytes);
    size_t count = first_ids(bpe, ids, word, bytes);
    count = merge_long(bpe, &h, symbols, ids, count);
    return cy_tokens_add(out, ids, count);
}

static cy_status encode_short(
    const cy_bpe *bpe, cy_tokens *out, const unsigned char *word, size_t bytes)
{
    int32_t ids[SHORT_WORD];
    const size_t count = first_ids(bpe, ids, word, bytes);
    return cy_tokens_add(out, ids, merge_short(bpe, ids, count));
}

static cy_status encode_word(const cy_bpe *bpe, cy_bpe_scratch *scratch, cy_tokens *out,
    const unsigned char *word, size_t bytes)
{
    if (bpe->ignore_merges) {
        const int32_t id = cy_bpe_find(bpe, word, bytes);
        if (id >= 0) return cy_tokens_add(out, &id, 1);
    }
    return bytes <= SHORT_WORD ? encode_short(bpe, out, word, bytes)
                               : encode_long(bpe, scratch, out, word, bytes);
}

static cy_status make_slots(cy_bpe_scratch *scratch, size_t slots)
{
    cy_bpe_cached *made = NULL, *old = scratch->slots;
    CY_TRY(CY_ALLOC(&made, slots));
    const size_t old_slots = old != NULL ? scratch->slot_mask + 1 : 0;
    scratch->slots = made;
    scratch->slot_mask = slots - 1;
    for (size_t i = 0; i < old_slots; i++) {
        if (old[i].bytes == 0) continue;
        size_t at = old[i].hash & scratch->slot_mask;
        while (scratch->slots[at].bytes != 0)
            at = (at + 1) & scratch->slot_mask;
        scratch->slots[at] = old[i];
    }
    cy_memory_free(old);
    return CY_OK;
}

static cy_status make_room(cy_bpe_scratch *scratch)
{
    const size_t slots = scratch->slots != NULL ? scratch->slot_mask + 1 : 0;
    if (2 * scratch->used < slots) return CY_OK;
    if (slots < SLOTS_MAX) return make_slots(scratch, slots == 0 ? SLOTS_FIRST : 2 * slots);
    memset(scratch->slots, 0, slots * sizeof(cy_bpe_cached));
    scratch->used = 0;
    scratch->words_length = 0;
    scratch->ids.count = 0;
    return CY_OK;
}

// Encodes a word that is not in the cache and puts it there.
static cy_status encode_new(const cy_bpe *bpe, cy_bpe_scratch *scratch, cy_tokens *out,
    const unsigned char *word, size_t bytes, uint64_t hash)
{
    const size_t first = out->count;
    CY_TRY(encode_word(bpe, scratch, out, word, bytes));
    CY_TRY(make_room(scratch));
    void *block = scratch->words;
    CY_TRY(cy_memory_grow(&block, &scratch->words_capacity, scratch->words_length + bytes, 1));
    scratch->words = block;
    memcpy(scratch->words + scratch->words_length, word, bytes);
    const cy_bpe_cached made = {.hash = hash,
        .word = (uint32_t)scratch->words_length,
        .ids = (uint32_t)scratch->ids.count,
        .bytes = (uint16_t)bytes,
        .count = (uint16_t)(out->count - first)};
    CY_TRY(cy_tokens_add(&scratch->ids, out->ids + first, made.count));
    scratch->words_length += bytes;
    size_t at = hash & scratch->slot_mask;
    while (scratch->slots[at].bytes != 0)
        at = (at + 1) & scratch->slot_mask;
    scratch->slots[at] = made;
    scratch->used++;
    return CY_OK;
}

cy_status cy_bpe_encode(const cy_bpe *bpe, cy_bpe_scratch *scratch, cy_tokens *out,
    const unsigned char *word, size_t count)
{
    if (count > CACHED_WORD) return encode_word(bpe, scratch, out, word, count);
    const uint64_t hash = cy_hash_bytes(word, count);
    if (scratch->slots != NULL) {
        size_t at = hash & scratch->slot_mask;
        for (; scratch->slots[at].bytes != 0; at = (at + 1) & scratch->slot_mask) {
            const cy_bpe_cached *slot = &scratch->slots[at];
            if (slot->hash == hash && slot->bytes == count &&
                memcmp(scratch->words + slot->word, word, count) == 0) {
                return cy_tokens_add(out, scratch->ids.ids + slot->ids, slot->count);
            }
        }
    }
    return encode_new(bpe, scratch, out, word, count, hash);
}
