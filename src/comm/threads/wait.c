// How the threads of a run wait for each other: a rank looks, yields and then sleeps until it is
// notified; a member of a group waits until another has come, or until that one is given up.

#define _GNU_SOURCE
#include "base/clock.h"
#include "comm/threads/threads.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#define LOOKS    64 // before the clock is asked
#define SPIN_NS  1500
#define YIELDS   60
#define SLEEP_NS 50000000

// ---- ranks

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void rank_notify(threads_rank *rank)
{
    // The change that this call tells of and every look at it are sequentially consistent, as are
    // `parked` and this look at it: either the sleeper sees the change or it is seen here.
    if (atomic_load(&rank->parked) == 0) return;
    pthread_mutex_lock(&rank->lock);
    atomic_fetch_add(&rank->event, 1);
    pthread_cond_broadcast(&rank->changed);
    pthread_mutex_unlock(&rank->lock);
}

struct timespec rank_sleep_end(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += SLEEP_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    return until;
}

static void sleep_until_event(threads_rank *rank, uint32_t seen)
{
    const struct timespec until = rank_sleep_end();
    pthread_mutex_lock(&rank->lock);
    while (atomic_load(&rank->event) == seen) {
        if (pthread_cond_timedwait(&rank->changed, &rank->lock, &until) != 0) break;
    }
    pthread_mutex_unlock(&rank->lock);
}

bool rank_park(threads_rank *rank, bool (*holds)(void *), void *context)
{
    for (int i = 0; rank->run->spin && i < LOOKS; i++) {
        if (holds(context)) return true;
        relax();
    }
    if (rank->run->spin) {
        const int64_t until = cy_clock_ns() + SPIN_NS;
        do {
            for (int i = 0; i < 32; i++) {
                if (holds(context)) return true;
                relax();
            }
        } while (cy_clock_ns() < until);
    }
    for (int i = 0; i < YIELDS; i++) {
        if (holds(context)) return true;
        sched_yield();
    }
    atomic_fetch_add(&rank->parked, 1);
    const uint32_t seen = atomic_load(&rank->event);
    bool held = holds(context);
    if (!held) {
        sleep_until_event(rank, seen);
        held = holds(context);
    }
    if (atomic_load_explicit(&rank->wanted, memory_order_relaxed) != NULL) {
        atomic_store_explicit(&rank->wanted, NULL, memory_order_relaxed);
    }
    atomic_fetch_sub(&rank->parked, 1);
    return held;
}

void rank_describe(const threads_run *run, int rank, char *text, size_t bytes)
{
    const char *host = run->part != NULL ? run->part->hosts[rank] : run->host;
    cy_rank_page_describe(run->pages[rank], rank, host, text, bytes);
}

// ---- failure of a group

void group_notify(threads_shared *shared)
{
    for (int i = 0; i < shared->size; i++)
        rank_notify(rank_of(shared->run, shared->ranks[i]));
}

void group_fail(threads_shared *shared, cy_status status, const char *text)
{
    pthread_mutex_lock(&shared->lock);
    if (!atomic_load(&shared->aborted)) {
        shared->abort_status = status;
        snprintf(shared->abort_text, sizeof(shared->abort_text), "%s", text);
        atomic_store(&shared->aborted, true);
    }
    pthread_mutex_unlock(&shared->lock);
    group_notify(shared);
}

cy_status group_failure(const threads_shared *shared)
{
    // The run's reason first: it is the cause of the others.
    const threads_run *run = shared->run;
    if (atomic_load(&run->aborted)) return CY_FAIL(CY_ERR_PEER, "%s", run->abort_text);
    if (atomic_load(&shared->aborted)) {
        return CY_FAIL(shared->abort_status, "%s", shared->abort_text);
    }
    return CY_OK;
}

// ---- members of a group

static cy_status report_missing(
    threads_group *group, const threads_transfer *record, int rank, bool finished)
{
    const threads_run *run = group->shared->run;
    char text[ABORT_TEXT_BYTES];
    char who[256];
    const int culprit =
        finished ? rank : cy_rank_page_root_cause(run->pages, run->world_size, rank);
    rank_describe(run, culprit, who, sizeof(who));
    const char *call = cy_operation_name(record->base.kind);
    if (finished) {
        snprintf(text, sizeof(text), "%s %llu of %s waits for %s, which has ended", call,
            (unsigned long long)record->sequence, group->base.label, who);
    } else {
        char silence[96];
        cy_rank_page_describe_timeout(
            run->pages[culprit], &group->rank->base.options, silence, sizeof(silence));
        snprintf(text, sizeof(text), "%s %llu of %s: %s %s", call,
            (unsigned long long)record->sequence, group->base.label, silence, who);
    }
    const cy_status status = finished ? CY_ERR_PEER : CY_ERR_TIMEOUT;
    group_fail(group->shared, status, text);
    return CY_FAIL(status, "%s", text);
}

cy_status group_check_member(threads_group *group, cy_watchdog *watchdog, int member, bool finished,
    const threads_transfer *record)
{
    const threads_run *run = group->shared->run;
    const int rank = group->shared->ranks[member];
    // A rank counts as alive while its own heartbeat counter advances, or that of the rank it waits
    // for. Ranks of other machines publish no counter: for them the time counts from here.
    const int culprit = cy_rank_page_root_cause(run->pages, run->world_size, rank);
    const uint64_t heartbeat = cy_rank_page_heartbeat(run->pages[culprit]);
    if (finished) return report_missing(group, record, rank, true);
    if (watchdog->rank != culprit || watchdog->heartbeat != heartbeat) {
        cy_watch_begin(watchdog, culprit, heartbeat);
        return CY_OK;
    }
    const double limit_s = cy_rank_page_timeout_s(run->pages[culprit], &group->rank->base.options);
    if (cy_watch_silence_s(watchdog) < limit_s) return CY_OK;
    return report_missing(group, record, rank, false);
}

cy_status group_await(threads_group *group, bool (*holds)(void *), int (*missing)(void *),
    void *context, const threads_transfer *record)
{
    threads_rank *rank = group->rank;
    cy_watchdog watchdog = {.rank = -1};
    cy_status status = CY_OK;
    while (status == CY_OK && !rank_park(rank, holds, context)) {
        status = group_failure(group->shared);
        if (status != CY_OK) break;
        const int member = missing(context);
        if (member < 0) continue;
        const int missed = group->shared->ranks[member];
        atomic_store(&rank->base.page->waiting_for, missed);
        // Read `ended` first: a rank that has done its part and ended since is not missing.
        const bool finished = atomic_load(&group->shared->run->pages[missed]->ended) != 0;
        if (holds(context)) break;
        status = group_check_member(group, &watchdog, member, finished, record);
    }
    atomic_store(&rank->base.page->waiting_for, -1);
    return status;
}
