// The ranks of a run as processes of MPI: what they say of themselves on the pages of their
// machine, how the run begins, and how it ends.

#define _GNU_SOURCE
#include "base/build_id.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/memory.h"
#include "build_info.h"
#include "comm/mpi_ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// How long a rank that was not the first to fail waits to be ended by the one that was: on a
// machine that has much else to do the launcher takes its time.
#define GRACE_NS 30000000000

cy_status mpi_failed(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return CY_FAIL(CY_ERR_PEER, "%s: %s", what, text);
}

// ---- what ranks say about themselves

void mpi_says(mpi_world *world, const char *dimension, cy_operation_kind kind, uint64_t sequence)
{
    mpi_page *page = world->pages[world->base.rank];
    uint64_t letters = 0;
    memcpy(&letters, dimension, strnlen(dimension, sizeof(letters)));
    atomic_store_explicit(&page->last_dimension, letters, memory_order_relaxed);
    atomic_store_explicit(&page->last_call, sequence << 8 | (uint64_t)kind, memory_order_relaxed);
    atomic_fetch_add_explicit(&page->beat, 1, memory_order_relaxed);
}

void mpi_describe(const mpi_world *world, int rank, char *text, size_t bytes)
{
    const mpi_page *page = world->pages[rank];
    const char *host = world->hosts[rank];
    if (page == NULL) {
        snprintf(text, bytes, "rank %d (%s)", rank, host);
        return;
    }
    const uint64_t letters = atomic_load_explicit(&page->last_dimension, memory_order_relaxed);
    const uint64_t call = atomic_load_explicit(&page->last_call, memory_order_relaxed);
    char dimension[sizeof(letters) + 1] = {0};
    memcpy(dimension, &letters, sizeof(letters));
    if (letters == 0) {
        snprintf(text, bytes, "rank %d (%s), which has not communicated yet", rank, host);
        return;
    }
    snprintf(text, bytes, "rank %d (%s), last seen in %s %llu of %s", rank, host,
        cy_operation_name((cy_operation_kind)(call & 0xff)), (unsigned long long)(call >> 8),
        dimension);
}

int mpi_culprit(const mpi_world *world, int rank)
{
    for (int steps = 0; steps < world->base.size; steps++) {
        const mpi_page *page = world->pages[rank];
        const int next = page == NULL ? -1 : atomic_load(&page->waiting_for);
        if (next < 0) return rank;
        rank = next;
    }
    return rank;
}

cy_status mpi_run_failure(const mpi_world *world)
{
    if (atomic_load(&world->common->aborted) == 0) return CY_OK;
    return CY_FAIL(CY_ERR_PEER, "%s", world->common->abort_text);
}

// True for the first rank of the machine that calls it.
static bool claim_abort(mpi_world *world, const char *text)
{
    mpi_page *page = world->common;
    int none = 0;
    if (!atomic_compare_exchange_strong(&page->abort_claimed, &none, 1)) return false;
    snprintf(page->abort_text, sizeof(page->abort_text), "rank %d (%s): %s", world->base.rank,
        world->hosts[world->base.rank], text);
    atomic_store(&page->aborted, 1);
    return true;
}

static void mpi_abort(cy_world *world, const char *text)
{
    (void)claim_abort((mpi_world *)world, text);
}

// The end of cy_world_run_mpi tells the others.
static bool mpi_fail(cy_world *world, cy_status status)
{
    (void)world;
    (void)status;
    return false;
}

// Only pages of this machine are seen.
static bool mpi_shares_machine(const cy_world *world, int rank)
{
    return ((const mpi_world *)world)->pages[rank] != NULL;
}

static const cy_world_ops mpi_ops = {
    .name = "mpi",
    .open_group = mpi_open_group,
    .shares_machine = mpi_shares_machine,
    .abort = mpi_abort,
    .fail = mpi_fail,
};

bool cy_world_has_begun(void)
{
    int initialized = 0;
    MPI_Initialized(&initialized);
    return initialized != 0;
}

void cy_world_end_job(int exit_status)
{
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized != 0 && finalized == 0) MPI_Abort(MPI_COMM_WORLD, exit_status);
}

// ---- start

typedef struct bootstrap {
    char host[64];
    char build[64];
    uint64_t configuration;
} bootstrap;

// All ranks must run one program on one configuration. Every rank comes to the same verdict.
static cy_status check_bootstrap(mpi_world *world, const bootstrap *all)
{
    for (int r = 0; r < world->base.size; r++) {
        memcpy(world->hosts[r], all[r].host, sizeof(all[r].host));
        if (strcmp(all[r].build, all[0].build) != 0) {
            return CY_FAIL(CY_ERR_REQUEST, "rank %d (%s) runs build %s, rank 0 (%s) build %s", r,
                all[r].host, all[r].build, all[0].host, all[0].build);
        }
        if (all[r].configuration != all[0].configuration) {
            return CY_FAIL(CY_ERR_REQUEST,
                "rank %d (%s) has another configuration than rank 0 (%s): %016llx, not %016llx", r,
                all[r].host, all[0].host, (unsigned long long)all[r].configuration,
                (unsigned long long)all[0].configuration);
        }
    }
    return CY_OK;
}

static cy_status exchange_bootstrap(mpi_world *world)
{
    bootstrap mine = {.configuration = world->base.options.configuration};
    if (gethostname(mine.host, sizeof(mine.host) - 1) != 0) snprintf(mine.host, 2, "?");
    char id[32];
    cy_build_id(id, sizeof(id));
    snprintf(mine.build, sizeof(mine.build), "%s-%s-%s", CY_VERSION, CY_COMMIT, id);
    void *block = NULL;
    CY_TRY(cy_memory_take(&block, (size_t)world->base.size, sizeof(bootstrap)));
    bootstrap *all = block;
    cy_status status = CY_OK;
    const int code =
        MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE, MPI_COMM_WORLD);
    status =
        code != MPI_SUCCESS ? mpi_failed(code, "start of the ranks") : check_bootstrap(world, all);
    cy_memory_free(all);
    return status;
}

static cy_status open_pages(mpi_world *world)
{
    MPI_Comm machine = MPI_COMM_NULL;
    int code = MPI_Comm_split_type(
        MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world->base.rank, MPI_INFO_NULL, &machine);
    if (code != MPI_SUCCESS) return mpi_failed(code, "ranks of one machine");
    int local_size = 0;
    MPI_Comm_size(machine, &local_size);

    void *block = NULL;
    CY_TRY(cy_memory_take(&block, (size_t)local_size, sizeof(int)));
    int *local = block;
    MPI_Allgather(&world->base.rank, 1, MPI_INT, local, 1, MPI_INT, machine);
    void *room = NULL;
    code = MPI_Win_allocate_shared(
        MPI_ROOM_BYTES(mpi_page), 1, MPI_INFO_NULL, machine, &room, &world->window);
    if (code == MPI_SUCCESS) {
        mpi_page *mine = mpi_line_in(room);
        memset(mine, 0, sizeof(*mine));
        atomic_store(&mine->waiting_for, -1);
        atomic_store(&mine->process, (int)getpid());
        for (int i = 0; i < local_size; i++) {
            MPI_Aint bytes = 0;
            int unit = 0;
            MPI_Win_shared_query(world->window, i, &bytes, &unit, &room);
            world->pages[local[i]] = mpi_line_in(room);
        }
        world->common = world->pages[local[0]];
        world->base.shown_beat = &world->pages[world->base.rank]->beat;
        MPI_Barrier(machine);
    }
    cy_memory_free(local);
    MPI_Comm_free(&machine);
    if (code != MPI_SUCCESS) return mpi_failed(code, "pages shared by the ranks of a machine");
    return CY_OK;
}

static cy_status mpi_world_open(mpi_world *world, const cy_world_options *options)
{
    world->base.ops = &mpi_ops;
    world->base.options = *options;
    MPI_Comm_rank(MPI_COMM_WORLD, &world->base.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world->base.size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (options->ranks > 0 && options->ranks != world->base.size) {
        const cy_status status =
            CY_FAIL(CY_ERR_REQUEST, "the configuration is for %d ranks, but %d were started",
                options->ranks, world->base.size);
        // What a launcher starts without MPI's own wiring is a world of one each.
        if (world->base.size == 1) cy_error_set_hint("mpirun, or srun --mpi=pmix");
        return status;
    }
    // A launcher that binds gives each rank cores of its own.
    const bool bound = cy_cores_allowed() < sysconf(_SC_NPROCESSORS_ONLN);
    world->spin = (bound ? 1 : world->base.size) * options->threads_per_rank <= cy_cores_allowed();
    void *block = NULL;
    CY_TRY(cy_memory_take(&block, (size_t)world->base.size, sizeof(world->hosts[0])));
    world->hosts = block;
    CY_TRY(cy_memory_take(&block, (size_t)world->base.size, sizeof(mpi_page *)));
    world->pages = block;
    CY_TRY(exchange_bootstrap(world));
    return open_pages(world);
}

static void sleep_ms(int64_t ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

// The first to fail goes on to print why and to end the job; the others would only repeat it.
static void await_end_of_job(void)
{
    const int64_t until = cy_clock_ns() + GRACE_NS;
    while (cy_clock_ns() < until)
        sleep_ms(10);
}

static cy_status finish(mpi_world *world, cy_status status)
{
    if (status == CY_OK) {
        atomic_store(&world->pages[world->base.rank]->ended, 1);
        MPI_Win_free(&world->window);
        mpi_end(world->start);
        cy_memory_free(world->hosts);
        cy_memory_free(world->pages);
        return CY_OK;
    }
    if (world->common == NULL) {
        // A verdict on the request is the same everywhere: rank 0 tells it.
        if (world->base.rank != 0) await_end_of_job();
        return status;
    }
    char hint[1024];
    snprintf(hint, sizeof(hint), "%s", cy_error_hint());
    const bool first = claim_abort(world, cy_error_text());
    const cy_status named = CY_FAIL(status, "%s", world->common->abort_text);
    if (!first) await_end_of_job();
    cy_error_set_hint("%s", hint);
    return named;
}

cy_status cy_world_run_mpi(
    const cy_world_options *options, cy_rank_function function, void *context)
{
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized != 0) return CY_FAIL(CY_ERR_REQUEST, "a world of mpi was already run");
    mpi_launch *start = NULL;
    CY_TRY(mpi_begin(&start, options));
    void *block = NULL;
    // A mapping, because the beat has a cache line of its own. It stays when the job fails: the
    // ranks of this machine may still look at it.
    CY_TRY(cy_memory_map(&block, sizeof(mpi_world)));
    mpi_world *world = block;
    world->start = start;
    pthread_mutex_init(&world->lock, NULL);
    cy_status status = mpi_world_open(world, options);
    if (status == CY_OK) status = function(&world->base, context);
    status = finish(world, status);
    if (status == CY_OK) {
        pthread_mutex_destroy(&world->lock);
        cy_memory_unmap(world, sizeof(mpi_world));
    }
    return status;
}
