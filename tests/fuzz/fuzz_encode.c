// A tokenizer that was trained on any bytes gives these bytes back.

#include "fuzz.h"

#include <cyclotron/tokenizer.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cy_tokenizer *tokenizer = NULL;
    cy_tokens tokens = {0};
    char *text = NULL;
    size_t bytes = 0;
    const cy_tokenizer_text all = {(const char *)data, size};
    const cy_tokenizer_train_options options = {
        .vocab_size = 280, .style = (cy_tokenizer_style)(size % 4)};
    if (cy_tokenizer_train(&tokenizer, &all, 1, &options) != CY_OK) abort();
    if (cy_tokenizer_encode(tokenizer, &tokens, all.text, size, CY_ENCODE_DEFAULT) != CY_OK) {
        abort();
    }
    if (cy_tokenizer_decode(
            tokenizer, &text, &bytes, tokens.ids, tokens.count, CY_DECODE_DEFAULT) != CY_OK) {
        abort();
    }
    if (bytes != size || (size > 0 && memcmp(text, data, size) != 0)) abort();
    cy_tokenizer_free_text(text);
    cy_tokens_free(&tokens);
    cy_tokenizer_close(tokenizer);
    return 0;
}
