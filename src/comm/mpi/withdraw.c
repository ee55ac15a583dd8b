// How a process leaves a world that has failed, so that it can open another: it takes back what it
// has in flight, and waits until the others have, too.
//
// A receive that has no message yet is cancelled. One whose message is on its way writes to the
// memory of its caller until it is complete, and a message that was sent is read from there until
// the other end has it or has taken its receive back. So every process says when it has no receive
// in flight any more, and goes on moving data until all others have said so. MPI cannot cancel a
// collective of its own, which is why groups of such a world send messages between pairs of ranks
// only: route.c.

#define _GNU_SOURCE
#include "base/clock.h"
#include "comm/mpi/ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

// Messages between the processes of a world, on its own communicator.
#define TAG_NOTICE 1 // why the world has failed, to processes of other machines
#define TAG_QUIET  2 // no receive is in flight

#define POLL_NS 50000

// What a process has sent before it was gone arrives within this time.
#define ARRIVE_NS 1000000000

bool mpi_is_gone(const mpi_process *process, int other)
{
    const cy_rank_page *page = process->pages[other * process->threads];
    return page != NULL && kill(atomic_load(&page->process), 0) != 0 && errno == ESRCH;
}

// ---- what processes of other machines tell

cy_status mpi_notice_open(mpi_process *process)
{
    process->notice = MPI_REQUEST_NULL;
    if (!process->options.reopens) return CY_OK;
    const int code = MPI_Irecv(process->notice_text, sizeof(process->notice_text), MPI_CHAR,
        MPI_ANY_SOURCE, TAG_NOTICE, process->world, &process->notice);
    return code == MPI_SUCCESS ? CY_OK : mpi_failed(code, "receive of failures");
}

void mpi_notice_look(mpi_process *process)
{
    if (!process->options.reopens) return;
    int told = 0;
    mpi_lock(process);
    if (process->notice != MPI_REQUEST_NULL && !process->stopped &&
        MPI_Test(&process->notice, &told, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        told = 0;
    }
    mpi_unlock(process);
    if (told != 0) mpi_fail_world(process, process->notice_text);
}

static void take_back(MPI_Request *request)
{
    if (*request == MPI_REQUEST_NULL) return;
    MPI_Cancel(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

void mpi_notice_close(mpi_process *process)
{
    take_back(&process->notice);
}

// The text lies in memory of this machine that stays after a failure.
static void tell_other_machines(mpi_process *process)
{
    const char *text = process->failure->text;
    for (int i = 0; i < process->count; i++) {
        if (process->pages[i * process->threads] != NULL) continue;
        MPI_Request request;
        const int bytes = (int)strlen(text) + 1;
        if (MPI_Isend(text, bytes, MPI_CHAR, i, TAG_NOTICE, process->world, &request) ==
            MPI_SUCCESS) {
            MPI_Request_free(&request);
        }
    }
}

// ---- what this process has in flight

typedef struct flight {
    MPI_Request *requests;
    int receives; // which come first
    int count;
} flight;

static flight flight_of(mpi_transfer *record)
{
    if (record->pair_count > 0)
        return (flight){record->pairs, record->pair_receives, record->pair_count};
    return (flight){&record->request, record->base.kind == CY_OP_RECV, 1};
}

// Calls `use` for all transfers that were started and not completed; returns whether all calls did
// return true.
static bool for_transfers(mpi_process *process, bool (*use)(flight in_flight))
{
    bool all = true;
    for (mpi_group *group = process->groups; group != NULL; group = group->next) {
        for (mpi_transfer *record = group->made; record != NULL; record = record->made_before) {
            if (record->in_use && !use(flight_of(record))) all = false;
        }
    }
    return all;
}

static bool cancel_receives(flight in_flight)
{
    for (int i = 0; i < in_flight.receives; i++) {
        if (in_flight.requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&in_flight.requests[i]);
    }
    return true;
}

static bool receives_are_over(flight in_flight)
{
    int over = 1;
    if (in_flight.receives == 0) return true;
    // A message that was too long has failed, and is over.
    if (MPI_Testall(in_flight.receives, in_flight.requests, &over, MPI_STATUSES_IGNORE) !=
        MPI_SUCCESS) {
        return true;
    }
    return over != 0;
}

// Nobody receives them any more.
static bool forget_sends(flight in_flight)
{
    for (int i = in_flight.receives; i < in_flight.count; i++) {
        if (in_flight.requests[i] != MPI_REQUEST_NULL) MPI_Request_free(&in_flight.requests[i]);
    }
    return true;
}

// ---- what the others have in flight

static void tell_quiet(const mpi_process *process)
{
    for (int i = 0; i < process->count; i++) {
        MPI_Request request;
        if (i != process->number &&
            MPI_Isend(NULL, 0, MPI_BYTE, i, TAG_QUIET, process->world, &request) == MPI_SUCCESS) {
            MPI_Request_free(&request);
        }
    }
}

static void listen_for_quiet(mpi_process *process)
{
    for (int i = 0; i < process->count; i++) {
        process->quiet[i] = MPI_REQUEST_NULL;
        if (i != process->number)
            MPI_Irecv(NULL, 0, MPI_BYTE, i, TAG_QUIET, process->world, &process->quiet[i]);
    }
}

// Whether nobody is left to wait for. A process that is gone says nothing.
static bool others_are_quiet(mpi_process *process, int64_t *gone_ns)
{
    bool all = true;
    for (int i = 0; i < process->count; i++) {
        int told = 0;
        if (process->quiet[i] == MPI_REQUEST_NULL) continue;
        (void)MPI_Test(&process->quiet[i], &told, MPI_STATUS_IGNORE);
        if (told != 0) continue;
        if (!mpi_is_gone(process, i)) {
            all = false;
        } else if (*gone_ns == 0) {
            *gone_ns = cy_clock_ns();
        }
    }
    return all;
}

// Moves data until no process touches the memory of another any more, for as long as a rank may
// show no heartbeat.
static void await_quiet(mpi_process *process)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    const int64_t until = cy_clock_ns() + (int64_t)(process->options.timeout_s * 1e9);
    int64_t gone_ns = 0;
    bool told = false;
    listen_for_quiet(process);
    for (;;) {
        const int64_t now = cy_clock_ns();
        const bool enough = now > until || (gone_ns != 0 && now - gone_ns > ARRIVE_NS);
        const bool over = for_transfers(process, receives_are_over) || enough;
        if (over && !told) {
            tell_quiet(process);
            told = true;
        }
        const bool quiet = others_are_quiet(process, &gone_ns);
        if ((quiet && over) || now > until) {
            process->lost = gone_ns != 0 || !quiet;
            return;
        }
        nanosleep(&pause, NULL);
    }
}

void mpi_withdraw(mpi_process *process)
{
    mpi_lock(process);
    process->stopped = true;
    if (!process->withdrawn) {
        process->withdrawn = true;
        (void)for_transfers(process, cancel_receives);
        tell_other_machines(process);
        await_quiet(process);
        if (!process->lost) (void)for_transfers(process, forget_sends);
    }
    mpi_unlock(process);
}
