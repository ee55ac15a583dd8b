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

// How long a rank that was not the first to fail waits to be ended by the one that was: on a
// machine that has much else to do the launcher takes its time.
#define GRACE_NS 30000000000

// How long a process waits for the text of a failure that another one is writing.
#define TEXT_NS 1000000000

#define POLL_NS 50000    // between two looks of a process that waits for others
#define LOOK_NS 20000000 // how often it looks whether they are gone

// Tag of the messages by which the processes of a world find each other.
#define TAG_HELLO 1

static void sleep_ns(int64_t ns)
{
    const struct timespec pause = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&pause, NULL);
}

double mpi_start_limit_s(const cy_world_options *options)
{
    return options->timeout_s > START_S ? options->timeout_s : START_S;
}

// ---- how the run ends

static int teller_of(const mpi_process *process)
{
    return 1 + process->number * process->threads;
}

// For the first rank of the machine to fail; later ones change nothing. The text is there on
// return.
static void claim_failure(mpi_process *process, const char *text)
{
    mpi_failure *failure = process->failure;
    int none = 0;
    if (atomic_compare_exchange_strong(&failure->teller, &none, teller_of(process))) {
        snprintf(failure->text, sizeof(failure->text), "%s", text);
        atomic_store(&failure->aborted, 1);
        return;
    }
    const int64_t until = cy_clock_ns() + TEXT_NS;
    while (atomic_load(&failure->aborted) == 0 && cy_clock_ns() < until)
        sleep_ns(POLL_NS);
}

static void claim_failure_of(mpi_process *process, int rank, const char *text)
{
    char named[sizeof(process->failure->text)];
    snprintf(named, sizeof(named), "rank %d (%s): %s", rank, process->hosts[rank], text);
    claim_failure(process, named);
}

void mpi_fail_world(mpi_process *process, const char *text)
{
    claim_failure(process, text);
}

static void mpi_abort(cy_world *world, const char *text)
{
    claim_failure_of(((mpi_world *)world)->process, world->rank, text);
}

// Where the job ends with the failure, a rank alone in its process does nothing here: the end of
// cy_world_run_mpi informs the others. Among several ranks of a process it ends the waits of the
// others, and joins no collective call.
static bool mpi_fail(cy_world *world, cy_status status)
{
    mpi_process *process = ((mpi_world *)world)->process;
    cy_world *local = ((mpi_world *)world)->local;
    const bool reopens = process->options.reopens;
    if (reopens) claim_failure_of(process, world->rank, cy_error_text());
    const bool closes = local != NULL ? local->ops->fail(local, status) : reopens;
    if (reopens) mpi_withdraw(process);
    for (int i = 0; reopens && i < process->threads; i++)
        cy_guard_await(&process->worlds[i]->guard);
    return closes;
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

// ---- start

// What the processes of a world tell each other before it opens. A process whose world is of an
// earlier generation fails; what it has said is dropped here.
typedef struct hello {
    int generation;
    char host[64];
    char build[64];
    uint64_t configuration;
} hello;

// Left to MPI where a process does not come: its messages may still move then.
typedef struct meeting {
    hello mine;
    hello *all;            // owned, [count]
    MPI_Request *requests; // owned, [2 count]: from each process, to each process
    bool *here;            // owned, [count]
} meeting;

static void meeting_free(meeting *m)
{
    cy_memory_free(m->here);
    cy_memory_free(m->requests);
    cy_memory_free(m->all);
    cy_memory_free(m);
}

static cy_status meeting_make(meeting **made, const mpi_process *process)
{
    meeting *m;
    CY_TRY(CY_ALLOC(&m, 1));
    cy_status status = CY_ALLOC(&m->all, (size_t)process->count);
    if (status == CY_OK) status = CY_ALLOC(&m->requests, 2 * (size_t)process->count);
    if (status == CY_OK) status = CY_ALLOC(&m->here, (size_t)process->count);
    if (status != CY_OK) {
        meeting_free(m);
        return status;
    }
    m->mine.generation = process->generation;
    m->mine.configuration = process->options.configuration;
    if (gethostname(m->mine.host, sizeof(m->mine.host) - 1) != 0) snprintf(m->mine.host, 2, "?");
    char id[32];
    cy_build_id(id, sizeof(id));
    snprintf(m->mine.build, sizeof(m->mine.build), "%s-%s-%s", CY_VERSION, CY_COMMIT, id);
    for (int i = 0; i < 2 * process->count; i++)
        m->requests[i] = MPI_REQUEST_NULL;
    *made = m;
    return CY_OK;
}

static int listen_to(meeting *m, const mpi_process *process, int other)
{
    return MPI_Irecv(&m->all[other], sizeof(hello), MPI_BYTE, process->members[other], TAG_HELLO,
        MPI_COMM_WORLD, &m->requests[other]);
}

static cy_status meeting_begin(meeting *m, const mpi_process *process)
{
    int code = MPI_SUCCESS;
    m->all[process->number] = m->mine;
    m->here[process->number] = true;
    for (int i = 0; i < process->count && code == MPI_SUCCESS; i++) {
        if (i == process->number) continue;
        code = listen_to(m, process, i);
        if (code != MPI_SUCCESS) break;
        code = MPI_Isend(&m->mine, sizeof(hello), MPI_BYTE, process->members[i], TAG_HELLO,
            MPI_COMM_WORLD, &m->requests[process->count + i]);
    }
    return code == MPI_SUCCESS ? CY_OK : mpi_failed(code, "start of the ranks");
}

// Fails where a process opens a later generation of the world.
static cy_status take_hello(meeting *m, const mpi_process *process, int other)
{
    const hello *said = &m->all[other];
    if (said->generation > m->mine.generation) {
        return CY_FAIL(CY_ERR_REQUEST,
            "rank %d (%s) opens generation %d of the world, rank %d (%s) "
            "generation %d",
            other * process->threads, said->host, said->generation,
            process->number * process->threads, m->mine.host, m->mine.generation);
    }
    if (said->generation == m->mine.generation) {
        m->here[other] = true;
        return CY_OK;
    }
    const int code = listen_to(m, process, other);
    return code == MPI_SUCCESS ? CY_OK : mpi_failed(code, "start of the ranks");
}

static cy_status report_absent(const meeting *m, const mpi_process *process)
{
    int absent = 0;
    while (absent < process->count - 1 && m->here[absent])
        absent++;
    return CY_FAIL(CY_ERR_TIMEOUT,
        "start of generation %d of the world: after %.3g s rank %d has not come",
        process->generation, mpi_start_limit_s(&process->options), absent * process->threads);
}

static cy_status meet(meeting *m, const mpi_process *process)
{
    CY_TRY(meeting_begin(m, process));
    const int64_t until = cy_clock_ns() + (int64_t)(mpi_start_limit_s(&process->options) * 1e9);
    for (;;) {
        bool all = true;
        for (int i = 0; i < 2 * process->count; i++) {
            int done = 1;
            if (m->requests[i] == MPI_REQUEST_NULL) continue;
            const int code = MPI_Test(&m->requests[i], &done, MPI_STATUS_IGNORE);
            if (code != MPI_SUCCESS) return mpi_failed(code, "start of the ranks");
            if (done != 0 && i < process->count) CY_TRY(take_hello(m, process, i));
            all = all && m->requests[i] == MPI_REQUEST_NULL;
        }
        if (all) return CY_OK;
        if (cy_clock_ns() > until) return report_absent(m, process);
        sleep_ns(POLL_NS);
    }
}

// All ranks must run one program on one configuration. Every rank comes to the same verdict.
static cy_status check_hellos(mpi_process *process, const hello *all)
{
    for (int r = 0; r < process->size; r++) {
        const hello *of = &all[r / process->threads];
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

// Waits until all processes of the world have come, each in the same generation.
static cy_status meet_processes(mpi_process *process)
{
    meeting *m = NULL;
    CY_TRY(meeting_make(&m, process));
    CY_TRY(meet(m, process));
    const cy_status status = check_hellos(process, m->all);
    meeting_free(m);
    return status;
}

// A communicator of this generation alone: what a failed world has left in flight is of another
// one, so it meets no message of this world.
static cy_status open_communicator(mpi_process *process)
{
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, process->count, process->members, &members);
    const int code = MPI_Comm_create_group(MPI_COMM_WORLD, members, TAG_HELLO, &process->world);
    MPI_Group_free(&members);
    MPI_Group_free(&all);
    if (code != MPI_SUCCESS) return mpi_failed(code, "communicator of the ranks");
    MPI_Comm_set_errhandler(process->world, MPI_ERRORS_RETURN);
    return mpi_notice_open(process);
}

// What a process shares with those of its machine: the failure, the pages of its ranks, and, where
// data go by routes, their entry_tables.
static size_t entry_table(const mpi_process *process)
{
    return process->routed ? (size_t)process->threads * MPI_ENTRIES : 0;
}

static void find_pages(mpi_process *process, int number, void *region)
{
    mpi_failure *failure = mpi_align_line(region);
    cy_rank_page *pages = (cy_rank_page *)(void *)(failure + 1);
    mpi_entry *entries = (mpi_entry *)(void *)(pages + process->threads);
    for (int t = 0; t < process->threads; t++) {
        const int rank = number * process->threads + t;
        process->pages[rank] = &pages[t];
        if (process->routed) process->entry_tables[rank] = entries + (size_t)t * MPI_ENTRIES;
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
    code = MPI_Allgather(&first, 1, MPI_INT, process->nodes, 1, MPI_INT, process->world);
    if (code != MPI_SUCCESS) return mpi_failed(code, "machines of the ranks");
    for (int r = process->size - 1; r >= 0; r--)
        process->nodes[r] = process->nodes[r / process->threads];
    return CY_OK;
}

static cy_status open_pages(mpi_process *process)
{
    MPI_Comm machine = MPI_COMM_NULL;
    const int code = MPI_Comm_split_type(
        process->world, MPI_COMM_TYPE_SHARED, process->number, MPI_INFO_NULL, &machine);
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

// Which processes of the job are those of the world, and which of them this is.
static cy_status find_members(mpi_process *process)
{
    const cy_world_options *options = &process->options;
    int me = 0, all = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    process->count = options->members != NULL ? options->member_count : all;
    CY_TRY(CY_ALLOC(&process->members, (size_t)process->count));
    process->number = -1;
    for (int i = 0; i < process->count; i++) {
        process->members[i] = options->members != NULL ? options->members[i] : i;
        CY_ASSERT(0 <= process->members[i] && process->members[i] < all);
        if (process->members[i] == me) process->number = i;
    }
    CY_ASSERT(process->number >= 0); // a process opens the worlds that it belongs to
    return CY_OK;
}

// Divides the ranks of the configuration evenly among the processes.
static cy_status share_out(mpi_process *process)
{
    const cy_world_options *options = &process->options;
    const int ranks = options->ranks > 0 ? options->ranks : process->count;
    // What a launcher starts without MPI's own wiring is a world of one process each.
    const bool lost =
        options->members == NULL && process->count == 1 && ranks > 1 && options->launched != 1;
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
    process->routed = process->threads > 1 || options->reopens;
    return CY_OK;
}

// What the ranks of this process know of the world.
static cy_status open_ranks(mpi_process *process)
{
    for (int i = 0; i < process->threads; i++) {
        mpi_world *world;
        const int rank = process->number * process->threads + i;
        CY_TRY(CY_ALLOC(&world, 1));
        process->worlds[i] = world;
        world->base = (cy_world){
            .ops = &mpi_ops,
            .rank = rank,
            .size = process->size,
            .generation = process->generation,
            .options = process->options,
            .page = process->pages[rank],
        };
        world->process = process;
        world->guard = (cy_guard){.failed = &process->stopped, .text = process->failure->text};
        CY_TRY(CY_ALLOC(&world->met, (size_t)process->size));
    }
    return CY_OK;
}

static cy_status process_open(mpi_process *process)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CY_TRY(find_members(process));
    CY_TRY(mpi_job_check_turns());
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
    CY_TRY(CY_ALLOC(&process->worlds, (size_t)process->threads));
    CY_TRY(CY_ALLOC(&process->quiet, (size_t)process->count));
    CY_TRY(meet_processes(process));
    CY_TRY(open_communicator(process));
    CY_TRY(open_pages(process));
    CY_TRY(open_ranks(process));
    return process->routed ? mpi_routes_open(process) : CY_OK;
}

// ---- ranks

typedef struct mpi_run {
    mpi_process *process;
    cy_rank_function function;
    void *context; // borrowed
} mpi_run;

static cy_status run_rank(const mpi_run *run, int rank, cy_world *local)
{
    mpi_world *world = run->process->worlds[rank % run->process->threads];
    world->local = local;
    return run->function(&world->base, run->context);
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
    options.generation = process->generation;
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

// ---- the end

// Finds the ranks of a process of this machine gone, and the world has failed then.
static void look_after_others(mpi_process *process)
{
    for (int i = 0; i < process->count; i++) {
        const int rank = i * process->threads;
        if (!mpi_is_gone(process, i)) continue;
        char text[256];
        snprintf(
            text, sizeof(text), "the process is gone of rank %d (%s)", rank, process->hosts[rank]);
        claim_failure(process, text);
    }
}

// Waits until the ranks of all processes have ended well. Fails where one has failed since.
static cy_status await_others(mpi_process *process)
{
    MPI_Request barrier = MPI_REQUEST_NULL;
    int64_t looked = cy_clock_ns();
    int done = 0;
    // NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): tested below; left where others failed
    int code = MPI_Ibarrier(process->world, &barrier);
    for (;;) {
        if (code == MPI_SUCCESS) code = MPI_Test(&barrier, &done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) return mpi_failed(code, "end of the ranks");
        if (done != 0) return CY_OK;
        CY_TRY(mpi_run_failure(process));
        if (cy_clock_ns() - looked > LOOK_NS) {
            looked = cy_clock_ns();
            mpi_notice_look(process);
            look_after_others(process);
        }
        sleep_ns(POLL_NS);
    }
    // NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)
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
            sleep_ns(10000000);
        } else if (!atomic_compare_exchange_strong(&failure->teller, &teller, mine)) {
            until = cy_clock_ns() + GRACE_NS; // another one has just taken it
        }
    }
}

static void process_free(mpi_process *process)
{
    for (int i = 0; process->worlds != NULL && i < process->threads; i++) {
        if (process->worlds[i] != NULL) cy_memory_free(process->worlds[i]->met);
        cy_memory_free(process->worlds[i]);
    }
    cy_memory_free(process->worlds);
    cy_memory_free(process->quiet);
    cy_memory_free(process->wires);
    cy_memory_free(process->nodes);
    cy_memory_free(process->entry_tables);
    cy_memory_free(process->pages);
    cy_memory_free(process->hosts);
    cy_memory_free(process->members);
    pthread_mutex_destroy(&process->lock);
    cy_memory_free(process);
}

// All processes do this together.
static void process_close(mpi_process *process)
{
    mpi_routes_close(process);
    mpi_notice_close(process);
    MPI_Win_free(&process->window);
    MPI_Comm_free(&process->world);
    process_free(process);
}

// After a failure, where the process may open another world. The communicators and the shared
// memory of this one stay until the process ends: freeing them takes all processes, and what is
// still in flight must find its communicator, not a new one with the same number.
static cy_status give_up(mpi_process *process, cy_status status)
{
    if (process->failure == NULL) { // the world did not open
        mpi_job_leave(MPI_JOB_LOST);
        return status;
    }
    char hint[1024];
    snprintf(hint, sizeof(hint), "%s", cy_error_hint());
    claim_failure_of(process, teller_of(process) - 1, cy_error_text()); // where nobody has
    mpi_withdraw(process);
    const cy_status named = CY_FAIL(status, "%s", process->failure->text);
    cy_error_set_hint("%s", hint);
    if (process->left) process->options.left_behind(named);
    mpi_job_leave(process->lost ? MPI_JOB_LOST : MPI_JOB_WHOLE);
    // Groups that a rank has left open still use this.
    if (process->groups == NULL && !process->left) process_free(process);
    return named;
}

// What the process has stays when the job fails: the ranks of this machine may still look at it.
static cy_status report(mpi_process *process, cy_status status)
{
    if (process->failure == NULL) {
        // Every rank refuses the request for the same reason: rank 0 reports it.
        if (process->number != 0) sleep_ns(GRACE_NS);
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

static cy_status run_world(mpi_process *process, cy_rank_function function, void *context)
{
    CY_TRY(process_open(process));
    mpi_run run = {.process = process, .function = function, .context = context};
    CY_TRY(process->threads > 1 ? run_threads(&run) : run_alone(&run));
    return await_others(process);
}

cy_status cy_world_run_mpi(
    const cy_world_options *options, cy_rank_function function, void *context)
{
    mpi_process *process;
    CY_TRY(CY_ALLOC(&process, 1));
    cy_status status = mpi_job_enter(&process->generation, options);
    if (status != CY_OK) {
        cy_memory_free(process);
        return status;
    }
    process->options = *options;
    pthread_mutex_init(&process->lock, NULL);
    status = run_world(process, function, context);
    if (status == CY_OK) {
        process_close(process);
        mpi_job_leave(MPI_JOB_WHOLE);
        return CY_OK;
    }
    if (options->reopens) return give_up(process, status);
    mpi_job_leave(MPI_JOB_FAILED);
    return report(process, status);
}
