// base/thread.h: threads with a stack of a stated size.
//
// Left to itself a thread's stack is as large as `ulimit -s` says, which may be too little for what
// it calls: kernels that oneDNN makes as it goes, and a JSON parser that calls itself for each
// nesting.

#ifndef CY_BASE_THREAD_H
#define CY_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

// Of every thread that this library starts. Only what is touched takes memory.
#define CY_THREAD_STACK_BYTES ((size_t)8 << 20)

// What the thread needs that calls this library: the program looks at its limit as it starts. Every
// command was seen to end well with 192 KiB, and with a fault with 128.
#define CY_MAIN_STACK_BYTES ((size_t)512 << 10)

// pthread_create with a stack of CY_THREAD_STACK_BYTES: 0 or an error number.
int cy_thread_start(pthread_t *thread, void *(*run)(void *), void *context);

#endif
