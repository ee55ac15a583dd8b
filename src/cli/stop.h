// cli/stop.h: Ctrl-C and SIGTERM as a wish that long work looks at.

#ifndef CY_CLI_STOP_H
#define CY_CLI_STOP_H

// From now on the first of these signals is only noted; the second ends the process at once.
void cy_stop_on_signals(void);

// The signal that was noted, or 0.
int cy_stop_asked(void);

#endif
