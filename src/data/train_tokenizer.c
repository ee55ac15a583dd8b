// Training a tokenizer on files: their documents are read into memory, then trained on.

#include <cyclotron/tokenizer.h>

#include "base/memory.h"
#include "data/document.h"

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

static cy_status train(
    cy_tokenizer **tokenizer, const texts *t, const cy_tokenizer_train_options *options)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, t->count, sizeof(cy_tokenizer_text)));
    cy_tokenizer_text *list = block;
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
    if (status == CY_OK) status = train(tokenizer, &t, options);
    if (status == CY_OK) *text_bytes = t.bytes.length;
    cy_text_free(&t.bytes);
    cy_memory_free(t.ends);
    return status;
}
