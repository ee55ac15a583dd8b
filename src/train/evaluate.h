// train/evaluate.h: computes the loss over a data set, during a run and of a checkpoint.

#ifndef CY_TRAIN_EVALUATE_H
#define CY_TRAIN_EVALUATE_H

#include "train/data_iterator.h"

#include <stdbool.h>

// Computes the mean loss per token over a split, each rank its share of the samples: over at most
// max_tokens tokens, rounded up to samples (0: all). Collective over the world. *tokens is the
// number of tokens, over all ranks. Where a rank cannot read its samples, all ranks return
// together: that rank with its failure, the others with CY_ERR_PEER. *unread is then true, and the
// ranks can go on together.
CY_MUST_CHECK cy_status cy_evaluate_split(cy_engine *engine, const cy_run_data *data,
    const cy_coordinates *at, cy_dataset_split split, int64_t max_tokens, double *loss,
    int64_t *tokens, bool *unread);

typedef struct cy_evaluate_options {
    const char *checkpoint;  // borrowed: ours or a Hugging Face folder
    const char *const *data; // borrowed, [data_count]: folders of shards, or texts
    int data_count;
    cy_dataset_split split;
    double validation_fraction; // of the data; below 0: the fraction that the run held out
    int64_t seq_length;         // 0: that of the run, else the model's, at most 2048
    int64_t max_tokens;         // 0: all
    cy_config_isa isa;
    int cores;
    bool accept_tokenizer; // use data of another tokenizer
} cy_evaluate_options;

typedef struct cy_evaluation {
    double loss; // nats a token
    double perplexity;
    double bits_per_byte; // of the text of the tokens
    int64_t tokens;
    bool held_out; // a split of the data was evaluated; otherwise all of it
    bool unmarked; // an earlier version wrote the checkpoint, without fingerprints to compare
} cy_evaluation;

CY_MUST_CHECK cy_status cy_evaluate(const cy_evaluate_options *options, cy_evaluation *evaluation);

#endif
