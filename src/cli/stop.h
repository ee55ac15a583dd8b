// cli/stop.h: signals as wishes that long work looks at.
//
// A thread of its own waits for them; every thread that is started while a cy_stop is open has them
// blocked, so open it before all others. No thread that computes may run a handler, see
// docs/pitfalls.md.

#ifndef CY_CLI_STOP_H
#define CY_CLI_STOP_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct cy_stop {
    sigset_t signals;
    pthread_t thread;
    bool watching;
    atomic_int asked;
    atomic_bool closing; // the next signal ends the thread
    atomic_bool save_asked;
    atomic_int_least64_t saved_ns; // when the last save that was asked for began; 0: never
} cy_stop;

// From now on SIGINT, SIGTERM and SIGHUP are only noted; a second one ends the process at once.
// With `saves` so are SIGUSR2 and SIGXCPU, which ask to stop as these do and never end the process
// at once, and SIGUSR1, which asks for a save.
// SIGHUP stays ignored where it is, as under nohup. Opens in place. Where no thread can be had, all
// keep the system's own action.
void cy_stop_open(cy_stop *stop, bool saves);
void cy_stop_close(cy_stop *stop);

// The signal that asked to stop, or 0. Any thread may ask.
int cy_stop_asked(cy_stop *stop);

// Whether SIGUSR1 has asked for a save since the last call of cy_stop_saving. Launchers send it to
// each process, so one that comes within half a second of that call is the same wish.
bool cy_stop_save_asked(cy_stop *stop);
void cy_stop_saving(cy_stop *stop);

#endif
