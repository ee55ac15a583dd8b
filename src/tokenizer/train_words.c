#include "tokenizer/train_words.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/thread_pool.h"

#include <string.h>

// A text is counted in parts of about this size, cut at lines.
#define PART_BYTES ((size_t)1 << 20)

typedef struct part {
    const unsigned char *text; // borrowed
    size_t bytes;
} part;

typedef struct job {
    const cy_pretokenizer *pretokenizer; // borrowed
    part *parts;                         // owned, [count]
    size_t count;
    size_t capacity;
    cy_word_table *tables;           // owned, one a worker
    cy_pretokenizer_scratch *splits; // owned, one a worker
} job;

void cy_word_table_free(cy_word_table *table)
{
    cy_memory_free(table->words);
    cy_memory_free(table->pool);
    cy_memory_free(table->slots);
    *table = (cy_word_table){0};
}

static cy_status grow_slots(cy_word_table *table)
{
    const size_t slots = table->slots != NULL ? 2 * (table->slot_mask + 1) : 1 << 14;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, slots, sizeof(uint32_t)));
    cy_memory_free(table->slots);
    table->slots = block;
    table->slot_mask = slots - 1;
    for (size_t i = 0; i < table->count; i++) {
        size_t at = table->words[i].hash & table->slot_mask;
        while (table->slots[at] != 0)
            at = (at + 1) & table->slot_mask;
        table->slots[at] = (uint32_t)i + 1;
    }
    return CY_OK;
}

static cy_status add_new(
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

static cy_status add(
    cy_word_table *table, const unsigned char *word, size_t bytes, uint64_t hash, int64_t times)
{
    if (table->slots == NULL || 2 * table->count > table->slot_mask) CY_TRY(grow_slots(table));
    size_t at = hash & table->slot_mask;
    for (; table->slots[at] != 0; at = (at + 1) & table->slot_mask) {
        cy_word *found = &table->words[table->slots[at] - 1];
        if (found->hash == hash && found->bytes == bytes &&
            memcmp(table->pool + found->first, word, bytes) == 0) {
            found->times += times;
            return CY_OK;
        }
    }
    CY_TRY(add_new(table, word, bytes, hash, times));
    table->slots[at] = (uint32_t)table->count;
    return CY_OK;
}

static void count_word(void *context, const unsigned char *word, size_t bytes)
{
    cy_word_table *table = context;
    if (table->status != CY_OK) return;
    table->status = add(table, word, bytes, cy_hash_bytes(word, bytes), 1);
}

static void count_part(void *context, int64_t task, int worker)
{
    const job *j = context;
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

static cy_status add_parts(job *j, const cy_tokenizer_text *text)
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
        CY_TRY(cy_memory_grow(&block, &j->capacity, j->count + 1, sizeof(part)));
        j->parts = block;
        j->parts[j->count++] = (part){.text = at, .bytes = bytes};
        at += bytes;
        left -= bytes;
    }
    return CY_OK;
}

// Counts all parts into one table a worker and puts the tables together.
static cy_status run(job *j, cy_word_table *table, cy_thread_pool *pool)
{
    const int workers = cy_thread_pool_size(pool);
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)workers, sizeof(cy_word_table)));
    j->tables = block;
    CY_TRY(cy_memory_alloc(&block, (size_t)workers, sizeof(cy_pretokenizer_scratch)));
    j->splits = block;
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
            status = add(table, other->pool + word->first, word->bytes, word->hash, word->times);
        }
        cy_word_table_free(&j->tables[w]);
        cy_pretokenizer_scratch_free(&j->splits[w]);
    }
    return status;
}

cy_status cy_words_count(cy_word_table *table, const cy_pretokenizer *pretokenizer,
    const cy_tokenizer_text *texts, size_t count, int threads)
{
    job j = {.pretokenizer = pretokenizer};
    cy_thread_pool *pool = NULL;
    CY_TRY(cy_thread_pool_open(&pool, threads > 0 ? threads : 1, -1, false));
    cy_status status = CY_OK;
    for (size_t i = 0; i < count && status == CY_OK; i++)
        status = add_parts(&j, &texts[i]);
    if (status == CY_OK) status = run(&j, table, pool);
    cy_memory_free(j.tables);
    cy_memory_free(j.splits);
    cy_memory_free(j.parts);
    cy_thread_pool_close(pool);
    return status;
}
