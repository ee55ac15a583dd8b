// Waits for signals that ask a command to stop or a run to save, and notes them.
#define _POSIX_C_SOURCE 200809L
#include "cli/signal_watch.h"

#include "base/clock.h"
#include "base/thread_pool.h"

#include <stddef.h>

// Signals that come so soon after the first are the same request: `timeout` signals a process and
// then its whole group.
#define SAME_REQUEST_NS INT64_C(500000000)

// Waits for a signal that asks to stop, and notes those that ask for a save. 0 where waiting fails,
// and where cy_signal_watch_close sent it.
static int wait_for_stop(cy_signal_watch *stop)
{
    int number = 0;
    while (sigwait(&stop->signals, &number) == 0) {
        if (atomic_load(&stop->closing)) return 0;
        if (number != SIGUSR1) return number;
        const int64_t saved = atomic_load(&stop->saved_ns);
        if (saved == 0 || cy_clock_ns() - saved >= SAME_REQUEST_NS)
            atomic_store(&stop->save_asked, true);
    }
    return 0;
}

static void *watch(void *context)
{
    cy_signal_watch *stop = context;
    int number = wait_for_stop(stop);
    if (number == 0) return NULL;
    atomic_store(&stop->asked, number);
    const int64_t first = cy_clock_ns();
    do {
        number = wait_for_stop(stop);
        if (number == 0) return NULL;
    } while (cy_clock_ns() - first < SAME_REQUEST_NS || number == SIGUSR2 || number == SIGXCPU);
    // A second signal has the system's own action, and only this thread can get it.
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &stop->signals, NULL);
    raise(number);
    return NULL;
}

static bool is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void cy_signal_watch_open(cy_signal_watch *stop, bool saves)
{
    sigemptyset(&stop->signals);
    sigaddset(&stop->signals, SIGINT);
    sigaddset(&stop->signals, SIGTERM);
    if (!is_ignored(SIGHUP)) sigaddset(&stop->signals, SIGHUP);
    if (saves) {
        sigaddset(&stop->signals, SIGUSR1);
        sigaddset(&stop->signals, SIGUSR2);
        sigaddset(&stop->signals, SIGXCPU); // the system sends it again each second
    }
    atomic_init(&stop->asked, 0);
    atomic_init(&stop->closing, false);
    atomic_init(&stop->save_asked, false);
    atomic_init(&stop->saved_ns, 0);
    pthread_sigmask(SIG_BLOCK, &stop->signals, NULL);
    // A shell makes its background processes ignore SIGINT: sigwait would never see it.
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    stop->watching = cy_thread_start(&stop->thread, watch, stop) == 0;
    if (!stop->watching) pthread_sigmask(SIG_UNBLOCK, &stop->signals, NULL);
}

void cy_signal_watch_close(cy_signal_watch *stop)
{
    if (!stop->watching) return;
    // Not pthread_cancel, which unwinds the thread's stack: under qemu-user that is a fault.
    atomic_store(&stop->closing, true);
    pthread_kill(stop->thread, SIGTERM);
    pthread_join(stop->thread, NULL);
    pthread_sigmask(SIG_UNBLOCK, &stop->signals, NULL);
    stop->watching = false;
}

int cy_signal_watch_stop(cy_signal_watch *stop)
{
    return atomic_load(&stop->asked);
}

bool cy_signal_watch_save(cy_signal_watch *stop)
{
    return atomic_load(&stop->save_asked);
}

void cy_signal_watch_saving(cy_signal_watch *stop)
{
    atomic_store(&stop->saved_ns, cy_clock_ns());
    atomic_store(&stop->save_asked, false);
}
