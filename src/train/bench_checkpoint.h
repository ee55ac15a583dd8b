// train/bench_checkpoint.h: saving and loading a model's whole state, beside plain files of the
// same size on the same disk.

#ifndef CY_TRAIN_BENCH_CHECKPOINT_H
#define CY_TRAIN_BENCH_CHECKPOINT_H

#include "config/config.h"

typedef struct cy_bench_checkpoint_options {
    const char *folder; // borrowed: where everything is written; on the disk in question
    const char *load;   // borrowed: a checkpoint to load instead of saving one, or NULL
    int rounds;         // at least 1
    cy_config_machine machine;
} cy_bench_checkpoint_options;

// Seconds are medians over rounds. "plain" is what `dd bs=1M conv=fsync` does with as many bytes,
// and a reading of the same files, one after the other, in calls of 1 MiB. What is read was put out
// of the page cache before.
typedef struct cy_bench_checkpoint_result {
    int64_t bytes;        // of the files that the ranks wrote, or found
    double save_s;        // until the checkpoint stood, forced to disk and named; 0 when loading
    double plain_write_s; // 0 when loading
    double load_s;        // verified and in place on all ranks
    double plain_read_s;
    int64_t read_bytes;   // of all ranks, for their pieces
    int64_t verify_bytes; // of all ranks, compared with checksums
    int64_t file_bytes;   // of all ranks, out of files
    int ranks;
} cy_bench_checkpoint_result;

// Fails with CY_ERR_IO where the folder's disk has no room. What it wrote is removed, but for the
// last checkpoint when `load` is NULL: FOLDER/saves/step-00000001.
CY_MUST_CHECK cy_status cy_bench_checkpoint(const cy_config *config,
    const cy_bench_checkpoint_options *options, cy_bench_checkpoint_result *result);

#endif
