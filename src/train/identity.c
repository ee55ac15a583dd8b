// Compares what a run reads with what the checkpoint that it starts from was trained on.
#include "train/identity.h"

#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// Behind the last newline that a text may be cut at, and its end token: of one line.
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

// One comparison.
typedef struct comparison {
    cy_text *lines;
    const char *path; // of the checkpoint
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
        c->accepts_data = true; // the text's tokens are other ones for that reason alone
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

// Whether a source begins with what it was, all but perhaps its last few tokens. Where the checks
// of shards cover all that it was, they decide.
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

// Whether sources are dealt samples in other shares; without weights they are 0 and go by size.
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

static cy_status compare(comparison *c, const cy_checkpoint *checkpoint, bool weights_only)
{
    CY_TRY(compare_tokenizer(c, checkpoint));
    const bool was_trained = !checkpoint->is_hf && checkpoint->step > 0;
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
    cy_identity_free(&then);
    return status;
}

cy_status cy_identity_compare(cy_text *lines, const cy_identity *run, const cy_config *config,
    const cy_run_data *data, const char *path, bool weights_only)
{
    const cy_config_accept accept = config->checkpoint.accept;
    comparison c = {
        .lines = lines,
        .path = path,
        .now = run,
        .data = data,
        .accepts_tokenizer = accept == CY_CONFIG_ACCEPT_TOKENIZER || accept == CY_CONFIG_ACCEPT_ALL,
        .accepts_data = accept == CY_CONFIG_ACCEPT_DATA || accept == CY_CONFIG_ACCEPT_ALL,
    };
    cy_checkpoint checkpoint;
    CY_TRY(cy_checkpoint_open(&checkpoint, path));
    const cy_status status = compare(&c, &checkpoint, weights_only);
    cy_checkpoint_close(&checkpoint);
    return status;
}
