// Reads tokenizer.json, and writes it for a trained tokenizer, laid out as the `tokenizers` package
// lays it out. A part of the format that would change the ids and that is not known here is an
// error that names it. Merges are written as "a b", which older versions of the package read too.

#include "tokenizer/tokenizer.h"

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)512 << 20)

static cy_status unsupported(const char *part, const char *what)
{
    const cy_status status = CY_FAIL(CY_ERR_UNSUPPORTED, "%s is %s", part, what);
    cy_error_set_hint("only byte-level BPE tokenizers can be used");
    return status;
}

// The text of a key, NULL where it is absent or not a string.
static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static const char *type_of(const json_t *object)
{
    const char *type = text_of(object, "type");
    return type != NULL ? type : "(no type)";
}

static bool is_empty(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

static cy_status get_bool(bool *value, const json_t *object, const char *key, bool absent)
{
    const json_t *found = json_object_get(object, key);
    if (!is_empty(found) && !json_is_boolean(found)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s is neither true nor false", key);
    }
    *value = is_empty(found) ? absent : json_is_true(found);
    return CY_OK;
}

// ---- the vocabulary

// Writes the bytes that the characters of a token spell. False where one spells no byte.
static bool spell(unsigned char *bytes, size_t *count, const char *token, size_t length)
{
    const unsigned char *s = (const unsigned char *)token;
    *count = 0;
    for (size_t at = 0; at < length;) {
        uint32_t point;
        at += cy_utf8_decode(&point, s + at, length - at);
        const int byte = cy_byte_of_char(point);
        if (byte < 0) return false;
        bytes[(*count)++] = (unsigned char)byte;
    }
    return true;
}

static cy_status id_of(int32_t *id, const json_t *value, const char *token)
{
    if (!json_is_integer(value)) return CY_FAIL(CY_ERR_CORRUPT, "token %s has no id", token);
    const json_int_t found = json_integer_value(value);
    if (found < 0 || found > CY_BPE_ID_MAX) {
        return CY_FAIL(CY_ERR_CORRUPT, "token %s: id %" PRId64 " is not in 0..%d", token,
            (int64_t)found, CY_BPE_ID_MAX);
    }
    *id = (int32_t)found;
    return CY_OK;
}

static cy_status read_vocabulary(cy_bpe *bpe, json_t *vocabulary)
{
    if (!json_is_object(vocabulary)) return CY_FAIL(CY_ERR_CORRUPT, "model.vocab is no object");
    cy_text bytes = {0};
    cy_status status = CY_OK;
    const char *key;
    size_t length;
    json_t *value;
    json_object_keylen_foreach(vocabulary, key, length, value)
    {
        int32_t id = -1;
        status = id_of(&id, value, key);
        bytes.length = 0;
        if (status == CY_OK) status = cy_text_add_bytes(&bytes, key, length); // room enough
        if (status != CY_OK) break;
        size_t count = 0;
        const bool spelt = spell((unsigned char *)bytes.bytes, &count, key, length);
        status = spelt ? cy_bpe_put(bpe, id, bytes.bytes, count, CY_BPE_BYTES)
                       : cy_bpe_put(bpe, id, key, length, CY_BPE_TEXT);
        if (status != CY_OK) break;
    }
    cy_text_free(&bytes);
    if (status == CY_OK) status = cy_bpe_index(bpe);
    return status;
}

// Reads both parts of a merge: ["a", "b"], or "a b" in older files.
static cy_status merge_parts(cy_text parts[2], const json_t *merge, size_t rank)
{
    parts[0].length = parts[1].length = 0;
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        for (size_t i = 0; i < 2; i++) {
            const json_t *part = json_array_get(merge, i);
            if (!json_is_string(part)) break;
            CY_TRY(cy_text_add_bytes(&parts[i], json_string_value(part), json_string_length(part)));
            if (i == 1) return CY_OK;
        }
    } else if (json_is_string(merge)) {
        const char *text = json_string_value(merge);
        const char *space = strchr(text, ' ');
        if (space != NULL && space > text && space[1] != '\0' && strchr(space + 1, ' ') == NULL) {
            CY_TRY(cy_text_add_bytes(&parts[0], text, (size_t)(space - text)));
            return cy_text_add_bytes(&parts[1], space + 1, strlen(space + 1));
        }
    }
    return CY_FAIL(CY_ERR_CORRUPT, "model.merges[%zu] is not two tokens", rank);
}

static cy_status merge_id(int32_t *id, const json_t *vocabulary, const char *token, size_t rank)
{
    const json_t *found = json_object_get(vocabulary, token);
    if (found == NULL) {
        return CY_FAIL(
            CY_ERR_CORRUPT, "model.merges[%zu]: %s is not in the vocabulary", rank, token);
    }
    return id_of(id, found, token);
}

static cy_status read_merges(cy_bpe *bpe, const json_t *merges, const json_t *vocabulary)
{
    if (!json_is_array(merges)) return CY_FAIL(CY_ERR_CORRUPT, "model.merges is no list");
    const size_t count = json_array_size(merges);
    CY_TRY(cy_bpe_reserve_merges(bpe, count));
    cy_text parts[2] = {{0}, {0}};
    cy_status status = CY_OK;
    for (size_t rank = 0; rank < count && status == CY_OK; rank++) {
        int32_t left = 0, right = 0, id = 0;
        status = merge_parts(parts, json_array_get(merges, rank), rank);
        if (status == CY_OK) status = merge_id(&left, vocabulary, parts[0].bytes, rank);
        if (status == CY_OK) status = merge_id(&right, vocabulary, parts[1].bytes, rank);
        if (status == CY_OK) {
            status = cy_text_add_bytes(&parts[0], parts[1].bytes, parts[1].length);
        }
        if (status == CY_OK) status = merge_id(&id, vocabulary, parts[0].bytes, rank);
        if (status == CY_OK) cy_bpe_put_merge(bpe, left, right, (int32_t)rank, id);
    }
    cy_text_free(&parts[0]);
    cy_text_free(&parts[1]);
    return status;
}

static cy_status read_model(cy_tokenizer *tokenizer, const json_t *model)
{
    if (!json_is_object(model)) return CY_FAIL(CY_ERR_CORRUPT, "no model");
    const char *type = text_of(model, "type"); // absent in GPT-2's own file
    if (type != NULL && strcmp(type, "BPE") != 0) return unsupported("model.type", type);
    bool byte_fallback = false;
    CY_TRY(get_bool(&byte_fallback, model, "byte_fallback", false));
    if (byte_fallback) return unsupported("model.byte_fallback", "true: not byte-level BPE");
    const json_t *dropout = json_object_get(model, "dropout");
    if (!is_empty(dropout) && json_number_value(dropout) != 0) {
        return unsupported("model.dropout", "not 0");
    }
    const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const char *affix = text_of(model, affixes[i]);
        if (affix != NULL && affix[0] != '\0') return unsupported(affixes[i], affix);
    }
    CY_TRY(get_bool(&tokenizer->bpe.ignore_merges, model, "ignore_merges", false));
    CY_TRY(get_bool(&tokenizer->bpe.fuse_unknown, model, "fuse_unk", false));
    json_t *vocabulary = json_object_get(model, "vocab");
    CY_TRY(read_vocabulary(&tokenizer->bpe, vocabulary));
    CY_TRY(read_merges(&tokenizer->bpe, json_object_get(model, "merges"), vocabulary));
    const char *unknown = text_of(model, "unk_token");
    if (unknown != NULL) {
        const json_t *id = json_object_get(vocabulary, unknown);
        if (id != NULL) CY_TRY(id_of(&tokenizer->bpe.unknown, id, unknown));
    }
    return CY_OK;
}

// ---- added tokens

static cy_status put_added(
    cy_tokenizer *tokenizer, const json_t *entry, const json_t *vocabulary, size_t index)
{
    const json_t *content = json_object_get(entry, "content");
    if (!json_is_string(content) || json_string_length(content) == 0) {
        return CY_FAIL(CY_ERR_CORRUPT, "added_tokens[%zu] has no content", index);
    }
    const char *text = json_string_value(content);
    const size_t bytes = json_string_length(content);
    cy_added_token token = {.bytes = bytes};
    bool special = false, normalized = false;
    CY_TRY(id_of(&token.id, json_object_get(entry, "id"), text));
    CY_TRY(get_bool(&special, entry, "special", false));
    CY_TRY(get_bool(&normalized, entry, "normalized", !special));
    CY_TRY(get_bool(&token.single_word, entry, "single_word", false));
    CY_TRY(get_bool(&token.lstrip, entry, "lstrip", false));
    CY_TRY(get_bool(&token.rstrip, entry, "rstrip", false));
    const json_t *in_model = json_object_getn(vocabulary, text, bytes);
    if (in_model != NULL && json_integer_value(in_model) != token.id) {
        return CY_FAIL(CY_ERR_CORRUPT, "added token %s: id %" PRId32 ", in the vocabulary %" PRId64,
            text, token.id, (int64_t)json_integer_value(in_model));
    }
    if (in_model == NULL) {
        CY_TRY(cy_bpe_put(&tokenizer->bpe, token.id, text, bytes, CY_BPE_TEXT));
    }
    tokenizer->bpe.tokens[token.id].special = special;
    cy_text copy = {0};
    cy_status status = CY_OK;
    if (normalized && tokenizer->compose) {
        status = cy_unicode_compose(
            &copy, tokenizer->pretokenizer.classes, (const unsigned char *)text, bytes);
    } else {
        status = cy_text_add_bytes(&copy, text, bytes);
    }
    token.text = (unsigned char *)copy.bytes;
    token.bytes = copy.length;
    if (status == CY_OK) {
        status = cy_added_put(normalized ? &tokenizer->added_normal : &tokenizer->added, &token);
    }
    if (status != CY_OK) cy_text_free(&copy);
    return status;
}

static cy_status read_added(cy_tokenizer *tokenizer, const json_t *added, const json_t *vocabulary)
{
    if (is_empty(added)) return CY_OK;
    if (!json_is_array(added)) return CY_FAIL(CY_ERR_CORRUPT, "added_tokens is no list");
    const size_t count = json_array_size(added);
    for (size_t i = 0; i < count; i++) {
        CY_TRY(put_added(tokenizer, json_array_get(added, i), vocabulary, i));
    }
    cy_added_sort(&tokenizer->added);
    cy_added_sort(&tokenizer->added_normal);
    return CY_OK;
}

// ---- normalizer, pre_tokenizer, decoder, post_processor

static cy_status read_normalizer(cy_tokenizer *tokenizer, const json_t *normalizer)
{
    if (is_empty(normalizer)) return CY_OK;
    const char *type = type_of(normalizer);
    if (strcmp(type, "NFC") == 0) {
        tokenizer->compose = true;
        return CY_OK;
    }
    if (strcmp(type, "Sequence") != 0) return unsupported("normalizer", type);
    const json_t *parts = json_object_get(normalizer, "normalizers");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        CY_TRY(read_normalizer(tokenizer, json_array_get(parts, i)));
    }
    return CY_OK;
}

static cy_status read_split(cy_pretokenizer *pretokenizer, const json_t *step, bool general)
{
    static const char *const names[] = {
        "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = text_of(step, "behavior");
    int behavior = 0;
    while (behavior < 5 && (name == NULL || strcmp(name, names[behavior]) != 0))
        behavior++;
    if (behavior == 5) {
        return unsupported("pre_tokenizer Split.behavior", name != NULL ? name : "absent");
    }
    bool invert = false;
    CY_TRY(get_bool(&invert, step, "invert", false));
    const json_t *pattern = json_object_get(step, "pattern");
    const char *regex = text_of(pattern, "Regex");
    const char *literal = text_of(pattern, "String");
    if (regex != NULL) {
        return cy_pretokenizer_add_regex(
            pretokenizer, regex, (cy_pretokenizer_behavior)behavior, invert, general);
    }
    if (literal == NULL) return CY_FAIL(CY_ERR_CORRUPT, "pre_tokenizer Split has no pattern");
    return cy_pretokenizer_add_literal(
        pretokenizer, literal, (cy_pretokenizer_behavior)behavior, invert);
}

static cy_status read_splitter(
    cy_pretokenizer *pretokenizer, const json_t *step, bool *byte_level, bool general)
{
    const char *type = type_of(step);
    if (*byte_level) return unsupported("pre_tokenizer after ByteLevel", type);
    bool flag = false;
    if (strcmp(type, "Sequence") == 0) {
        const json_t *parts = json_object_get(step, "pretokenizers");
        for (size_t i = 0; i < json_array_size(parts); i++) {
            CY_TRY(read_splitter(pretokenizer, json_array_get(parts, i), byte_level, general));
        }
        return CY_OK;
    }
    if (strcmp(type, "Split") == 0) return read_split(pretokenizer, step, general);
    if (strcmp(type, "Digits") == 0) {
        CY_TRY(get_bool(&flag, step, "individual_digits", false));
        return cy_pretokenizer_add(pretokenizer,
            flag ? CY_PRETOKENIZER_DIGITS : CY_PRETOKENIZER_DIGIT_RUNS, CY_PRETOKENIZER_ISOLATED,
            false);
    }
    if (strcmp(type, "ByteLevel") != 0) return unsupported("pre_tokenizer", type);
    *byte_level = true;
    CY_TRY(get_bool(&flag, step, "add_prefix_space", true));
    if (flag) {
        CY_TRY(cy_pretokenizer_add(
            pretokenizer, CY_PRETOKENIZER_ADD_PREFIX_SPACE, CY_PRETOKENIZER_ISOLATED, false));
    }
    CY_TRY(get_bool(&flag, step, "use_regex", true));
    if (!flag) return CY_OK;
    return cy_pretokenizer_add_regex(pretokenizer, cy_pretokenizer_pattern(CY_PRETOKENIZER_GPT2),
        CY_PRETOKENIZER_ISOLATED, false, general);
}

static cy_status read_decoder(const json_t *decoder)
{
    if (is_empty(decoder)) return CY_OK;
    const char *type = type_of(decoder);
    if (strcmp(type, "ByteLevel") == 0) return CY_OK;
    if (strcmp(type, "Sequence") != 0) return unsupported("decoder", type);
    const json_t *parts = json_object_get(decoder, "decoders");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        CY_TRY(read_decoder(json_array_get(parts, i)));
    }
    return CY_OK;
}

static cy_status read_template(cy_tokenizer *tokenizer, const json_t *processor)
{
    const json_t *single = json_object_get(processor, "single");
    const json_t *specials = json_object_get(processor, "special_tokens");
    cy_tokens *side = &tokenizer->before;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        if (json_object_get(piece, "Sequence") != NULL) {
            side = &tokenizer->after;
            continue;
        }
        const char *name = text_of(json_object_get(piece, "SpecialToken"), "id");
        const json_t *ids =
            name != NULL ? json_object_get(json_object_get(specials, name), "ids") : NULL;
        if (json_array_size(ids) == 0) {
            return CY_FAIL(CY_ERR_CORRUPT, "post_processor.single[%zu] names no special token", i);
        }
        for (size_t k = 0; k < json_array_size(ids); k++) {
            int32_t id = -1;
            CY_TRY(id_of(&id, json_array_get(ids, k), name));
            CY_TRY(cy_tokens_add(side, &id, 1));
        }
    }
    return CY_OK;
}

static cy_status read_processor(cy_tokenizer *tokenizer, const json_t *processor)
{
    if (is_empty(processor)) return CY_OK;
    const char *type = type_of(processor);
    if (strcmp(type, "ByteLevel") == 0) return CY_OK; // moves offsets only
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(tokenizer, processor);
    if (strcmp(type, "Sequence") != 0) return unsupported("post_processor", type);
    const json_t *parts = json_object_get(processor, "processors");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        CY_TRY(read_processor(tokenizer, json_array_get(parts, i)));
    }
    return CY_OK;
}

static void find_end_token(cy_tokenizer *tokenizer)
{
    static const char *const names[] = {
        "<|endoftext|>", "<|end_of_text|>", "</s>", "<|eot_id|>", "<|im_end|>"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const int32_t id = cy_tokenizer_find(tokenizer, names[i], strlen(names[i]));
        if (id < 0 || !tokenizer->bpe.tokens[id].special) continue;
        tokenizer->end_token = id;
        return;
    }
}

static cy_status read_all(cy_tokenizer *tokenizer, const json_t *root, bool general)
{
    bool byte_level = false;
    const json_t *model = json_object_get(root, "model");
    if (!is_empty(json_object_get(root, "truncation"))) {
        return unsupported("truncation", "set: texts would lose their ends");
    }
    CY_TRY(read_normalizer(tokenizer, json_object_get(root, "normalizer")));
    CY_TRY(read_model(tokenizer, model));
    CY_TRY(read_added(
        tokenizer, json_object_get(root, "added_tokens"), json_object_get(model, "vocab")));
    const json_t *pretokenizer = json_object_get(root, "pre_tokenizer");
    if (is_empty(pretokenizer)) return unsupported("pre_tokenizer", "absent");
    CY_TRY(read_splitter(&tokenizer->pretokenizer, pretokenizer, &byte_level, general));
    if (!byte_level) return unsupported("pre_tokenizer", "without ByteLevel");
    CY_TRY(read_decoder(json_object_get(root, "decoder")));
    CY_TRY(read_processor(tokenizer, json_object_get(root, "post_processor")));
    find_end_token(tokenizer);
    return CY_OK;
}

// ---- fingerprint

// Continues an FNV-1a hash over bytes [count]. The result is kept in files and must not change.
static uint64_t hash_on(uint64_t hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_tokens(uint64_t hash, const cy_bpe *bpe)
{
    for (int32_t id = 0; id < bpe->count; id++) {
        const cy_bpe_token *token = &bpe->tokens[id];
        const uint32_t head[2] = {(uint32_t)token->kind, token->bytes};
        hash = hash_on(hash, head, sizeof(head));
        if (token->kind != CY_BPE_NONE) {
            hash = hash_on(hash, bpe->pool + token->first, token->bytes);
        }
    }
    return hash;
}

// The table is in no particular order, so the hashes of its slots are added up.
static uint64_t hash_merges(const cy_bpe *bpe)
{
    uint64_t sum = 0;
    for (size_t i = 0; bpe->pairs != NULL && i <= bpe->pairs_mask; i++) {
        const cy_bpe_pair *merge = &bpe->pairs[i];
        if (merge->pair == UINT64_MAX) continue;
        const uint64_t numbers[3] = {
            merge->pair, (uint64_t)(uint32_t)merge->rank, (uint64_t)(uint32_t)merge->id};
        sum += hash_on(0xcbf29ce484222325u, numbers, sizeof(numbers));
    }
    return sum;
}

static cy_status take_fingerprint(cy_tokenizer *tokenizer, const json_t *root)
{
    static const char *const parts[] = {
        "normalizer", "pre_tokenizer", "post_processor", "added_tokens"};
    const cy_bpe *bpe = &tokenizer->bpe;
    const uint64_t numbers[] = {hash_merges(bpe), (uint64_t)bpe->unknown,
        (uint64_t)bpe->fuse_unknown, (uint64_t)bpe->ignore_merges};
    uint64_t hash = hash_on(hash_tokens(0xcbf29ce484222325u, bpe), numbers, sizeof(numbers));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        json_t *part = json_object_get(root, parts[i]);
        if (is_empty(part)) {
            hash = hash_on(hash, "", 1);
            continue;
        }
        cy_text text = {0};
        const cy_status status =
            cy_json_add(&text, json_incref(part), JSON_COMPACT | JSON_SORT_KEYS);
        if (status == CY_OK) hash = hash_on(hash, text.bytes, text.length + 1);
        cy_text_free(&text);
        CY_TRY(status);
    }
    tokenizer->fingerprint = hash + 1 > 1 ? hash : 1; // 0 and UINT64_MAX are reserved
    return CY_OK;
}

cy_status cy_tokenizer_parse(cy_tokenizer *tokenizer, bool general)
{
    json_error_t error;
    json_t *root = json_loadb(tokenizer->json.bytes, tokenizer->json.length,
        JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return CY_FAIL(
            CY_ERR_CORRUPT, "line %d, column %d: %s", error.line, error.column, error.text);
    }
    cy_status status = read_all(tokenizer, root, general);
    if (status == CY_OK) status = take_fingerprint(tokenizer, root);
    json_decref(root);
    return status;
}

// ---- files

// Takes eos_token from the tokenizer_config.json in the same folder, where both exist.
static cy_status read_config(cy_tokenizer *tokenizer, const char *path)
{
    const char *slash = strrchr(path, '/');
    cy_text name = {0}, text = {0};
    cy_status status =
        cy_text_add_bytes(&name, path, slash != NULL ? (size_t)(slash - path) + 1 : 0);
    if (status == CY_OK) status = cy_text_add(&name, "tokenizer_config.json");
    bool there = false;
    if (status == CY_OK) status = cy_path_find(&there, name.bytes);
    if (!there) goto free_name;
    status = cy_file_read(&text, name.bytes, FILE_LIMIT);
    if (status != CY_OK) goto free_name;
    json_error_t error;
    json_t *root = json_loadb(text.bytes, text.length, 0, &error);
    if (root == NULL) {
        status = CY_FAIL(CY_ERR_CORRUPT, "%s: line %d, column %d: %s", name.bytes, error.line,
            error.column, error.text);
        goto free_name;
    }
    const json_t *end = json_object_get(root, "eos_token");
    if (json_is_object(end)) end = json_object_get(end, "content");
    if (json_is_string(end)) {
        const int32_t id =
            cy_tokenizer_find(tokenizer, json_string_value(end), json_string_length(end));
        if (id >= 0) tokenizer->end_token = id;
    }
    json_decref(root);
free_name:
    cy_text_free(&text);
    cy_text_free(&name);
    return status;
}

cy_status cy_tokenizer_open(cy_tokenizer **tokenizer, const char *path)
{
    cy_text file = {0}, json = {0};
    cy_tokenizer *made = NULL;
    bool folder = false;
    cy_status status = cy_path_find_folder(&folder, path);
    if (status == CY_OK) status = cy_text_add(&file, folder ? "%s/tokenizer.json" : "%s", path);
    if (status == CY_OK) status = cy_file_read(&json, file.bytes, FILE_LIMIT);
    if (status == CY_OK) {
        status = cy_tokenizer_open_text(&made, json.bytes, json.length, file.bytes);
    }
    if (status == CY_OK) status = read_config(made, file.bytes);
    if (status == CY_OK) {
        *tokenizer = made;
    } else {
        cy_tokenizer_close(made);
    }
    cy_text_free(&json);
    cy_text_free(&file);
    return status;
}

// ---- writing

cy_status cy_pretokenizer_open_style(cy_pretokenizer *pretokenizer, cy_tokenizer_style style)
{
    CY_TRY(cy_pretokenizer_open(pretokenizer));
    cy_pretokenizer_kind kind = CY_PRETOKENIZER_GPT2;
    cy_status status = CY_OK;
    switch (style) {
    case CY_TOKENIZER_GPT2:
        break;
    case CY_TOKENIZER_SMOLLM:
        status = cy_pretokenizer_add(
            pretokenizer, CY_PRETOKENIZER_DIGITS, CY_PRETOKENIZER_ISOLATED, false);
        break;
    case CY_TOKENIZER_LLAMA3:
        kind = CY_PRETOKENIZER_LLAMA3;
        break;
    case CY_TOKENIZER_QWEN2:
        kind = CY_PRETOKENIZER_QWEN2;
        break;
    }
    if (status == CY_OK)
        status = cy_pretokenizer_add(pretokenizer, kind, CY_PRETOKENIZER_ISOLATED, false);
    if (status != CY_OK) cy_pretokenizer_close(pretokenizer);
    return status;
}

static json_t *byte_level_json(bool regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", false,
        "trim_offsets", true, "use_regex", regex);
}

static json_t *splitter_json(cy_tokenizer_style style)
{
    if (style == CY_TOKENIZER_GPT2) return byte_level_json(true);
    json_t *first;
    if (style == CY_TOKENIZER_SMOLLM) {
        first = json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", true);
    } else {
        const cy_pretokenizer_kind kind =
            style == CY_TOKENIZER_LLAMA3 ? CY_PRETOKENIZER_LLAMA3 : CY_PRETOKENIZER_QWEN2;
        first = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
            cy_pretokenizer_pattern(kind), "behavior", "Isolated", "invert", false);
    }
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", first,
        byte_level_json(style == CY_TOKENIZER_SMOLLM));
}

// Adds the characters that spell the bytes of a token.
static cy_status add_spelling(cy_text *out, const cy_bpe_trained *trained, int32_t id)
{
    size_t at = id == 0 ? 0 : trained->ends[id - 1];
    for (; at < trained->ends[id]; at++) {
        const uint32_t point = cy_char_of_byte((unsigned char)trained->bytes.bytes[at]);
        unsigned char character[4];
        CY_TRY(cy_text_add_bytes(out, character, cy_utf8_encode(character, point)));
    }
    return CY_OK;
}

// Adds the tokens but the first, which is the end token, and all merges.
static cy_status fill_model(json_t **vocab, json_t **merges, const cy_bpe_trained *trained)
{
    cy_text text = {0};
    cy_status status = CY_OK;
    for (size_t id = 1; id < trained->count && status == CY_OK; id++) {
        text.length = 0;
        status = add_spelling(&text, trained, (int32_t)id);
        if (status == CY_OK) cy_json_set(vocab, text.bytes, json_integer((json_int_t)id));
    }
    for (size_t i = 0; i < trained->merge_count && status == CY_OK; i++) {
        text.length = 0;
        status = add_spelling(&text, trained, trained->merges[i][0]);
        if (status == CY_OK) status = cy_text_add(&text, " ");
        if (status == CY_OK) status = add_spelling(&text, trained, trained->merges[i][1]);
        if (status == CY_OK) cy_json_append(merges, json_string(text.bytes));
    }
    cy_text_free(&text);
    return status;
}

// The `tokenizers` package writes the same lines, and no newline behind the last.
const cy_output_kind cy_tokenizer_kind = {
    .name = "a tokenizer",
    .marks = {{.begins =
                   "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                   "  \"added_tokens\": [\n    {\n      \"id\": 0,\n",
        .holds = "\n  \"normalizer\": null,\n",
        .ends = "]\n  }\n}\n"}},
};

cy_status cy_tokenizer_write(cy_text *json, const cy_bpe_trained *trained, cy_tokenizer_style style)
{
    json_t *end_token = cy_json_string(trained->bytes.bytes, trained->ends[0]);
    if (end_token == NULL) return CY_FAIL(CY_ERR_MEMORY, "no memory for the end token");
    json_t *vocab = json_pack("{s:i}", json_string_value(end_token), 0);
    json_t *merges = json_array();
    const cy_status filled = fill_model(&vocab, &merges, trained);
    json_t *added = json_pack("[{s:i, s:o, s:b, s:b, s:b, s:b, s:b}]", "id", 0, "content",
        end_token, "single_word", false, "lstrip", false, "rstrip", false, "normalized", false,
        "special", true);
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
        "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
        false, "byte_fallback", false, "ignore_merges", false, "vocab", vocab, "merges", merges);
    json_t *root = json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0",
        "truncation", "padding", "added_tokens", added, "normalizer", "pre_tokenizer",
        splitter_json(style), "post_processor", "decoder", byte_level_json(true), "model", model);
    const cy_status printed = cy_json_add(json, root, JSON_INDENT(2));
    CY_TRY(filled);
    CY_TRY(printed);
    return cy_text_add(json, "\n");
}
