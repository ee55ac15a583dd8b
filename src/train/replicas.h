// train/replicas.h: checks that ranks which hold copies of the same numbers hold the same bits.
//
// Four kinds of copies are compared, each over the ranks that hold them:
//
//   gradient group  data-parallel and context-parallel ranks: all weights for compute (ZeRO 0 to
//   2);
//                   with ZeRO 0 also master copies and moments
//   tp              weights, master copies and moments of parameters that are not split: norms, and
//                   biases that are added after a row-parallel product
//   kv              the same arrays of kv heads that neighbours share, where there are more
//                   tensor-parallel ranks than kv heads
//   embedding       the same arrays of a tied embedding, on the first and the last stage of a
//                   pipeline
//
// A rank hashes its copies of each kind into one table, and one all-gather of the tables gives
// every rank the tables of all ranks. Only after a difference each parameter is hashed on its own,
// to name the one that differs. Nothing is repaired: a difference ends the run. The thread of a
// rank uses its engine, and all ranks make the call together.

#ifndef CY_TRAIN_REPLICAS_H
#define CY_TRAIN_REPLICAS_H

#include "train/ranks.h"

// Where a copy differs after `step` updates, all ranks fail with CY_ERR_PEER and the same text:
// "rank 3: parameter model.norm.weight differs from rank 1's copy at step 20". Of more than two
// copies, the named rank holds one that fewer ranks have. The shards of a tied embedding are
// compared as a whole, and the first rank that holds one of them is named. `rank` is the rank of
// the engine, which trains.
CY_MUST_CHECK cy_status cy_replicas_check(cy_engine *engine, const cy_rank *rank, int64_t step);

#endif
