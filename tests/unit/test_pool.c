#define _GNU_SOURCE
#include "support/support.h"

#include "base/pool.h"

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
    cy_pool *pool = NULL;
    CY_CHECK_OK(cy_pool_open(&pool, workers, -1, spin));
    assert_int_equal(cy_pool_size(pool), workers);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        memset(&at, 0, sizeof(at));
        at.workers = workers;
        cy_pool_run(pool, note, &at, counts[i]);
        for (int64_t t = 0; t < TASKS; t++)
            assert_int_equal(at.runs[t], t < counts[i]);
        assert_false(at.collided);
        assert_false(at.out_of_range);
    }
    cy_pool_close(pool);
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
        cy_pool *pool = NULL;
        CY_CHECK_OK(cy_pool_open(&pool, 3, -1, spin != 0));
        memset(&at, 0, sizeof(at));
        at.workers = 3;
        for (int i = 0; i < 3000; i++)
            cy_pool_run(pool, note, &at, 4);
        for (int t = 0; t < 4; t++)
            assert_int_equal(at.runs[t], 3000);
        assert_false(at.collided);
        cy_pool_close(pool);
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
    cy_pool *pool = NULL;
    CY_CHECK_OK(cy_pool_open(&pool, 4, -1, true));
    meeting at = {.wanted = 4};
    cy_pool_run(pool, meet, &at, 4);
    assert_int_equal(at.arrived, 4);
    cy_pool_close(pool);
}

static void opened_and_closed_unused(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        cy_pool *pool = NULL;
        CY_CHECK_OK(cy_pool_open(&pool, 4, -1, i % 2 == 0));
        cy_pool_close(pool);
    }
    cy_pool_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_once),
        cmocka_unit_test(many_short_jobs),
        cmocka_unit_test(tasks_run_at_the_same_time),
        cmocka_unit_test(opened_and_closed_unused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
