// checkpoint/comm.h: how the ranks of a job agree while they save, load or verify a checkpoint.
//
// The folder's code knows no groups: who calls it hands over two collectives. Every rank calls each
// function here, in the same order, from its own thread.

#ifndef CY_CHECKPOINT_COMM_H
#define CY_CHECKPOINT_COMM_H

#include "base/status.h"

#include <stdint.h>

// A rank alone passes cy_checkpoint_comm_self(). Both functions are collective and fail only when
// the ranks cannot talk.
typedef struct cy_checkpoint_comm {
    int rank;
    int size;
    // Waits for all ranks; *worst becomes the largest status of all.
    cy_status (*agree)(void *context, cy_status *worst, cy_status mine);
    // Each of values [count] becomes the least that any rank has there.
    cy_status (*least)(void *context, int64_t *values, int64_t count);
    void *context; // borrowed
} cy_checkpoint_comm;

cy_checkpoint_comm cy_checkpoint_comm_self(void);

// All ranks learn whether all succeeded. Returns `mine` where that is a failure, with the text that
// its own rank has; CY_ERR_PEER, "another rank `did` `folder`", where only another one failed.
cy_status cy_checkpoint_agree(
    const cy_checkpoint_comm *ranks, cy_status mine, const char *did, const char *folder);

#endif
