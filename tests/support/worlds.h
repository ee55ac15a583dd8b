// support/worlds.h: the ranks of a world that need a group of all, and operators, but no engine.

#ifndef CY_TESTS_WORLDS_H
#define CY_TESTS_WORLDS_H

#include "comm/world.h"
#include "support/machine.h"

// The group of all ranks of a world, in their order; the caller closes it.
CY_MUST_CHECK cy_status cy_test_open_all(cy_world *world, cy_group **group, const char *dimension);

typedef cy_status (*cy_test_machine_use)(cy_test_machine *machine, cy_group *group, void *context);

// Runs `use` on ranks that are threads, each with a machine of one thread and the group of all
// under "dp". Fails with what the first rank to fail returns; memory of that run is left to the
// process, since transfers may still be on their way into it.
CY_MUST_CHECK cy_status cy_test_on_machines(const cy_world_options *options, const char *isa,
    size_t bytes, cy_test_machine_use use, void *context);

#endif
