// data/loader.h: microbatches for one rank, read ahead by a thread.
//
// Step n (from 1) takes samples (n-1)B .. nB-1 of the dataset's order, B = micro_batch_size x
// accumulation x dp_size, for every mesh. Row r of microbatch m on data rank d is sample
// (n-1)B + (m dp_size + d) micro_batch_size + r. Ranks that differ only in other dimensions get the
// same rows; a context-parallel rank names the positions that it holds.
//
// A loader belongs to the thread that calls cy_loader_next; the dataset is shared. cy_loader_next
// returns a failure to read.

#ifndef CY_DATA_LOADER_H
#define CY_DATA_LOADER_H

#include "data/dataset.h"

// Positions [first, first + count) of a sequence.
typedef struct cy_position_range {
    int64_t first;
    int64_t count;
} cy_position_range;

// Which samples, and which positions of them.
typedef struct cy_batch_shape {
    cy_dataset_split split;
    int64_t micro_batch_size;
    int accumulation; // microbatches a step, on each data rank
    int dp_rank;
    int dp_size;
    const cy_position_range *ranges; // borrowed, [range_count]; NULL is the whole sequence
    int range_count;
} cy_batch_shape;

typedef struct cy_batch {
    int32_t *inputs;    // [rows, columns]
    int32_t *targets;   // [rows, columns]: the token after each input
    int32_t *positions; // [columns]: where in the sequence each column stands
    int64_t rows;       // micro_batch_size
    int64_t columns;    // positions that this rank holds
    int64_t step;
    int microbatch; // of 0..accumulation-1
} cy_batch;

// Columns of a shape: the sum of its ranges.
int64_t cy_batch_columns(const cy_batch_shape *shape, int64_t seq_length);

// The sample number in row `row` of a microbatch. A pure function.
int64_t cy_batch_sample(const cy_batch_shape *shape, int64_t step, int microbatch, int64_t row);

// Fills the arrays of `batch`, which the caller allocated, for a step and a microbatch.
CY_MUST_CHECK cy_status cy_batch_fill(cy_batch *batch, const cy_dataset *dataset,
    const cy_batch_shape *shape, int64_t step, int microbatch);

typedef struct cy_loader_options {
    const cy_dataset *dataset; // borrowed
    cy_batch_shape shape;      // its ranges are copied
    int64_t first_step;        // from 1
    int ahead;                 // microbatches that are read ahead; 0 is 4
} cy_loader_options;

typedef struct cy_loader cy_loader;

// Starts reading. *loader is owned by the caller.
CY_MUST_CHECK cy_status cy_loader_open(cy_loader **loader, const cy_loader_options *options);
void cy_loader_close(cy_loader *loader);

// Takes the next microbatch: those of first_step in order, then those of the next step, without
// end. The arrays of *batch are borrowed until the next call of this function or of cy_loader_seek.
CY_MUST_CHECK cy_status cy_loader_next(cy_loader *loader, cy_batch *batch);

// Goes to the first microbatch of another step.
void cy_loader_seek(cy_loader *loader, int64_t step);

typedef struct cy_loader_counters {
    int64_t batches; // handed out
    int64_t ready;   // of these, already filled when they were asked for
    int64_t wait_ns; // spent waiting for those that were not
    int64_t fill_ns; // that the loader's thread spent reading
} cy_loader_counters;

cy_loader_counters cy_loader_count(const cy_loader *loader);

#endif
