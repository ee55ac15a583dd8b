// base/clock.h: the monotonic clock.

#ifndef CY_BASE_CLOCK_H
#define CY_BASE_CLOCK_H

#include <stdint.h>

// Nanoseconds since some fixed instant; never goes back.
int64_t cy_clock_ns(void);

// Seconds, for what is printed.
double cy_clock_s(void);

#endif
