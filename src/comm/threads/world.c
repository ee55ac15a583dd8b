// The ranks of a run as threads: how the run begins, and how it ends when one rank fails.

#define _GNU_SOURCE
#include "base/clock.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "comm/threads/threads.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GRACE_NS 5000000000

// Ends the run, unless it has ended already: returns whether this is its end.
static bool run_end(threads_run *run, cy_status status, const char *text, const char *hint)
{
    pthread_mutex_lock(&run->lock);
    const bool first = !atomic_load(&run->aborted);
    if (first) {
        run->failed_status = status;
        snprintf(run->abort_text, sizeof(run->abort_text), "%s", text);
        snprintf(run->abort_hint, sizeof(run->abort_hint), "%s", hint);
        atomic_store(&run->aborted, true);
    }
    pthread_mutex_unlock(&run->lock);
    for (int i = 0; i < run->size; i++)
        rank_notify(&run->ranks[i]);
    return first;
}

static void run_abort(
    threads_run *run, int rank, cy_status status, const char *text, const char *hint)
{
    char named[ABORT_TEXT_BYTES];
    snprintf(named, sizeof(named), "rank %d (%s): %s", rank, run->host, text);
    if (run_end(run, status, named, hint) && run->part != NULL)
        run->part->failed(run->part->context, named);
}

static void threads_abort(cy_world *world, const char *text)
{
    run_abort(threads_rank_of(world)->run, world->rank, CY_ERR_PEER, text, "");
}

static bool threads_fail(cy_world *world, cy_status status)
{
    threads_run *run = threads_rank_of(world)->run;
    run_abort(run, world->rank, status, cy_error_text(), cy_error_hint());
    for (int i = 0; i < run->size; i++)
        cy_guard_await(&run->ranks[i].guard);
    return true;
}

static int threads_node_of(const cy_world *world, int rank)
{
    (void)world;
    (void)rank;
    return 0;
}

static const cy_world_ops threads_ops = {
    .name = "threads",
    .open_group = threads_open_group,
    .node_of = threads_node_of,
    .abort = threads_abort,
    .fail = threads_fail,
};

// Ranks that fill the machine get cores of their own. Two that spin on one core while the other is
// idle would hand it to each other for seconds before the system moves one of them.
static cy_status choose_cores(threads_run *run, int threads)
{
    if (run->part != NULL && !run->part->spin) return CY_OK; // other processes have these cores too
    const int wanted = run->size * threads;
    if (wanted != cy_cores_allowed()) return CY_OK;
    int *cores;
    CY_TRY(CY_ALLOC(&cores, (size_t)wanted));
    if (cy_cores_find(cores, wanted) == wanted) {
        run->cores = cores;
    } else {
        cy_memory_free(cores);
    }
    return CY_OK;
}

static void pin_rank(const threads_rank *rank)
{
    if (rank->run->cores == NULL) return;
    const int threads = rank->base.options.threads_per_rank;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < threads; i++)
        CPU_SET((size_t)rank->run->cores[(rank->base.rank - rank->run->first) * threads + i], &set);
    // A refusal costs speed, not results.
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void *rank_main(void *argument)
{
    threads_rank *rank = argument;
    threads_run *run = rank->run;
    pin_rank(rank);
    cy_activity_attach(&rank->base.page->activity);
    rank->status = run->function(&rank->base, run->context);
    cy_activity_attach(NULL);
    if (rank->status != CY_OK) {
        run_abort(run, rank->base.rank, rank->status, cy_error_text(), cy_error_hint());
    }
    atomic_store(&rank->base.page->ended, 1);
    // A rank that waits for this one looks at `ended` when it wakes, and fails.
    for (int i = 0; i < run->size; i++)
        rank_notify(&run->ranks[i]);
    pthread_mutex_lock(&run->lock);
    run->ended_count++;
    pthread_cond_signal(&run->ended);
    pthread_mutex_unlock(&run->lock);
    return NULL;
}

static void condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void rank_init(
    threads_rank *rank, threads_run *run, int index, const cy_world_options *options)
{
    rank->base.ops = &threads_ops;
    rank->base.rank = run->first + index;
    rank->base.size = run->world_size;
    rank->base.options = *options;
    rank->base.generation = options->generation > 0 ? options->generation : 1;
    if (run->part == NULL) {
        cy_rank_page_init(&rank->own_page);
        run->pages[index] = &rank->own_page;
    }
    rank->base.page = run->pages[rank->base.rank];
    rank->run = run;
    rank->guard = (cy_guard){.failed = &run->aborted, .text = run->abort_text};
    pthread_mutex_init(&rank->lock, NULL);
    condition_init(&rank->changed);
}

static void run_free(threads_run *run)
{
    while (run->groups != NULL) { // which some member never opened
        threads_shared *shared = run->groups;
        run->groups = shared->next;
        threads_shared_free(shared);
    }
    for (int i = 0; run->ranks != NULL && i < run->size; i++) {
        pthread_cond_destroy(&run->ranks[i].changed);
        pthread_mutex_destroy(&run->ranks[i].lock);
    }
    if (run->ranks != NULL) cy_memory_unmap(run->ranks, (size_t)run->size * sizeof(*run->ranks));
    pthread_cond_destroy(&run->ended);
    pthread_mutex_destroy(&run->lock);
    if (run->part == NULL) cy_memory_free(run->pages);
    cy_memory_free(run->cores);
    cy_memory_free(run);
}

// Returns when `started` ranks have ended, or, with false and where one may be left behind, when
// one has not by GRACE_NS after the run was aborted: a rank that computes for ever must not keep
// the others from being told.
static bool await_ranks(threads_run *run, int started, bool may_leave)
{
    int64_t aborted_ns = 0;
    pthread_mutex_lock(&run->lock);
    while (run->ended_count < started) {
        const int64_t now = cy_clock_ns();
        if (aborted_ns == 0 && atomic_load(&run->aborted)) aborted_ns = now;
        if (aborted_ns == 0 && run->part != NULL) {
            pthread_mutex_unlock(&run->lock);
            const cy_status status = run->part->failure(run->part->context);
            if (status != CY_OK) (void)run_end(run, status, cy_error_text(), "");
            pthread_mutex_lock(&run->lock);
            if (run->ended_count == started) break;
        }
        if (may_leave && aborted_ns != 0 && now - aborted_ns > GRACE_NS) break;
        const struct timespec until = rank_sleep_end();
        pthread_cond_timedwait(&run->ended, &run->lock, &until);
    }
    const bool ended = run->ended_count == started;
    pthread_mutex_unlock(&run->lock);
    return ended;
}

// The rank pages and whether waits spin: the run's own, or those of the world that it is part of.
static cy_status place_run(threads_run *run, const cy_world_local *part, int threads)
{
    run->part = part;
    run->first = part != NULL ? part->first : 0;
    run->world_size = part != NULL ? part->size : run->size;
    run->spin = part != NULL ? part->spin : run->size * threads <= cy_cores_allowed();
    if (part != NULL) {
        run->pages = part->pages;
        return CY_OK;
    }
    CY_TRY(CY_ALLOC(&run->pages, (size_t)run->size));
    return CY_OK;
}

static cy_status run_make(threads_run **made, const cy_world_options *options,
    const cy_world_local *part, cy_rank_function function, void *context)
{
    threads_run *run;
    CY_TRY(CY_ALLOC(&run, 1));
    run->function = function;
    run->context = context;
    if (gethostname(run->host, sizeof(run->host) - 1) != 0) snprintf(run->host, 2, "?");
    pthread_mutex_init(&run->lock, NULL);
    condition_init(&run->ended);
    // A mapping, because ranks are aligned to cache lines.
    void *block = NULL;
    cy_status status = cy_memory_map(&block, (size_t)options->ranks * sizeof(threads_rank));
    if (status != CY_OK) goto undo;
    run->ranks = block;
    run->size = options->ranks;
    status = place_run(run, part, options->threads_per_rank);
    if (status != CY_OK) goto undo;
    for (int i = 0; i < run->size; i++)
        rank_init(&run->ranks[i], run, i, options);
    status = choose_cores(run, options->threads_per_rank);
    if (status != CY_OK) goto undo;
    *made = run;
    return CY_OK;

undo:
    run_free(run);
    return status;
}

cy_status cy_world_run_local(bool *left, const cy_world_options *options,
    const cy_world_local *part, cy_rank_function function, void *context)
{
    *left = false;
    if (options->ranks < 1 || options->ranks > CY_WORLD_THREADS) {
        const cy_status status = CY_FAIL(CY_ERR_REQUEST, "%d ranks: a world of threads has 1 to %d",
            options->ranks, CY_WORLD_THREADS);
        cy_error_set_hint("as processes there can be more: mpirun -n %d", options->ranks);
        return status;
    }
    threads_run *run = NULL;
    CY_TRY(run_make(&run, options, part, function, context));
    CY_ASSERT(run != NULL);
    int started = 0;
    for (; started < run->size; started++) {
        threads_rank *rank = &run->ranks[started];
        if (cy_thread_start(&rank->thread, rank_main, rank) != 0) {
            run_abort(run, rank->base.rank, CY_ERR_MEMORY, "its thread could not be started", "");
            break;
        }
    }
    const bool ended = await_ranks(run, started, options->left_behind != NULL);
    cy_status status = CY_OK;
    if (atomic_load(&run->aborted)) {
        status = CY_FAIL(run->failed_status, "%s", run->abort_text);
        cy_error_set_hint("%s", run->abort_hint);
    }
    if (!ended) {
        *left = true;
        return status; // that thread still uses what would be freed here
    }
    for (int i = 0; i < started; i++)
        pthread_join(run->ranks[i].thread, NULL);
    run_free(run);
    return status;
}

cy_status cy_world_run_threads(
    const cy_world_options *options, cy_rank_function function, void *context)
{
    bool left;
    const cy_status status = cy_world_run_local(&left, options, NULL, function, context);
    if (left) options->left_behind(status);
    return status;
}
