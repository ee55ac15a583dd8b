// support/machine.h: operators with memory of their own: what a test works with that needs no
// engine.
//
// A machine is opened as a run opens its operators (kernel/dispatch.h) and used by one thread.
// Nothing here jumps out of a failure, so ranks that are threads may call it.

#ifndef CY_TESTS_MACHINE_H
#define CY_TESTS_MACHINE_H

#include "kernel/kernel.h"

typedef struct cy_test_machine {
    cy_queue queue;     // its scratch memory is `scratch`
    cy_kernels kernels; // the table that the queue calls
    cy_arena scratch, data;
    void *scratch_base, *data_base; // owned, [bytes] each
    size_t bytes;
} cy_test_machine;

// `isa` names the operators, `bytes` is what each arena holds. On failure nothing stays open.
// *machine must not move while it is open.
CY_MUST_CHECK cy_status cy_test_machine_open(
    cy_test_machine *machine, const char *isa, int workers, size_t bytes);

// CY_ERR_CORRUPT where an operator did not give its scratch memory back. Closes in any case.
CY_MUST_CHECK cy_status cy_test_machine_close(cy_test_machine *machine);

#endif
