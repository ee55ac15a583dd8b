#define _GNU_SOURCE
#include "support/support.h"

#include "base/thread_pool.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define TASKS   1000
#define WORKERS 5

typedef struct record {
    _Atomic int runs[TASKS];
    _Atomic int busy[WORKERS]; // tasks that a worker runs at this moment
    _Atomic bool collided;     // two at a time under one worker's number
    _Atomic bool out_of_range;
    int workers;
} record;

static void note(void *context, int64_t task, int worker)
{
    record *at = context;
    if (worker < 0 || worker >= at->workers) {
        at->out_of_range = true;
        return;
    }
    if (atomic_fetch_add(&at->busy[worker], 1) != 0) at->collided = true;
    atomic_fetch_add(&at->runs[task], 1);
    atomic_fetch_sub(&at->busy[worker], 1);
}

static void check_pool(int workers, bool spin)
{
    static const int64_t counts[] = {0, 1, 2, 3, 7, 64, TASKS};
    static record at;
    cy_thread_pool *pool = NULL;
    CY_CHECK_OK(cy_thread_pool_open(&pool, workers, -1, spin));
    assert_int_equal(cy_thread_pool_size(pool), workers);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        memset(&at, 0, sizeof(at));
        at.workers = workers;
        cy_thread_pool_run(pool, note, &at, counts[i]);
        for (int64_t t = 0; t < TASKS; t++)
            assert_int_equal(at.runs[t], t < counts[i]);
        assert_false(at.collided);
        assert_false(at.out_of_range);
    }
    cy_thread_pool_close(pool);
}

// Members that write a row each and read all of them after they met; rounds alternate between two
// tables, so that a meeting that lets somebody through too early shows.
#define ROUNDS 2000

typedef struct team {
    cy_thread_pool *pool;
    int64_t rows[2][WORKERS];
    _Atomic int wrong, idled;
    _Atomic int members[WORKERS];
} team;

static void note_idle(void *context)
{
    team *at = context;
    atomic_store(&at->idled, 1);
}

static void meet_often(void *context, int64_t task, int worker)
{
    team *at = context;
    const int workers = cy_thread_pool_size(at->pool);
    if (task != worker) atomic_fetch_add(&at->wrong, 1);
    atomic_fetch_add(&at->members[worker], 1);
    for (int64_t round = 1; round <= ROUNDS; round++) {
        at->rows[round % 2][worker] = round * (worker + 1);
        cy_thread_pool_barrier(at->pool, round % 3 == 0 ? NULL : note_idle, at);
        for (int i = 0; i < workers; i++) {
            if (at->rows[round % 2][i] != round * (i + 1)) atomic_fetch_add(&at->wrong, 1);
        }
    }
}

static void a_team_meets(void **state)
{
    (void)state;
    static team at;
    for (int workers = 1; workers <= WORKERS; workers++) {
        for (int spin = 0; spin < 2; spin++) {
            memset(&at, 0, sizeof(at));
            CY_CHECK_OK(cy_thread_pool_open(&at.pool, workers, -1, spin == 1));
            cy_thread_pool_run_team(at.pool, meet_often, &at);
            for (int i = 0; i < workers; i++)
                assert_int_equal(at.members[i], 1);
            assert_int_equal(at.wrong, 0);
            if (workers > 1 && spin == 1) assert_int_equal(at.idled, 1);
            // The pool hands out tasks as before.
            static record after;
            memset(&after, 0, sizeof(after));
            after.workers = workers;
            cy_thread_pool_run(at.pool, note, &after, TASKS);
            for (int64_t t = 0; t < TASKS; t++)
                assert_int_equal(after.runs[t], 1);
            cy_thread_pool_close(at.pool);
        }
    }
}

static void no_pool_is_the_caller_alone(void **state)
{
    (void)state;
    static record at;
    memset(&at, 0, sizeof(at));
    at.workers = 1;
    assert_int_equal(cy_thread_pool_size(NULL), 1);
    cy_thread_pool_run(NULL, note, &at, 7);
    cy_thread_pool_run_team(NULL, note, &at);
    cy_thread_pool_barrier(NULL, NULL, NULL);
    assert_int_equal(at.runs[0], 2);
    assert_int_equal(at.runs[6], 1);
    assert_false(at.out_of_range);
}

static void every_task_once(void **state)
{
    (void)state;
    for (int workers = 1; workers <= WORKERS; workers++) {
        check_pool(workers, false);
        check_pool(workers, true);
    }
}

// A job right after a job, short enough that workers are still looking for the last one's tasks.
static void many_short_jobs(void **state)
{
    (void)state;
    static record at;
    for (int spin = 0; spin < 2; spin++) {
        cy_thread_pool *pool = NULL;
        CY_CHECK_OK(cy_thread_pool_open(&pool, 3, -1, spin != 0));
        memset(&at, 0, sizeof(at));
        at.workers = 3;
        for (int i = 0; i < 3000; i++)
            cy_thread_pool_run(pool, note, &at, 4);
        for (int t = 0; t < 4; t++)
            assert_int_equal(at.runs[t], 3000);
        assert_false(at.collided);
        cy_thread_pool_close(pool);
    }
}

typedef struct meeting {
    _Atomic int arrived;
    int wanted;
} meeting;

static void meet(void *context, int64_t task, int worker)
{
    (void)task;
    (void)worker;
    meeting *at = context;
    atomic_fetch_add(&at->arrived, 1);
    // Returns only once all tasks have begun: a pool that runs them in turn would hang here.
    while (atomic_load(&at->arrived) < at->wanted) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

static void tasks_run_at_the_same_time(void **state)
{
    (void)state;
    cy_thread_pool *pool = NULL;
    CY_CHECK_OK(cy_thread_pool_open(&pool, 4, -1, true));
    meeting at = {.wanted = 4};
    cy_thread_pool_run(pool, meet, &at, 4);
    assert_int_equal(at.arrived, 4);
    cy_thread_pool_close(pool);
}

static void opened_and_closed_unused(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        cy_thread_pool *pool = NULL;
        CY_CHECK_OK(cy_thread_pool_open(&pool, 4, -1, i % 2 == 0));
        cy_thread_pool_close(pool);
    }
    cy_thread_pool_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_once),
        cmocka_unit_test(a_team_meets),
        cmocka_unit_test(no_pool_is_the_caller_alone),
        cmocka_unit_test(many_short_jobs),
        cmocka_unit_test(tasks_run_at_the_same_time),
        cmocka_unit_test(opened_and_closed_unused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
