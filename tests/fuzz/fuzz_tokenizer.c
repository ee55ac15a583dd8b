// A tokenizer.json of any content is refused or usable: the ids it gives are its own, and can be
// decoded.

#include "fuzz.h"

#include <cyclotron/tokenizer.h>

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cy_tokenizer *tokenizer = NULL;
    const char *json = (const char *)data;
    if (cy_tokenizer_open_text(&tokenizer, json, size, "fuzz") != CY_OK) return 0;

    cy_tokens tokens = {0};
    const size_t some = size < 200 ? size : 200;
    if (cy_tokenizer_encode(tokenizer, &tokens, json, some, CY_ENCODE_DEFAULT) == CY_OK) {
        for (size_t i = 0; i < tokens.count; i++) {
            if (tokens.ids[i] < 0 || tokens.ids[i] >= cy_tokenizer_vocab_size(tokenizer)) abort();
        }
        char *text = NULL;
        size_t bytes = 0;
        if (cy_tokenizer_decode(
                tokenizer, &text, &bytes, tokens.ids, tokens.count, CY_DECODE_DEFAULT) != CY_OK) {
            abort();
        }
        cy_tokenizer_free_text(text);
    }
    cy_tokens_free(&tokens);
    cy_tokenizer_close(tokenizer);
    return 0;
}
