// After its first step an engine allocates nothing, alone and with other ranks.
//
// The program's own malloc and its kin stand before the C library's, for the libraries as well, and
// count while they are told to. oneDNN takes and frees a workspace within some fp32 products; what
// is not called from this program's code is counted apart.

#define _GNU_SOURCE
#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#if CY_TEST_SANITIZED || !defined(__GLIBC__)
#define HAVE_COUNTERS 0
#else
#define HAVE_COUNTERS 1
#endif

static atomic_bool counting;
static atomic_int own, foreign;

#if HAVE_COUNTERS
extern const char __executable_start[], etext[];

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static void count(const char *caller)
{
    if (!atomic_load(&counting)) return;
    const bool here = caller >= __executable_start && caller < etext;
    atomic_fetch_add(here ? &own : &foreign, 1);
}

#define COUNT() count(__builtin_return_address(0))
#define PUBLIC  __attribute__((visibility("default"), noinline))

PUBLIC void *malloc(size_t size)
{
    COUNT();
    return __libc_malloc(size);
}

PUBLIC void *calloc(size_t number, size_t size)
{
    COUNT();
    return __libc_calloc(number, size);
}

PUBLIC void *realloc(void *block, size_t size)
{
    COUNT();
    return __libc_realloc(block, size);
}

PUBLIC int posix_memalign(void **block, size_t alignment, size_t size)
{
    COUNT();
    *block = __libc_memalign(alignment, size);
    return *block != NULL ? 0 : ENOMEM;
}

PUBLIC void *aligned_alloc(size_t alignment, size_t size)
{
    COUNT();
    return __libc_memalign(alignment, size);
}
#endif

static void require_counters(void)
{
    if (!HAVE_COUNTERS) skip();
    atomic_store(&counting, true);
    const int before = atomic_load(&own);
    void *volatile block = malloc(10); // volatile: or the compiler takes both calls away
    free(block);
    atomic_store(&counting, false);
    assert_int_equal(atomic_load(&own) - before, 1);
}

static cy_status run_steps(cy_engine *engine, int first, int last)
{
    const cy_batch_source source = cy_test_tokens(engine);
    cy_step_result result;
    for (int step = first; step <= last; step++) {
        const cy_adamw_spec adamw = cy_test_adamw(1e-3, step);
        CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
    }
    double loss;
    return cy_engine_evaluate(engine, &source, 0, &loss);
}

static void one_rank(cy_dtype dtype, const char *isa, cy_config_device device)
{
    static cy_engine engine;
    static cy_config config;
    cy_test_config(&config, dtype);
    config.distributed.device = device;
    const cy_engine_options options = cy_test_engine_options(&config, isa);
    CY_CHECK_OK(cy_engine_open(&engine, &options));
    CY_CHECK_OK(cy_engine_initialize(&engine));
    CY_CHECK_OK(run_steps(&engine, 1, 1));
    atomic_store(&own, 0);
    atomic_store(&foreign, 0);
    atomic_store(&counting, true);
    const cy_status status = run_steps(&engine, 2, 5);
    atomic_store(&counting, false);
    CY_CHECK_OK(status);
    print_message("%s %s %s: %d allocations in four steps, %d inside libraries\n",
        cy_config_device_name(device), cy_dtype_name(dtype), isa, atomic_load(&own),
        atomic_load(&foreign));
    assert_int_equal(atomic_load(&own), 0);
    cy_engine_close(&engine);
}

static void a_step_of_one_rank_allocates_nothing(void **state)
{
    (void)state;
    require_counters();
    one_rank(CY_F32, "ref", CY_CONFIG_DEVICE_CPU);
    assert_int_equal(atomic_load(&foreign), 0);
    one_rank(CY_F32, "auto", CY_CONFIG_DEVICE_CPU);
    one_rank(CY_BF16, "auto", CY_CONFIG_DEVICE_CPU);
    one_rank(CY_F64, "auto", CY_CONFIG_DEVICE_CPU);
    one_rank(CY_BF16, "ref", CY_CONFIG_DEVICE_TEST);
}

// ---- ranks

static size_t staged_bytes(const cy_engine *engine)
{
    return engine->staging != NULL ? cy_staging_bytes(engine->staging) : 0;
}

static cy_status step_rank(cy_engine *engine, const cy_rank *rank, void *context)
{
    (void)context;
    cy_group *world = rank->groups.world;
    const size_t planned = staged_bytes(engine);
    CY_TRY(cy_engine_initialize(engine));
    CY_TRY(run_steps(engine, 1, 2));
    CY_TRY(cy_group_barrier(world));
    if (rank->rank == 0) atomic_store(&counting, true);
    CY_TRY(cy_group_barrier(world));
    CY_TRY(run_steps(engine, 3, 6));
    CY_TRY(cy_group_barrier(world));
    if (rank->rank == 0) atomic_store(&counting, false);
    if (staged_bytes(engine) != planned) {
        return CY_FAIL(CY_ERR_CORRUPT, "%zu bytes of buffers for groups, %zu are planned",
            staged_bytes(engine), planned);
    }
    return cy_group_barrier(world);
}

static void allocate_nothing(const cy_config *config, int zero_stage)
{
    atomic_store(&own, 0);
    CY_CHECK_OK(cy_test_on_mesh(config, "ref", NULL, step_rank, NULL));
    print_message("%s, ZeRO %d: %d allocations\n",
        cy_config_device_name(config->distributed.device), zero_stage, atomic_load(&own));
    assert_int_equal(atomic_load(&own), 0);
}

static void steps_of_ranks_allocate_nothing(void **state)
{
    (void)state;
    require_counters();
#ifdef CY_DEBUG
    skip(); // groups keep copies there of what must not change meanwhile
#endif
    static cy_config config;
    for (int device = CY_CONFIG_DEVICE_CPU; device <= CY_CONFIG_DEVICE_TEST; device++) {
        for (int zero_stage = 0; zero_stage <= 3; zero_stage++) {
            cy_test_config(&config, CY_F32);
            config.distributed.device = (cy_config_device)device;
            config.distributed.dp_size = 2;
            config.distributed.zero_stage = zero_stage;
            allocate_nothing(&config, zero_stage);
        }
    }
}

// Pipelines and context parallelism have more kinds of transfers. How many records of messages
// their ranks take depends on which of them is late, so that only what is planned is compared.
static void groups_find_their_buffers(void **state)
{
    (void)state;
    static cy_config config;
    cy_test_config(&config, CY_F32);
    config.distributed.device = CY_CONFIG_DEVICE_TEST;
    config.distributed.tp_size = config.distributed.cp_size = config.distributed.pp_size = 2;
    config.distributed.sequence_parallel = true;
    CY_CHECK_OK(cy_test_on_mesh(&config, "ref", NULL, step_rank, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_one_rank_allocates_nothing),
        cmocka_unit_test(steps_of_ranks_allocate_nothing),
        cmocka_unit_test(groups_find_their_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
