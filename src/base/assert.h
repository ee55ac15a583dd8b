// base/assert.h: programmer errors. On in release builds; never for input, configuration or what a
// peer sent.

#ifndef CY_BASE_ASSERT_H
#define CY_BASE_ASSERT_H

// Prints the condition and its place on stderr and aborts.
_Noreturn void cy_assert_failed(const char *condition, const char *file, int line);

#define CY_ASSERT(condition)                                                                       \
    ((condition) ? (void)0 : cy_assert_failed(#condition, __FILE__, __LINE__))

// For inner loops: compiled in debug builds only.
#ifdef CY_DEBUG
#define CY_DEBUG_ASSERT(condition) CY_ASSERT(condition)
#else
#define CY_DEBUG_ASSERT(condition) ((void)0)
#endif

#endif
