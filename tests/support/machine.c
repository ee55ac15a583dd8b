#include "support/machine.h"

#include "base/memory.h"
#include "kernel/dispatch.h"
#include "support/support.h"

#include <string.h>

static void give_back(cy_test_machine *machine)
{
    cy_thread_pool_close(machine->queue.pool);
    cy_memory_unmap(machine->scratch_base, machine->bytes);
    cy_memory_unmap(machine->data_base, machine->bytes);
}

cy_status cy_test_machine_open(cy_test_machine *machine, const char *isa, int workers, size_t bytes)
{
    memset(machine, 0, sizeof(*machine));
    isa = cy_test_isa(isa);
    if (isa == NULL) return CY_FAIL(CY_ERR_UNSUPPORTED, "this level is beyond TEST_ISA");
    machine->bytes = bytes;
    CY_TRY(cy_thread_pool_open(&machine->queue.pool, workers, -1, false));
    cy_status status = cy_memory_map(&machine->scratch_base, bytes);
    if (status == CY_OK) status = cy_memory_map(&machine->data_base, bytes);
    if (status == CY_OK) {
        cy_arena_init(&machine->scratch, "scratch", machine->scratch_base, bytes);
        cy_arena_init(&machine->data, "data", machine->data_base, bytes);
        machine->queue.scratch = &machine->scratch;
        status = cy_kernels_open(&machine->queue, &machine->kernels, isa);
    }
    if (status != CY_OK) give_back(machine);
    return status;
}

cy_status cy_test_machine_close(cy_test_machine *machine)
{
    const size_t kept = machine->scratch.used;
    cy_kernels_close(&machine->queue);
    give_back(machine);
    if (kept == 0) return CY_OK;
    return CY_FAIL(CY_ERR_CORRUPT, "%zu bytes of scratch memory were not given back", kept);
}
