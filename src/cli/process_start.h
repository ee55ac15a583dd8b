// cli/process_start.h: when this process began.

#ifndef CY_CLI_PROCESS_START_H
#define CY_CLI_PROCESS_START_H

// In the seconds of cy_clock_s(), to a hundredth; the present where the system does not tell.
double cy_process_start_s(void);

#endif
