// Messages of many bytes, copied by both ends, or added to what is there.
//
// A copy is cut into chunks. Whoever waits takes chunks until none is left, so an end that computes
// costs nothing but its help, and an end that waits alone does all of it.

#define _GNU_SOURCE
#include "base/memory.h"
#include "comm/threads/threads.h"

#include <sched.h>

#define CHUNK_MIN ((size_t)16 << 10)
#define CHUNK_MAX ((size_t)256 << 10)

cy_status copy_begin(pair *between, threads_transfer *sender, threads_transfer *receiver)
{
    if (between->copies == NULL) {
        void *block = NULL;
        CY_TRY(cy_memory_alloc(&block, 1, sizeof(message_copy)));
        between->copies = block;
    }
    message_copy *made = between->copies;
    between->copies = made->next;
    made->from = sender->view.data;
    made->to = receiver->view.data;
    made->received = receiver->operation;
    made->bytes = cy_view_bytes(sender->view);
    const size_t eighth = made->bytes / 8 / 64 * 64;
    made->grain = eighth < CHUNK_MIN ? CHUNK_MIN : eighth > CHUNK_MAX ? CHUNK_MAX : eighth;
    made->chunks = (int64_t)((made->bytes + made->grain - 1) / made->grain);
    made->ends = 2;
    atomic_store_explicit(&made->taken, 0, memory_order_relaxed);
    atomic_store_explicit(&made->finished, 0, memory_order_relaxed);
    sender->partner = receiver;
    receiver->partner = sender;
    sender->copy = made;
    receiver->copy = made;
    atomic_store(&sender->state, MESSAGE_MATCHED);
    atomic_store(&receiver->state, MESSAGE_MATCHED);
    return CY_OK;
}

bool copy_is_over(const threads_transfer *record)
{
    return atomic_load(&record->copy->finished) == record->copy->chunks;
}

bool copy_has_moved(const threads_transfer *record)
{
    return copy_is_over(record) || atomic_load(&record->copy->taken) < record->copy->chunks;
}

void copy_help(threads_group *group, const threads_transfer *record)
{
    message_copy *copy = record->copy;
    bool last = false;
    // Announced before a chunk is taken: who gives up waits until nobody is inside.
    atomic_fetch_add(&copy->inside, 1);
    for (int64_t i; (i = atomic_fetch_add(&copy->taken, 1)) < copy->chunks;) {
        const size_t at = (size_t)i * copy->grain;
        const size_t rest = copy->bytes - at;
        message_take_in(&copy->received, copy->to + at, copy->from + at,
            rest < copy->grain ? rest : copy->grain);
        last = atomic_fetch_add(&copy->finished, 1) + 1 == copy->chunks;
    }
    atomic_fetch_sub(&copy->inside, 1);
    if (!last) return;
    const threads_shared *shared = group->shared;
    rank_notify(rank_of(shared->run, shared->ranks[record->peer]));
}

// Under the lock.
static void leave(pair *between, threads_transfer *record)
{
    message_copy *copy = record->copy;
    record->copy = NULL;
    record->partner = NULL;
    copy->ends--;
    if (copy->ends > 0) return;
    copy->next = between->copies;
    between->copies = copy;
}

void copy_leave(pair *between, threads_transfer *record)
{
    pthread_mutex_lock(&between->lock);
    leave(between, record);
    atomic_store(&record->state, MESSAGE_DONE);
    pthread_mutex_unlock(&between->lock);
}

void copy_cancel(pair *between, threads_transfer *record)
{
    message_copy *copy = record->copy;
    pthread_mutex_lock(&between->lock);
    // An end that has left has its data: it is not told.
    if (copy->ends == 2) atomic_store(&record->partner->state, MESSAGE_FAILED);
    atomic_store(&copy->taken, copy->chunks);
    pthread_mutex_unlock(&between->lock);
    while (atomic_load(&copy->inside) > 0)
        sched_yield();
    pthread_mutex_lock(&between->lock);
    leave(between, record);
    pthread_mutex_unlock(&between->lock);
}
