// What the ranks of a run have taken is given back when it ends, and when it fails.
//
// The program's own malloc and its kin stand before the C library's and count the blocks that this
// program's code holds. The sanitizers have an allocator of their own; there nothing is counted,
// and the address sanitizer looks for leaks at the end.

#define _GNU_SOURCE
#include "support/engines.h"
#include "support/support.h"
#include "train/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#if CY_TEST_SANITIZED || !defined(__GLIBC__)
#define HAVE_COUNTERS 0
#else
#define HAVE_COUNTERS 1
#endif

// Blocks that the program's code took and nobody gave back.
static int live;

#if HAVE_COUNTERS
enum { MOST = 1 << 16 };
static void *blocks[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

extern const char __executable_start[], etext[];

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void __libc_free(void *block);

#define PUBLIC __attribute__((visibility("default"), noinline))

// Puts `now` where `before` is; nothing happens to blocks that are not in the list.
static void replace(void *before, void *now)
{
    pthread_mutex_lock(&lock);
    size_t at = 0;
    while (at < MOST && blocks[at] != before)
        at++;
    if (at < MOST) {
        blocks[at] = now;
        live += (now != NULL) - (before != NULL);
    }
    pthread_mutex_unlock(&lock);
}

static void *taken(void *block, const char *caller)
{
    if (block != NULL && caller >= __executable_start && caller < etext) replace(NULL, block);
    return block;
}

PUBLIC void *malloc(size_t size)
{
    return taken(__libc_malloc(size), __builtin_return_address(0));
}

PUBLIC void *calloc(size_t count, size_t size)
{
    return taken(__libc_calloc(count, size), __builtin_return_address(0));
}

PUBLIC void free(void *block)
{
    if (block != NULL) replace(block, NULL);
    __libc_free(block);
}

PUBLIC void *realloc(void *block, size_t size)
{
    if (block == NULL) return taken(__libc_realloc(NULL, size), __builtin_return_address(0));
    void *made = __libc_realloc(block, size);
    if (made != NULL && made != block) replace(block, made);
    return made;
}
#endif

// Some traffic on the groups; with `*fails` rank 1 ends with transfers and a message in flight.
static cy_status work(const cy_rank *rank, void *context)
{
    const bool *fails = context;
    static float large[4][50000];
    float small[16] = {0};
    cy_group *world = rank->groups.world;
    const cy_view few = cy_view_of(small, CY_F32, 1, 16);
    const cy_view many = cy_view_of(large[rank->rank], CY_F32, 1, 50000);
    CY_TRY(cy_group_all_reduce(rank->groups.gradient, NULL, few, CY_SUM));
    CY_TRY(cy_group_all_reduce(rank->groups.tp, NULL, few, CY_SUM));
    CY_TRY(cy_group_all_reduce(world, NULL, many, CY_SUM));
    if (!*fails) return cy_group_barrier(world);
    cy_request requests[3] = {0};
    const int other = rank->rank ^ 1;
    CY_TRY(cy_group_start_all_reduce(world, NULL, &requests[0], many, CY_SUM));
    CY_TRY(cy_group_start_all_reduce(world, NULL, &requests[1], few, CY_SUM));
    CY_TRY(cy_group_start_recv(world, NULL, &requests[2], few, other, 3));
    if (rank->rank == 1) return CY_FAIL(CY_ERR_NOT_FINITE, "enough");
    for (int i = 0; i < 3; i++)
        CY_TRY(cy_group_wait(world, NULL, &requests[i]));
    return CY_OK;
}

static cy_status run_once(cy_config *config, bool fails)
{
    const cy_config_machine machine = {.cores = 2};
    return cy_ranks_run(config, &machine, work, &fails);
}

static void configure(cy_config *config, const char *algorithm)
{
    cy_test_config(config, CY_F32);
    config->distributed.dp_size = 2;
    config->distributed.tp_size = 2;
    snprintf(config->distributed.algorithm, sizeof(config->distributed.algorithm), "%s", algorithm);
}

static void groups_are_given_back(void **state)
{
    (void)state;
    static cy_config config;
    static const char *const algorithms[] = {"auto", "ring"};
    for (int a = 0; a < 2; a++) {
        configure(&config, algorithms[a]);
        CY_CHECK_OK(run_once(&config, false)); // what the first run of a process keeps for all
        const int before = live;
        CY_CHECK_OK(run_once(&config, false));
        print_message("%s: %d blocks before, %d after\n", algorithms[a], before, live);
        assert_int_equal(live, before);
    }
}

static void also_after_a_failure(void **state)
{
    (void)state;
    static cy_config config;
    configure(&config, "auto");
    CY_CHECK_OK(run_once(&config, false));
    const int before = live;
    for (int i = 0; i < 20; i++)
        CY_CHECK_FAILS(run_once(&config, true), CY_ERR_NOT_FINITE, "enough");
    assert_int_equal(live, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_given_back),
        cmocka_unit_test(also_after_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
