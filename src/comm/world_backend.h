// comm/world_backend.h: what a backend of worlds offers. Included by backends only.

#ifndef CY_COMM_WORLD_BACKEND_H
#define CY_COMM_WORLD_BACKEND_H

#include "comm/rank_page.h"
#include "comm/world.h"

typedef struct cy_world_ops {
    const char *name;
    cy_status (*open_group)(
        cy_world *world, cy_group **group, const int *ranks, int count, const char *dimension);
    int (*node_of)(const cy_world *world, int rank);
    void (*abort)(cy_world *world, const char *text);
    // See cy_world_fail.
    bool (*fail)(cy_world *world, cy_status status);
} cy_world_ops;

struct cy_world { // first member of every backend's own struct
    const cy_world_ops *ops;
    int rank;
    int size;
    int generation; // from 1
    cy_world_options options;
    cy_rank_page *page; // borrowed, or of the backend's own struct
};

// Threads that are consecutive ranks of a larger world.
typedef struct cy_world_local {
    int first;            // world rank of the first thread
    int size;             // ranks of the world
    cy_rank_page **pages; // borrowed, [size]
    char (*hosts)[64];    // borrowed, [size]
    bool spin;            // there is a core for every thread of every rank
    void *context;        // of what follows
    // Why the world has ended, with its text; CY_OK: it has not. Called some times a second.
    cy_status (*failure)(void *context);
    // The first failure among these threads: `text` names the rank. Any of them may call it.
    void (*failed)(void *context, const char *text);
} cy_world_local;

// cy_world_run_threads for such a part; `part` NULL: the threads are the whole world. A failure of
// the world ends the waits of these threads, and a failure of theirs ends the world. *left: a
// thread has not ended and goes on, for options->left_behind.
CY_MUST_CHECK cy_status cy_world_run_local(bool *left, const cy_world_options *options,
    const cy_world_local *part, cy_rank_function function, void *context);

#endif
