// base/poison.h: in sanitizer builds, memory that nobody may touch although it is mapped.

#ifndef CY_BASE_POISON_H
#define CY_BASE_POISON_H

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define CY_POISON(p, n)   __asan_poison_memory_region((p), (n))
#define CY_UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define CY_POISON(p, n)   ((void)(p), (void)(n))
#define CY_UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#endif
