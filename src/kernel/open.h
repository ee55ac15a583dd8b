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

#endif
