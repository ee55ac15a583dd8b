// Compares a run with the checkpoint that it starts from, and its ranks with each other.
#include "train/identity.h"

#include "base/memory.h"
#include "checkpoint/manifest.h"
#include "config/option_table.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

// A text that grows may change its last tokens: those of its last line, and the end token. A source
// is also compared without that many tokens.
#define END_TOKENS 64

static cy_status identify_source(
    cy_source_identity *made, const cy_token_source *source, const cy_config_source *given)
{
    const int64_t tokens = source->token_count;
    CY_TRY(cy_source_fingerprint(&made->whole, source, tokens));
    CY_TRY(
        cy_source_fingerprint(&made->start, source, tokens > END_TOKENS ? tokens - END_TOKENS : 0));
    made->weight = given->weight;
    snprintf(made->path, sizeof(made->path), "%s", given->path);
    return CY_OK;
}

cy_status cy_identity_of_run(
    cy_identity *identity, const cy_config *config, const cy_run_data *data)
{
    void *block = NULL;
    const int count = config->dataset.source_count;
    CY_TRY(cy_memory_alloc(&block, (size_t)count, sizeof(cy_source_identity)));
    *identity = (cy_identity){
        .tokenizer = data->tokenizer != NULL ? cy_tokenizer_fingerprint(data->tokenizer) : 0,
        .seed = config->training.seed,
        .seq_length = config->training.seq_length,
        .num_samples = config->training.num_samples,
        .batch_samples = cy_config_batch_samples(config),
        .validation_fraction = config->dataset.validation_fraction,
        .sources = block,
        .source_count = count,
    };
    for (int i = 0; i < count; i++) {
        const cy_status status = identify_source(&identity->sources[i],
            cy_dataset_source(data->dataset, i), &config->dataset.sources[i]);
        if (status != CY_OK) {
            cy_identity_free(identity);
            return status;
        }
    }
    return CY_OK;
}

typedef struct comparison {
    cy_text *lines;
    const char *path; // of the checkpoint
    const cy_config *config;
    const cy_identity *now, *then;
    const cy_run_data *data;
    bool accepts_tokenizer, accepts_data;
} comparison;

static cy_status compare_tokenizer(comparison *c, const cy_checkpoint *checkpoint)
{
    uint64_t then = 0;
    const uint64_t now = c->now->tokenizer;
    CY_TRY(cy_identity_tokenizer(&then, checkpoint));
    if (now == 0 || then == 0 || now == then) return CY_OK;
    if (c->accepts_tokenizer) {
        c->accepts_data = true; // the data has other tokens because of the tokenizer
        return cy_text_add(c->lines,
            "%s was trained with another tokenizer, as checkpoint.accept allows\n", c->path);
    }
    const cy_status status = CY_FAIL(CY_ERR_REQUEST,
        "%s was trained with another tokenizer than the data's (fingerprint %016" PRIx64
        ", the data's is %016" PRIx64 "): its embeddings stand for other tokens",
        c->path, then, now);
    cy_error_set_hint("checkpoint.accept = tokenizer goes on all the same");
    return status;
}

// ---- sources

// *grown: the source begins with the tokens that it had, except perhaps the last few. Where the
// checks of shards cover all of these tokens, the checks decide.
static cy_status has_grown(
    bool *grown, const cy_token_source *source, const cy_source_identity *then)
{
    cy_fingerprint whole, start;
    *grown = false;
    if (source->token_count <= then->whole.tokens) return CY_OK;
    CY_TRY(cy_source_fingerprint(&whole, source, then->whole.tokens));
    CY_TRY(cy_source_fingerprint(&start, source, then->start.tokens));
    const bool decided = whole.cuts == then->whole.cuts && whole.cuts != 0 && start.cuts == 0;
    *grown = cy_fingerprint_equal(&whole, &then->whole) ||
        (!decided && start.tokens > 0 && cy_fingerprint_equal(&start, &then->start));
    return CY_OK;
}

static cy_status compare_source(comparison *c, int index)
{
    const cy_source_identity *now = &c->now->sources[index], *then = &c->then->sources[index];
    const int64_t count = now->whole.tokens, before = then->whole.tokens;
    if (cy_fingerprint_equal(&now->whole, &then->whole)) return CY_OK;
    bool grown;
    CY_TRY(has_grown(&grown, cy_dataset_source(c->data->dataset, index), then));
    if (grown) {
        return cy_text_add(c->lines,
            "%s has %" PRId64 " tokens behind the %" PRId64
            " that %s was trained on: from here on samples come from all of them\n",
            now->path, count - before, before, c->path);
    }
    if (strcmp(now->path, then->path) != 0) {
        return cy_text_add(c->lines,
            "%s (%" PRId64 " tokens) is other data than %s (%" PRId64
            "), which %s was trained on\n",
            now->path, count, then->path, before, c->path);
    }
    if (c->accepts_data) {
        return cy_text_add(c->lines,
            "%s has other tokens than when %s was saved, as checkpoint.accept allows\n", now->path,
            c->path);
    }
    const cy_status status = CY_FAIL(CY_ERR_REQUEST,
        "%s has changed since %s was saved: %" PRId64 " tokens, %" PRId64
        " then, and not those with more behind them",
        now->path, c->path, count, before);
    cy_error_set_hint("checkpoint.accept = data goes on with what is there now");
    return status;
}

static cy_status compare_sources(comparison *c)
{
    const int now = c->now->source_count, then = c->then->source_count;
    const int both = now < then ? now : then;
    for (int i = 0; i < both; i++)
        CY_TRY(compare_source(c, i));
    if (now == then) return CY_OK;
    return cy_text_add(c->lines,
        "the data has %d source%s, %s was trained on %d: from here on samples come in another "
        "order\n",
        now, now == 1 ? "" : "s", c->path, then);
}

// ---- order

static cy_status compare_setting(comparison *c, const char *key, double now, double then)
{
    if (now == then) return CY_OK;
    return cy_text_add(c->lines,
        "%s is %s, %s was trained with %s: from here on samples come in another order\n", key,
        cy_json_number_shortest(now).bytes, c->path, cy_json_number_shortest(then).bytes);
}

// Whether the sources have other shares of the samples. Weights that are not given are 0: then the
// sizes of the sources determine the shares.
static bool other_shares(const cy_identity *now, const cy_identity *then)
{
    double sums[2] = {0, 0};
    for (int i = 0; i < now->source_count; i++) {
        sums[0] += now->sources[i].weight;
        sums[1] += then->sources[i].weight;
    }
    if (now->source_count == 1) return false;
    if (sums[0] == 0 || sums[1] == 0) return sums[0] != sums[1];
    for (int i = 0; i < now->source_count; i++) {
        const double one = now->sources[i].weight / sums[0];
        const double other = then->sources[i].weight / sums[1];
        if (fabs(one - other) > 1e-12) return true;
    }
    return false;
}

static cy_status compare_order(comparison *c)
{
    const cy_identity *now = c->now, *then = c->then;
    CY_TRY(compare_setting(c, "training.seed", (double)now->seed, (double)then->seed));
    CY_TRY(compare_setting(
        c, "training.seq_length", (double)now->seq_length, (double)then->seq_length));
    CY_TRY(compare_setting(
        c, "training.num_samples", (double)now->num_samples, (double)then->num_samples));
    CY_TRY(compare_setting(
        c, "the global batch in samples", (double)now->batch_samples, (double)then->batch_samples));
    CY_TRY(compare_setting(
        c, "dataset.validation_fraction", now->validation_fraction, then->validation_fraction));
    if (now->source_count != then->source_count || !other_shares(now, then)) return CY_OK;
    return cy_text_add(c->lines,
        "the weights of dataset.name are others than those that %s was trained with: from here on "
        "samples come in another order\n",
        c->path);
}

// ---- settings

// When a difference matters.
typedef enum relevance {
    ALWAYS,
    TOPK,     // gradients are compressed by top-k now
    RATE_END, // the learning rate depends on the end of the run
} relevance;

static const struct {
    const char *section, *name;
    relevance when;
} settings[] = {
    {"model", "dtype", ALWAYS},
    {"training", "learning_rate", ALWAYS},
    {"training", "min_learning_rate", ALWAYS},
    {"training", "lr_schedule", ALWAYS},
    {"training", "warmup_steps", ALWAYS},
    {"training", "lr_decay_steps", ALWAYS},
    {"training", "total_train_steps", RATE_END},
    {"training", "max_tokens", RATE_END},
    {"training", "weight_decay", ALWAYS},
    {"training", "adam_beta1", ALWAYS},
    {"training", "adam_beta2", ALWAYS},
    {"training", "adam_eps", ALWAYS},
    {"training", "grad_clip", ALWAYS},
    {"training", "strict", ALWAYS},
    {"distributed", "compression", ALWAYS},
    {"distributed", "topk_ratio", TOPK},
    {"distributed", "topk_warmup_steps", TOPK},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

static bool matters(const cy_config *config, relevance when)
{
    const cy_config_training *training = &config->training;
    switch (when) {
    case TOPK:
        return config->distributed.compression == CY_COMPRESSION_TOPK;
    case RATE_END:
        if (training->lr_schedule == CY_LR_WSD) return true;
        return training->lr_schedule != CY_LR_CONSTANT && training->lr_decay_steps == 0;
    case ALWAYS:
        break;
    }
    return true;
}

static cy_status compare_key(cy_text *lines, const cy_config *now, const cy_config *then,
    const cy_key *key, const char *path)
{
    cy_text here = {0}, there = {0};
    cy_status status = cy_key_write(&here, now, key);
    if (status == CY_OK) status = cy_key_write(&there, then, key);
    if (status == CY_OK && strcmp(here.bytes, there.bytes) != 0) {
        status = cy_text_add(lines, "%s.%s is %s, %s was trained with %s\n", key->section,
            key->name, here.bytes, path, there.bytes);
    }
    cy_text_free(&here);
    cy_text_free(&there);
    return status;
}

static cy_status compare_keys(
    cy_text *lines, const cy_config *now, const cy_config *then, const char *path)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        const cy_key *key = cy_config_key(settings[i].section, settings[i].name);
        if (!matters(now, settings[i].when)) continue;
        CY_TRY(compare_key(lines, now, then, key, path));
    }
    return CY_OK;
}

// Adds to *lines a line for each difference from the configuration in the checkpoint, or a line
// that says why the settings are not compared. Adds nothing where the checkpoint has no
// configuration.
static cy_status compare_settings(
    cy_text *lines, const cy_config *config, const cy_checkpoint *checkpoint)
{
    const char *json = checkpoint->config_json;
    if (json == NULL) return CY_OK;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(cy_config)));
    cy_config *then = block;
    cy_config_errors errors = {0};
    cy_status status = cy_config_read(then, &errors, json, strlen(json), checkpoint->path, NULL, 0);
    if (status == CY_OK) {
        status = compare_keys(lines, config, then, checkpoint->path);
    } else if (status != CY_ERR_MEMORY) {
        status = cy_text_add(lines,
            "%s keeps a configuration that this program does not read: its settings are not "
            "compared\n",
            checkpoint->path);
    }
    cy_config_errors_free(&errors);
    cy_memory_free(then);
    return status;
}

// ---- the whole comparison

static cy_status compare(comparison *c, const cy_checkpoint *checkpoint, bool weights_only)
{
    CY_TRY(compare_tokenizer(c, checkpoint));
    const bool was_trained = !checkpoint->is_hf && checkpoint->step > 0;
    if (was_trained && !weights_only) {
        CY_TRY(compare_settings(c->lines, c->config, checkpoint));
    }
    if (was_trained && checkpoint->identity_json == NULL) {
        return cy_text_add(c->lines,
            "%s carries no fingerprints of its data, as an earlier program wrote it: they are not "
            "compared\n",
            c->path);
    }
    if (!was_trained || weights_only) return CY_OK;
    cy_identity then;
    CY_TRY(cy_identity_read(&then, checkpoint));
    c->then = &then;
    cy_status status = compare_sources(c);
    if (status == CY_OK) status = compare_order(c);
    c->then = NULL;
    cy_identity_free(&then);
    return status;
}

static void add_bytes(uint64_t *hash, const void *bytes, size_t count)
{
    const uint64_t both[2] = {*hash, cy_checksum(bytes, count)};
    *hash = cy_checksum(both, sizeof(both));
}

static cy_start_point start_point_of(const cy_checkpoint *checkpoint, bool weights_only)
{
    cy_start_point start = {
        .from_checkpoint = true,
        .weights_only = weights_only,
        .step = checkpoint->step,
    };
    for (int i = 0; i < checkpoint->file_count; i++) {
        const cy_checkpoint_file *file = &checkpoint->files[i];
        add_bytes(&start.content, file->name, strlen(file->name));
        add_bytes(&start.content, &file->bytes, sizeof(file->bytes));
    }
    for (int64_t i = 0; i < checkpoint->piece_count; i++) {
        const cy_stored_shard *piece = &checkpoint->pieces[i];
        const int64_t chunks = cy_chunk_count(cy_stored_shard_bytes(piece));
        if (piece->checksums == NULL) continue;
        add_bytes(&start.content, piece->checksums, (size_t)chunks * sizeof(uint64_t));
    }
    return start;
}

cy_status cy_identity_compare(cy_text *lines, const cy_identity *run, const cy_config *config,
    const cy_run_data *data, const char *path, bool weights_only, cy_start_point *start)
{
    const cy_config_accept accept = config->checkpoint.accept;
    comparison c = {
        .lines = lines,
        .path = path,
        .config = config,
        .now = run,
        .data = data,
        .accepts_tokenizer = accept == CY_CONFIG_ACCEPT_TOKENIZER || accept == CY_CONFIG_ACCEPT_ALL,
        .accepts_data = accept == CY_CONFIG_ACCEPT_DATA || accept == CY_CONFIG_ACCEPT_ALL,
    };
    cy_checkpoint checkpoint;
    CY_TRY(cy_checkpoint_open(&checkpoint, path));
    const cy_status status = compare(&c, &checkpoint, weights_only);
    if (start != NULL) *start = start_point_of(&checkpoint, weights_only);
    cy_checkpoint_close(&checkpoint);
    return status;
}

// ---- between ranks: one all-gather of a few numbers of each rank

// The numbers of a rank: these, then FOR_SOURCE numbers for each source of the data.
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

static void fill(int64_t *numbers, const cy_identity *identity, const cy_start_point *start)
{
    numbers[TOKENIZER] = (int64_t)identity->tokenizer;
    numbers[FROM_CHECKPOINT] = start->from_checkpoint;
    numbers[WEIGHTS_ONLY] = start->weights_only;
    numbers[STEP] = start->step;
    numbers[CONTENT] = (int64_t)start->content;
    for (int i = 0; i < identity->source_count; i++) {
        const cy_fingerprint *whole = &identity->sources[i].whole;
        int64_t *of = numbers + FOR_ALL + (ptrdiff_t)i * FOR_SOURCE;
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

// Fails with the first difference of `rank` from rank 0.
static cy_status compare_start(
    const int64_t *first, const int64_t *other, int rank, const cy_identity *identity)
{
    if (other[TOKENIZER] != first[TOKENIZER]) {
        return CY_FAIL(CY_ERR_REQUEST,
            "rank %d has another tokenizer than rank 0 (fingerprint %016" PRIx64
            ", rank 0's is %016" PRIx64 ")",
            rank, (uint64_t)other[TOKENIZER], (uint64_t)first[TOKENIZER]);
    }
    for (int i = 0; i < identity->source_count; i++) {
        const cy_fingerprint here = fingerprint(other + FOR_ALL + (ptrdiff_t)i * FOR_SOURCE);
        const cy_fingerprint there = fingerprint(first + FOR_ALL + (ptrdiff_t)i * FOR_SOURCE);
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
        status = compare_start(all, all + i * width, i, identity);
        if (status != CY_OK) {
            cy_error_set_hint(
                "give every machine the same files, or a folder that all of them see");
        }
    }
    cy_memory_free(block);
    return status;
}
