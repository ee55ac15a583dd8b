// train/evaluate.h: the loss of a saved model on a text.

#ifndef CY_TRAIN_EVALUATE_H
#define CY_TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "config/config.h"

#include <stdbool.h>

typedef struct cy_evaluate_options {
    const char *checkpoint;  // borrowed: ours or a Hugging Face folder
    const char *const *data; // borrowed, [data_count]: folders of shards, or texts
    int data_count;
    cy_dataset_split split;
    double validation_fraction; // of the data; below 0: what the run held out
    int64_t seq_length;         // 0: that of the run, or the model's, at most 2048
    int64_t max_tokens;         // 0: all
    cy_config_isa isa;
    int cores;
    bool accept_tokenizer; // take data of another tokenizer
} cy_evaluate_options;

typedef struct cy_evaluation {
    double loss; // nats a token
    double perplexity;
    double bits_per_byte; // of the text that the tokens stand for
    int64_t tokens;
    bool held_out; // the data was cut; otherwise all of it was evaluated
    bool unmarked; // a checkpoint of an earlier program, without fingerprints to compare
} cy_evaluation;

CY_MUST_CHECK cy_status cy_evaluate(const cy_evaluate_options *options, cy_evaluation *evaluation);

#endif
