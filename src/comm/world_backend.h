// comm/world_backend.h: what a backend of worlds offers. Included by backends only.

#ifndef CY_COMM_WORLD_BACKEND_H
#define CY_COMM_WORLD_BACKEND_H

#include "comm/world.h"

typedef struct cy_world_ops {
    const char *name;
    cy_status (*open_group)(
        cy_world *world, cy_group **group, const int *ranks, int count, const char *dimension);
    bool (*shares_machine)(const cy_world *world, int rank);
    void (*abort)(cy_world *world, const char *text);
    // See cy_world_fail.
    bool (*fail)(cy_world *world, cy_status status);
} cy_world_ops;

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): counters have a cache line each
struct cy_world { // first member of every backend's own struct
    const cy_world_ops *ops;
    int rank;
    int size;
    cy_world_options options;
    _Atomic uint64_t *shown_beat; // borrowed: where other processes see it; NULL: `beat`
    _Alignas(64) _Atomic uint64_t beat;
};

#endif
