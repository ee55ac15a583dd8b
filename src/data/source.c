// Opens the kinds of sources and reads their tokens: folders of shards (shard-00000.tokens and on,
// as `data prepare` writes them), text that is tokenized when it is opened, and token files of
// other programs, which are read in place: llm.c's .bin (a header of 256 integers), nanoGPT's .bin
// (tokens of 2 bytes and nothing else), and Megatron's .bin with its .idx.

#include "data/source.h"

#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/corpus.h"
#include "data/shard.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void cy_source_close(cy_token_source *source)
{
    if (source == NULL) return;
    cy_memory_free(source->path);
    source->ops->close(source);
}

cy_status cy_source_read(const cy_token_source *source, int32_t *out, int64_t first, int64_t count)
{
    CY_ASSERT(first >= 0 && count >= 0 && count <= source->token_count - first);
    cy_activity_begin(CY_ACTIVITY_READ, "the data set", -1);
    const cy_status status = source->ops->read(source, out, first, count);
    cy_activity_end();
    CY_TRY(status);
    // A number that is no id was read as -1, which is above every vocabulary as an unsigned number.
    const uint32_t limit = source->vocab_size > 0 ? (uint32_t)source->vocab_size : INT32_MAX;
    uint32_t highest = 0;
    for (int64_t i = 0; i < count; i++) {
        if ((uint32_t)out[i] > highest) highest = (uint32_t)out[i];
    }
    if (highest < limit) return CY_OK;
    int64_t bad = 0;
    while ((uint32_t)out[bad] < limit)
        bad++;
    return CY_FAIL(CY_ERR_CORRUPT,
        "%s: token %" PRId64 " is %" PRIu32 ", the vocabulary has %" PRIu32, source->path,
        first + bad, (uint32_t)out[bad], limit);
}

// ---- fingerprints

#define WHOLE_TOKENS ((int64_t)1 << 22)
#define SAMPLE_RUN   ((int64_t)1 << 14)
#define SAMPLE_RUNS  256

// Continues a check over ids [count], two at a time because it covers all of a text at each start.
// The result is kept in checkpoints and must not change.
static uint64_t check_ids(uint64_t check, const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i += 2) {
        const uint64_t second = i + 1 < count ? (uint32_t)ids[i + 1] : UINT32_MAX;
        const uint64_t pair = (uint32_t)ids[i] | second << 32;
        check = (check ^ (pair + 1)) * 0x9e3779b97f4a7c15u;
        check ^= check >> 29;
    }
    return check;
}

// ids [SAMPLE_RUN] is work space.
static cy_status check_tokens(
    uint64_t *check, const cy_token_source *source, int32_t *ids, int64_t first, int64_t count)
{
    while (count > 0) {
        const int64_t step = count < SAMPLE_RUN ? count : SAMPLE_RUN;
        CY_TRY(source->ops->read(source, ids, first, step));
        *check = check_ids(*check, ids, step);
        first += step;
        count -= step;
    }
    return CY_OK;
}

// Samples runs at even distances; the last run ends with the last token.
static cy_status sample_tokens(
    uint64_t *check, const cy_token_source *source, int32_t *ids, int64_t tokens)
{
    if (tokens <= WHOLE_TOKENS) return check_tokens(check, source, ids, 0, tokens);
    const int64_t gaps = SAMPLE_RUNS - 1, room = tokens - SAMPLE_RUN;
    for (int64_t i = 0; i < SAMPLE_RUNS; i++) {
        const int64_t first = room / gaps * i + room % gaps * i / gaps;
        CY_TRY(check_tokens(check, source, ids, first, SAMPLE_RUN));
    }
    return CY_OK;
}

cy_status cy_source_fingerprint(
    cy_fingerprint *fingerprint, const cy_token_source *source, int64_t tokens)
{
    CY_ASSERT(0 <= tokens && tokens <= source->token_count);
    cy_fingerprint made = {.tokens = tokens};
    int32_t *ids = NULL;
    CY_TRY(CY_ALLOC(&ids, (size_t)SAMPLE_RUN));
    cy_activity_begin(CY_ACTIVITY_READ, "the data set", -1);
    cy_status status = source->ops->check(source, &made);
    if (status == CY_OK) status = sample_tokens(&made.sample, source, ids, tokens);
    cy_activity_end();
    cy_memory_free(ids);
    if (status == CY_OK) *fingerprint = made;
    return status;
}

bool cy_fingerprint_equal(const cy_fingerprint *one, const cy_fingerprint *other)
{
    if (one->tokens != other->tokens || one->sample != other->sample) return false;
    return one->cuts == 0 || one->cuts != other->cuts || one->checks == other->checks;
}

// ---- text, tokenized when it is opened

typedef struct text_source {
    cy_token_source base;
    cy_tokens tokens;
} text_source;

static cy_status text_read(const cy_token_source *base, int32_t *out, int64_t first, int64_t count)
{
    const text_source *source = (const text_source *)base;
    memcpy(out, source->tokens.ids + first, (size_t)count * sizeof(int32_t));
    return CY_OK;
}

// Covers all tokens: they are in memory, and an edit may change a single one.
static cy_status text_check(const cy_token_source *base, cy_fingerprint *fingerprint)
{
    const text_source *source = (const text_source *)base;
    fingerprint->cuts = 1;
    fingerprint->checks = check_ids(0, source->tokens.ids, fingerprint->tokens);
    return CY_OK;
}

static void text_close(cy_token_source *base)
{
    text_source *source = (text_source *)base;
    cy_tokens_free(&source->tokens);
    cy_memory_free(source);
}

static const cy_token_source_ops text_ops = {
    .name = "text",
    .read = text_read,
    .check = text_check,
    .close = text_close,
};

static cy_status take_tokens(
    void *context, const int32_t *tokens, size_t count, uint64_t text_bytes, uint64_t documents)
{
    text_source *source = context;
    source->base.text_bytes += (int64_t)text_bytes;
    source->base.document_count += (int64_t)documents;
    void *block = source->tokens.ids;
    const size_t wanted = source->tokens.count + count;
    CY_TRY(cy_memory_grow(&block, &source->tokens.capacity, wanted, sizeof(int32_t)));
    source->tokens.ids = block;
    if (count > 0) {
        memcpy(source->tokens.ids + source->tokens.count, tokens, count * sizeof(int32_t));
    }
    source->tokens.count = wanted;
    return CY_OK;
}

static cy_status open_text(
    cy_token_source **source, const char *path, const cy_source_options *options)
{
    if (options->tokenizer == NULL) {
        return CY_FAIL(CY_ERR_REQUEST, "%s: a tokenizer is needed to read text", path);
    }
    int fd = -1; // every process of a run reads the text, so a pipe is refused
    CY_TRY(cy_file_open(&fd, path));
    cy_io_close(fd);
    text_source *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    made->base.ops = &text_ops;
    const char *const paths[1] = {path};
    const cy_corpus_options corpus = {.tokenizer = options->tokenizer,
        .paths = paths,
        .count = 1,
        .field = options->field,
        .end_token = -1,
        .threads = options->threads};
    const cy_status status = cy_corpus_encode(&corpus, take_tokens, made);
    if (status != CY_OK) {
        text_close(&made->base);
        return status;
    }
    made->base.token_count = (int64_t)made->tokens.count;
    made->base.vocab_size = cy_tokenizer_vocab_size(options->tokenizer);
    made->base.tokenizer_hash = cy_tokenizer_hash(options->tokenizer);
    *source = &made->base;
    return CY_OK;
}

// ---- a folder of shards, or one shard under any name

#define SHARDS_MAX 100000

typedef struct shard_source {
    cy_token_source base;
    cy_shard *shards; // owned, [count]
    int64_t *ends;    // owned, [count]: of each shard in the row
    int count;
    size_t shards_capacity;
    size_t ends_capacity;
} shard_source;

static void shards_close(cy_token_source *base)
{
    shard_source *source = (shard_source *)base;
    for (int i = 0; i < source->count; i++)
        cy_shard_close(&source->shards[i]);
    cy_memory_free(source->shards);
    cy_memory_free(source->ends);
    cy_memory_free(source);
}

static cy_status shards_read(
    const cy_token_source *base, int32_t *out, int64_t first, int64_t count)
{
    const shard_source *source = (const shard_source *)base;
    int low = 0, high = source->count - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (source->ends[middle] <= first) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (int i = low; count > 0; i++) {
        const int64_t start = i > 0 ? source->ends[i - 1] : 0;
        const int64_t here = source->ends[i] - first;
        const int64_t taken = count < here ? count : here;
        CY_TRY(cy_shard_read(&source->shards[i], out, first - start, taken));
        out += taken;
        first += taken;
        count -= taken;
    }
    return CY_OK;
}

// Combines the checks in the headers and reads no tokens. A row that ends within a shard has none.
static cy_status shards_check(const cy_token_source *base, cy_fingerprint *fingerprint)
{
    const shard_source *source = (const shard_source *)base;
    uint64_t cuts = 0, checks = 0;
    int i = 0;
    for (; i < source->count && source->ends[i] <= fingerprint->tokens; i++) {
        const uint64_t end = (uint64_t)source->ends[i], check = source->shards[i].header.check;
        cuts = cy_shard_check(cuts, (const unsigned char *)&end, sizeof(end));
        checks = cy_shard_check(checks, (const unsigned char *)&check, sizeof(check));
    }
    const bool whole = i > 0 && source->ends[i - 1] == fingerprint->tokens;
    fingerprint->cuts = whole ? cuts : 0;
    fingerprint->checks = whole ? checks : 0;
    return CY_OK;
}

static const cy_token_source_ops shard_ops = {
    .name = "shards",
    .read = shards_read,
    .check = shards_check,
    .close = shards_close,
};

static cy_status add_shard(shard_source *source, const char *path)
{
    void *block = source->shards;
    const size_t wanted = (size_t)source->count + 1;
    CY_TRY(cy_memory_grow(&block, &source->shards_capacity, wanted, sizeof(cy_shard)));
    source->shards = block;
    block = source->ends;
    CY_TRY(cy_memory_grow(&block, &source->ends_capacity, wanted, sizeof(int64_t)));
    source->ends = block;
    cy_shard *shard = &source->shards[source->count];
    CY_TRY(cy_shard_open(shard, path));
    const cy_shard_header *header = &shard->header;
    cy_token_source *base = &source->base;
    source->count++;
    if (source->count > 1 &&
        (base->tokenizer_hash != header->tokenizer_hash ||
            base->vocab_size != (int32_t)header->vocab_size)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: of another tokenizer than the shard before it", path);
    }
    base->tokenizer_hash = header->tokenizer_hash;
    base->vocab_size = (int32_t)header->vocab_size;
    base->token_count += (int64_t)header->token_count;
    base->document_count += (int64_t)header->document_count;
    base->text_bytes += (int64_t)header->text_bytes;
    source->ends[source->count - 1] = base->token_count;
    return CY_OK;
}

static cy_status add_folder(shard_source *made, const char *path)
{
    cy_text name = {0};
    cy_status status = CY_OK;
    for (int i = 0; i < SHARDS_MAX && status == CY_OK; i++) {
        name.length = 0;
        status = cy_text_add(&name, "%s/shard-%05d.tokens", path, i);
        bool there = false;
        if (status == CY_OK) status = cy_path_find(&there, name.bytes);
        if (status != CY_OK || !there) break;
        status = add_shard(made, name.bytes);
    }
    if (status == CY_OK && made->count == 0) {
        status = CY_FAIL(CY_ERR_REQUEST, "%s: the folder holds no shard-00000.tokens", path);
        cy_error_set_hint("'cyclotron data prepare --out=%s ...' makes token shards of text", path);
    }
    cy_text_free(&name);
    return status;
}

static cy_status open_shards(cy_token_source **source, const char *path)
{
    shard_source *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    made->base.ops = &shard_ops;
    bool folder = false;
    cy_status status = cy_path_find_folder(&folder, path);
    if (status == CY_OK) status = folder ? add_folder(made, path) : add_shard(made, path);
    if (status != CY_OK) {
        shards_close(&made->base);
        return status;
    }
    *source = &made->base;
    return CY_OK;
}

// ---- token files of other programs

#define LLMC_GPT2_MAGIC   20240520u
#define LLMC_LLAMA3_MAGIC 20240801u
#define LLMC_HEADER_BYTES ((size_t)1024)

typedef struct file_source {
    cy_token_source base;
    cy_input_file file;
    size_t first;      // byte of the first token
    int token_bytes;   // 1, 2, 4 or 8
    bool token_signed; // a negative one is no token
} file_source;

static void file_close(cy_token_source *base)
{
    file_source *source = (file_source *)base;
    cy_input_close(&source->file);
    cy_memory_free(source);
}

// A token that does not fit an id becomes -1, which no vocabulary holds.
static int32_t token_at(const file_source *source, const unsigned char *at)
{
    uint64_t wide = 0;
    memcpy(&wide, at, (size_t)source->token_bytes); // little-endian, as the files are
    const int bits = 8 * source->token_bytes;
    if (source->token_signed && wide >> (bits - 1) != 0) return -1;
    return wide > INT32_MAX ? -1 : (int32_t)wide;
}

#define BYTES_AT_ONCE 16384

static cy_status file_read(const cy_token_source *base, int32_t *out, int64_t first, int64_t count)
{
    const file_source *source = (const file_source *)base;
    unsigned char bytes[BYTES_AT_ONCE];
    const int64_t most = BYTES_AT_ONCE / source->token_bytes;
    for (int64_t done = 0; done < count; done += most) {
        const int64_t some = count - done < most ? count - done : most;
        const uint64_t offset =
            source->first + (uint64_t)(first + done) * (uint64_t)source->token_bytes;
        CY_TRY(cy_input_read(&source->file, bytes, offset, (size_t)(some * source->token_bytes)));
        for (int64_t i = 0; i < some; i++)
            out[done + i] = token_at(source, bytes + i * source->token_bytes);
    }
    return CY_OK;
}

// These files hold no checks.
static cy_status file_check(const cy_token_source *base, cy_fingerprint *fingerprint)
{
    (void)base;
    fingerprint->cuts = fingerprint->checks = 0;
    return CY_OK;
}

static const cy_token_source_ops llmc_ops = {
    .name = "llm.c",
    .read = file_read,
    .check = file_check,
    .close = file_close,
};
static const cy_token_source_ops nanogpt_ops = {
    .name = "nanoGPT",
    .read = file_read,
    .check = file_check,
    .close = file_close,
};
static const cy_token_source_ops megatron_ops = {
    .name = "Megatron",
    .read = file_read,
    .check = file_check,
    .close = file_close,
};

static uint32_t u32_at(const unsigned char *bytes, size_t at)
{
    uint32_t value;
    memcpy(&value, bytes + at, sizeof(value));
    return value;
}

static uint64_t u64_at(const unsigned char *bytes, size_t at)
{
    uint64_t value;
    memcpy(&value, bytes + at, sizeof(value));
    return value;
}

// ---- llm.c and nanoGPT

static cy_status read_llmc(file_source *source, const char *path, const unsigned char *bytes)
{
    const bool wide = u32_at(bytes, 0) == LLMC_LLAMA3_MAGIC;
    const uint32_t version = u32_at(bytes, 4), wanted = wide ? 7 : 1;
    if (version != wanted) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: version %" PRIu32 " of llm.c's format, this reads %" PRIu32, path, version,
            wanted);
    }
    source->base.ops = &llmc_ops;
    source->token_bytes = wide ? 4 : 2;
    source->first = LLMC_HEADER_BYTES;
    const size_t left = (size_t)source->file.bytes - LLMC_HEADER_BYTES;
    const uint32_t count = u32_at(bytes, 8);
    if (left % (size_t)source->token_bytes != 0 || left / (size_t)source->token_bytes != count) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: %zu bytes of tokens, the header says %" PRIu32 " tokens of %d bytes", path, left,
            count, source->token_bytes);
    }
    source->base.token_count = count;
    return CY_OK;
}

static cy_status read_bin(file_source *source, const char *path)
{
    const size_t bytes = (size_t)source->file.bytes;
    if (bytes >= LLMC_HEADER_BYTES) {
        unsigned char head[12];
        CY_TRY(cy_input_read(&source->file, head, 0, sizeof(head)));
        const uint32_t magic = u32_at(head, 0);
        if (magic == LLMC_GPT2_MAGIC || magic == LLMC_LLAMA3_MAGIC) {
            return read_llmc(source, path, head);
        }
    }
    if (bytes % 2 != 0) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: %zu bytes: neither llm.c's format nor tokens of 2 bytes", path, bytes);
    }
    source->base.ops = &nanogpt_ops;
    source->token_bytes = 2;
    source->base.token_count = (int64_t)(bytes / 2);
    return CY_OK;
}

// ---- Megatron

// 9 bytes of magic, a version, the kind of number, how many sequences and document bounds; then
// their lengths (4 bytes each), where they begin (8 bytes) and the bounds (8 bytes).
#define INDEX_MAGIC        "MMIDIDX\0\0"
#define INDEX_MAGIC_BYTES  9
#define INDEX_HEADER_BYTES ((size_t)34)

static cy_status read_kind(file_source *source, const char *path, int kind)
{
    static const int sizes[9] = {0, 1, 1, 2, 4, 8, 0, 0, 2}; // 6 and 7 are floating point
    if (kind < 1 || kind > 8 || sizes[kind] == 0) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: tokens of kind %d", path, kind);
    }
    source->token_bytes = sizes[kind];
    source->token_signed = kind >= 2 && kind <= 5;
    return CY_OK;
}

#define SEQUENCES_AT_ONCE ((uint64_t)1024)

// The sequences must follow each other in the .bin without a gap: then the file is one row. *at is
// where the last one ends.
static cy_status check_sequences(
    uint64_t *at, const file_source *source, const cy_input_file *index, uint64_t sequences)
{
    unsigned char lengths[SEQUENCES_AT_ONCE * 4], places[SEQUENCES_AT_ONCE * 8];
    *at = 0;
    for (uint64_t i = 0; i < sequences; i++) {
        const uint64_t k = i % SEQUENCES_AT_ONCE, left = sequences - i;
        const uint64_t some = left < SEQUENCES_AT_ONCE ? left : SEQUENCES_AT_ONCE;
        if (k == 0) {
            CY_TRY(cy_input_read(index, lengths, INDEX_HEADER_BYTES + 4 * i, (size_t)some * 4));
            CY_TRY(cy_input_read(
                index, places, INDEX_HEADER_BYTES + 4 * sequences + 8 * i, (size_t)some * 8));
        }
        const uint32_t length = u32_at(lengths, 4 * k);
        const uint64_t place = u64_at(places, 8 * k);
        if (length > INT32_MAX) { // the index counts in int32
            return CY_FAIL(CY_ERR_CORRUPT,
                "%s: sequence %" PRIu64 " has %" PRIu32 " tokens, at most %d can be", index->path,
                i, length, INT32_MAX);
        }
        if (place != *at) {
            return CY_FAIL(CY_ERR_UNSUPPORTED,
                "%s: sequence %" PRIu64 " begins at byte %" PRIu64 ", not where the one before "
                "it ends, %" PRIu64,
                index->path, i, place, *at);
        }
        *at += (uint64_t)length * (uint64_t)source->token_bytes;
    }
    return CY_OK;
}

static cy_status check_index(file_source *source, const cy_input_file *index)
{
    const char *path = index->path;
    unsigned char head[INDEX_HEADER_BYTES] = {0};
    if (index->bytes >= sizeof(head)) CY_TRY(cy_input_read(index, head, 0, sizeof(head)));
    if (memcmp(head, INDEX_MAGIC, INDEX_MAGIC_BYTES) != 0) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: not Megatron's index", path);
    }
    if (u64_at(head, 9) != 1) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: version %" PRIu64 " of the index, this reads 1", path,
            u64_at(head, 9));
    }
    CY_TRY(read_kind(source, path, head[17]));
    const uint64_t sequences = u64_at(head, 18), bounds = u64_at(head, 26);
    const uint64_t rest = index->bytes - INDEX_HEADER_BYTES;
    if (sequences > rest / 12 || bounds != (rest - sequences * 12) / 8 ||
        (rest - sequences * 12) % 8 != 0) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: %" PRIu64 " bytes do not hold %" PRIu64 " sequences and %" PRIu64
            " document bounds",
            path, index->bytes, sequences, bounds);
    }
    uint64_t at = 0;
    CY_TRY(check_sequences(&at, source, index, sequences));
    if (at != source->file.bytes) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s: the sequences have %" PRIu64 " bytes, the .bin has %" PRIu64, path, at,
            source->file.bytes);
    }
    source->base.token_count = (int64_t)(at / (uint64_t)source->token_bytes);
    source->base.document_count = bounds > 0 ? (int64_t)bounds - 1 : 0;
    return CY_OK;
}

static cy_status read_indexed(file_source *source, const char *index_path)
{
    cy_input_file index;
    source->base.ops = &megatron_ops;
    CY_TRY(cy_input_open(&index, index_path));
    const cy_status status = check_index(source, &index);
    cy_input_close(&index);
    return status;
}

static cy_status open_file(cy_token_source **source, const char *path)
{
    const size_t length = strlen(path); // it ends in .bin or .idx
    cy_text bin = {0}, idx = {0};
    file_source *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    made->base.document_count = made->base.text_bytes = -1;
    cy_status status = cy_text_add(&bin, "%.*s.bin", (int)length - 4, path);
    if (status == CY_OK) status = cy_text_add(&idx, "%.*s.idx", (int)length - 4, path);
    if (status == CY_OK) status = cy_input_open(&made->file, bin.bytes);
    bool indexed = false;
    if (status == CY_OK) status = cy_path_find(&indexed, idx.bytes);
    if (status == CY_OK) {
        status = indexed ? read_indexed(made, idx.bytes) : read_bin(made, bin.bytes);
    }
    cy_text_free(&bin);
    cy_text_free(&idx);
    if (status != CY_OK) {
        file_close(&made->base);
        return status;
    }
    *source = &made->base;
    return CY_OK;
}

// ---- opening

// Whether this tokenizer gives the ids of the one that made the shards: the tokenizer.json beside
// them, if it has their hash, is compared by what decides ids.
static cy_status is_same_tokenizer(
    bool *same, const cy_token_source *source, const cy_tokenizer *tokenizer)
{
    cy_text path = {0};
    cy_tokenizer *other = NULL;
    *same = false;
    cy_status status = cy_text_add(&path, "%s/tokenizer.json", source->path);
    bool there = false;
    if (status == CY_OK) status = cy_path_find(&there, path.bytes);
    if (there) {
        status = cy_tokenizer_open(&other, path.bytes);
        if (status == CY_OK) {
            *same = cy_tokenizer_hash(other) == source->tokenizer_hash &&
                cy_tokenizer_fingerprint(other) == cy_tokenizer_fingerprint(tokenizer);
        }
    }
    cy_tokenizer_close(other);
    cy_text_free(&path);
    return status;
}

static cy_status check_tokenizer(const cy_token_source *source, const cy_tokenizer *tokenizer)
{
    if (tokenizer == NULL || source->tokenizer_hash == 0) return CY_OK;
    if (source->tokenizer_hash == cy_tokenizer_hash(tokenizer)) return CY_OK;
    bool same = false;
    CY_TRY(is_same_tokenizer(&same, source, tokenizer));
    if (same) return CY_OK;
    const cy_status status = CY_FAIL(CY_ERR_REQUEST,
        "%s was prepared with another tokenizer (hash %016" PRIx64 ", this one has %016" PRIx64 ")",
        source->path, source->tokenizer_hash, cy_tokenizer_hash(tokenizer));
    cy_error_set_hint(
        "give the tokenizer.json that it was prepared with, which 'data prepare' leaves "
        "in that folder; checkpoint.accept = tokenizer, or eval's --accept-tokenizer, takes the "
        "ids "
        "as they are");
    return status;
}

bool cy_source_is_file(const char *path)
{
    const size_t length = strlen(path);
    return length > 4 &&
        (strcmp(path + length - 4, ".bin") == 0 || strcmp(path + length - 4, ".idx") == 0);
}

cy_status cy_source_open(
    cy_token_source **source, const char *path, const cy_source_options *options)
{
    cy_token_source *made = NULL;
    bool there = false, shards = false;
    CY_TRY(cy_path_find(&there, path));
    if (!there) return CY_FAIL(CY_ERR_REQUEST, "dataset %s: no such file", path);
    CY_TRY(cy_path_find_folder(&shards, path));
    if (!shards) CY_TRY(cy_shard_is_file(&shards, path));
    if (shards) {
        CY_TRY(open_shards(&made, path));
    } else if (cy_source_is_file(path)) {
        CY_TRY(open_file(&made, path));
    } else {
        CY_TRY(open_text(&made, path, options));
    }
    // Token files of other programs do not store the size of their vocabulary.
    if (made->vocab_size == 0 && options->tokenizer != NULL) {
        made->vocab_size = cy_tokenizer_vocab_size(options->tokenizer);
    }
    if (made->vocab_size == 0) made->vocab_size = options->vocab_size;
    cy_status status = cy_memory_copy_text(&made->path, path);
    if (status == CY_OK && !options->any_tokenizer) {
        status = check_tokenizer(made, options->tokenizer);
    }
    if (status != CY_OK) {
        cy_source_close(made);
        return status;
    }
    *source = made;
    return CY_OK;
}
