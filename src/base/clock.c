// Reads the monotonic clock. A file of its own: a test program links another clock in its place.
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"

#include <time.h>

int64_t cy_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double cy_clock_s(void)
{
    return (double)cy_clock_ns() * 1e-9;
}
