// A trained tokenizer as tokenizer.json, laid out as the `tokenizers` package lays it out. Merges
// are written as "a b", which its older versions read too.

#include "tokenizer/tokenizer.h"

#include <string.h>

static cy_status add_regex_split(cy_text *json, const char *pattern)
{
    CY_TRY(cy_text_add(json, "{\"type\": \"Split\", \"pattern\": {\"Regex\": \""));
    for (const char *c = pattern; *c != '\0'; c++) {
        CY_TRY(cy_text_add(json, *c == '\\' || *c == '"' ? "\\%c" : "%c", *c));
    }
    return cy_text_add(json, "\"}, \"behavior\": \"Isolated\", \"invert\": false}");
}

static cy_status add_byte_level(cy_text *json, bool regex)
{
    return cy_text_add(json,
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
        "\"use_regex\": %s}",
        regex ? "true" : "false");
}

static cy_status add_splitter(cy_text *json, cy_tokenizer_style style)
{
    if (style == CY_TOKENIZER_GPT2) return add_byte_level(json, true);
    CY_TRY(cy_text_add(json, "{\"type\": \"Sequence\", \"pretokenizers\": [\n    "));
    if (style == CY_TOKENIZER_SMOLLM) {
        CY_TRY(cy_text_add(json, "{\"type\": \"Digits\", \"individual_digits\": true}"));
    } else {
        CY_TRY(add_regex_split(json,
            cy_pretokenizer_pattern(
                style == CY_TOKENIZER_LLAMA3 ? CY_PRETOKENIZER_LLAMA3 : CY_PRETOKENIZER_QWEN2)));
    }
    CY_TRY(cy_text_add(json, ",\n    "));
    CY_TRY(add_byte_level(json, style == CY_TOKENIZER_SMOLLM));
    return cy_text_add(json, "]}");
}

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

// The characters that stand for the bytes of a token; none of them is a control character.
static cy_status add_token(cy_text *json, const cy_bpe_trained *trained, int32_t id)
{
    size_t at = id == 0 ? 0 : trained->ends[id - 1];
    for (; at < trained->ends[id]; at++) {
        const uint32_t point = cy_char_of_byte((unsigned char)trained->bytes.bytes[at]);
        unsigned char spelt[5] = {'\\'};
        const size_t count = cy_utf8_encode(spelt + 1, point);
        const size_t skip = point == '\\' || point == '"' ? 0 : 1;
        CY_TRY(cy_text_add_bytes(json, spelt + skip, count + 1 - skip));
    }
    return CY_OK;
}

static cy_status add_model(cy_text *json, const cy_bpe_trained *trained, const char *end_token)
{
    CY_TRY(cy_text_add(json,
        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
        "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n"
        "    \"vocab\": {\n      "));
    CY_TRY(cy_text_add_json_string(json, end_token, strlen(end_token)));
    CY_TRY(cy_text_add(json, ": 0"));
    for (size_t id = 1; id < trained->count; id++) {
        CY_TRY(cy_text_add(json, ",\n      \""));
        CY_TRY(add_token(json, trained, (int32_t)id));
        CY_TRY(cy_text_add(json, "\": %zu", id));
    }
    CY_TRY(cy_text_add(json, "\n    },\n    \"merges\": ["));
    for (size_t i = 0; i < trained->merge_count; i++) {
        CY_TRY(cy_text_add(json, "%s\n      \"", i > 0 ? "," : ""));
        CY_TRY(add_token(json, trained, trained->merges[i][0]));
        CY_TRY(cy_text_add(json, " "));
        CY_TRY(add_token(json, trained, trained->merges[i][1]));
        CY_TRY(cy_text_add(json, "\""));
    }
    return cy_text_add(json, "%s]\n  }\n}\n", trained->merge_count > 0 ? "\n    " : "");
}

// The tokenizers library writes the same lines, and no newline behind the last.
const cy_output_kind cy_tokenizer_kind = {
    .name = "a tokenizer",
    .marks = {{.begins =
                   "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                   "  \"added_tokens\": [\n    {\n      \"id\": 0,\n",
        .holds = "\n  \"normalizer\": null,\n",
        .ends = "]\n  }\n}\n"}},
};

static cy_status add_all(
    cy_text *json, const cy_bpe_trained *trained, cy_tokenizer_style style, const char *end_token)
{
    CY_TRY(cy_text_add(json,
        "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
        "  \"added_tokens\": [\n    {\n      \"id\": 0,\n      \"content\": "));
    CY_TRY(cy_text_add_json_string(json, end_token, strlen(end_token)));
    CY_TRY(cy_text_add(json,
        ",\n      \"single_word\": false,\n      \"lstrip\": false,\n      \"rstrip\": false,\n"
        "      \"normalized\": false,\n      \"special\": true\n    }\n  ],\n"
        "  \"normalizer\": null,\n  \"pre_tokenizer\": "));
    CY_TRY(add_splitter(json, style));
    CY_TRY(cy_text_add(json, ",\n  \"post_processor\": null,\n  \"decoder\": "));
    CY_TRY(add_byte_level(json, true));
    CY_TRY(cy_text_add(json, ",\n"));
    return add_model(json, trained, end_token);
}

cy_status cy_tokenizer_write(cy_text *json, const cy_bpe_trained *trained, cy_tokenizer_style style)
{
    cy_text end_token = {0};
    cy_status status = cy_text_add_bytes(&end_token, trained->bytes.bytes, trained->ends[0]);
    if (status == CY_OK) status = add_all(json, trained, style, end_token.bytes);
    cy_text_free(&end_token);
    return status;
}
