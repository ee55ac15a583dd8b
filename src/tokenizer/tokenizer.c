// The tokenizer: finds added tokens in a text, normalises what is between them, has it cut into
// words and encoded, and decodes ids.

#include "tokenizer/tokenizer.h"

#include "base/file.h"
#include "base/memory.h"
#include "tokenizer/unicode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---- added tokens

void cy_added_free(cy_added_vocabulary *set)
{
    for (size_t i = 0; i < set->count; i++)
        cy_memory_free(set->tokens[i].text);
    cy_memory_free(set->tokens);
    *set = (cy_added_vocabulary){0};
}

cy_status cy_added_put(cy_added_vocabulary *set, const cy_added_token *token)
{
    void *block = set->tokens;
    CY_TRY(cy_memory_grow(&block, &set->capacity, set->count + 1, sizeof(*token)));
    set->tokens = block;
    set->tokens[set->count++] = *token;
    set->first[token->text[0]] = true;
    return CY_OK;
}

static int compare(const void *left, const void *right)
{
    const cy_added_token *a = left, *b = right;
    const size_t shorter = a->bytes < b->bytes ? a->bytes : b->bytes;
    const int order = memcmp(a->text, b->text, shorter);
    if (order != 0) return order;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

void cy_added_sort(cy_added_vocabulary *set)
{
    if (set->count > 1) qsort(set->tokens, set->count, sizeof(set->tokens[0]), compare);
}

// Finds the longest token that text [bytes] begins with, or NULL. The range of tokens that agree
// with the text narrows byte by byte.
static const cy_added_token *longest(
    const cy_added_vocabulary *set, const unsigned char *text, size_t bytes)
{
    const cy_added_token *best = NULL;
    size_t low = 0, high = set->count;
    for (size_t depth = 0; low < high; depth++) {
        if (set->tokens[low].bytes == depth) best = &set->tokens[low++];
        if (depth == bytes) break;
        while (low < high && set->tokens[low].text[depth] < text[depth])
            low++;
        while (low < high && set->tokens[high - 1].text[depth] > text[depth])
            high--;
    }
    return best;
}

static bool word_before(const uint8_t *classes, const unsigned char *text, size_t at)
{
    if (at == 0) return false;
    uint32_t point;
    cy_utf8_decode_before(&point, text, at);
    return classes[point] & CY_CHAR_WORD;
}

static bool word_after(const uint8_t *classes, const unsigned char *text, size_t at, size_t bytes)
{
    if (at == bytes) return false;
    uint32_t point;
    cy_utf8_decode(&point, text + at, bytes - at);
    return classes[point] & CY_CHAR_WORD;
}

static size_t strip_before(
    const uint8_t *classes, const unsigned char *text, size_t at, size_t taken)
{
    while (at > taken) {
        uint32_t point;
        const size_t length = cy_utf8_decode_before(&point, text, at);
        if (!(classes[point] & CY_CHAR_STRIP)) break;
        at -= length;
    }
    return at > taken ? at : taken;
}

static size_t strip_after(
    const uint8_t *classes, const unsigned char *text, size_t at, size_t bytes)
{
    while (at < bytes) {
        uint32_t point;
        const size_t length = cy_utf8_decode(&point, text + at, bytes - at);
        if (!(classes[point] & CY_CHAR_STRIP)) break;
        at += length;
    }
    return at;
}

bool cy_added_next(const cy_added_vocabulary *set, cy_added_match *match, size_t *at, size_t taken,
    const uint8_t *classes, const unsigned char *text, size_t bytes)
{
    if (set->count == 0) return false;
    for (size_t i = *at; i < bytes; i++) {
        if (!set->first[text[i]]) continue;
        const cy_added_token *token = longest(set, text + i, bytes - i);
        if (token == NULL) continue;
        const size_t end = i + token->bytes;
        *at = end;
        if (token->single_word &&
            (word_before(classes, text, i) || word_after(classes, text, end, bytes))) {
            i = end - 1; // the search goes on behind it
            continue;
        }
        const size_t first = token->lstrip ? strip_before(classes, text, i, taken) : i;
        *match = (cy_added_match){.id = token->id,
            .first = first > taken ? first : taken,
            .end = token->rstrip ? strip_after(classes, text, end, bytes) : end};
        return true;
    }
    *at = bytes;
    return false;
}

// ---- the tokenizer

static void free_encoder(cy_encoder *encoder)
{
    cy_pretokenizer_scratch_free(&encoder->split);
    cy_bpe_scratch_free(&encoder->bpe);
    cy_text_free(&encoder->composed);
    cy_memory_free(encoder);
}

void cy_tokenizer_close(cy_tokenizer *tokenizer)
{
    if (tokenizer == NULL) return;
    while (tokenizer->idle != NULL) {
        cy_encoder *next = tokenizer->idle->next;
        free_encoder(tokenizer->idle);
        tokenizer->idle = next;
    }
    cy_bpe_free(&tokenizer->bpe);
    cy_pretokenizer_close(&tokenizer->pretokenizer);
    cy_added_free(&tokenizer->added);
    cy_added_free(&tokenizer->added_normal);
    cy_tokens_free(&tokenizer->before);
    cy_tokens_free(&tokenizer->after);
    cy_text_free(&tokenizer->json);
    pthread_mutex_destroy(&tokenizer->lock);
    cy_memory_free(tokenizer);
}

static uint64_t hash_file(const char *bytes, size_t count)
{
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a: it is kept in files and must not change
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    return hash;
}

cy_status cy_tokenizer_open_general(
    cy_tokenizer **tokenizer, const char *json, size_t bytes, const char *name, bool general)
{
    cy_tokenizer *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    pthread_mutex_init(&made->lock, NULL);
    made->end_token = -1;
    made->bpe.unknown = -1;
    cy_status status = cy_text_add_bytes(&made->json, json, bytes);
    if (status != CY_OK) goto close;
    made->hash = hash_file(json, bytes);
    status = cy_pretokenizer_open(&made->pretokenizer);
    if (status != CY_OK) goto close;
    status = cy_tokenizer_parse(made, general);
    if (status != CY_OK) {
        cy_error_prefix("%s: ", name);
        goto close;
    }
    *tokenizer = made;
    return CY_OK;

close:
    cy_tokenizer_close(made);
    return status;
}

cy_status cy_tokenizer_open_text(
    cy_tokenizer **tokenizer, const char *json, size_t bytes, const char *name)
{
    return cy_tokenizer_open_general(tokenizer, json, bytes, name, false);
}

cy_status cy_tokenizer_train(cy_tokenizer **tokenizer, const cy_tokenizer_text *texts, size_t count,
    const cy_tokenizer_train_options *options)
{
    cy_bpe_trained trained = {0};
    cy_pretokenizer pretokenizer = {0};
    cy_text json = {0};
    CY_TRY(cy_pretokenizer_open_style(&pretokenizer, options->style));
    cy_status status = cy_bpe_train(&trained, &pretokenizer, texts, count, options);
    if (status == CY_OK) status = cy_tokenizer_write(&json, &trained, options->style);
    if (status == CY_OK) {
        status = cy_tokenizer_open_text(tokenizer, json.bytes, json.length, "trained tokenizer");
    }
    cy_text_free(&json);
    cy_bpe_trained_free(&trained);
    cy_pretokenizer_close(&pretokenizer);
    return status;
}

const char *cy_tokenizer_json(const cy_tokenizer *tokenizer, size_t *bytes)
{
    *bytes = tokenizer->json.length;
    return tokenizer->json.bytes;
}

cy_status cy_tokenizer_save(const cy_tokenizer *tokenizer, const char *path)
{
    return cy_file_write(path, tokenizer->json.bytes, tokenizer->json.length);
}

static cy_status take_encoder(cy_encoder **encoder, const cy_tokenizer *tokenizer)
{
    // Only the list of idle encoders changes, under its lock.
    cy_tokenizer *owner = cy_memory_writable(tokenizer);
    pthread_mutex_lock(&owner->lock);
    cy_encoder *idle = owner->idle;
    if (idle != NULL) owner->idle = idle->next;
    pthread_mutex_unlock(&owner->lock);
    if (idle == NULL) {
        CY_TRY(CY_ALLOC(&idle, 1));
        idle->tokenizer = tokenizer;
    }
    idle->status = CY_OK;
    *encoder = idle;
    return CY_OK;
}

static void give_encoder(cy_encoder *encoder)
{
    cy_tokenizer *owner = cy_memory_writable(encoder->tokenizer);
    pthread_mutex_lock(&owner->lock);
    encoder->next = owner->idle;
    owner->idle = encoder;
    pthread_mutex_unlock(&owner->lock);
}

static void encode_word(void *context, const unsigned char *word, size_t bytes)
{
    cy_encoder *encoder = context;
    if (encoder->status != CY_OK) return;
    encoder->status =
        cy_bpe_encode(&encoder->tokenizer->bpe, &encoder->bpe, encoder->out, word, bytes);
}

static cy_status encode_words(cy_encoder *encoder, const unsigned char *text, size_t bytes)
{
    CY_TRY(cy_pretokenize(
        &encoder->tokenizer->pretokenizer, &encoder->split, text, bytes, encode_word, encoder));
    return encoder->status;
}

typedef cy_status (*encode_function)(cy_encoder *encoder, const unsigned char *text, size_t bytes);

// Encodes added tokens as their ids and passes the text between them to `rest`.
static cy_status encode_around(cy_encoder *encoder, const cy_added_vocabulary *set,
    const unsigned char *text, size_t bytes, encode_function rest)
{
    const uint8_t *classes = encoder->tokenizer->pretokenizer.classes;
    cy_added_match match;
    size_t at = 0, taken = 0;
    while (cy_added_next(set, &match, &at, taken, classes, text, bytes)) {
        if (taken < match.first) CY_TRY(rest(encoder, text + taken, match.first - taken));
        CY_TRY(cy_tokens_add(encoder->out, &match.id, 1));
        taken = match.end;
    }
    return taken < bytes ? rest(encoder, text + taken, bytes - taken) : CY_OK;
}

static cy_status encode_normal(cy_encoder *encoder, const unsigned char *text, size_t bytes)
{
    const cy_tokenizer *tokenizer = encoder->tokenizer;
    if (tokenizer->compose &&
        !cy_unicode_is_composed(tokenizer->pretokenizer.classes, text, bytes)) {
        encoder->composed.length = 0;
        CY_TRY(
            cy_unicode_compose(&encoder->composed, tokenizer->pretokenizer.classes, text, bytes));
        text = (const unsigned char *)encoder->composed.bytes;
        bytes = encoder->composed.length;
    }
    return encode_around(encoder, &tokenizer->added_normal, text, bytes, encode_words);
}

cy_status cy_tokenizer_encode(const cy_tokenizer *tokenizer, cy_tokens *tokens, const char *text,
    size_t bytes, cy_encode_flags flags)
{
    const bool template = !(flags & CY_ENCODE_NO_TEMPLATE);
    const size_t kept = tokens->count;
    cy_encoder *encoder = NULL;
    CY_TRY(take_encoder(&encoder, tokenizer));
    encoder->out = tokens;
    cy_status status = CY_OK;
    if (template) status = cy_tokens_add(tokens, tokenizer->before.ids, tokenizer->before.count);
    if (status == CY_OK && bytes > 0) {
        status = encode_around(
            encoder, &tokenizer->added, (const unsigned char *)text, bytes, encode_normal);
    }
    if (status == CY_OK && template) {
        status = cy_tokens_add(tokens, tokenizer->after.ids, tokenizer->after.count);
    }
    give_encoder(encoder);
    if (status != CY_OK) tokens->count = kept;
    return status;
}

cy_status cy_tokenizer_decode(const cy_tokenizer *tokenizer, char **text, size_t *bytes,
    const int32_t *ids, size_t count, cy_decode_flags flags)
{
    cy_text out = {0};
    cy_status status = cy_text_add_bytes(&out, "", 0);
    for (size_t i = 0; i < count && status == CY_OK; i++) {
        size_t length;
        const char *token = cy_tokenizer_token(tokenizer, ids[i], &length);
        if (token == NULL) {
            status = CY_FAIL(
                CY_ERR_REQUEST, "token %zu is %" PRId32 "; the tokenizer has no such", i, ids[i]);
            break;
        }
        const bool special = tokenizer->bpe.tokens[ids[i]].special;
        if (special && (flags & CY_DECODE_SKIP_SPECIAL)) continue;
        status = cy_text_add_bytes(&out, token, length);
    }
    if (status != CY_OK) {
        cy_text_free(&out);
        return status;
    }
    *text = out.bytes;
    *bytes = out.length;
    return CY_OK;
}

void cy_tokenizer_free_text(char *text)
{
    cy_memory_free(text);
}

int32_t cy_tokenizer_vocab_size(const cy_tokenizer *tokenizer)
{
    return tokenizer->bpe.count;
}

const char *cy_tokenizer_token(const cy_tokenizer *tokenizer, int32_t id, size_t *bytes)
{
    *bytes = 0;
    if (id < 0 || id >= tokenizer->bpe.count) return NULL;
    const cy_bpe_token *token = &tokenizer->bpe.tokens[id];
    if (token->kind == CY_BPE_NONE) return NULL;
    *bytes = token->bytes;
    return (const char *)tokenizer->bpe.pool + token->first;
}

static int32_t find_added(const cy_added_vocabulary *set, const char *text, size_t bytes)
{
    for (size_t i = 0; i < set->count; i++) {
        const cy_added_token *token = &set->tokens[i];
        if (token->bytes == bytes && memcmp(token->text, text, bytes) == 0) return token->id;
    }
    return -1;
}

int32_t cy_tokenizer_find(const cy_tokenizer *tokenizer, const char *text, size_t bytes)
{
    int32_t id = find_added(&tokenizer->added, text, bytes);
    if (id < 0) id = find_added(&tokenizer->added_normal, text, bytes);
    if (id < 0) id = cy_bpe_find(&tokenizer->bpe, (const unsigned char *)text, bytes);
    return id;
}

int32_t cy_tokenizer_end_token(const cy_tokenizer *tokenizer)
{
    return tokenizer->end_token;
}

uint64_t cy_tokenizer_hash(const cy_tokenizer *tokenizer)
{
    return tokenizer->hash;
}

uint64_t cy_tokenizer_fingerprint(const cy_tokenizer *tokenizer)
{
    return tokenizer->fingerprint;
}

int cy_tokenizer_missing_bytes(const cy_tokenizer *tokenizer)
{
    int missing = 0;
    for (int byte = 0; byte < 256; byte++)
        missing += tokenizer->bpe.byte_ids[byte] < 0;
    return missing;
}

static bool may_hold_newline(const cy_added_vocabulary *set)
{
    for (size_t i = 0; i < set->count; i++) {
        const cy_added_token *token = &set->tokens[i];
        if (token->lstrip || token->rstrip || token->single_word) return true;
        if (memchr(token->text, '\n', token->bytes) != NULL) return true;
    }
    return false;
}

bool cy_tokenizer_cuts_at_lines(const cy_tokenizer *tokenizer)
{
    return cy_pretokenizer_cuts_at_lines(&tokenizer->pretokenizer) &&
        tokenizer->before.count == 0 && tokenizer->after.count == 0 &&
        !may_hold_newline(&tokenizer->added) && !may_hold_newline(&tokenizer->added_normal);
}
