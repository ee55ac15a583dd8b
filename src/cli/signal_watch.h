// cli/signal_watch.h: turns signals into requests that long work polls.
//
// A thread of its own waits for them; every thread that is started while a cy_signal_watch is open
// has them blocked, so open it before all others. No thread that computes may run a handler, see
// docs/pitfalls.md.

#ifndef CY_CLI_SIGNAL_WATCH_H
#define CY_CLI_SIGNAL_WATCH_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct cy_signal_watch {
    sigset_t signals;
    pthread_t thread;
    bool watching;
    atomic_int asked;
    atomic_bool closing; // the next signal ends the thread
    atomic_bool save_asked;
    atomic_int_least64_t saved_ns; // when the last save that was asked for began; 0: never
} cy_signal_watch;

// From now on SIGINT, SIGTERM and SIGHUP are only noted; a second one ends the process at once.
// With `saves`, SIGUSR2 and SIGXCPU are noted as requests to stop, too, and never end the process,
// and SIGUSR1 as a request for a save. SIGHUP stays ignored where it is, as under nohup. The watch
// must not move in memory. Where no thread can be started, all keep the system's own action.
void cy_signal_watch_open(cy_signal_watch *stop, bool saves);
void cy_signal_watch_close(cy_signal_watch *stop);

// The signal that asked to stop, or 0. Any thread may ask.
int cy_signal_watch_stop(cy_signal_watch *stop);

// Whether SIGUSR1 has asked for a save since the last call of cy_signal_watch_saving. Launchers
// send it to each process, so one that comes within half a second of that call is the same request.
bool cy_signal_watch_save(cy_signal_watch *stop);
void cy_signal_watch_saving(cy_signal_watch *stop);

#endif
