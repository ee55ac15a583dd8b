// data/dataset.h: samples of seq_length + 1 tokens out of one or more sources, in a fixed order.
//
// Sample i of a source is its tokens [i S, i S + S + 1): inputs and targets of S positions, the
// last target being the first input of the next sample. The last part of each source may be held
// out for validation. The seed decides the order of training samples, which is a new one in each
// epoch of a source; validation samples come in the order of the source. A dataset is immutable
// once it is open: open one in each process and share it between the ranks that are threads.

#ifndef CY_DATA_DATASET_H
#define CY_DATA_DATASET_H

#include "data/source.h"

#include <stdint.h>

// ---- the order of samples

// Element `index` of the permutation of 0..count-1 that the key selects: a Feistel network over the
// next power of four, applied until the result is below count. count >= 1, 0 <= index < count.
int64_t cy_permute(uint64_t key, int64_t index, int64_t count);

#define CY_MIXTURE_SOURCES_MAX 64

// How samples are drawn from several sources. Shares are in units of 2^-32.
typedef struct cy_mixture {
    int count;
    uint64_t share[CY_MIXTURE_SOURCES_MAX]; // of source k, in what the sources before it leave
} cy_mixture;

// weights [count] > 0, count >= 1.
void cy_mixture_init(cy_mixture *mixture, const double *weights, int count);

typedef struct cy_mixture_sample {
    int source;
    int64_t index; // how many samples of this source come before it
} cy_mixture_sample;

// Which source sample `number` >= 0 comes from. Sources alternate as evenly as their weights allow:
// of the first n samples each gives its share of n, within one sample per source.
cy_mixture_sample cy_mixture_pick(const cy_mixture *mixture, int64_t number);

// ---- datasets

typedef enum cy_dataset_split {
    CY_DATASET_TRAIN,
    CY_DATASET_VALIDATION,
} cy_dataset_split;

typedef struct cy_dataset_entry {
    const char *path; // borrowed
    double weight;    // 0: not given, in all entries or none; the sizes are the weights then
} cy_dataset_entry;

typedef struct cy_dataset_options {
    const cy_dataset_entry *entries; // borrowed, [count]
    int count;
    const cy_tokenizer *tokenizer; // borrowed, during the call; NULL: shards only, any vocabulary
    int64_t seq_length;
    double validation_fraction; // of each source's tokens, at its end
    int64_t num_samples;        // the limit on training samples of all sources together; 0: none
    uint64_t seed;
    int threads;        // to tokenize text with; 0 is 1
    int32_t vocab_size; // the model's, for files that do not store theirs; 0: any token
    bool any_tokenizer; // take shards of another tokenizer
} cy_dataset_options;

typedef struct cy_dataset cy_dataset;

// *dataset is owned by the caller. Shards of another tokenizer are CY_ERR_REQUEST.
CY_MUST_CHECK cy_status cy_dataset_open(cy_dataset **dataset, const cy_dataset_options *options);
void cy_dataset_close(cy_dataset *dataset);

// Samples in one epoch; 0 for a validation part of less than one sample.
int64_t cy_dataset_samples(const cy_dataset *dataset, cy_dataset_split split);

// CY_ERR_REQUEST, with the numbers, where a split has less than one sample.
CY_MUST_CHECK cy_status cy_dataset_check(const cy_dataset *dataset, cy_dataset_split split);

int64_t cy_dataset_tokens(const cy_dataset *dataset, cy_dataset_split split);
int64_t cy_dataset_seq_length(const cy_dataset *dataset);

// The highest id that may occur plus one: the tokenizer's, or the largest of the sources'; 0 where
// none of them stores it.
int32_t cy_dataset_vocab_size(const cy_dataset *dataset);

// Source `index` of the entries, borrowed.
const cy_token_source *cy_dataset_source(const cy_dataset *dataset, int index);

typedef struct cy_sample {
    int source;
    int64_t first; // of its tokens in the source
    int64_t epoch; // complete passes over this source before it
} cy_sample;

// Finds sample `number` >= 0 of a split. A pure function.
cy_sample cy_dataset_find(const cy_dataset *dataset, cy_dataset_split split, int64_t number);

// Reads tokens [first, first + count) of a sample, which are within 0..seq_length, into out
// [count].
CY_MUST_CHECK cy_status cy_dataset_read(const cy_dataset *dataset, int32_t *out,
    cy_dataset_split split, int64_t number, int64_t first, int64_t count);

#endif
