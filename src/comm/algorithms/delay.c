// Delayed links: a message takes latency and bandwidth into account. The sender, which knows when
// the link is free, sends the time at which the message is due in a second message; the receiver
// waits until then. Both read the clock of one machine.

#define _GNU_SOURCE
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/algorithm.h"
#include "comm/backend.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#define NOTE_TAG (2 * CY_TAG_LIMIT) // notes have the tags behind those of messages

typedef struct delayed_transfer {
    cy_transfer base;
    struct delayed_transfer *next;
    int64_t due_ns; // when this end is done; of a receive known once the note is here
    cy_request message;
    cy_request note;
    bool sends;
} delayed_transfer;

typedef struct delay_group {
    cy_group base;
    cy_group *inside;          // owned
    cy_link *links;            // owned, [size]: from this rank
    int64_t *free_ns;          // owned, [size]: when the link to a rank is free again
    delayed_transfer *records; // owned: free ones
} delay_group;

static cy_status start_inside(
    delay_group *group, cy_request *request, const cy_operation *operation)
{
    CY_TRY(group->inside->ops->start(group->inside, NULL, request, operation));
    ((cy_transfer *)request->handle)->kind = operation->kind;
    return CY_OK;
}

static cy_status delay_start(
    cy_group *base, cy_queue *queue, cy_request *request, const cy_operation *operation)
{
    (void)queue;
    delay_group *group = (delay_group *)base;
    if (operation->kind != CY_OP_SEND && operation->kind != CY_OP_RECV) {
        return CY_FAIL(
            CY_ERR_UNSUPPORTED, "%s: delay has messages only", cy_operation_name(operation->kind));
    }
    if (group->records == NULL) {
        CY_TRY(CY_ALLOC(&group->records, 1));
    }
    delayed_transfer *record = group->records;
    record->sends = operation->kind == CY_OP_SEND;
    record->due_ns = 0;
    if (record->sends) {
        const cy_link *link = &group->links[operation->peer];
        const double bytes = (double)cy_view_bytes(operation->in);
        const double busy_s = link->bytes_per_s > 0.0 ? bytes / link->bytes_per_s : 0.0;
        const int64_t now = cy_clock_ns();
        const int64_t free_ns = group->free_ns[operation->peer];
        const int64_t begin = now > free_ns ? now : free_ns;
        group->free_ns[operation->peer] = begin + (int64_t)(busy_s * 1e9);
        record->due_ns = group->free_ns[operation->peer] + (int64_t)(link->latency_s * 1e9);
    }
    const cy_view due = cy_view_of(&record->due_ns, CY_I64, 1, 1);
    const cy_operation note = {
        .kind = operation->kind,
        .out = due,
        .in = due,
        .peer = operation->peer,
        .tag = operation->tag + NOTE_TAG,
    };
    CY_TRY(start_inside(group, &record->note, &note));
    CY_TRY(start_inside(group, &record->message, operation));
    group->records = record->next;
    record->next = NULL;
    request->handle = record;
    return CY_OK;
}

static cy_status finish(delay_group *group, cy_request *request, bool *done)
{
    if (request->handle == NULL) return CY_OK;
    bool here = false;
    CY_TRY(group->inside->ops->test(group->inside, request->handle, &here));
    *done = *done && here;
    if (!here) return CY_OK;
    cy_transfer *transfer = request->handle;
    request->handle = NULL;
    return group->inside->ops->wait(group->inside, NULL, transfer);
}

static cy_status delay_test(cy_group *base, cy_transfer *transfer, bool *done)
{
    delay_group *group = (delay_group *)base;
    delayed_transfer *record = (delayed_transfer *)transfer;
    bool here = true;
    CY_TRY(finish(group, &record->note, &here));
    CY_TRY(finish(group, &record->message, &here));
    *done = here && cy_clock_ns() >= record->due_ns;
    return CY_OK;
}

static cy_status delay_check_peers(cy_group *base, const cy_transfer *transfer, cy_watchdog *watch)
{
    delay_group *group = (delay_group *)base;
    const delayed_transfer *record = (const delayed_transfer *)transfer;
    const cy_transfer *awaited = record->message.handle;
    if (awaited == NULL) return CY_OK; // it is only not due yet
    return group->inside->ops->check_peers(group->inside, awaited, watch);
}

static cy_status give_back(delay_group *group, delayed_transfer *record, cy_status status)
{
    // After a failure the group inside takes the rest back: its waits return at once.
    cy_request *rest[] = {&record->note, &record->message};
    for (int i = 0; i < 2; i++) {
        if (rest[i]->handle == NULL) continue;
        (void)!group->inside->ops->wait(group->inside, NULL, rest[i]->handle);
        rest[i]->handle = NULL;
    }
    record->next = group->records;
    group->records = record;
    return status;
}

static cy_status delay_wait(cy_group *base, cy_queue *queue, cy_transfer *transfer)
{
    (void)queue;
    delay_group *group = (delay_group *)base;
    delayed_transfer *record = (delayed_transfer *)transfer;
    cy_watchdog watch = {.rank = -1};
    int64_t looked = cy_clock_ns();
    bool done = false;
    cy_status status = delay_test(base, transfer, &done);
    while (status == CY_OK && !done) {
        const int64_t now = cy_clock_ns();
        const int64_t left = record->due_ns - now;
        const struct timespec pause = {.tv_nsec = left > 10000 && left < 1000000 ? left : 20000};
        nanosleep(&pause, NULL);
        if (now - looked > 50000000) {
            looked = now;
            status = delay_check_peers(base, transfer, &watch);
        }
        if (status == CY_OK) status = delay_test(base, transfer, &done);
    }
    if (status != CY_OK) cy_group_abort(group->inside, cy_error_text());
    return give_back(group, record, status);
}

static void delay_abort(cy_group *base, const char *text)
{
    cy_group_abort(((delay_group *)base)->inside, text);
}

static void delay_close(cy_group *base)
{
    delay_group *group = (delay_group *)base;
    cy_group_close(group->inside);
    while (group->records != NULL) {
        delayed_transfer *record = group->records;
        group->records = record->next;
        cy_memory_free(record);
    }
    cy_memory_free(group->links);
    cy_memory_free(group->free_ns);
    cy_memory_free(group);
}

static const cy_group_ops delay_ops = {
    .name = "delay",
    .start = delay_start,
    .wait = delay_wait,
    .test = delay_test,
    .check_peers = delay_check_peers,
    .abort = delay_abort,
    .close = delay_close,
};

cy_status cy_delay_open(cy_group **group, cy_group *inside, const cy_link *links)
{
    CY_ASSERT(inside->size > 1);
    delay_group *made;
    CY_TRY(CY_ALLOC(&made, 1));
    cy_group_init(&made->base, &delay_ops, inside->rank, inside->size, inside->dimension);
    cy_status status = CY_ALLOC(&made->links, (size_t)inside->size);
    if (status != CY_OK) goto free_group;
    const size_t size = (size_t)inside->size;
    memcpy(made->links, links + size * (size_t)inside->rank, size * sizeof(cy_link));
    status = CY_ALLOC(&made->free_ns, (size_t)inside->size);
    if (status != CY_OK) goto free_links;
    made->inside = inside;
    made->base.messages_only = true;
    made->base.reduces_on_recv = inside->reduces_on_recv;
    made->base.guard = inside->guard;
    *group = &made->base;
    return CY_OK;

free_links:
    cy_memory_free(made->links);
free_group:
    cy_memory_free(made);
    return status;
}
