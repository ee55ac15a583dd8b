// Encodes the documents of text files into one row of tokens, on several threads, and trains a
// tokenizer on such files.

#include "data/corpus.h"

#include <cyclotron/tokenizer.h>

#include "base/io.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "data/document.h"
#include "tokenizer/tokenizer.h"

#include <string.h>
#include <sys/stat.h>

// A batch is read, then encoded by all threads, then passed on; a task is a part of it.
#define BATCH_BYTES ((size_t)8 << 20)
#define TASK_BYTES  ((size_t)128 << 10)

typedef struct chunk {
    size_t first; // in the text of the batch
    size_t bytes;
    bool ends; // it ends a document
} chunk;

typedef struct task {
    size_t first_chunk;
    size_t chunk_count;
    cy_tokens tokens; // owned
    uint64_t documents;
    uint64_t text_bytes;
    cy_status status;
    char error[512]; // errors are kept per thread
} task;

typedef struct corpus {
    const cy_corpus_options *options; // borrowed
    int32_t end_token;
    bool adds_end; // the end token is added here, not by the template
    cy_text text;  // of the batch
    chunk *chunks; // owned
    size_t chunk_count;
    size_t chunks_capacity;
    task *tasks; // owned
    size_t task_count;
    size_t tasks_capacity;
    cy_thread_pool *pool; // owned
    int64_t done_bytes;   // of the files before this one
    int64_t total_bytes;
} corpus;

static cy_status encode_chunks(const corpus *c, task *t)
{
    t->tokens.count = 0;
    t->documents = t->text_bytes = 0;
    for (size_t i = 0; i < t->chunk_count; i++) {
        const chunk *p = &c->chunks[t->first_chunk + i];
        CY_TRY(cy_tokenizer_encode(c->options->tokenizer, &t->tokens, c->text.bytes + p->first,
            p->bytes, CY_ENCODE_DEFAULT));
        t->text_bytes += p->bytes;
        t->documents += p->ends;
        if (p->ends && c->adds_end) CY_TRY(cy_tokens_add(&t->tokens, &c->end_token, 1));
    }
    return CY_OK;
}

static void encode_task(void *context, int64_t index, int worker)
{
    (void)worker;
    const corpus *c = context;
    task *t = &c->tasks[index];
    t->status = encode_chunks(c, t);
    if (t->status == CY_OK) return;
    const size_t length = strlen(cy_error_text());
    const size_t kept = length < sizeof(t->error) - 1 ? length : sizeof(t->error) - 1;
    memcpy(t->error, cy_error_text(), kept);
    t->error[kept] = '\0';
}

// Cuts the chunks into tasks of about the same size. Tasks keep their memory between batches.
static cy_status make_tasks(corpus *c)
{
    c->task_count = 0;
    size_t bytes = TASK_BYTES;
    for (size_t i = 0; i < c->chunk_count; i++) {
        if (bytes >= TASK_BYTES) {
            const size_t room = c->tasks_capacity;
            void *block = c->tasks;
            CY_TRY(cy_memory_grow(&block, &c->tasks_capacity, c->task_count + 1, sizeof(task)));
            c->tasks = block;
            if (c->tasks_capacity > room) {
                memset(c->tasks + room, 0, (c->tasks_capacity - room) * sizeof(task));
            }
            task *t = &c->tasks[c->task_count++];
            t->first_chunk = i;
            t->chunk_count = 0;
            bytes = 0;
        }
        c->tasks[c->task_count - 1].chunk_count++;
        bytes += c->chunks[i].bytes + 16;
    }
    return CY_OK;
}

static cy_status finish_batch(corpus *c, cy_corpus_emit emit, void *context)
{
    CY_TRY(make_tasks(c));
    cy_thread_pool_run(c->pool, encode_task, c, (int64_t)c->task_count);
    for (size_t i = 0; i < c->task_count; i++) {
        const task *t = &c->tasks[i];
        if (t->status != CY_OK) return CY_FAIL(t->status, "%s", t->error);
        CY_TRY(emit(context, t->tokens.ids, t->tokens.count, t->text_bytes, t->documents));
    }
    c->text.length = 0;
    c->chunk_count = 0;
    return CY_OK;
}

static cy_status report(const corpus *c, int64_t done)
{
    const cy_corpus_options *options = c->options;
    if (options->progress == NULL) return CY_OK;
    if (options->progress(options->progress_context, done, c->total_bytes)) return CY_OK;
    return CY_FAIL(CY_ERR_STOPPED, "stopped after %lld of %lld bytes", (long long)done,
        (long long)c->total_bytes);
}

static cy_status read_file(
    corpus *c, cy_document_reader *reader, cy_corpus_emit emit, void *context)
{
    for (;;) {
        const size_t first = c->text.length;
        cy_document_state state = CY_DOCUMENT_NONE;
        CY_TRY(cy_document_next(reader, &c->text, &state));
        if (state == CY_DOCUMENT_NONE) break;
        void *block = c->chunks;
        CY_TRY(cy_memory_grow(&block, &c->chunks_capacity, c->chunk_count + 1, sizeof(chunk)));
        c->chunks = block;
        c->chunks[c->chunk_count++] = (chunk){
            .first = first, .bytes = c->text.length - first, .ends = state == CY_DOCUMENT_ENDS};
        if (c->text.length < BATCH_BYTES) continue;
        CY_TRY(finish_batch(c, emit, context));
        CY_TRY(report(c, c->done_bytes + cy_document_position(reader)));
    }
    c->done_bytes += cy_document_position(reader);
    return report(c, c->done_bytes);
}

static cy_status find_end_token(corpus *c)
{
    const cy_tokenizer *tokenizer = c->options->tokenizer;
    c->end_token = c->options->end_token;
    if (c->end_token < 0) c->end_token = cy_tokenizer_end_token(tokenizer);
    if (c->end_token < 0) {
        const cy_status status =
            CY_FAIL(CY_ERR_REQUEST, "the tokenizer has no end token to put between documents");
        cy_error_set_hint("--end-token=TEXT names one of its tokens");
        return status;
    }
    const cy_tokens *after = &tokenizer->after;
    c->adds_end = after->count == 0 || after->ids[after->count - 1] != c->end_token;
    return CY_OK;
}

static cy_status encode_files(corpus *c, cy_corpus_emit emit, void *context)
{
    const cy_corpus_options *options = c->options;
    const bool cuts = cy_tokenizer_cuts_at_lines(options->tokenizer);
    CY_TRY(cy_text_add_bytes(&c->text, "", 0)); // so that an empty document has an address
    const cy_document_options document_options = {
        .field = options->field, .classes = cuts ? options->tokenizer->pretokenizer.classes : NULL};
    for (int i = 0; i < options->count; i++) {
        struct stat info;
        if (cy_io_stat(options->paths[i], &info) != 0) {
            return CY_FAIL_ERRNO(CY_ERR_IO, "open %s", options->paths[i]);
        }
        c->total_bytes += info.st_size;
    }
    for (int i = 0; i < options->count; i++) {
        cy_document_reader *reader = NULL;
        CY_TRY(cy_document_open(&reader, options->paths[i], &document_options));
        const cy_status status = read_file(c, reader, emit, context);
        cy_document_close(reader);
        CY_TRY(status);
    }
    return finish_batch(c, emit, context);
}

cy_status cy_corpus_encode(const cy_corpus_options *options, cy_corpus_emit emit, void *context)
{
    corpus c = {.options = options};
    CY_TRY(find_end_token(&c));
    CY_TRY(cy_thread_pool_open(&c.pool, options->threads > 0 ? options->threads : 1, -1, false));
    const cy_status status = encode_files(&c, emit, context);
    cy_thread_pool_close(c.pool);
    for (size_t i = 0; i < c.tasks_capacity; i++)
        cy_tokens_free(&c.tasks[i].tokens);
    cy_memory_free(c.tasks);
    cy_memory_free(c.chunks);
    cy_text_free(&c.text);
    return status;
}

// ---- training a tokenizer on files

typedef struct texts {
    cy_text bytes;
    size_t *ends; // owned, [count]: of each text in bytes
    size_t count;
    size_t ends_capacity;
} texts;

static cy_status read_documents(texts *t, cy_document_reader *reader)
{
    for (;;) {
        cy_document_state state = CY_DOCUMENT_NONE;
        CY_TRY(cy_document_next(reader, &t->bytes, &state));
        if (state == CY_DOCUMENT_NONE) return CY_OK;
        if (state == CY_DOCUMENT_GOES_ON) continue;
        void *block = t->ends;
        CY_TRY(cy_memory_grow(&block, &t->ends_capacity, t->count + 1, sizeof(size_t)));
        t->ends = block;
        t->ends[t->count++] = t->bytes.length;
    }
}

static cy_status train_on(
    cy_tokenizer **tokenizer, const texts *t, const cy_tokenizer_train_options *options)
{
    cy_tokenizer_text *list = NULL;
    CY_TRY(CY_ALLOC(&list, t->count));
    for (size_t i = 0; i < t->count; i++) {
        const size_t first = i > 0 ? t->ends[i - 1] : 0;
        list[i] = (cy_tokenizer_text){.text = t->bytes.bytes + first, .bytes = t->ends[i] - first};
    }
    const cy_status status = cy_tokenizer_train(tokenizer, list, t->count, options);
    cy_memory_free(list);
    return status;
}

cy_status cy_tokenizer_train_files(cy_tokenizer **tokenizer, uint64_t *text_bytes,
    const char *const *paths, size_t count, const char *field,
    const cy_tokenizer_train_options *options)
{
    texts t = {0};
    const cy_document_options document_options = {.field = field};
    cy_status status = cy_text_add_bytes(&t.bytes, "", 0);
    for (size_t i = 0; i < count && status == CY_OK; i++) {
        cy_document_reader *reader = NULL;
        status = cy_document_open(&reader, paths[i], &document_options);
        if (status == CY_OK) status = read_documents(&t, reader);
        cy_document_close(reader);
    }
    if (status == CY_OK) status = train_on(tokenizer, &t, options);
    if (status == CY_OK) *text_bytes = t.bytes.length;
    cy_text_free(&t.bytes);
    cy_memory_free(t.ends);
    return status;
}
