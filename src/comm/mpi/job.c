// This process in its MPI job: begins MPI once, lets one world at a time be open, and ends MPI when
// the process ends.

#define _GNU_SOURCE
#include "base/memory.h"
#include "base/thread_pool.h"
#include "comm/mpi/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// Ranks report one after the other that some are missing, so that the first ends the others before
// they repeat it. The launcher takes a second or two for that.
#define TURN_S 3.0
#define TURNS  4

// MPI begins and ends in a thread of its own: its beginning waits for all processes without a
// limit, and one thread must do both.
typedef struct mpi_job {
    pthread_t thread;
    pthread_mutex_t lock; // of what follows
    pthread_cond_t changed;
    bool asked; // the thread was started
    bool begun;
    bool end;
    int code;
    int level; // of threads that this MPI allows
    bool open; // a world is
    bool failed;
    bool whole;     // no process of the job was lost: MPI can be ended
    int generation; // of the last world
} mpi_job;

// MPI begins once in the life of a process, so there is one such record, which is never freed.
static _Atomic(mpi_job *) current = NULL;

static void *begin_and_end(void *argument)
{
    mpi_job *job = argument;
    int level = MPI_THREAD_SINGLE;
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    pthread_mutex_lock(&job->lock);
    job->level = level;
    job->code = code;
    job->begun = true;
    pthread_cond_broadcast(&job->changed);
    while (!job->end)
        pthread_cond_wait(&job->changed, &job->lock);
    pthread_mutex_unlock(&job->lock);
    if (code == MPI_SUCCESS) MPI_Finalize();
    return NULL;
}

// All processes of the job end MPI together, so none does after a failure: the others may never
// come.
static void end_with_process(void)
{
    mpi_job *job = atomic_load(&current);
    pthread_mutex_lock(&job->lock);
    const bool ends = !job->open && !job->failed && job->whole;
    job->end = ends;
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
    if (ends) pthread_join(job->thread, NULL);
}

static cy_status find_job(mpi_job **job)
{
    *job = atomic_load(&current);
    if (*job != NULL) return CY_OK;
    mpi_job *made;
    CY_TRY(CY_ALLOC(&made, 1));
    made->whole = true;
    pthread_condattr_t monotonic; // the time of day may be set while ranks start
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (atomic_compare_exchange_strong(&current, job, made)) {
        *job = made;
        return CY_OK;
    }
    // Another thread was first.
    pthread_cond_destroy(&made->changed);
    pthread_mutex_destroy(&made->lock);
    cy_memory_free(made);
    return CY_OK;
}

// Under the lock: whether the process may open a world now.
static cy_status admit(const mpi_job *job, const cy_world_options *options)
{
    if (job->open) return CY_FAIL(CY_ERR_REQUEST, "a world of mpi is open in this process already");
    if (job->failed) {
        return CY_FAIL(CY_ERR_REQUEST,
            "the last world of mpi has failed, and with it the job of this process");
    }
    if (options->generation > 0 && options->generation <= job->generation) {
        return CY_FAIL(CY_ERR_REQUEST, "generation %d of the world comes after generation %d",
            options->generation, job->generation);
    }
    if (!job->asked && cy_world_has_begun()) {
        return CY_FAIL(CY_ERR_REQUEST, "this program has begun MPI by itself");
    }
    return CY_OK;
}

// Under the lock, which the wait gives up in between.
static bool await_begin(mpi_job *job, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const double end = (double)until.tv_nsec * 1e-9 + seconds;
    until.tv_sec += (time_t)end;
    until.tv_nsec = (long)((end - (double)(time_t)end) * 1e9);
    while (!job->begun) {
        if (pthread_cond_timedwait(&job->changed, &job->lock, &until) != 0) break;
    }
    return job->begun;
}

// Under the lock: begins MPI, unless this process has. Fails where not all processes have come
// within the time limit; the thread then waits on, inside MPI.
static cy_status begin(mpi_job *job, const cy_world_options *options)
{
    if (job->asked) return CY_OK;
    job->asked = true;
    if (cy_thread_start(&job->thread, begin_and_end, job) != 0)
        return CY_FAIL(CY_ERR_MEMORY, "no thread for the start of MPI");
    const int turn = options->launched_rank < TURNS ? options->launched_rank : TURNS;
    const double limit_s = mpi_start_limit_s(options);
    if (!await_begin(job, limit_s + TURN_S * turn)) {
        char ranks[32] = "";
        if (options->ranks > 0) snprintf(ranks, sizeof(ranks), " of %d", options->ranks);
        const cy_status status = CY_FAIL(
            CY_ERR_TIMEOUT, "start of MPI: after %.3g s not all ranks%s have come", limit_s, ranks);
        cy_error_set_hint("each process of the job must be this program; distributed.timeout_s "
                          "gives a slow start more time");
        return status;
    }
    if (job->code != MPI_SUCCESS) return mpi_failed(job->code, "start of MPI");
    if (atexit(end_with_process) != 0)
        return CY_FAIL(CY_ERR_MEMORY, "no room for what ends MPI with this process");
    return CY_OK;
}

cy_status mpi_job_enter(int *generation, const cy_world_options *options)
{
    mpi_job *job = NULL;
    CY_TRY(find_job(&job));
    pthread_mutex_lock(&job->lock);
    cy_status status = admit(job, options);
    if (status == CY_OK) {
        job->open = true;
        job->generation = options->generation > 0 ? options->generation : job->generation + 1;
        *generation = job->generation;
        status = begin(job, options);
        if (status != CY_OK) job->failed = true;
    }
    pthread_mutex_unlock(&job->lock);
    return status;
}

void mpi_job_leave(mpi_job_end end)
{
    mpi_job *job = atomic_load(&current);
    pthread_mutex_lock(&job->lock);
    job->open = false;
    job->failed = end == MPI_JOB_FAILED;
    if (end == MPI_JOB_LOST) job->whole = false;
    pthread_mutex_unlock(&job->lock);
}

cy_status mpi_job_check_turns(void)
{
    const mpi_job *job = atomic_load(&current);
    if (job->level >= MPI_THREAD_SERIALIZED) return CY_OK;
    const bool funneled = job->level == MPI_THREAD_FUNNELED;
    const cy_status status = CY_FAIL(CY_ERR_UNSUPPORTED,
        "this MPI does not let threads take turns: it offers level %s, MPI_THREAD_SERIALIZED is "
        "needed",
        funneled ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE");
    cy_error_set_hint("an MPI that was built with support for threads");
    return status;
}

bool cy_world_has_begun(void)
{
    int initialized = 0;
    MPI_Initialized(&initialized);
    return initialized != 0;
}

void cy_world_end_job(int exit_status)
{
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (cy_world_has_begun() && finalized == 0) MPI_Abort(MPI_COMM_WORLD, exit_status);
}
