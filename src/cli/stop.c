#define _POSIX_C_SOURCE 200809L
#include "cli/stop.h"

#include <signal.h>
#include <stddef.h>

// A handler can reach nothing else.
static volatile sig_atomic_t asked;

static void note_signal(int number)
{
    asked = number;
}

void cy_stop_on_signals(void)
{
    // SA_RESETHAND: the second signal meets the system's own action.
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    // A file that grows beyond its limit is then a write that fails, and the run goes on.
    signal(SIGXFSZ, SIG_IGN);
}

int cy_stop_asked(void)
{
    return asked;
}
