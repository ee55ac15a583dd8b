// Compares what the ranks of a run begin with: one all-gather of a few numbers of each.
#include "train/same_start.h"

#include "base/memory.h"
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <string.h>

// The numbers of a rank: these, then FOR_SOURCE for each source of the data.
enum {
    TOKENIZER,
    FROM_CHECKPOINT,
    WEIGHTS_ONLY,
    STEP,
    CONTENT,
    FOR_ALL,
};

enum {
    TOKENS,
    SAMPLE,
    CUTS,
    CHECKS,
    FOR_SOURCE,
};

static void add(uint64_t *hash, const void *bytes, size_t count)
{
    const uint64_t both[2] = {*hash, cy_checksum(bytes, count)};
    *hash = cy_checksum(both, sizeof(both));
}

cy_start_point cy_start_point_of(const cy_checkpoint *checkpoint, bool weights_only)
{
    cy_start_point start = {
        .from_checkpoint = true,
        .weights_only = weights_only,
        .step = checkpoint->step,
    };
    for (int i = 0; i < checkpoint->file_count; i++) {
        const cy_checkpoint_file *file = &checkpoint->files[i];
        add(&start.content, file->name, strlen(file->name));
        add(&start.content, &file->bytes, sizeof(file->bytes));
    }
    for (int64_t i = 0; i < checkpoint->piece_count; i++) {
        const cy_stored_shard *piece = &checkpoint->pieces[i];
        const int64_t chunks = cy_chunk_count(cy_stored_shard_bytes(piece));
        if (piece->checksums == NULL) continue;
        add(&start.content, piece->checksums, (size_t)chunks * sizeof(uint64_t));
    }
    return start;
}

static void fill(int64_t *numbers, const cy_identity *identity, const cy_start_point *start)
{
    numbers[TOKENIZER] = (int64_t)identity->tokenizer;
    numbers[FROM_CHECKPOINT] = start->from_checkpoint;
    numbers[WEIGHTS_ONLY] = start->weights_only;
    numbers[STEP] = start->step;
    numbers[CONTENT] = (int64_t)start->content;
    for (int i = 0; i < identity->source_count; i++) {
        const cy_fingerprint *whole = &identity->sources[i].whole;
        int64_t *of = numbers + FOR_ALL + i * FOR_SOURCE;
        of[TOKENS] = whole->tokens;
        of[SAMPLE] = (int64_t)whole->sample;
        of[CUTS] = (int64_t)whole->cuts;
        of[CHECKS] = (int64_t)whole->checks;
    }
}

static cy_fingerprint fingerprint(const int64_t *of)
{
    return (cy_fingerprint){
        .tokens = of[TOKENS],
        .sample = (uint64_t)of[SAMPLE],
        .cuts = (uint64_t)of[CUTS],
        .checks = (uint64_t)of[CHECKS],
    };
}

static const char *point(const int64_t *of)
{
    return !of[FROM_CHECKPOINT] ? "no checkpoint" : of[WEIGHTS_ONLY] ? "weights" : "a checkpoint";
}

// The first difference of `rank` from rank 0.
static cy_status compare(
    const int64_t *first, const int64_t *other, int rank, const cy_identity *identity)
{
    if (other[TOKENIZER] != first[TOKENIZER]) {
        return CY_FAIL(CY_ERR_REQUEST,
            "rank %d has another tokenizer than rank 0 (fingerprint %016" PRIx64
            ", rank 0's is %016" PRIx64 ")",
            rank, (uint64_t)other[TOKENIZER], (uint64_t)first[TOKENIZER]);
    }
    for (int i = 0; i < identity->source_count; i++) {
        const cy_fingerprint here = fingerprint(other + FOR_ALL + i * FOR_SOURCE);
        const cy_fingerprint there = fingerprint(first + FOR_ALL + i * FOR_SOURCE);
        if (cy_fingerprint_equal(&here, &there)) continue;
        return CY_FAIL(CY_ERR_REQUEST,
            "rank %d reads other tokens than rank 0 in %s: %" PRId64 ", rank 0 %" PRId64, rank,
            identity->sources[i].path, here.tokens, there.tokens);
    }
    if (other[FROM_CHECKPOINT] != first[FROM_CHECKPOINT] ||
        other[WEIGHTS_ONLY] != first[WEIGHTS_ONLY] || other[STEP] != first[STEP]) {
        return CY_FAIL(CY_ERR_REQUEST,
            "rank %d finds %s to start from, of step %" PRId64 ", rank 0 %s, of step %" PRId64,
            rank, point(other), other[STEP], point(first), first[STEP]);
    }
    if (other[CONTENT] == first[CONTENT]) return CY_OK;
    return CY_FAIL(CY_ERR_REQUEST,
        "rank %d starts from another checkpoint of step %" PRId64 " than rank 0", rank,
        other[STEP]);
}

cy_status cy_same_start_check(cy_engine *engine, const cy_rank *rank, const cy_identity *identity,
    const cy_start_point *start)
{
    const int world = rank->mesh.world;
    const int64_t width = FOR_ALL + (int64_t)identity->source_count * FOR_SOURCE;
    if (world == 1) return CY_OK;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)(width * (world + 1)), sizeof(int64_t)));
    int64_t *all = block, *mine = all + width * world;
    fill(mine, identity, start);
    cy_status status = cy_group_all_gather(engine->options.groups.world, NULL,
        cy_view_of(all, CY_I64, world, width), cy_view_of(mine, CY_I64, 1, width));
    for (int i = 1; status == CY_OK && i < world; i++) {
        status = compare(all, all + i * width, i, identity);
        if (status != CY_OK) {
            cy_error_set_hint(
                "give every machine the same files, or a folder that all of them see");
        }
    }
    cy_memory_free(block);
    return status;
}
