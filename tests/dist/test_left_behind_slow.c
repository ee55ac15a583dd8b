// A rank that goes on long after another has failed: nothing that it uses is taken away.

#define _POSIX_C_SOURCE 200809L
#include "support/support.h"

#include "comm/world.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Beyond the time after which a rank is left behind.
#define WORK_S 7

typedef struct work {
    _Atomic int ended;
} work;

static cy_status fail_or_work(cy_world *world, void *context)
{
    work *shared = context;
    if (cy_world_rank(world) == 1) return CY_FAIL(CY_ERR_NOT_FINITE, "the loss is not finite");
    const struct timespec nap = {.tv_sec = WORK_S};
    nanosleep(&nap, NULL);
    atomic_fetch_add(&shared->ended, 1);
    return CY_OK;
}

static void a_run_waits_for_its_ranks(void **state)
{
    (void)state;
    work shared = {0};
    cy_world_options options = cy_world_defaults();
    options.ranks = 3;
    assert_int_equal(cy_world_run_threads(&options, fail_or_work, &shared), CY_ERR_NOT_FINITE);
    assert_int_equal(atomic_load(&shared.ended), 2);
    assert_non_null(strstr(cy_error_text(), "rank 1"));
}

static void end_process(cy_status status)
{
    _exit(status == CY_ERR_NOT_FINITE && strstr(cy_error_text(), "rank 1") != NULL ? 17 : 18);
}

static void or_ends_the_process(void **state)
{
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        work shared = {0};
        cy_world_options options = cy_world_defaults();
        options.ranks = 3;
        options.left_behind = end_process;
        const cy_status status = cy_world_run_threads(&options, fail_or_work, &shared);
        _exit(status == CY_OK ? 20 : 21);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(or_ends_the_process),
        cmocka_unit_test(a_run_waits_for_its_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
