#define _POSIX_C_SOURCE 200809L
#include "cli/stop.h"

#include "base/clock.h"

#include <stddef.h>

// Signals that come so soon after the first are the same wish: `timeout` signals a process and then
// its whole group.
#define ONE_WISH_S 0.5

static void *watch(void *context)
{
    cy_stop *stop = context;
    int number = 0;
    if (sigwait(&stop->signals, &number) != 0) return NULL;
    atomic_store(&stop->asked, number);
    const double first = cy_clock_s();
    do {
        if (sigwait(&stop->signals, &number) != 0) return NULL;
    } while (cy_clock_s() - first < ONE_WISH_S);
    // The second one meets the system's own action, and this thread alone can get it.
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &stop->signals, NULL);
    raise(number);
    return NULL;
}

void cy_stop_open(cy_stop *stop)
{
    sigemptyset(&stop->signals);
    sigaddset(&stop->signals, SIGINT);
    sigaddset(&stop->signals, SIGTERM);
    atomic_init(&stop->asked, 0);
    pthread_sigmask(SIG_BLOCK, &stop->signals, NULL);
    // A shell lets what it starts in the background ignore SIGINT: sigwait would never see it.
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    stop->watching = pthread_create(&stop->thread, NULL, watch, stop) == 0;
    if (!stop->watching) pthread_sigmask(SIG_UNBLOCK, &stop->signals, NULL);
}

void cy_stop_close(cy_stop *stop)
{
    if (!stop->watching) return;
    pthread_cancel(stop->thread); // sigwait is where it waits
    pthread_join(stop->thread, NULL);
    pthread_sigmask(SIG_UNBLOCK, &stop->signals, NULL);
    stop->watching = false;
}

int cy_stop_asked(cy_stop *stop)
{
    return atomic_load(&stop->asked);
}
