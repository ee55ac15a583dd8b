// tests/kernel/machine.h: this machine's operators with memory of their own, for tests that open
// them as a run does (kernel/open.h) and look at what is behind the table.

#ifndef CY_TESTS_KERNEL_MACHINE_H
#define CY_TESTS_KERNEL_MACHINE_H

#include "support/support.h"

#include "base/memory.h"
#include "kernel/open.h"

#include <string.h>

typedef struct machine {
    cy_queue queue;
    cy_kernels kernels;
    cy_arena scratch, data;
    void *scratch_base, *data_base; // owned, [bytes] each
    size_t bytes;
} machine;

static inline void machine_open(machine *self, const char *isa, int workers, size_t bytes)
{
    memset(self, 0, sizeof(*self));
    self->bytes = bytes;
    CY_CHECK_OK(cy_pool_open(&self->queue.pool, workers, -1, false));
    CY_CHECK_OK(cy_memory_map(&self->scratch_base, bytes));
    CY_CHECK_OK(cy_memory_map(&self->data_base, bytes));
    cy_arena_place(&self->scratch, "scratch", self->scratch_base, bytes);
    cy_arena_place(&self->data, "data", self->data_base, bytes);
    self->queue.scratch = &self->scratch;
    CY_CHECK_OK(cy_kernels_open(&self->queue, &self->kernels, isa));
}

// Fails where an operator did not give its scratch memory back.
static inline void machine_close(machine *self)
{
    assert_int_equal(self->scratch.used, 0);
    cy_kernels_close(&self->queue);
    cy_pool_close(self->queue.pool);
    cy_memory_unmap(self->scratch_base, self->bytes);
    cy_memory_unmap(self->data_base, self->bytes);
}

#endif
