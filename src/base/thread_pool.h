// base/thread_pool.h: threads, and the pool of the threads of one rank.
//
// A pool gives numbered tasks to its workers; the caller is worker 0. One thread at a time calls
// cy_thread_pool_run. Idle workers spin for a short time and then sleep, so that ranks that
// outnumber the cores do not take them from each other. With spin off they sleep at once.

#ifndef CY_BASE_THREAD_POOL_H
#define CY_BASE_THREAD_POOL_H

#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- threads with a stack of a fixed size
//
// By default a thread's stack has the size that `ulimit -s` says. That may be too small for kernels
// that oneDNN generates at run time, and for a JSON parser that recurses for each nesting.

// The stack of every thread that this library starts. Only the pages that it touches take memory.
#define CY_THREAD_STACK_BYTES ((size_t)8 << 20)

// The stack that a thread needs which calls this library. The program checks its limit at the
// start. Every command succeeds with 192 KiB and crashes with 128.
#define CY_MAIN_STACK_BYTES ((size_t)512 << 10)

// pthread_create with a stack of CY_THREAD_STACK_BYTES: 0 or an error number.
int cy_thread_start(pthread_t *thread, void *(*run)(void *), void *context);

typedef struct cy_thread_pool cy_thread_pool;

// `task` counts from 0; `worker` is in [0, cy_thread_pool_size). Two calls that run at the same
// time have different workers.
typedef void (*cy_task)(void *context, int64_t task, int worker);

// Opens a pool. first_core < 0 leaves its threads unpinned. Otherwise worker i, the caller
// included, is pinned to number first_core + i of the cores that cy_cores_find finds; workers
// beyond the last core stay unpinned. The caller's own mask is restored when the pool closes. The
// caller owns *pool.
CY_MUST_CHECK cy_status cy_thread_pool_open(
    cy_thread_pool **pool, int workers, int first_core, bool spin);
void cy_thread_pool_close(cy_thread_pool *pool);

// The number of workers. A NULL pool is the caller alone: its size is 1, and it runs every task
// itself.
int cy_thread_pool_size(const cy_thread_pool *pool);

// Runs task(context, i, worker) for all 0 <= i < count and returns when all are done. Tasks start
// in ascending order. Which worker runs which task is not fixed, so results must not depend on it.
void cy_thread_pool_run(cy_thread_pool *pool, cy_task task, void *context, int64_t count);

// Runs task(context, i, i) on every worker i at once, as a team whose members may wait for each
// other with cy_thread_pool_barrier. Returns when all are done.
void cy_thread_pool_run_team(cy_thread_pool *pool, cy_task task, void *context);

// Inside a team: returns when every member has called it as often as this one. All members see what
// any of them wrote before it. While it waits it calls idle(context) repeatedly, which must be
// short; idle may be NULL. A member that waits for long sleeps, as idle workers do.
typedef void (*cy_idle_task)(void *context);
void cy_thread_pool_barrier(cy_thread_pool *pool, cy_idle_task idle, void *context);

#endif
