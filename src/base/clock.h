// base/clock.h: the monotonic clock.

#ifndef CY_BASE_CLOCK_H
#define CY_BASE_CLOCK_H

#include <stdint.h>

// Nanoseconds since a fixed instant. The clock never goes back.
int64_t cy_clock_ns(void);

// The same in seconds.
double cy_clock_s(void);

#endif
