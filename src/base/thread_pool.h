// base/thread_pool.h: the threads of one rank.
//
// A pool hands numbered tasks to its workers; the caller is worker 0 and takes part. One thread
// calls cy_thread_pool_run at a time. Idle workers spin for a short while and then sleep, so that
// ranks that outnumber the cores do not fight; with spin off they sleep at once.

#ifndef CY_BASE_THREAD_POOL_H
#define CY_BASE_THREAD_POOL_H

#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- threads
//
// threads with a stack of a stated size.
//
// Left to itself a thread's stack is as large as `ulimit -s` says, which may be too little for what
// it calls: kernels that oneDNN makes as it goes, and a JSON parser that calls itself for each
// nesting.

// Of every thread that this library starts. Only what is touched takes memory.
#define CY_THREAD_STACK_BYTES ((size_t)8 << 20)

// What the thread needs that calls this library: the program looks at its limit as it starts. Every
// command was seen to end well with 192 KiB, and with a fault with 128.
#define CY_MAIN_STACK_BYTES ((size_t)512 << 10)

// pthread_create with a stack of CY_THREAD_STACK_BYTES: 0 or an error number.
int cy_thread_start(pthread_t *thread, void *(*run)(void *), void *context);

typedef struct cy_thread_pool cy_thread_pool;

// `task` counts from 0, `worker` is in [0, cy_thread_pool_size): two calls that run at the same
// time have different workers.
typedef void (*cy_task)(void *context, int64_t task, int worker);

// first_core < 0 leaves the threads unpinned; otherwise worker i, the caller included, is pinned to
// number first_core + i of the cores that the process may use (base/platform.h), as far as there
// are so many; the caller's own mask is put back when the pool closes. *pool is owned by the
// caller.
CY_MUST_CHECK cy_status cy_thread_pool_open(
    cy_thread_pool **pool, int workers, int first_core, bool spin);
void cy_thread_pool_close(cy_thread_pool *pool);

// A NULL pool is the caller alone: its size is one, and it runs every task at once itself.
int cy_thread_pool_size(const cy_thread_pool *pool);

// Runs task(context, i, worker) for all 0 <= i < count and returns when all are done. Tasks are
// handed out in ascending order; which worker gets which is not fixed, so results must not depend
// on it.
void cy_thread_pool_run(cy_thread_pool *pool, cy_task task, void *context, int64_t count);

// Runs task(context, i, i) on every worker i at once: a team, whose members may wait for each other
// with cy_thread_pool_barrier. Returns when all are done.
void cy_thread_pool_run_team(cy_thread_pool *pool, cy_task task, void *context);

// Inside a team: returns when every member has called it as often as this one. What members wrote
// before is seen by all after it. While it waits it calls idle(context) again and again, which must
// be short; NULL: nothing. Who waits long sleeps, as idle workers do.
typedef void (*cy_idle_task)(void *context);
void cy_thread_pool_barrier(cy_thread_pool *pool, cy_idle_task idle, void *context);

#endif
