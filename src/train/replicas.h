// train/replicas.h: that ranks which hold copies of the same numbers hold the same bits.
//
// Four kinds of copies are compared, each over the ranks that hold them:
//
//   gradient group   weights for compute, all of them (ZeRO 0 to 2); with ZeRO 0 master copies and
//                    moments too. Data-parallel and context-parallel ranks.
//   tp               weights, master copies and moments of parameters that are not split: norms,
//                    biases that are added after a row-parallel product
//   kv               the same of kv heads that neighbours share, where tp is larger than their
//   number embedding        the same of a tied embedding on the first and the last stage of a
//   pipeline
//
// A rank hashes what it has of each kind into one table of CY_REPLICA_HASHES numbers, and one
// all-gather of the tables tells every rank the same. Only where they differ is each parameter
// hashed on its own, to name it. Nothing is repaired here: a difference ends the run. An engine is
// used by its rank's thread; all ranks make the call together.

#ifndef CY_TRAIN_REPLICAS_H
#define CY_TRAIN_REPLICAS_H

#include "train/ranks.h"

// CY_ERR_PEER, on every rank with the same text, where a copy differs after `step` updates: "rank
// 3: parameter model.norm.weight differs from rank 1's copy at step 20". Where more than two ranks
// hold a copy, the rank that is named is one of the minority. The shards of a tied embedding are
// compared as a whole: of the ranks that hold them the first is named. `rank` is that of the
// engine, which trains.
CY_MUST_CHECK cy_status cy_replicas_check(cy_engine *engine, const cy_rank *rank, int64_t step);

#endif
