// Token files of other programs, read in place: llm.c's .bin (a header of 256 integers), nanoGPT's
// .bin (nothing but tokens of 2 bytes) and Megatron's .bin with its .idx.

#include "base/file.h"
#include "base/memory.h"
#include "data/source.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

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

cy_status cy_source_open_file(cy_token_source **source, const char *path)
{
    const size_t length = strlen(path); // it ends in .bin or .idx
    cy_text bin = {0}, idx = {0};
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(file_source)));
    file_source *made = block;
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
