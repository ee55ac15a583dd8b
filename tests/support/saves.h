// support/saves.h: the tensors of support/shards.h, saved and loaded by the ranks of a mesh.
//
// Nothing here jumps out of a failure, so ranks that are threads may call it.

#ifndef CY_TESTS_SAVES_H
#define CY_TESTS_SAVES_H

#include "checkpoint/save.h"
#include "support/shards.h"

// What a mesh has, and where it saves it. `scale`, `gap` and `run` as in shards.h.
typedef struct cy_test_state {
    const char *folder; // borrowed: of checkpoints
    cy_test_mesh mesh;
    int scale, gap, run;
    int64_t step;
    const char *device; // borrowed: that holds the shards; NULL: the host does
} cy_test_state;

// One rank's part of a save through an open saver. `also` says what else the checkpoint holds; its
// step, tensors and pieces are filled in.
CY_MUST_CHECK cy_status cy_test_save_with(
    cy_saver *saver, const cy_test_state *state, int rank, cy_save also);

// The same through a saver of its own.
CY_MUST_CHECK cy_status cy_test_save(
    const cy_test_state *state, cy_group *ranks, int keep_last, cy_save also);

// One rank's part of a checked load into memory of its own; adds to *traffic. CY_ERR_CORRUPT where
// a value is not the state's, or where anything but the rank's bytes was read.
CY_MUST_CHECK cy_status cy_test_load(cy_checkpoint *checkpoint, const cy_test_state *state,
    cy_group *ranks, cy_checkpoint_traffic *traffic);

#endif
