// engine/partial_grads.h: gradients that tensor-parallel ranks hold in parts.
//
// Most parameters are either cut over the tensor-parallel ranks, and then each rank's gradient is
// whole, or held by all of them with the same gradient. Three kinds are neither, and their
// gradients are sums over ranks that nobody has taken yet:
//
//   the norms of q and k, one weight for all heads: each rank has seen its own heads only;
//   norms and output biases with sequence parallelism: each rank has seen its own tokens only;
//   K and V of kv heads that several ranks share: each has seen its own query heads only.
//
// The sums are taken once a step, over what a rank owns after the reduction over data, so that with
// ZeRO only a share moves. Part of the engine: its thread, its failures.

#ifndef CY_ENGINE_PARTIAL_GRADS_H
#define CY_ENGINE_PARTIAL_GRADS_H

#include "engine/engine.h"

// After cy_reducer_finish. All ranks of a tensor-parallel group call it together.
CY_MUST_CHECK cy_status cy_engine_reduce_partial_grads(cy_engine *engine);

#endif
