// train/replicas.h: that ranks which should hold the same weights do.
//
// The ranks of a gradient group train on different tokens and must start from, and arrive at, the
// same weights, bit for bit. Nothing is repaired here: a difference is a failure that names the
// rank. An engine is used by its rank's thread; all ranks make the call together.

#ifndef CY_TRAIN_REPLICAS_H
#define CY_TRAIN_REPLICAS_H

#include "train/engine.h"

// CY_ERR_PEER, on every rank, where weights for compute are not those of rank zero. With ZeRO-3
// there are no copies to compare.
CY_MUST_CHECK cy_status cy_replicas_check(cy_engine *engine);

#endif
