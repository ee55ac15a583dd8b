// cli/stop.h: Ctrl-C and SIGTERM as a wish that long work looks at.
//
// A thread of its own waits for both; every thread that is started while a cy_stop is open has them
// blocked, so open it before all others. No thread that computes may run a handler, see
// docs/pitfalls.md.

#ifndef CY_CLI_STOP_H
#define CY_CLI_STOP_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct cy_stop {
    sigset_t signals;
    pthread_t thread;
    bool watching;
    atomic_int asked;
} cy_stop;

// From now on the first of these signals is only noted; the second ends the process at once. Opens
// in place. Where no thread can be had, both keep the system's own action.
void cy_stop_open(cy_stop *stop);
void cy_stop_close(cy_stop *stop);

// The signal that was noted, or 0. Any thread may ask.
int cy_stop_asked(cy_stop *stop);

#endif
