// train/data_iterator.h: the text of a run as microbatches for its engines.
//
// The data is opened once a process and shared by the ranks that are threads; a feed belongs to one
// rank. Everything follows from the configuration: nothing here decides an order.

#ifndef CY_TRAIN_DATA_ITERATOR_H
#define CY_TRAIN_DATA_ITERATOR_H

#include "comm/mesh.h"
#include "data/loader.h"
#include "engine/engine.h"

// The dataset of a run and its tokenizer. Immutable once it is open.
typedef struct cy_run_data {
    cy_tokenizer *tokenizer; // owned; NULL where the shards bring none
    cy_dataset *dataset;     // owned
} cy_run_data;

CY_MUST_CHECK cy_status cy_run_data_open(cy_run_data *data, const cy_config *config, int threads);
void cy_run_data_close(cy_run_data *data);

// The same for a training run, whose evaluations need a sample to evaluate.
CY_MUST_CHECK cy_status cy_run_data_open_to_train(
    cy_run_data *data, const cy_config *config, int threads);

// Microbatches of training, read ahead by a thread, from step `first_step` on.
typedef struct cy_data_iterator {
    cy_loader *loader; // owned
    int64_t tokens;    // of a microbatch on this rank
} cy_data_iterator;

CY_MUST_CHECK cy_status cy_data_iterator_open(cy_data_iterator *feed, const cy_run_data *data,
    const cy_config *config, const cy_coordinates *at, int64_t first_step);
void cy_data_iterator_close(cy_data_iterator *feed);

// What has become of the microbatches so far.
cy_loader_counters cy_data_iterator_count(const cy_data_iterator *feed);

// What cy_engine_train_step reads from. The feed must outlive it.
cy_batch_source cy_data_iterator_source(cy_data_iterator *feed);

// The rows and positions of a split that a rank reads. ranges [CY_CONTEXT_RANGES] is filled with
// the positions and borrowed by the result.
cy_batch_shape cy_data_iterator_shape(const cy_config *config, const cy_coordinates *at,
    cy_dataset_split split, cy_position_range *ranges);

#endif
