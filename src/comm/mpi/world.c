// The ranks of a run as processes of MPI: how the run begins, with the pages that ranks of a
// machine share, and how it ends.

#define _GNU_SOURCE
#include "base/clock.h"
#include "base/memory.h"
#include "base/platform.h"
#include "base/thread_pool.h"
#include "build_info.h"
#include "comm/mpi/ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// A start takes its time on a busy machine, whatever the limit for heartbeats is.
#define START_S 10.0

// Ranks report one after the other that some are missing, so that the first ends the others before
// they repeat it. The launcher takes a second or two for that.
#define TURN_S 3.0
#define TURNS  4

// How long a rank that was not the first to fail waits to be ended by the one that was: on a
// machine that has much else to do the launcher takes its time.
#define GRACE_NS 30000000000

// ---- the beginning and the end of MPI

// MPI begins and ends in a thread of its own: its beginning waits for all ranks without a limit,
// and one thread must do both.
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
    clock_gettime(CLOCK_MONOTONIC, &until);
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

// Fails where not all ranks have come within the time limit.
static cy_status mpi_begin(mpi_launch **start, const cy_world_options *options)
{
    mpi_launch *made;
    CY_TRY(CY_ALLOC(&made, 1));
    pthread_condattr_t monotonic; // the time of day may be set while ranks start
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
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

// Fails where this MPI allows calls by one thread only.
static cy_status mpi_check_turns(const mpi_launch *start)
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

static void mpi_end(mpi_launch *start)
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

// ---- how the run ends

static int teller_of(const mpi_process *process)
{
    return 1 + process->number * process->threads;
}

// For the first rank of the machine to fail; later ones change nothing.
static void claim_failure(mpi_process *process, const char *text)
{
    mpi_failure *failure = process->failure;
    int none = 0;
    if (!atomic_compare_exchange_strong(&failure->teller, &none, teller_of(process))) return;
    snprintf(failure->text, sizeof(failure->text), "%s", text);
    atomic_store(&failure->aborted, 1);
}

static void claim_failure_of(mpi_process *process, int rank, const char *text)
{
    char named[sizeof(process->failure->text)];
    snprintf(named, sizeof(named), "rank %d (%s): %s", rank, process->hosts[rank], text);
    claim_failure(process, named);
}

static void mpi_abort(cy_world *world, const char *text)
{
    claim_failure_of(((mpi_world *)world)->process, world->rank, text);
}

// A rank alone in its process does nothing here: the end of cy_world_run_mpi informs the others.
// Among several ranks of a process it ends the waits of the others, and joins no collective call.
static bool mpi_fail(cy_world *world, cy_status status)
{
    cy_world *local = ((mpi_world *)world)->local;
    return local != NULL && local->ops->fail(local, status);
}

static int mpi_node_of(const cy_world *world, int rank)
{
    return ((const mpi_world *)world)->process->nodes[rank];
}

static const cy_world_ops mpi_ops = {
    .name = "mpi",
    .open_group = mpi_open_group,
    .node_of = mpi_node_of,
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
static cy_status check_bootstrap(mpi_process *process, const bootstrap *all)
{
    for (int r = 0; r < process->size; r++) {
        const bootstrap *of = &all[r / process->threads];
        memcpy(process->hosts[r], of->host, sizeof(of->host));
        if (strcmp(of->build, all[0].build) != 0) {
            return CY_FAIL(CY_ERR_REQUEST, "rank %d (%s) runs build %s, rank 0 (%s) build %s", r,
                of->host, of->build, all[0].host, all[0].build);
        }
        if (of->configuration != all[0].configuration) {
            return CY_FAIL(CY_ERR_REQUEST,
                "rank %d (%s) has another configuration than rank 0 (%s): %016llx, not %016llx", r,
                of->host, all[0].host, (unsigned long long)of->configuration,
                (unsigned long long)all[0].configuration);
        }
    }
    return CY_OK;
}

static cy_status exchange_bootstrap(mpi_process *process)
{
    bootstrap mine = {.configuration = process->options.configuration};
    if (gethostname(mine.host, sizeof(mine.host) - 1) != 0) snprintf(mine.host, 2, "?");
    char id[32];
    cy_build_id(id, sizeof(id));
    snprintf(mine.build, sizeof(mine.build), "%s-%s-%s", CY_VERSION, CY_COMMIT, id);
    bootstrap *all;
    CY_TRY(CY_ALLOC(&all, (size_t)process->count));
    cy_status status = CY_OK;
    const int code =
        MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE, MPI_COMM_WORLD);
    status = code != MPI_SUCCESS ? mpi_failed(code, "start of the ranks")
                                 : check_bootstrap(process, all);
    cy_memory_free(all);
    return status;
}

// What a process shares with those of its machine: the failure, the pages of its ranks, and their
// entry_tables where there are several.
static size_t entry_table(const mpi_process *process)
{
    return process->threads > 1 ? (size_t)process->threads * MPI_ENTRIES : 0;
}

static void find_pages(mpi_process *process, int number, void *region)
{
    mpi_failure *failure = mpi_align_line(region);
    cy_rank_page *pages = (cy_rank_page *)(void *)(failure + 1);
    mpi_entry *entries = (mpi_entry *)(void *)(pages + process->threads);
    for (int t = 0; t < process->threads; t++) {
        const int rank = number * process->threads + t;
        process->pages[rank] = &pages[t];
        if (process->threads > 1) process->entry_tables[rank] = entries + (size_t)t * MPI_ENTRIES;
    }
}

static cy_status share_pages(mpi_process *process, MPI_Comm machine, const int *local, int count)
{
    const size_t bytes = sizeof(mpi_failure) + (size_t)process->threads * sizeof(cy_rank_page) +
        entry_table(process) * sizeof(mpi_entry);
    void *region = NULL;
    int code = MPI_Win_allocate_shared(
        (MPI_Aint)(bytes + MPI_LINE), 1, MPI_INFO_NULL, machine, &region, &process->window);
    if (code != MPI_SUCCESS) return mpi_failed(code, "pages shared by the ranks of a machine");
    memset(mpi_align_line(region), 0, bytes);
    find_pages(process, process->number, region);
    for (int t = 0; t < process->threads; t++) {
        cy_rank_page *mine = process->pages[process->number * process->threads + t];
        cy_rank_page_init(mine);
    }
    for (int i = 0; i < count; i++) {
        MPI_Aint found = 0;
        int unit = 0;
        MPI_Win_shared_query(process->window, i, &found, &unit, &region);
        find_pages(process, local[i], region);
        if (i == 0) process->failure = mpi_align_line(region);
    }
    // The first process of a machine stands for it.
    const int first = local[0] * process->threads;
    code = MPI_Allgather(&first, 1, MPI_INT, process->nodes, 1, MPI_INT, MPI_COMM_WORLD);
    if (code != MPI_SUCCESS) return mpi_failed(code, "machines of the ranks");
    for (int r = process->size - 1; r >= 0; r--)
        process->nodes[r] = process->nodes[r / process->threads];
    return CY_OK;
}

static cy_status open_pages(mpi_process *process)
{
    MPI_Comm machine = MPI_COMM_NULL;
    const int code = MPI_Comm_split_type(
        MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, process->number, MPI_INFO_NULL, &machine);
    if (code != MPI_SUCCESS) return mpi_failed(code, "ranks of one machine");
    int count = 0;
    MPI_Comm_size(machine, &count);
    int *local;
    CY_TRY(CY_ALLOC(&local, (size_t)count));
    MPI_Allgather(&process->number, 1, MPI_INT, local, 1, MPI_INT, machine);
    const cy_status status = share_pages(process, machine, local, count);
    if (status == CY_OK) MPI_Barrier(machine);
    cy_memory_free(local);
    MPI_Comm_free(&machine);
    return status;
}

// Divides the ranks of the configuration evenly among the processes.
static cy_status share_out(mpi_process *process)
{
    const cy_world_options *options = &process->options;
    MPI_Comm_size(MPI_COMM_WORLD, &process->count);
    const int ranks = options->ranks > 0 ? options->ranks : process->count;
    // What a launcher starts without MPI's own wiring is a world of one process each.
    const bool lost = process->count == 1 && ranks > 1 && options->launched != 1;
    if (lost || ranks % process->count != 0) {
        const cy_status status =
            CY_FAIL(CY_ERR_REQUEST, "the configuration is for %d ranks, but %d process%s started",
                ranks, process->count, process->count == 1 ? " was" : "es were");
        if (lost)
            cy_error_set_hint("mpirun, or srun --mpi=pmix");
        else
            cy_error_set_hint("a number of processes that divides %d: each has as many ranks, as "
                              "threads",
                ranks);
        return status;
    }
    process->threads = ranks / process->count;
    process->size = ranks;
    return CY_OK;
}

static cy_status process_open(mpi_process *process)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &process->number);
    CY_TRY(mpi_check_turns(process->start));
    CY_TRY(share_out(process));
    // A launcher that binds gives each process cores of its own.
    const bool bound = cy_cores_allowed() < sysconf(_SC_NPROCESSORS_ONLN);
    process->spin =
        (bound ? process->threads : process->size) * process->options.threads_per_rank <=
        cy_cores_allowed();
    CY_TRY(CY_ALLOC(&process->hosts, (size_t)process->size));
    CY_TRY(CY_ALLOC(&process->pages, (size_t)process->size));
    CY_TRY(CY_ALLOC(&process->entry_tables, (size_t)process->size));
    CY_TRY(CY_ALLOC(&process->nodes, (size_t)process->size));
    CY_TRY(exchange_bootstrap(process));
    CY_TRY(open_pages(process));
    return process->threads > 1 ? mpi_routes_open(process) : CY_OK;
}

// ---- ranks

static cy_status rank_open(mpi_world **world, mpi_process *process, int rank, cy_world *local)
{
    mpi_world *made;
    CY_TRY(CY_ALLOC(&made, 1));
    made->base = (cy_world){
        .ops = &mpi_ops,
        .rank = rank,
        .size = process->size,
        .options = process->options,
        .page = process->pages[rank],
    };
    made->process = process;
    made->local = local;
    const cy_status status = CY_ALLOC(&made->met, (size_t)process->size);
    if (status != CY_OK) {
        cy_memory_free(made);
        return status;
    }
    *world = made;
    return CY_OK;
}

static void rank_close(mpi_world *world)
{
    cy_memory_free(world->met);
    cy_memory_free(world);
}

typedef struct mpi_run {
    mpi_process *process;
    cy_rank_function function;
    void *context; // borrowed
} mpi_run;

static cy_status run_rank(const mpi_run *run, int rank, cy_world *local)
{
    mpi_world *world = NULL;
    CY_TRY(rank_open(&world, run->process, rank, local));
    const cy_status status = run->function(&world->base, run->context);
    // Ranks that failed may have left groups open.
    if (status == CY_OK) rank_close(world);
    return status;
}

static cy_status run_thread(cy_world *local, void *context)
{
    const mpi_run *run = context;
    return run_rank(run, local->rank, local);
}

static cy_status part_failure(void *context)
{
    return mpi_run_failure(context);
}

// The rank that failed may give back its buffers once no other thread is inside of MPI, which would
// go on with its transfers.
static void part_failed(void *context, const char *text)
{
    mpi_process *process = context;
    claim_failure(process, text);
    mpi_lock(process);
    process->stopped = true;
    mpi_unlock(process);
}

// The ranks of this process, as threads.
static cy_status run_threads(mpi_run *run)
{
    mpi_process *process = run->process;
    const cy_world_local part = {
        .first = process->number * process->threads,
        .size = process->size,
        .pages = process->pages,
        .hosts = process->hosts,
        .spin = process->spin,
        .context = process,
        .failure = part_failure,
        .failed = part_failed,
    };
    cy_world_options options = process->options;
    options.ranks = process->threads;
    const cy_status status = cy_world_run_local(&process->left, &options, &part, run_thread, run);
    if (status != CY_OK) claim_failure(process, cy_error_text());
    return status;
}

static cy_status run_alone(mpi_run *run)
{
    mpi_process *process = run->process;
    cy_activity_attach(&process->pages[process->number]->activity);
    const cy_status status = run_rank(run, process->number, NULL);
    cy_activity_attach(NULL);
    if (status == CY_OK)
        atomic_store(&process->pages[process->number]->ended, 1);
    else
        claim_failure_of(process, process->number, cy_error_text());
    return status;
}

static void sleep_ms(int64_t ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

// The first process to fail prints why and ends the job; the others would only repeat it and wait
// here for the end. Where the first is stopped itself, or does not end the job in time, one of the
// others takes its place.
static void await_turn_to_tell(mpi_process *process)
{
    mpi_failure *failure = process->failure;
    const int mine = teller_of(process);
    int64_t until = cy_clock_ns() + GRACE_NS;
    int teller;
    while ((teller = atomic_load(&failure->teller)) != mine) {
        const bool can_tell = !cy_rank_page_is_stopped(process->pages[teller - 1]);
        if (can_tell && cy_clock_ns() < until) {
            sleep_ms(10);
        } else if (!atomic_compare_exchange_strong(&failure->teller, &teller, mine)) {
            until = cy_clock_ns() + GRACE_NS; // another one has just taken it
        }
    }
}

static void process_close(mpi_process *process)
{
    mpi_routes_close(process);
    MPI_Win_free(&process->window);
    mpi_end(process->start);
    cy_memory_free(process->nodes);
    cy_memory_free(process->entry_tables);
    cy_memory_free(process->pages);
    cy_memory_free(process->hosts);
    pthread_mutex_destroy(&process->lock);
    cy_memory_free(process);
}

// What the process has stays when the job fails: the ranks of this machine may still look at it.
static cy_status report(mpi_process *process, cy_status status)
{
    if (process->failure == NULL) {
        // Every rank refuses the request for the same reason: rank 0 reports it.
        if (process->number != 0) sleep_ms(GRACE_NS / 1000000);
        return status;
    }
    char hint[1024];
    snprintf(hint, sizeof(hint), "%s", cy_error_hint());
    claim_failure_of(process, teller_of(process) - 1, cy_error_text()); // where nobody has
    await_turn_to_tell(process);
    const cy_status named = CY_FAIL(status, "%s", process->failure->text);
    cy_error_set_hint("%s", hint);
    if (process->left) process->options.left_behind(named);
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
    mpi_process *process;
    CY_TRY(CY_ALLOC(&process, 1));
    process->options = *options;
    process->start = start;
    pthread_mutex_init(&process->lock, NULL);
    cy_status status = process_open(process);
    if (status != CY_OK) return report(process, status);
    mpi_run run = {.process = process, .function = function, .context = context};
    status = process->threads > 1 ? run_threads(&run) : run_alone(&run);
    if (status != CY_OK) return report(process, status);
    process_close(process);
    return CY_OK;
}
