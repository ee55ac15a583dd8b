// A job that is killed at any moment of its saves leaves a newest checkpoint that loads.
#define _GNU_SOURCE
#include "support/ranks.h"
#include "support/saves.h"
#include "support/support.h"

#include "base/memory.h"
#include "base/random.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILLS 100

// The values of step N are those of run N.
static cy_test_state state_of(cy_test_mesh mesh, int64_t step)
{
    return (cy_test_state){.mesh = mesh, .scale = 20, .run = (int)step, .step = step};
}

typedef struct job {
    const char *folder;
    int64_t first;
} job;

// Saves step after step, keeping two, until it is killed.
static void save_for_ever(void *context, cy_group *ranks)
{
    const job *j = context;
    cy_saver *saver = NULL;
    if (cy_saver_open(&saver, j->folder, 2, ranks, NULL, NULL) != CY_OK) _exit(3);
    for (int64_t step = j->first; step < j->first + 100000; step++) {
        // Every third save replaces the one before.
        const cy_test_state state =
            state_of((cy_test_mesh){2, 1, 1}, step % 3 == 2 ? step - 1 : step);
        const cy_save also = {.config_json = "{}"};
        if (cy_test_save_with(saver, &state, cy_group_rank(ranks), also) != CY_OK) _exit(4);
    }
}

static int64_t check_newest(const char *folder)
{
    char *path = NULL;
    cy_checkpoint checkpoint;
    cy_checkpoint_traffic traffic = {0};
    if (cy_checkpoint_locate(&path, folder) != CY_OK) return 0; // killed before the first
    CY_CHECK_OK(cy_checkpoint_open(&checkpoint, path));
    const int64_t step = checkpoint.step;
    const cy_test_state state = state_of((cy_test_mesh){1, 1, 1}, step);
    CY_CHECK_OK(cy_test_load(&checkpoint, &state, cy_group_self(), &traffic));
    cy_checkpoint_close(&checkpoint);
    cy_memory_free(path);
    return step;
}

static bool has_unfinished(const char *folder)
{
    bool found = false;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (const struct dirent *e; (e = readdir(entries)) != NULL;) {
        if (strncmp(e->d_name, ".step-", 6) == 0) found = true;
    }
    closedir(entries);
    return found;
}

static void killed_at_any_moment(void **state)
{
    (void)state;
    char folder[256];
    int64_t newest = 0;
    int unfinished = 0, grew = 0;
    double range_us = 80000; // of the moment; follows how long a save takes on this machine now
    cy_test_folder(folder, sizeof(folder));
    for (int i = 0; i < KILLS; i++) {
        job j = {.folder = folder, .first = newest + 1};
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            cy_test_ranks(2, save_for_ever, &j);
            _exit(5);
        }
        usleep((useconds_t)(1000 + cy_random_uniform(42, (uint64_t)i) * range_us));
        int status = 0;
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); // not ended by a failed save
        unfinished += has_unfinished(folder);
        const int64_t found = check_newest(folder);
        assert_true(found >= newest);
        grew += found > newest;
        range_us = found > newest ? fmax(0.8 * range_us, 20000) : fmin(1.3 * range_us, 2e6);
        newest = found;
    }
    print_message("%d kills: %d left an unfinished folder, %d saved something, newest step %d\n",
        KILLS, unfinished, grew, (int)newest);
    assert_true(unfinished > KILLS / 10); // otherwise nothing was tried
    assert_true(grew > KILLS / 10);
    // The next run sweeps.
    cy_saver *saver = NULL;
    CY_CHECK_OK(cy_saver_open(&saver, folder, 0, cy_group_self(), NULL, NULL));
    assert_false(has_unfinished(folder));
    cy_saver_close(saver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_at_any_moment)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
