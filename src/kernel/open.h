// kernel/open.h: choosing the operators for the machine that runs.

#ifndef CY_KERNEL_OPEN_H
#define CY_KERNEL_OPEN_H

#include "kernel/kernel.h"

// Fills `table` with the best operator of this build for this processor and sets queue->kernels and
// queue->kernel_state (owned by the queue until cy_kernels_close). queue->pool must be set. `isa`
// limits the choice: "auto", or a name of cy_kernels.name; a name that the processor or the build
// lacks is CY_ERR_UNSUPPORTED.
CY_MUST_CHECK cy_status cy_kernels_open(cy_queue *queue, cy_kernels *table, const char *isa);
void cy_kernels_close(cy_queue *queue);

// Puts into an open table what follows the formula in the place of what is tuned, to compare with:
// attention of the reference, which strict mode's own already is the like of and stays, and
// cy_kernels.adamw_unfused, whose bits are the same.
void cy_kernels_follow_formula(cy_kernels *table, bool attention, bool adamw);

#endif
