// cyclotron/tokenizer.h: text to token ids and back.
//
// A byte-level BPE tokenizer in Hugging Face's tokenizer.json format: the ids are those that the
// `tokenizers` package gives for the same file. Text that is not UTF-8 is encoded and decoded byte
// for byte. A tokenizer type that is not byte-level BPE is CY_ERR_UNSUPPORTED, which names it; a
// damaged file is CY_ERR_CORRUPT, which names file and place.
//
// A tokenizer is made by _open, _open_text or _train, does not change after that, and may be used
// by any number of threads at the same time. It is freed by _close.

#ifndef CYCLOTRON_TOKENIZER_H
#define CYCLOTRON_TOKENIZER_H

#include <cyclotron/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A byte-level BPE tokenizer. Once open it does not change: any number of threads may use it.
typedef struct cy_tokenizer cy_tokenizer;

// A list of ids that grows. Start from a zeroed struct; free with cy_tokens_free.
typedef struct cy_tokens {
    int32_t *ids;    // owned, [count]
    size_t count;    // of ids
    size_t capacity; // ids that there is room for
} cy_tokens;

// Frees the ids and zeroes *tokens.
CY_API void cy_tokens_free(cy_tokens *tokens);

// Reads a tokenizer.json, or the one in a folder. *tokenizer is owned by the caller.
CY_API CY_MUST_CHECK cy_status cy_tokenizer_open(cy_tokenizer **tokenizer, const char *path);

// The same from memory: json [bytes]; `name` stands for the file in errors.
CY_API CY_MUST_CHECK cy_status cy_tokenizer_open_text(
    cy_tokenizer **tokenizer, const char *json, size_t bytes, const char *name);

// NULL is fine.
CY_API void cy_tokenizer_close(cy_tokenizer *tokenizer);

// How a trained tokenizer cuts text into words before it merges bytes.
typedef enum cy_tokenizer_style {
    CY_TOKENIZER_GPT2,
    CY_TOKENIZER_LLAMA3,
    CY_TOKENIZER_QWEN2,
    CY_TOKENIZER_SMOLLM, // GPT-2's, each digit on its own
} cy_tokenizer_style;

// How a tokenizer is trained.
typedef struct cy_tokenizer_train_options {
    int32_t vocab_size;       // counts the special tokens and the 256 bytes
    const char *end_token;    // borrowed; NULL is "<|endoftext|>"
    cy_tokenizer_style style; // 0 is GPT-2's
    int threads;              // 0 is 1; the result does not depend on it
} cy_tokenizer_train_options;

// A text to train on.
typedef struct cy_tokenizer_text {
    const char *text; // borrowed, [bytes]; need not be UTF-8
    size_t bytes;     // its length
} cy_tokenizer_text;

// Trains on texts, line by line as the `tokenizers` package does, with its order among equally
// frequent pairs. When there is nothing left to merge the vocabulary is smaller than asked for:
// compare cy_tokenizer_vocab_size with it.
CY_API CY_MUST_CHECK cy_status cy_tokenizer_train(cy_tokenizer **tokenizer,
    const cy_tokenizer_text *texts, size_t count, const cy_tokenizer_train_options *options);

// The same on files: .txt, or .jsonl with the text in `field` (NULL is "text"), each also
// compressed as .gz or .zst. *text_bytes is how much text that was. A file that cannot be read is
// CY_ERR_IO, one that is damaged CY_ERR_CORRUPT with its line.
CY_API CY_MUST_CHECK cy_status cy_tokenizer_train_files(cy_tokenizer **tokenizer,
    uint64_t *text_bytes, const char *const *paths, size_t count, const char *field,
    const cy_tokenizer_train_options *options);

// Writes tokenizer.json, whole or not at all (CY_ERR_IO), and replaces a regular file that stands
// there. A tokenizer that was read is written as it was.
CY_API CY_MUST_CHECK cy_status cy_tokenizer_save(const cy_tokenizer *tokenizer, const char *path);

// The same bytes in memory, *bytes of them: the tokenizer's, until it is closed.
CY_API const char *cy_tokenizer_json(const cy_tokenizer *tokenizer, size_t *bytes);

// How a text is encoded.
typedef enum cy_encode_flags {
    CY_ENCODE_DEFAULT = 0,     // with all that tokenizer.json says
    CY_ENCODE_NO_TEMPLATE = 1, // leave out what the post_processor adds, such as a begin token
} cy_encode_flags;

// Appends the ids of text [bytes] to *tokens, which is as it was after a failure (CY_ERR_MEMORY).
// Added tokens are recognised in the text.
CY_API CY_MUST_CHECK cy_status cy_tokenizer_encode(const cy_tokenizer *tokenizer, cy_tokens *tokens,
    const char *text, size_t bytes, cy_encode_flags flags);

// How ids become text.
typedef enum cy_decode_flags {
    CY_DECODE_DEFAULT = 0,      // every token
    CY_DECODE_SKIP_SPECIAL = 1, // leave special tokens out
} cy_decode_flags;

// The bytes of ids [count]: *text is owned by the caller, freed with cy_tokenizer_free_text, and
// has a terminating zero behind its *bytes bytes. An id that the tokenizer has not is
// CY_ERR_REQUEST.
CY_API CY_MUST_CHECK cy_status cy_tokenizer_decode(const cy_tokenizer *tokenizer, char **text,
    size_t *bytes, const int32_t *ids, size_t count, cy_decode_flags flags);
// NULL is fine.
CY_API void cy_tokenizer_free_text(char *text);

// The highest id plus one: what the embedding must have rows for.
CY_API int32_t cy_tokenizer_vocab_size(const cy_tokenizer *tokenizer);

// The bytes of one token, borrowed, not terminated; NULL and 0 bytes for an id that it has not.
CY_API const char *cy_tokenizer_token(const cy_tokenizer *tokenizer, int32_t id, size_t *bytes);

// The id of the token with exactly these bytes; -1 where there is none.
CY_API int32_t cy_tokenizer_find(const cy_tokenizer *tokenizer, const char *text, size_t bytes);

// The token that ends a document: eos_token of the tokenizer_config.json beside the file where
// there is one, else the first of the usual names among the special tokens; -1 where none is.
CY_API int32_t cy_tokenizer_end_token(const cy_tokenizer *tokenizer);

// A hash of the file, by which token shards know their tokenizer.
CY_API uint64_t cy_tokenizer_hash(const cy_tokenizer *tokenizer);

// A fingerprint of what decides the ids of a text: tokens, merges, normalizer, words, added tokens
// and the template, however the file is laid out. Kept in checkpoints. Never 0 or UINT64_MAX.
CY_API uint64_t cy_tokenizer_fingerprint(const cy_tokenizer *tokenizer);

// How many of the 256 bytes have no token of their own. Text that holds one of them loses it, as
// it does in the `tokenizers` package.
CY_API int cy_tokenizer_missing_bytes(const cy_tokenizer *tokenizer);

#ifdef __cplusplus
}
#endif

#endif
