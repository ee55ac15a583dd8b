// The beginning and the end of MPI, in a thread of their own: MPI's beginning waits for all ranks
// without a limit, and asks that one thread begins and ends it.

#define _GNU_SOURCE
#include "base/memory.h"
#include "base/thread_pool.h"
#include "comm/mpi/ranks.h"

#include <stdio.h>
#include <time.h>

// A start takes its time on a busy machine, whatever the limit for heartbeats is.
#define START_S 10.0

// Ranks say what is missing one after the other, so that the first ends the others before they
// repeat it. The launcher takes a second or two for that.
#define TURN_S 3.0
#define TURNS  4

struct mpi_launch {
    pthread_t thread;
    pthread_mutex_t lock; // of what follows
    pthread_cond_t changed;
    bool begun;
    bool end;
    int code;
    int level; // of threads that this MPI allows
};

static void *begin_and_end(void *argument)
{
    mpi_launch *start = argument;
    int level = MPI_THREAD_SINGLE;
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    pthread_mutex_lock(&start->lock);
    start->level = level;
    start->code = code;
    start->begun = true;
    pthread_cond_broadcast(&start->changed);
    while (!start->end)
        pthread_cond_wait(&start->changed, &start->lock);
    pthread_mutex_unlock(&start->lock);
    if (code == MPI_SUCCESS) MPI_Finalize();
    return NULL;
}

static bool await_begin(mpi_launch *start, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    const double end = (double)until.tv_nsec * 1e-9 + seconds;
    until.tv_sec += (time_t)end;
    until.tv_nsec = (long)((end - (double)(time_t)end) * 1e9);
    pthread_mutex_lock(&start->lock);
    while (!start->begun) {
        if (pthread_cond_timedwait(&start->changed, &start->lock, &until) != 0) break;
    }
    const bool begun = start->begun;
    pthread_mutex_unlock(&start->lock);
    return begun;
}

cy_status mpi_begin(mpi_launch **start, const cy_world_options *options)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(mpi_launch)));
    mpi_launch *made = block;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    if (cy_thread_start(&made->thread, begin_and_end, made) != 0) {
        cy_memory_free(made);
        return CY_FAIL(CY_ERR_MEMORY, "no thread for the start of MPI");
    }
    const int turn = options->launched_rank < TURNS ? options->launched_rank : TURNS;
    const double limit_s = options->timeout_s > START_S ? options->timeout_s : START_S;
    if (!await_begin(made, limit_s + TURN_S * turn)) {
        // What was made stays: the thread waits on, inside MPI.
        char ranks[32] = "";
        if (options->ranks > 0) snprintf(ranks, sizeof(ranks), " of %d", options->ranks);
        const cy_status status = CY_FAIL(
            CY_ERR_TIMEOUT, "start of MPI: after %.3g s not all ranks%s have come", limit_s, ranks);
        cy_error_set_hint("each process of the job must be this program; distributed.timeout_s "
                          "gives a slow start more time");
        return status;
    }
    if (made->code != MPI_SUCCESS) return mpi_failed(made->code, "start of MPI");
    *start = made;
    return CY_OK;
}

cy_status mpi_check_turns(const mpi_launch *start)
{
    if (start->level >= MPI_THREAD_SERIALIZED) return CY_OK;
    const bool funneled = start->level == MPI_THREAD_FUNNELED;
    const cy_status status = CY_FAIL(CY_ERR_UNSUPPORTED,
        "this MPI does not let threads take turns: it offers level %s, MPI_THREAD_SERIALIZED is "
        "needed",
        funneled ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE");
    cy_error_set_hint("an MPI that was built with support for threads");
    return status;
}

void mpi_end(mpi_launch *start)
{
    pthread_mutex_lock(&start->lock);
    start->end = true;
    pthread_cond_broadcast(&start->changed);
    pthread_mutex_unlock(&start->lock);
    pthread_join(start->thread, NULL);
    pthread_cond_destroy(&start->changed);
    pthread_mutex_destroy(&start->lock);
    cy_memory_free(start);
}
