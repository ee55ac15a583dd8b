// Trains a byte-pair encoding: the most frequent pair of neighbours becomes a token, the pair of
// lowest ids among equally frequent ones, and so on, as the `tokenizers` package does it.
//
// Words are counted first, on all threads. Pair counts are then kept up to date: a merge visits
// only the words that hold its pair. A count in the heap may be out of date; it is corrected when
// it comes to the top.

#include "tokenizer/bpe.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"
#include "base/thread_pool.h"

#include <inttypes.h>
#include <string.h>

// ---- counting words

// A text is counted in parts of about this size, cut at lines.
#define PART_BYTES ((size_t)1 << 20)

typedef struct text_part {
    const unsigned char *text; // borrowed
    size_t bytes;
} text_part;

typedef struct count_job {
    const cy_pretokenizer *pretokenizer; // borrowed
    text_part *parts;                    // owned, [count]
    size_t count;
    size_t capacity;
    cy_word_table *tables;           // owned, one a worker
    cy_pretokenizer_scratch *splits; // owned, one a worker
} count_job;

void cy_word_table_free(cy_word_table *table)
{
    cy_memory_free(table->words);
    cy_memory_free(table->pool);
    cy_memory_free(table->slots);
    *table = (cy_word_table){0};
}

static cy_status grow_word_slots(cy_word_table *table)
{
    const size_t slots = table->slots != NULL ? 2 * (table->slot_mask + 1) : 1 << 14;
    uint32_t *made = NULL;
    CY_TRY(CY_ALLOC(&made, slots));
    cy_memory_free(table->slots);
    table->slots = made;
    table->slot_mask = slots - 1;
    for (size_t i = 0; i < table->count; i++) {
        size_t at = table->words[i].hash & table->slot_mask;
        while (table->slots[at] != 0)
            at = (at + 1) & table->slot_mask;
        table->slots[at] = (uint32_t)i + 1;
    }
    return CY_OK;
}

static cy_status add_new_word(
    cy_word_table *table, const unsigned char *word, size_t bytes, uint64_t hash, int64_t times)
{
    if (bytes > UINT32_MAX || table->count == UINT32_MAX - 1) {
        return CY_FAIL(CY_ERR_UNSUPPORTED, "too much text to train on: word %zu, %zu bytes",
            table->count, bytes);
    }
    void *block = table->pool;
    CY_TRY(cy_memory_grow(&block, &table->pool_capacity, table->pool_bytes + bytes, 1));
    table->pool = block;
    block = table->words;
    CY_TRY(cy_memory_grow(&block, &table->words_capacity, table->count + 1, sizeof(cy_word)));
    table->words = block;
    memcpy(table->pool + table->pool_bytes, word, bytes);
    table->words[table->count++] = (cy_word){
        .hash = hash, .first = table->pool_bytes, .bytes = (uint32_t)bytes, .times = times};
    table->pool_bytes += bytes;
    return CY_OK;
}

static cy_status add_word(
    cy_word_table *table, const unsigned char *word, size_t bytes, uint64_t hash, int64_t times)
{
    if (table->slots == NULL || 2 * table->count > table->slot_mask) CY_TRY(grow_word_slots(table));
    size_t at = hash & table->slot_mask;
    for (; table->slots[at] != 0; at = (at + 1) & table->slot_mask) {
        cy_word *found = &table->words[table->slots[at] - 1];
        if (found->hash == hash && found->bytes == bytes &&
            memcmp(table->pool + found->first, word, bytes) == 0) {
            found->times += times;
            return CY_OK;
        }
    }
    CY_TRY(add_new_word(table, word, bytes, hash, times));
    table->slots[at] = (uint32_t)table->count;
    return CY_OK;
}

static void count_word(void *context, const unsigned char *word, size_t bytes)
{
    cy_word_table *table = context;
    if (table->status != CY_OK) return;
    table->status = add_word(table, word, bytes, cy_hash_bytes(word, bytes), 1);
}

static void count_part(void *context, int64_t task, int worker)
{
    const count_job *j = context;
    cy_word_table *table = &j->tables[worker];
    const unsigned char *at = j->parts[task].text;
    const unsigned char *end = at + j->parts[task].bytes;
    while (at < end && table->status == CY_OK) {
        const unsigned char *line = memchr(at, '\n', (size_t)(end - at));
        const unsigned char *next = line != NULL ? line + 1 : end;
        const cy_status status = cy_pretokenize(
            j->pretokenizer, &j->splits[worker], at, (size_t)(next - at), count_word, table);
        if (status != CY_OK) table->status = status;
        at = next;
    }
}

static cy_status add_parts(count_job *j, const cy_tokenizer_text *text)
{
    const unsigned char *at = (const unsigned char *)text->text;
    size_t left = text->bytes;
    while (left > 0) {
        size_t bytes = left;
        if (left > PART_BYTES) {
            const unsigned char *line = memchr(at + PART_BYTES, '\n', left - PART_BYTES);
            if (line != NULL) bytes = (size_t)(line - at) + 1;
        }
        void *block = j->parts;
        CY_TRY(cy_memory_grow(&block, &j->capacity, j->count + 1, sizeof(text_part)));
        j->parts = block;
        j->parts[j->count++] = (text_part){.text = at, .bytes = bytes};
        at += bytes;
        left -= bytes;
    }
    return CY_OK;
}

// Counts all parts, into a table for each worker, and adds the tables up.
static cy_status count_parts(count_job *j, cy_word_table *table, cy_thread_pool *pool)
{
    const int workers = cy_thread_pool_size(pool);
    CY_TRY(CY_ALLOC(&j->tables, (size_t)workers));
    CY_TRY(CY_ALLOC(&j->splits, (size_t)workers));
    cy_thread_pool_run(pool, count_part, j, (int64_t)j->count);
    *table = j->tables[0];
    j->tables[0] = (cy_word_table){0};
    cy_status status = table->status;
    for (int w = 0; w < workers; w++) {
        const cy_word_table *other = &j->tables[w];
        if (status == CY_OK && other->status != CY_OK) {
            status = CY_FAIL(other->status, "counting words failed on thread %d", w);
        }
        for (size_t i = 0; i < other->count && status == CY_OK; i++) {
            const cy_word *word = &other->words[i];
            status =
                add_word(table, other->pool + word->first, word->bytes, word->hash, word->times);
        }
        cy_word_table_free(&j->tables[w]);
        cy_pretokenizer_scratch_free(&j->splits[w]);
    }
    return status;
}

cy_status cy_words_count(cy_word_table *table, const cy_pretokenizer *pretokenizer,
    const cy_tokenizer_text *texts, size_t count, int threads)
{
    count_job j = {.pretokenizer = pretokenizer};
    cy_thread_pool *pool = NULL;
    CY_TRY(cy_thread_pool_open(&pool, threads > 0 ? threads : 1, -1, false));
    cy_status status = CY_OK;
    for (size_t i = 0; i < count && status == CY_OK; i++)
        status = add_parts(&j, &texts[i]);
    if (status == CY_OK) status = count_parts(&j, table, pool);
    cy_memory_free(j.tables);
    cy_memory_free(j.splits);
    cy_memory_free(j.parts);
    cy_thread_pool_close(pool);
    return status;
}

#define END_TOKEN "<|endoftext|>"

typedef struct pair_entry {
    uint64_t pair; // left << 32 | right
    int64_t times;
    uint32_t *words; // owned, [word_count]: that hold the pair, or held it before a merge
    size_t word_count;
    size_t words_capacity;
    size_t touched; // number of the merge that last raised its count
} pair_entry;

typedef struct candidate {
    int64_t times;
    uint64_t pair;
    size_t entry;
} candidate;

typedef struct trainer {
    cy_word_table table;
    int32_t *symbols;    // owned: of all words, in place
    size_t *firsts;      // owned, [words]: of each word in symbols
    uint32_t *lengths;   // owned, [words]
    pair_entry *entries; // owned, [entry_count]
    size_t entry_count;
    size_t entries_capacity;
    uint32_t *slots; // owned, [slot_mask + 1]: entry plus one, by hash of the pair
    size_t slot_mask;
    candidate *heap; // owned, [heap_count]; the best is first
    size_t heap_count;
    size_t heap_capacity;
    size_t *raised; // owned: entries whose count this merge raised
    size_t raised_count;
    size_t raised_room;
    size_t merge;          // number of the current merge, from 1
    uint32_t *token_slots; // owned: id plus one, by hash of the token's bytes
    cy_text end_bytes;     // what the characters of token 0 spell; empty where they spell no bytes
    size_t token_mask;
    cy_bpe_trained *out; // borrowed
} trainer;

void cy_bpe_trained_free(cy_bpe_trained *trained)
{
    cy_text_free(&trained->bytes);
    cy_memory_free(trained->ends);
    cy_memory_free(trained->merges);
    *trained = (cy_bpe_trained){0};
}

static void free_trainer(trainer *t)
{
    cy_text_free(&t->end_bytes);
    cy_word_table_free(&t->table);
    for (size_t i = 0; i < t->entry_count; i++)
        cy_memory_free(t->entries[i].words);
    void *const blocks[] = {t->symbols, t->firsts, t->lengths, t->entries, t->slots, t->heap,
        t->raised, t->token_slots};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
        cy_memory_free(blocks[i]);
}

// ---- tokens

static const char *bytes_of(const trainer *t, size_t id, size_t *count)
{
    const cy_bpe_trained *out = t->out;
    const size_t first = id == 0 ? 0 : out->ends[id - 1];
    *count = id == 0 ? t->end_bytes.length : out->ends[id] - first;
    return id == 0 ? t->end_bytes.bytes : out->bytes.bytes + first;
}

static cy_status add_token(cy_bpe_trained *out, const void *bytes, size_t count)
{
    void *block = out->ends;
    CY_TRY(cy_memory_grow(&block, &out->ends_capacity, out->count + 1, sizeof(size_t)));
    out->ends = block;
    CY_TRY(cy_text_add_bytes(&out->bytes, bytes, count));
    out->ends[out->count++] = out->bytes.length;
    return CY_OK;
}

// Finds the token with these bytes, or makes it: two merges may give the same bytes.
static cy_status put_token(trainer *t, int32_t *id, const unsigned char *bytes, size_t count)
{
    cy_bpe_trained *out = t->out;
    size_t at = cy_hash_bytes(bytes, count) & t->token_mask;
    for (; t->token_slots[at] != 0; at = (at + 1) & t->token_mask) {
        const size_t found = t->token_slots[at] - 1;
        size_t length;
        const char *there = bytes_of(t, found, &length);
        if (length == count && memcmp(there, bytes, count) == 0) {
            *id = (int32_t)found;
            return CY_OK;
        }
    }
    CY_TRY(add_token(out, bytes, count));
    t->token_slots[at] = (uint32_t)out->count;
    *id = (int32_t)out->count - 1;
    return CY_OK;
}

static cy_status put_merge(trainer *t, int32_t *id, int32_t left, int32_t right)
{
    cy_bpe_trained *out = t->out;
    cy_text joined = {0};
    const int32_t parts[2] = {left, right};
    cy_status status = CY_OK;
    for (int i = 0; i < 2 && status == CY_OK; i++) {
        size_t length;
        const char *bytes = bytes_of(t, (size_t)parts[i], &length);
        status = cy_text_add_bytes(&joined, bytes, length);
    }
    if (status == CY_OK) {
        status = put_token(t, id, (const unsigned char *)joined.bytes, joined.length);
    }
    cy_text_free(&joined);
    CY_TRY(status);
    void *block = out->merges;
    CY_TRY(cy_memory_grow(&block, &out->merges_capacity, out->merge_count + 1, sizeof(int32_t[2])));
    out->merges = block;
    out->merges[out->merge_count][0] = left;
    out->merges[out->merge_count++][1] = right;
    return CY_OK;
}

// The vocabulary spells the end token as it is, and other tokens with a character for each byte.
// Where all characters of the end token spell bytes, a merge that gives these bytes is the end
// token.
static cy_status put_end_token(trainer *t, const char *end_token)
{
    const size_t count = strlen(end_token);
    bool spelled = true;
    for (size_t at = 0; at < count && spelled;) {
        uint32_t point;
        at += cy_utf8_decode(&point, (const unsigned char *)end_token + at, count - at);
        const int byte = cy_byte_of_char(point);
        spelled = byte >= 0;
        if (spelled) CY_TRY(cy_text_add_bytes(&t->end_bytes, &(char){(char)byte}, 1));
    }
    CY_TRY(add_token(t->out, end_token, count));
    if (!spelled) {
        t->end_bytes.length = 0;
        return CY_OK;
    }
    const size_t hash =
        cy_hash_bytes((const unsigned char *)t->end_bytes.bytes, t->end_bytes.length);
    t->token_slots[hash & t->token_mask] = 1;
    return CY_OK;
}

// The end token, then the bytes in the order of the characters that stand for them.
static cy_status put_first_tokens(trainer *t, int32_t byte_ids[256], const char *end_token)
{
    CY_TRY(put_end_token(t, end_token));
    for (uint32_t point = 0; point < 0x200; point++) {
        const int byte = cy_byte_of_char(point);
        if (byte < 0) continue;
        const unsigned char one[1] = {(unsigned char)byte};
        CY_TRY(put_token(t, &byte_ids[byte], one, 1));
    }
    return CY_OK;
}

// ---- pairs

static cy_status grow_slots(trainer *t)
{
    const size_t slots = t->slots != NULL ? 2 * (t->slot_mask + 1) : 1 << 14;
    uint32_t *made = NULL;
    CY_TRY(CY_ALLOC(&made, slots));
    cy_memory_free(t->slots);
    t->slots = made;
    t->slot_mask = slots - 1;
    for (size_t i = 0; i < t->entry_count; i++) {
        size_t at = cy_hash_pair(t->entries[i].pair) & t->slot_mask;
        while (t->slots[at] != 0)
            at = (at + 1) & t->slot_mask;
        t->slots[at] = (uint32_t)i + 1;
    }
    return CY_OK;
}

static cy_status find_entry(trainer *t, size_t *index, int32_t left, int32_t right)
{
    if (t->slots == NULL || 2 * t->entry_count > t->slot_mask) CY_TRY(grow_slots(t));
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = cy_hash_pair(pair) & t->slot_mask;
    for (; t->slots[at] != 0; at = (at + 1) & t->slot_mask) {
        *index = t->slots[at] - 1;
        if (t->entries[*index].pair == pair) return CY_OK;
    }
    void *block = t->entries;
    CY_TRY(cy_memory_grow(&block, &t->entries_capacity, t->entry_count + 1, sizeof(pair_entry)));
    t->entries = block;
    *index = t->entry_count++;
    t->entries[*index] = (pair_entry){.pair = pair};
    t->slots[at] = (uint32_t)*index + 1;
    return CY_OK;
}

// Counts one more place of a pair, in a word of the table.
static cy_status raise(trainer *t, int32_t left, int32_t right, uint32_t word)
{
    size_t index;
    CY_TRY(find_entry(t, &index, left, right));
    pair_entry *entry = &t->entries[index];
    entry->times += t->table.words[word].times;
    if (entry->word_count == 0 || entry->words[entry->word_count - 1] != word) {
        void *block = entry->words;
        CY_TRY(cy_memory_grow(
            &block, &entry->words_capacity, entry->word_count + 1, sizeof(uint32_t)));
        entry->words = block;
        entry->words[entry->word_count++] = word;
    }
    if (entry->touched == t->merge) return CY_OK;
    entry->touched = t->merge;
    void *block = t->raised;
    CY_TRY(cy_memory_grow(&block, &t->raised_room, t->raised_count + 1, sizeof(size_t)));
    t->raised = block;
    t->raised[t->raised_count++] = index;
    return CY_OK;
}

static cy_status lower(trainer *t, int32_t left, int32_t right, uint32_t word)
{
    size_t index;
    CY_TRY(find_entry(t, &index, left, right));
    t->entries[index].times -= t->table.words[word].times;
    return CY_OK;
}

// ---- the heap

static bool is_better(const candidate *a, const candidate *b)
{
    return a->times != b->times ? a->times > b->times : a->pair < b->pair;
}

static cy_status push(trainer *t, candidate made)
{
    void *block = t->heap;
    CY_TRY(cy_memory_grow(&block, &t->heap_capacity, t->heap_count + 1, sizeof(candidate)));
    t->heap = block;
    size_t at = t->heap_count++;
    for (; at > 0 && is_better(&made, &t->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        t->heap[at] = t->heap[(at - 1) / 2];
    }
    t->heap[at] = made;
    return CY_OK;
}

// Replaces the best candidate by `made` and restores the order of the heap.
static void replace_best(trainer *t, candidate made)
{
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= t->heap_count) break;
        if (child + 1 < t->heap_count && is_better(&t->heap[child + 1], &t->heap[child])) child++;
        if (!is_better(&t->heap[child], &made)) break;
        t->heap[at] = t->heap[child];
        at = child;
    }
    t->heap[at] = made;
}

// Removes the most frequent pair; false when no pair is left.
static bool pop(trainer *t, size_t *index)
{
    while (t->heap_count > 0) {
        candidate best = t->heap[0];
        const int64_t times = t->entries[best.entry].times;
        if (times == best.times || times < 1) {
            const candidate last = t->heap[--t->heap_count];
            if (t->heap_count > 0) replace_best(t, last);
            if (times < 1) continue;
            *index = best.entry;
            return true;
        }
        best.times = times;
        replace_best(t, best);
    }
    return false;
}

static cy_status push_raised(trainer *t)
{
    for (size_t i = 0; i < t->raised_count; i++) {
        const pair_entry *entry = &t->entries[t->raised[i]];
        if (entry->times < 1) continue;
        CY_TRY(push(
            t, (candidate){.times = entry->times, .pair = entry->pair, .entry = t->raised[i]}));
    }
    t->raised_count = 0;
    return CY_OK;
}

// ---- merging

static cy_status merge_word(trainer *t, uint32_t word, int32_t left, int32_t right, int32_t id)
{
    int32_t *symbols = t->symbols + t->firsts[word];
    const uint32_t length = t->lengths[word];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < length; i++) {
        if (symbols[i] != left || i + 1 == length || symbols[i + 1] != right) {
            symbols[kept++] = symbols[i];
            continue;
        }
        if (kept > 0) {
            CY_TRY(lower(t, symbols[kept - 1], left, word));
            CY_TRY(raise(t, symbols[kept - 1], id, word));
        }
        if (i + 2 < length) {
            CY_TRY(lower(t, right, symbols[i + 2], word));
            CY_TRY(raise(t, id, symbols[i + 2], word));
        }
        symbols[kept++] = id;
        i++;
    }
    t->lengths[word] = kept;
    return CY_OK;
}

static cy_status merge_pair(trainer *t, size_t index)
{
    const int32_t left = (int32_t)(t->entries[index].pair >> 32);
    const int32_t right = (int32_t)(t->entries[index].pair & UINT32_MAX);
    int32_t id;
    CY_TRY(put_merge(t, &id, left, right));
    t->merge++;
    // The entry gives up its list, because a merge may add entries, which moves the array.
    uint32_t *words = t->entries[index].words;
    const size_t count = t->entries[index].word_count;
    t->entries[index].words = NULL;
    t->entries[index].word_count = t->entries[index].words_capacity = 0;
    cy_status status = CY_OK;
    for (size_t i = 0; i < count && status == CY_OK; i++) {
        status = merge_word(t, words[i], left, right, id);
    }
    cy_memory_free(words);
    return status == CY_OK ? push_raised(t) : status;
}

static cy_status start(trainer *t, const char *end_token, int32_t vocab_size)
{
    size_t slots = 1024;
    while (slots < 2 * (size_t)vocab_size)
        slots *= 2;
    CY_TRY(CY_ALLOC(&t->token_slots, slots));
    t->token_mask = slots - 1;
    int32_t byte_ids[256];
    CY_TRY(put_first_tokens(t, byte_ids, end_token));
    const size_t words = t->table.count;
    CY_TRY(CY_ALLOC(&t->symbols, t->table.pool_bytes));
    CY_TRY(CY_ALLOC(&t->firsts, words));
    CY_TRY(CY_ALLOC(&t->lengths, words));
    t->merge = 1;
    for (size_t w = 0; w < words; w++) {
        const cy_word *word = &t->table.words[w];
        t->firsts[w] = word->first;
        t->lengths[w] = word->bytes;
        int32_t *symbols = t->symbols + word->first;
        for (uint32_t i = 0; i < word->bytes; i++) {
            symbols[i] = byte_ids[t->table.pool[word->first + i]];
            if (i > 0) CY_TRY(raise(t, symbols[i - 1], symbols[i], (uint32_t)w));
        }
    }
    return push_raised(t);
}

cy_status cy_bpe_train(cy_bpe_trained *trained, const cy_pretokenizer *pretokenizer,
    const cy_tokenizer_text *texts, size_t count, const cy_tokenizer_train_options *options)
{
    const char *end_token = options->end_token != NULL ? options->end_token : END_TOKEN;
    if (options->vocab_size < 257 || options->vocab_size > CY_BPE_ID_MAX) {
        return CY_FAIL(CY_ERR_REQUEST,
            "vocabulary of %" PRId32 ": at least 257 (256 bytes and the end token), at most %d",
            options->vocab_size, CY_BPE_ID_MAX);
    }
    if (strlen(end_token) < 2) {
        return CY_FAIL(CY_ERR_REQUEST, "end token \"%s\": at least 2 bytes", end_token);
    }
    trainer t = {.out = trained};
    cy_status status = cy_words_count(&t.table, pretokenizer, texts, count, options->threads);
    if (status == CY_OK) status = start(&t, end_token, options->vocab_size);
    size_t index;
    while (status == CY_OK && trained->count < (size_t)options->vocab_size && pop(&t, &index)) {
        status = merge_pair(&t, index);
    }
    free_trainer(&t);
    return status;
}
