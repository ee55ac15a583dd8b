// The words that a tokenizer is trained on: each once, counted over lines, parts and threads, and
// still once where there are so many that their table has grown.

#include "support/support.h"

#include "tokenizer/bpe.h"
#include "tokenizer/tokenizer.h"

#define WORDS  40000 // more than two sizes of the table have room for
#define ROUNDS 3

// Words stand on lines of their own; word i is i in base 26.
static void counted_once(void **state)
{
    (void)state;
    cy_text text = {0};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WORDS; i++)
            CY_CHECK_OK(cy_text_add(&text, "w%c%c%c%c\n", 'a' + i / 17576, 'a' + i / 676 % 26,
                'a' + i / 26 % 26, 'a' + i % 26));
    }
    const cy_tokenizer_text whole = {.text = text.bytes, .bytes = text.length};
    cy_pretokenizer pretokenizer;
    CY_CHECK_OK(cy_pretokenizer_open_style(&pretokenizer, CY_TOKENIZER_LLAMA3));
    for (int threads = 1; threads <= 3; threads += 2) {
        cy_word_table table = {0};
        CY_CHECK_OK(cy_words_count(&table, &pretokenizer, &whole, 1, threads));
        int words = 0;
        for (size_t i = 0; i < table.count; i++) {
            const cy_word *word = &table.words[i];
            if (table.pool[word->first] != 'w') continue; // an end of line
            assert_int_equal(word->bytes, 5);
            assert_int_equal(word->times, ROUNDS);
            words++;
        }
        assert_int_equal(words, WORDS);
        assert_int_equal(table.count, WORDS + 1);
        cy_word_table_free(&table);
    }
    cy_pretokenizer_close(&pretokenizer);
    cy_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counted_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
