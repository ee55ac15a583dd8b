// Starts threads, and hands tasks to the threads of a pool.
#define _GNU_SOURCE
#include "base/thread_pool.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/status.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

// ---- threads

int cy_thread_start(pthread_t *thread, void *(*run)(void *), void *context)
{
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0) return error;
    error = pthread_attr_setstacksize(&attributes, CY_THREAD_STACK_BYTES);
    if (error == 0) error = pthread_create(thread, &attributes, run, context);
    pthread_attr_destroy(&attributes);
    return error;
}

// ---- the pool

#define SPIN_NS    50000
#define MOST_CORES 1024

#define BARRIER_POLLS 64 // of a waiting member between two readings of the clock

typedef struct worker {
    cy_thread_pool *pool;
    pthread_t thread;
    int index;
    int core; // number of the operating system; -1: not pinned
} worker;

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): counters have a cache line each
struct cy_thread_pool {
    int size;
    bool spin;
    pthread_t caller; // its mask is restored when the pool closes
    cpu_set_t caller_mask;
    worker *workers; // owned, [size]; workers[0] is the caller and has no thread

    // There is one job at a time. Posting a job increments `generation`; a worker that finds no
    // more task decrements `running`.
    cy_task task;
    void *context;
    int64_t count;
    bool team; // one task for each worker
    _Alignas(64) _Atomic int64_t next;
    _Alignas(64) _Atomic uint64_t generation;
    _Alignas(64) _Atomic int running;
    _Atomic bool closing;

    // The barrier of a team: members that have arrived, barriers that were passed, and members that
    // sleep until the next is passed.
    _Alignas(64) _Atomic int arrived;
    _Alignas(64) _Atomic uint64_t barriers;
    _Atomic int sleeping;

    pthread_mutex_t lock;
    pthread_cond_t posted;
    pthread_cond_t finished;
    pthread_cond_t barrier_passed;
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    // A refusal, as by the mask of a container, costs speed and changes no result.
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void take_tasks(cy_thread_pool *pool, int index)
{
    if (pool->team) {
        pool->task(pool->context, index, index);
        return;
    }
    for (;;) {
        const int64_t i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (i >= pool->count) return;
        pool->task(pool->context, i, index);
    }
}

// Returns when `generation` is no longer `seen`.
static void await_job(cy_thread_pool *pool, uint64_t seen)
{
    if (pool->spin) {
        const int64_t until = cy_clock_ns() + SPIN_NS;
        do {
            for (int i = 0; i < 64; i++) {
                if (atomic_load_explicit(&pool->generation, memory_order_acquire) != seen) return;
                relax();
            }
        } while (cy_clock_ns() < until);
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->generation) == seen)
        pthread_cond_wait(&pool->posted, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

static void await_workers(cy_thread_pool *pool)
{
    if (pool->spin) {
        const int64_t until = cy_clock_ns() + SPIN_NS;
        do {
            for (int i = 0; i < 64; i++) {
                if (atomic_load_explicit(&pool->running, memory_order_acquire) == 0) return;
                relax();
            }
        } while (cy_clock_ns() < until);
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->running) != 0)
        pthread_cond_wait(&pool->finished, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

static void *work(void *argument)
{
    worker *self = argument;
    cy_thread_pool *pool = self->pool;
    if (self->core >= 0) pin(self->core);

    uint64_t seen = 0;
    for (;;) {
        await_job(pool, seen);
        seen = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (atomic_load(&pool->closing)) return NULL;
        take_tasks(pool, self->index);
        if (atomic_fetch_sub_explicit(&pool->running, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->finished);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

static void post(cy_thread_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
    pthread_cond_broadcast(&pool->posted);
    pthread_mutex_unlock(&pool->lock);
}

// Assigns a core to each worker: those from first_core on, in the order of cy_cores_find.
static void choose_cores(cy_thread_pool *pool, int workers, int first_core)
{
    int cores[MOST_CORES];
    const int count = first_core >= 0 ? cy_cores_find(cores, MOST_CORES) : 0;
    for (int i = 0; i < workers; i++) {
        const bool known = first_core >= 0 && first_core + i < count;
        pool->workers[i].core = known ? cores[first_core + i] : -1;
    }
}

cy_status cy_thread_pool_open(cy_thread_pool **pool, int workers, int first_core, bool spin)
{
    CY_ASSERT(workers > 0);
    cy_thread_pool *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    made->spin = spin;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->posted, NULL);
    pthread_cond_init(&made->finished, NULL);
    pthread_cond_init(&made->barrier_passed, NULL);
    made->size = 1;
    cy_status status = CY_ALLOC(&made->workers, (size_t)workers);
    if (status != CY_OK) goto close;
    made->caller = pthread_self();
    choose_cores(made, workers, first_core);
    (void)pthread_getaffinity_np(made->caller, sizeof(made->caller_mask), &made->caller_mask);
    if (made->workers[0].core >= 0) pin(made->workers[0].core);

    for (int i = 1; i < workers; i++) {
        made->workers[i].pool = made;
        made->workers[i].index = i;
        const int failed = cy_thread_start(&made->workers[i].thread, work, &made->workers[i]);
        if (failed != 0) {
            status = CY_FAIL(CY_ERR_MEMORY, "thread %d of %d could not be started", i, workers);
            goto close;
        }
        made->size = i + 1;
    }
    *pool = made;
    return CY_OK;

close:
    cy_thread_pool_close(made);
    return status;
}

void cy_thread_pool_close(cy_thread_pool *pool)
{
    if (pool == NULL) return;
    atomic_store(&pool->closing, true);
    post(pool);
    for (int i = 1; i < pool->size; i++)
        pthread_join(pool->workers[i].thread, NULL);
    if (pool->workers != NULL && pool->workers[0].core >= 0) {
        (void)pthread_setaffinity_np(pool->caller, sizeof(pool->caller_mask), &pool->caller_mask);
    }
    pthread_cond_destroy(&pool->barrier_passed);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->posted);
    pthread_mutex_destroy(&pool->lock);
    cy_memory_free(pool->workers);
    cy_memory_free(pool);
}

int cy_thread_pool_size(const cy_thread_pool *pool)
{
    return pool == NULL ? 1 : pool->size;
}

static void run_all(cy_thread_pool *pool, cy_task task, void *context, int64_t count, bool team)
{
    pool->task = task;
    pool->context = context;
    pool->count = count;
    pool->team = team;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->running, pool->size - 1, memory_order_relaxed);
    post(pool);
    take_tasks(pool, 0);
    await_workers(pool);
}

void cy_thread_pool_run(cy_thread_pool *pool, cy_task task, void *context, int64_t count)
{
    if (cy_thread_pool_size(pool) > 1 && count > 1) {
        run_all(pool, task, context, count, false);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        task(context, i, 0);
}

void cy_thread_pool_run_team(cy_thread_pool *pool, cy_task task, void *context)
{
    if (cy_thread_pool_size(pool) > 1) {
        run_all(pool, task, context, pool->size, true);
    } else {
        task(context, 0, 0);
    }
}

// Spins for a limited time. Returns whether the barrier was passed meanwhile.
static bool spin_at_barrier(cy_thread_pool *pool, uint64_t seen, cy_idle_task idle, void *context)
{
    if (!pool->spin) return false;
    const int64_t until = cy_clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < BARRIER_POLLS; i++) {
            if (atomic_load_explicit(&pool->barriers, memory_order_acquire) != seen) return true;
            if (idle != NULL) {
                idle(context);
            } else {
                relax();
            }
        }
    } while (cy_clock_ns() < until);
    return false;
}

void cy_thread_pool_barrier(cy_thread_pool *pool, cy_idle_task idle, void *context)
{
    if (cy_thread_pool_size(pool) == 1) return;
    const uint64_t seen = atomic_load_explicit(&pool->barriers, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) == pool->size - 1) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        // Sequentially consistent with `sleeping`: either this member sees the sleeper, or the
        // sleeper sees that the barrier was passed.
        atomic_store(&pool->barriers, seen + 1);
        if (atomic_load(&pool->sleeping) == 0) return;
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->barrier_passed);
        pthread_mutex_unlock(&pool->lock);
        return;
    }
    if (spin_at_barrier(pool, seen, idle, context)) return;
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleeping, 1);
    while (atomic_load(&pool->barriers) == seen)
        pthread_cond_wait(&pool->barrier_passed, &pool->lock);
    atomic_fetch_sub(&pool->sleeping, 1);
    pthread_mutex_unlock(&pool->lock);
}
