// Cuts sources into samples, and computes which sample comes when: a permutation of each source and
// a mixture of the sources, both pure functions of a sample's number, so there is no shuffle array
// and no index file, and resuming a run is arithmetic.

#include "data/dataset.h"

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>

// ---- the order of samples

#define ROUNDS 6
#define ONE    ((uint64_t)1 << 32)

int64_t cy_permute(uint64_t key, int64_t index, int64_t count)
{
    CY_ASSERT(0 <= index && index < count);
    int half = 1;
    while (half < 31 && (int64_t)1 << (2 * half) < count)
        half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t at = (uint64_t)index;
    do {
        uint64_t left = at >> half, right = at & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            const uint64_t mixed = cy_random_key_at(key + round, right);
            const uint64_t next = left ^ (mixed & mask);
            left = right;
            right = next;
        }
        at = left << half | right;
    } while (at >= (uint64_t)count);
    return (int64_t)at;
}

void cy_mixture_init(cy_mixture *mixture, const double *weights, int count)
{
    CY_ASSERT(1 <= count && count <= CY_MIXTURE_SOURCES_MAX);
    double left = 0;
    for (int k = 0; k < count; k++)
        left += weights[k];
    mixture->count = count;
    for (int k = 0; k < count; k++) {
        CY_ASSERT(weights[k] > 0);
        // The last source takes all that is left, so that rounding loses nothing.
        const double share = k + 1 == count ? 1.0 : weights[k] / left;
        mixture->share[k] = share >= 1.0 ? ONE : (uint64_t)(share * (double)ONE);
        left -= weights[k];
    }
}

// How many of the first n samples a source with this share gives.
static int64_t given(uint64_t share, int64_t n)
{
    const uint64_t high = (uint64_t)n >> 32, low = (uint64_t)n & (ONE - 1);
    return (int64_t)(high * share + ((low * share + ONE / 2) >> 32));
}

cy_mixture_sample cy_mixture_pick(const cy_mixture *mixture, int64_t number)
{
    CY_ASSERT(number >= 0);
    for (int k = 0;; k++) {
        const int64_t before = given(mixture->share[k], number);
        const int64_t after = given(mixture->share[k], number + 1);
        if (after > before) return (cy_mixture_sample){.source = k, .index = before};
        CY_ASSERT(k + 1 < mixture->count);
        number -= before;
    }
}

// ---- datasets

// A source and its splits.
typedef struct part {
    cy_token_source *source; // owned
    int64_t train_tokens;    // the rest, at the end, is held out
    int64_t samples[2];      // by split
    uint64_t key;            // of its permutation
} part;

struct cy_dataset {
    part *parts; // owned, [count]
    int count;
    cy_mixture mixture;
    int64_t seq_length;
    int64_t samples[2];
    int64_t tokens[2];
    int32_t vocab_size;
};

void cy_dataset_close(cy_dataset *dataset)
{
    if (dataset == NULL) return;
    for (int i = 0; i < dataset->count; i++)
        cy_source_close(dataset->parts[i].source);
    cy_memory_free(dataset->parts);
    cy_memory_free(dataset);
}

static int64_t samples_in(int64_t tokens, int64_t seq_length)
{
    return tokens > 0 ? (tokens - 1) / seq_length : 0;
}

static cy_status check(const cy_dataset_options *options)
{
    if (options->count < 1 || options->count > CY_MIXTURE_SOURCES_MAX) {
        return CY_FAIL(CY_ERR_REQUEST, "dataset: %d sources, 1 to %d can be mixed", options->count,
            CY_MIXTURE_SOURCES_MAX);
    }
    if (options->seq_length < 1) {
        return CY_FAIL(
            CY_ERR_REQUEST, "dataset: seq_length %" PRId64 " is below 1", options->seq_length);
    }
    if (!(options->validation_fraction >= 0 && options->validation_fraction < 1)) {
        return CY_FAIL(CY_ERR_REQUEST, "dataset: validation_fraction %g is not in [0, 1)",
            options->validation_fraction);
    }
    if (options->num_samples < 0) {
        return CY_FAIL(
            CY_ERR_REQUEST, "dataset: num_samples %" PRId64 " is below 0", options->num_samples);
    }
    int given = 0;
    for (int i = 0; i < options->count; i++) {
        const double weight = options->entries[i].weight;
        if (!isfinite(weight) || weight < 0) {
            return CY_FAIL(CY_ERR_REQUEST, "dataset: weight %g of %s is not above 0", weight,
                options->entries[i].path);
        }
        given += weight > 0;
    }
    if (given != 0 && given != options->count) {
        return CY_FAIL(CY_ERR_REQUEST, "dataset: %d of %d sources have a weight; all or none must",
            given, options->count);
    }
    return CY_OK;
}

static cy_status open_part(cy_dataset *dataset, int index, const cy_dataset_options *options)
{
    part *p = &dataset->parts[index];
    const cy_source_options source_options = {.tokenizer = options->tokenizer,
        .threads = options->threads,
        .vocab_size = options->vocab_size,
        .any_tokenizer = options->any_tokenizer};
    CY_TRY(cy_source_open(&p->source, options->entries[index].path, &source_options));
    const int64_t tokens = p->source->token_count;
    const int64_t held_out = (int64_t)((double)tokens * options->validation_fraction);
    p->train_tokens = tokens - held_out;
    p->samples[CY_DATASET_TRAIN] = samples_in(p->train_tokens, options->seq_length);
    p->samples[CY_DATASET_VALIDATION] = samples_in(held_out, options->seq_length);
    p->key = cy_random_key_at(cy_random_key(options->seed, "data.order"), (uint64_t)index);
    if (p->samples[CY_DATASET_TRAIN] == 0) {
        return CY_FAIL(CY_ERR_REQUEST,
            "%s: %" PRId64 " tokens to train on, a sample of seq_length %" PRId64 " needs %" PRId64,
            options->entries[index].path, p->train_tokens, options->seq_length,
            options->seq_length + 1);
    }
    dataset->tokens[CY_DATASET_TRAIN] += p->train_tokens;
    dataset->tokens[CY_DATASET_VALIDATION] += held_out;
    if (p->source->vocab_size > dataset->vocab_size) dataset->vocab_size = p->source->vocab_size;
    return CY_OK;
}

// Sets the weights of the sources and divides the limit on samples by them.
static void open_mixture(cy_dataset *dataset, const cy_dataset_options *options)
{
    const int count = dataset->count;
    double weights[CY_MIXTURE_SOURCES_MAX] = {0}, sum = 0;
    for (int i = 0; i < count; i++) {
        const double size = (double)dataset->parts[i].samples[CY_DATASET_TRAIN];
        weights[i] = options->entries[i].weight > 0 ? options->entries[i].weight : size;
        sum += weights[i];
    }
    cy_mixture_init(&dataset->mixture, weights, count);
    for (int i = 0; i < count; i++) {
        part *p = &dataset->parts[i];
        int64_t *samples = &p->samples[CY_DATASET_TRAIN];
        const double limit = ceil((double)options->num_samples * weights[i] / sum);
        if (options->num_samples > 0 && limit < (double)*samples) *samples = (int64_t)limit;
        dataset->samples[CY_DATASET_TRAIN] += *samples;
        dataset->samples[CY_DATASET_VALIDATION] += p->samples[CY_DATASET_VALIDATION];
    }
}

cy_status cy_dataset_open(cy_dataset **dataset, const cy_dataset_options *options)
{
    CY_TRY(check(options));
    cy_dataset *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    made->seq_length = options->seq_length;
    cy_status status = CY_ALLOC(&made->parts, (size_t)options->count);
    if (status != CY_OK) goto close;
    for (int i = 0; i < options->count; i++) {
        made->count = i + 1;
        status = open_part(made, i, options);
        if (status != CY_OK) goto close;
    }
    if (options->tokenizer != NULL) made->vocab_size = cy_tokenizer_vocab_size(options->tokenizer);
    open_mixture(made, options);
    *dataset = made;
    return CY_OK;

close:
    cy_dataset_close(made);
    return status;
}

int64_t cy_dataset_samples(const cy_dataset *dataset, cy_dataset_split split)
{
    return dataset->samples[split];
}

cy_status cy_dataset_check(const cy_dataset *dataset, cy_dataset_split split)
{
    if (dataset->samples[split] > 0) return CY_OK;
    const bool trains = split == CY_DATASET_TRAIN;
    const cy_status status = CY_FAIL(CY_ERR_REQUEST,
        "the %s part has %" PRId64 " tokens, a sample of seq_length %" PRId64 " needs %" PRId64,
        trains ? "training" : "validation", dataset->tokens[split], dataset->seq_length,
        dataset->seq_length + 1);
    if (!trains) cy_error_set_hint("a larger dataset.validation_fraction keeps more back");
    return status;
}

int64_t cy_dataset_tokens(const cy_dataset *dataset, cy_dataset_split split)
{
    return dataset->tokens[split];
}

int64_t cy_dataset_seq_length(const cy_dataset *dataset)
{
    return dataset->seq_length;
}

int32_t cy_dataset_vocab_size(const cy_dataset *dataset)
{
    return dataset->vocab_size;
}

const cy_token_source *cy_dataset_source(const cy_dataset *dataset, int index)
{
    CY_ASSERT(0 <= index && index < dataset->count);
    return dataset->parts[index].source;
}

static cy_sample find_train(const cy_dataset *dataset, int64_t number)
{
    const cy_mixture_sample pick = cy_mixture_pick(&dataset->mixture, number);
    const part *p = &dataset->parts[pick.source];
    const int64_t samples = p->samples[CY_DATASET_TRAIN];
    const int64_t epoch = pick.index / samples;
    const uint64_t key = cy_random_key_at(p->key, (uint64_t)epoch);
    const int64_t index = cy_permute(key, pick.index % samples, samples);
    return (cy_sample){.source = pick.source, .first = index * dataset->seq_length, .epoch = epoch};
}

cy_sample cy_dataset_find(const cy_dataset *dataset, cy_dataset_split split, int64_t number)
{
    CY_ASSERT(number >= 0 && dataset->samples[split] > 0);
    if (split == CY_DATASET_TRAIN) return find_train(dataset, number);
    const int64_t epoch = number / dataset->samples[split];
    int64_t index = number % dataset->samples[split];
    int source = 0;
    while (index >= dataset->parts[source].samples[split]) {
        index -= dataset->parts[source++].samples[split];
    }
    return (cy_sample){.source = source,
        .first = dataset->parts[source].train_tokens + index * dataset->seq_length,
        .epoch = epoch};
}

cy_status cy_dataset_read(const cy_dataset *dataset, int32_t *out, cy_dataset_split split,
    int64_t number, int64_t first, int64_t count)
{
    CY_ASSERT(0 <= first && 0 <= count && first + count <= dataset->seq_length + 1);
    const cy_sample sample = cy_dataset_find(dataset, split, number);
    return cy_source_read(dataset->parts[sample.source].source, out, sample.first + first, count);
}
