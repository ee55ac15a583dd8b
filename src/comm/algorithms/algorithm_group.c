// Groups that follow plans: the table of functions, progress, and the choice of an algorithm.

#define _GNU_SOURCE
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "comm/algorithms/executor.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define YIELD_NS 200000 // then sleep between looks
#define NAP_NS   20000
#define LOOK_NS  50000000 // how often a long wait looks after the others

static bool is_message(cy_operation_kind kind)
{
    return kind == CY_OP_SEND || kind == CY_OP_RECV;
}

static cy_status fail_group(algorithm_group *group, cy_status status)
{
    if (group->status == CY_OK) {
        group->status = status;
        snprintf(group->text, sizeof(group->text), "%s", cy_error_text());
    }
    return status;
}

static cy_status failure(const algorithm_group *group)
{
    return group->status == CY_OK ? CY_OK : CY_FAIL(group->status, "%s", group->text);
}

// Under the lock: goes on with everything in flight, oldest first.
static cy_status advance_all(algorithm_group *group)
{
    CY_TRY(failure(group));
    for (algorithm_transfer **link = &group->head; *link != NULL;) {
        algorithm_transfer *record = *link;
        const cy_status status = algorithm_advance(group, record);
        if (status != CY_OK) return fail_group(group, status);
        if (!record->done) {
            link = &record->next;
            continue;
        }
        *link = record->next;
        if (group->tail == record) {
            group->tail = group->head;
            while (group->tail != NULL && group->tail->next != NULL)
                group->tail = group->tail->next;
        }
    }
    return CY_OK;
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = NAP_NS};
    nanosleep(&pause, NULL);
}

static void *make_progress(void *argument)
{
    algorithm_group *group = argument;
    pthread_mutex_lock(&group->lock);
    while (!group->closing) {
        if (group->head == NULL || group->status != CY_OK) {
            pthread_cond_wait(&group->work, &group->lock);
            continue;
        }
        (void)advance_all(group); // a failure is kept for those who wait
        pthread_mutex_unlock(&group->lock);
        nap();
        pthread_mutex_lock(&group->lock);
    }
    pthread_mutex_unlock(&group->lock);
    return NULL;
}

// ---- the table

static cy_status record_take(algorithm_group *group, algorithm_transfer **record)
{
    if (group->records == NULL) {
        void *block = NULL;
        CY_TRY(cy_memory_alloc(&block, 1, sizeof(algorithm_transfer)));
        group->records = block;
    }
    *record = group->records;
    group->records = (*record)->next;
    (*record)->next = NULL;
    (*record)->message = NULL;
    (*record)->done = false;
    return CY_OK;
}

static void record_give(algorithm_group *group, algorithm_transfer *record)
{
    record->next = group->records;
    group->records = record;
}

// Collectives that the group inside does itself.
static bool is_native(const algorithm_group *group, const cy_operation *operation)
{
    if (!group->options.native_others || group->inside->messages_only) return false;
    return operation->kind != CY_OP_ALL_REDUCE ||
        cy_algorithm_choose(&group->options.table, cy_view_bytes(operation->in)) ==
        CY_ALGORITHM_NATIVE;
}

// *listed tells whether the group has the record now, also when a step of it failed.
static cy_status start_locked(algorithm_group *group, cy_queue *queue, algorithm_transfer *record,
    const cy_operation *operation, bool *listed)
{
    *listed = false;
    CY_TRY(failure(group));
    if (is_message(operation->kind) || is_native(group, operation)) {
        cy_request request = {0};
        CY_TRY(group->inside->ops->start(group->inside, queue, &request, operation));
        if (operation->kind == CY_OP_SEND) algorithm_count(group, operation);
        if (!is_message(operation->kind)) {
            group->sent.bytes_between_nodes += cy_operation_bytes_between(&group->base, operation);
        }
        record->message = request.handle;
        record->message->kind = operation->kind;
        return CY_OK;
    }
    record->tag = CY_TAG_LIMIT + (int)(group->sequence++ % CY_TAG_LIMIT);
    CY_TRY(algorithm_prepare(group, record, operation));
    if (group->tail != NULL) group->tail->next = record;
    if (group->head == NULL) group->head = record;
    group->tail = record;
    *listed = true;
    pthread_cond_signal(&group->work);
    return advance_all(group);
}

static cy_status algorithm_start(
    cy_group *base, cy_queue *queue, cy_request *request, const cy_operation *operation)
{
    algorithm_group *group = (algorithm_group *)base;
    pthread_mutex_lock(&group->lock);
    algorithm_transfer *record = NULL;
    cy_status status = record_take(group, &record);
    if (status == CY_OK) {
        record->base.kind = operation->kind;
        bool listed;
        status = start_locked(group, queue, record, operation, &listed);
        // After a failure a record of the list stays there until the close.
        if (status != CY_OK && !listed) record_give(group, record);
        if (status == CY_OK) request->handle = record;
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

static cy_status test_locked(algorithm_group *group, algorithm_transfer *record, bool *done)
{
    if (record->message == NULL) {
        if (!record->done) CY_TRY(advance_all(group));
        *done = record->done;
        return CY_OK;
    }
    CY_TRY(failure(group));
    return group->inside->ops->test(group->inside, record->message, done);
}

// *moves are those of the group so far.
static cy_status look(
    algorithm_group *group, algorithm_transfer *record, bool *done, int64_t *moves)
{
    pthread_mutex_lock(&group->lock);
    const cy_status status = test_locked(group, record, done);
    *moves = group->moves;
    pthread_mutex_unlock(&group->lock);
    return status;
}

static cy_status algorithm_test(cy_group *base, cy_transfer *transfer, bool *done)
{
    int64_t moves;
    return look((algorithm_group *)base, (algorithm_transfer *)transfer, done, &moves);
}

// The oldest message of a direction that is in flight; NULL: none is.
static const cy_transfer *oldest(const algorithm_direction *way)
{
    return way->done < way->posted ? way->requests[way->done % FRAGMENTS_IN_FLIGHT].handle : NULL;
}

static cy_status check_peers_locked(
    algorithm_group *group, const algorithm_transfer *record, cy_watchdog *watch)
{
    const cy_transfer *awaited = record->message;
    if (awaited == NULL) awaited = oldest(&record->recv);
    if (awaited == NULL) awaited = oldest(&record->send);
    if (awaited == NULL) return CY_OK;
    const cy_status status = group->inside->ops->check_peers(group->inside, awaited, watch);
    if (status == CY_OK) return CY_OK;
    cy_error_prefix("%s: ", cy_operation_name(record->base.kind));
    return fail_group(group, status);
}

static cy_status algorithm_check_peers(
    cy_group *base, const cy_transfer *transfer, cy_watchdog *watch)
{
    algorithm_group *group = (algorithm_group *)base;
    pthread_mutex_lock(&group->lock);
    const cy_status status = check_peers_locked(group, (const algorithm_transfer *)transfer, watch);
    pthread_mutex_unlock(&group->lock);
    return status;
}

static cy_status algorithm_wait(cy_group *base, cy_queue *queue, cy_transfer *transfer)
{
    algorithm_group *group = (algorithm_group *)base;
    algorithm_transfer *record = (algorithm_transfer *)transfer;
    int64_t moved = cy_clock_ns(); // when a message came or went last
    int64_t looked = moved;
    int64_t moves = 0;
    cy_watchdog watch = {.rank = -1};
    bool done = false;
    cy_status status = look(group, record, &done, &moves);
    while (status == CY_OK && !done) {
        const int64_t now = cy_clock_ns();
        if (now - moved > YIELD_NS)
            nap();
        else
            sched_yield();
        if (now - looked > LOOK_NS) {
            looked = now;
            status = algorithm_check_peers(base, transfer, &watch);
        }
        const int64_t before = moves;
        if (status == CY_OK) status = look(group, record, &done, &moves);
        if (moves != before) moved = cy_clock_ns();
    }
    pthread_mutex_lock(&group->lock);
    if (status == CY_OK && record->message != NULL) {
        status = group->inside->ops->wait(group->inside, queue, record->message);
    }
    if (queue != NULL && record->message == NULL && record->overflow) {
        atomic_store(&queue->fixed_overflow, true);
    }
    base->counters.bytes_between_nodes = group->sent.bytes_between_nodes;
    if (status == CY_OK) record_give(group, record); // a failed one may still be in the list
    pthread_mutex_unlock(&group->lock);
    return status;
}

static void algorithm_abort(cy_group *base, const char *text)
{
    algorithm_group *group = (algorithm_group *)base;
    cy_group_abort(group->inside, text);
}

// After a failure the group inside must take its messages back before their memory goes.
static void cancel(algorithm_group *group, algorithm_direction *way)
{
    for (int i = 0; i < FRAGMENTS_IN_FLIGHT && group->status != CY_OK; i++) {
        cy_request *request = &way->requests[i];
        if (request->handle == NULL) continue;
        cy_group_abort(group->inside, group->text);
        (void)!group->inside->ops->wait(group->inside, NULL, request->handle);
        request->handle = NULL;
    }
}

static void free_list(algorithm_transfer *list)
{
    while (list != NULL) {
        algorithm_transfer *record = list;
        list = record->next;
        cy_coll_schedule_free(&record->plan);
        cy_memory_free(record->work);
        cy_memory_free(record->arrived);
        cy_memory_free(record);
    }
}

static void algorithm_close(cy_group *base)
{
    algorithm_group *group = (algorithm_group *)base;
    pthread_mutex_lock(&group->lock);
    group->closing = true;
    pthread_cond_signal(&group->work);
    pthread_mutex_unlock(&group->lock);
    if (group->has_thread) pthread_join(group->thread, NULL);
    for (algorithm_transfer *record = group->head; record != NULL; record = record->next) {
        cancel(group, &record->recv);
        cancel(group, &record->send);
    }
    if (!group->options.keep_inside) cy_group_close(group->inside);
    free_list(group->records);
    free_list(group->head);
    pthread_cond_destroy(&group->work);
    pthread_mutex_destroy(&group->lock);
    cy_memory_free(group);
}

static const cy_group_ops algorithm_ops = {
    .name = "algorithm",
    .start = algorithm_start,
    .wait = algorithm_wait,
    .test = algorithm_test,
    .check_peers = algorithm_check_peers,
    .abort = algorithm_abort,
    .close = algorithm_close,
};

cy_status cy_algorithm_open(cy_group **group, cy_group *inside, const cy_algorithm_options *options)
{
    CY_ASSERT(inside->size > 1 && options->table.count > 0);
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(algorithm_group)));
    algorithm_group *made = block;
    cy_group_init(&made->base, &algorithm_ops, inside->rank, inside->size, inside->dimension);
    made->options = *options;
    made->options.nodes = NULL; // the group has its own
    made->inside = inside;
    made->base.counts_between = true;
    const int *nodes = options->nodes != NULL ? options->nodes : inside->nodes;
    const cy_status status = cy_group_set_nodes(&made->base, nodes);
    if (status != CY_OK) {
        cy_memory_free(made);
        return status;
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->work, NULL);
    if (options->progress_thread) {
        if (cy_thread_start(&made->thread, make_progress, made) != 0) {
            pthread_cond_destroy(&made->work);
            pthread_mutex_destroy(&made->lock);
            cy_memory_free(made->base.nodes);
            cy_memory_free(made);
            return CY_FAIL(CY_ERR_MEMORY, "no thread for the progress of %s", inside->dimension);
        }
        made->has_thread = true;
    }
    *group = &made->base;
    return CY_OK;
}

cy_algorithm_counters cy_algorithm_count(const cy_group *group)
{
    CY_ASSERT(group->ops == &algorithm_ops);
    return ((const algorithm_group *)group)->sent;
}
