// train/algorithms.h: which algorithm each group of a run adds with.
//
// `auto` is measured on the run's own groups as it starts, among the algorithms that come to the
// bits of the backend's own sums: the clock decides how long a step takes and never what it
// computes. The choice goes into the run's resolved configuration, which measures no more.

#ifndef CY_TRAIN_ALGORITHMS_H
#define CY_TRAIN_ALGORITHMS_H

#include "train/ranks.h"

// Measures the groups of a rank and wraps those for which another algorithm than the backend's own
// is faster; `config`, the rank's own, gets what auto came to. All ranks of the run call it, with
// the groups just opened, and come to the same choice. About a tenth of a second at most.
CY_MUST_CHECK cy_status cy_rank_choose_algorithms(cy_rank *rank, cy_config *config);

// Adds what a person should know of the choice, in a line; nothing where there is nothing to say.
CY_MUST_CHECK cy_status cy_rank_describe_algorithms(const cy_rank *rank, cy_text *text);

#endif
