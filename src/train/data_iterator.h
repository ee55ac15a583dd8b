// train/data_iterator.h: opens the data of a run, and gives its microbatches to engines.
//
// A process opens the data once, and its ranks share it. A data iterator belongs to one rank. The
// order of samples follows from the configuration (data/dataset.h).

#ifndef CY_TRAIN_DATA_ITERATOR_H
#define CY_TRAIN_DATA_ITERATOR_H

#include "comm/mesh.h"
#include "data/loader.h"
#include "engine/engine.h"

// The dataset of a run and its tokenizer. Immutable once it is open.
typedef struct cy_run_data {
    cy_tokenizer *tokenizer; // owned; NULL where the shards have none
    cy_dataset *dataset;     // owned
} cy_run_data;

CY_MUST_CHECK cy_status cy_run_data_open(cy_run_data *data, const cy_config *config, int threads);
void cy_run_data_close(cy_run_data *data);

// The same for a training run. Fails also where the run has evaluations and no sample for them.
CY_MUST_CHECK cy_status cy_run_data_open_to_train(
    cy_run_data *data, const cy_config *config, int threads);

// Microbatches of training, read ahead by a thread, from step `first_step` on.
typedef struct cy_data_iterator {
    cy_loader *loader; // owned
    int64_t tokens;    // of a microbatch on this rank
} cy_data_iterator;

CY_MUST_CHECK cy_status cy_data_iterator_open(cy_data_iterator *iterator, const cy_run_data *data,
    const cy_config *config, const cy_coordinates *at, int64_t first_step);
void cy_data_iterator_close(cy_data_iterator *iterator);

// Counts the microbatches so far.
cy_loader_counters cy_data_iterator_count(const cy_data_iterator *iterator);

// The source of microbatches for cy_engine_read. The iterator must outlive it.
cy_batch_source cy_data_iterator_source(cy_data_iterator *iterator);

// The rows and positions of a split that a rank reads. ranges [CY_CONTEXT_RANGES] is filled with
// the positions and borrowed by the result.
cy_batch_shape cy_data_iterator_shape(const cy_config *config, const cy_coordinates *at,
    cy_dataset_split split, cy_position_range *ranges);

#endif
