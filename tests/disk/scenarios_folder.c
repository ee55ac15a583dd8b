// Folders and files are imported, exported, prepared and read while the disk fails.
#include "disk/case.h"

#include <cyclotron/tokenizer.h>

#include "checkpoint/hf/hf.h"
#include "data/prepare.h"
#include "data/shard.h"
#include "data/source.h"
#include "observe/metrics.h"
#include "support/huggingface.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- import and export

static void import_prepare(int variant)
{
    const cy_model_shape shape = cy_test_shape();
    cy_test_huggingface(disk_path("hub"), &shape, variant % 2 == 0 ? 1 : 3, CY_F32);
}

static void import_work(disk_case *c)
{
    disk_note(c, cy_checkpoint_import(disk_path("hub"), disk_path("out"), c->variant >= 2));
}

static void out_check(disk_case *c)
{
    disk_check_output(c, "out", !c->failed && !c->torn, NULL);
}

const disk_scenario disk_import = {
    .name = "import",
    .share = 7,
    .variants = 4,
    .writes = true,
    .names = {"out"},
    .prepare = import_prepare,
    .work = import_work,
    .check = out_check,
};

static void export_prepare(int variant)
{
    import_prepare(variant);
    disk_must(
        cy_checkpoint_import(disk_path("hub"), disk_path("source"), false), "import a checkpoint");
}

static void export_work(disk_case *c)
{
    const cy_export_options options = {.keep_dtype = c->variant < 2,
        .dtype = CY_BF16,
        .shard_bytes = c->variant % 2 == 0 ? (uint64_t)1 << 30 : 6000};
    disk_note(c, cy_checkpoint_export(disk_path("source"), disk_path("out"), &options));
}

const disk_scenario disk_export = {
    .name = "export",
    .share = 8,
    .variants = 4,
    .writes = true,
    .names = {"out"},
    .prepare = export_prepare,
    .work = export_work,
    .check = out_check,
};

// ---- preparing tokens

// A shard ends with a stretch of 128 KiB of text.
#define LINES_ONE_SHARD  400
#define LINES_TWO_SHARDS 4500

// Made once: training is not what is tested.
static const cy_tokenizer *trained(void)
{
    static cy_tokenizer *tokenizer;
    static const char text[] = "the quick brown fox jumps over the lazy dog; the dog sleeps\n";
    const cy_tokenizer_text one = {.text = text, .bytes = sizeof(text) - 1};
    const cy_tokenizer_train_options options = {.vocab_size = 280};
    if (tokenizer == NULL) {
        disk_must(cy_tokenizer_train(&tokenizer, &one, 1, &options), "train a tokenizer");
    }
    return tokenizer;
}

static void put_text(int lines)
{
    char *text = malloc((size_t)lines * 64);
    size_t count = 0;
    if (text == NULL) abort();
    for (int i = 0; i < lines; i++)
        count += (size_t)sprintf(text + count, "line %d: the lazy fox %d sleeps\n", i, i * 37 % 91);
    disk_put_text("a.txt", text, count);
    count = (size_t)sprintf(text, "{\"text\": \"the dog\"}\n{\"text\": \"jumps over the fox\"}\n");
    disk_put_text("b.jsonl", text, count);
    free(text);
}

static cy_status prepare_tokens(const char *out, int64_t shard_tokens)
{
    const char *const paths[] = {disk_path("a.txt"), disk_path("b.jsonl")};
    cy_prepare_result result;
    const cy_prepare_options options = {.out = out,
        .shard_tokens = shard_tokens,
        .corpus = {.tokenizer = trained(), .paths = paths, .count = 2, .end_token = -1}};
    return cy_data_prepare(&result, &options);
}

static void prepare_prepare(int variant)
{
    put_text(variant == 0 ? LINES_ONE_SHARD : LINES_TWO_SHARDS);
}

static void prepare_work(disk_case *c)
{
    disk_note(c, prepare_tokens(disk_path("out"), c->variant == 0 ? 0 : 2000));
}

const disk_scenario disk_prepare = {
    .name = "prepare",
    .share = 8,
    .variants = 2,
    .writes = true,
    .names = {"out"},
    .prepare = prepare_prepare,
    .work = prepare_work,
    .check = out_check,
};

// ---- reading what others wrote

enum { READ_SHARDS, READ_VERIFY, READ_TEXT, READ_TOKENIZER, READ_HISTORY, READ_HUB, READ_WAYS };

static void read_prepare(int variant)
{
    if (variant == READ_TOKENIZER) {
        disk_must(cy_tokenizer_save(trained(), disk_path("tokenizer.json")), "save a tokenizer");
    } else if (variant == READ_HISTORY) {
        char text[4096];
        size_t count = 0;
        for (int i = 1; i <= 40; i++)
            count +=
                (size_t)sprintf(text + count, "{\"step\":%d,\"loss\":%d.5,\"tok_s\":7}\n", i, i);
        disk_put_text("metrics.jsonl", text, count);
    } else if (variant == READ_HUB) {
        import_prepare(1);
    } else {
        put_text(LINES_TWO_SHARDS);
        disk_must(prepare_tokens(disk_path("tokens"), 2000), "prepare tokens");
    }
}

static uint64_t sum_of(const int32_t *ids, int64_t count)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum = sum * 31 + (uint32_t)ids[i];
    return sum;
}

static cy_status read_source(uint64_t *sum, const char *path)
{
    cy_token_source *source = NULL;
    const cy_source_options options = {.tokenizer = trained()};
    CY_TRY(cy_source_open(&source, path, &options));
    int32_t *ids = malloc((size_t)(source->token_count + 1) * sizeof(int32_t));
    if (ids == NULL) abort();
    cy_status status = CY_OK;
    for (int64_t first = 0; status == CY_OK && first < source->token_count; first += 1500) {
        const int64_t left = source->token_count - first;
        status = cy_source_read(source, ids + first, first, left < 1500 ? left : 1500);
    }
    if (status == CY_OK) *sum = sum_of(ids, source->token_count);
    free(ids);
    cy_source_close(source);
    return status;
}

static cy_status read_verified(uint64_t *sum)
{
    cy_shard shard;
    CY_TRY(cy_shard_open(&shard, disk_path("tokens/shard-00001.tokens")));
    const cy_status status = cy_shard_verify(&shard);
    *sum = shard.header.check;
    cy_shard_close(&shard);
    return status;
}

static cy_status read_tokenizer(uint64_t *sum)
{
    cy_tokenizer *tokenizer = NULL;
    CY_TRY(cy_tokenizer_open(&tokenizer, disk_path("tokenizer.json")));
    *sum = cy_tokenizer_fingerprint(tokenizer);
    cy_tokenizer_close(tokenizer);
    return CY_OK;
}

static cy_status read_history(uint64_t *sum)
{
    cy_history history = {0};
    CY_TRY(cy_history_open(&history, disk_path("metrics.jsonl")));
    *sum = (uint64_t)history.of[CY_METRIC_LOSS].count * 1000 + (uint64_t)history.unreadable;
    cy_history_close(&history);
    return CY_OK;
}

static cy_status read_hub(uint64_t *sum)
{
    cy_checkpoint checkpoint = {0};
    cy_checkpoint_traffic traffic = {0};
    CY_TRY(cy_checkpoint_open_located(&checkpoint, disk_path("hub")));
    int64_t elements = 0;
    cy_status status = CY_OK;
    for (int i = 0; status == CY_OK && i < checkpoint.tensor_count; i++) {
        float memory[64 * 40];
        const cy_global_tensor *tensor = &checkpoint.tensors[i].tensor;
        const cy_rectangle all = {0, tensor->rows, 0, tensor->cols};
        elements = tensor->rows * tensor->cols;
        const cy_tensor_shard piece = cy_tensor_shard_of_range(0, all, 0, elements, memory, CY_F32);
        status = cy_checkpoint_load(&checkpoint, tensor, &piece, 1, &traffic);
        for (int64_t e = 0; status == CY_OK && e < elements; e++)
            *sum = *sum * 31 + (uint64_t)(memory[e] * 1e6f);
    }
    cy_checkpoint_close(&checkpoint);
    return status;
}

static void read_work(disk_case *c)
{
    static uint64_t wanted[READ_WAYS]; // of the first time, when nothing happened
    uint64_t sum = 0;
    cy_status status = CY_OK;
    if (c->variant == READ_SHARDS) status = read_source(&sum, disk_path("tokens"));
    if (c->variant == READ_VERIFY) status = read_verified(&sum);
    if (c->variant == READ_TEXT) status = read_source(&sum, disk_path("a.txt"));
    if (c->variant == READ_TOKENIZER) status = read_tokenizer(&sum);
    if (c->variant == READ_HISTORY) status = read_history(&sum);
    if (c->variant == READ_HUB) status = read_hub(&sum);
    disk_note(c, status);
    if (status != CY_OK) return;
    if (wanted[c->variant] == 0) wanted[c->variant] = sum;
    if (sum != wanted[c->variant]) disk_wrong(c, "what was read is not what is there");
}

const disk_scenario disk_read = {
    .name = "read",
    .share = 10,
    .variants = READ_WAYS,
    .names = {"tokens", "hub"},
    .prepare = read_prepare,
    .work = read_work,
};
