// Messages of few bytes: eager messages in a box, one box for each pair of members that uses it.
//
//   sender     writes an eager message, then its number; goes on. One line from core to core.
//   receiver   sees the number, takes the eager messages out in order, under the lock of the pair
//
// The lock's line stays with the receiver: the sender takes it only when the box is full, or for a
// message that is no eager message, and then takes the eager messages out itself, so that messages
// of one tag keep their order.

#include "base/memory.h"
#include "comm/threads/threads.h"

#include <string.h>

// An eager message that nobody waited for when it was taken out.
typedef struct unexpected_message {
    threads_transfer record;
    struct unexpected_message *next;
    char data[EAGER_BYTES];
} unexpected_message;

// ---- memory

// Zeroed lines of a cache; *block is what is freed.
static cy_status take_lines(void **lines, void **block, size_t bytes)
{
    CY_TRY(cy_memory_alloc(block, bytes + 63, 1));
    const size_t past = (uintptr_t)*block % 64;
    *lines = (char *)*block + (64 - past) % 64;
    return CY_OK;
}

cy_status pairs_make(threads_shared *shared)
{
    const size_t count = (size_t)shared->size * (size_t)shared->size;
    void *lines = NULL;
    CY_TRY(take_lines(&lines, &shared->pairs_block, count * sizeof(pair)));
    shared->pairs = lines;
    for (size_t i = 0; i < count; i++)
        pthread_mutex_init(&shared->pairs[i].lock, NULL);
    return CY_OK;
}

void pairs_free(threads_shared *shared)
{
    const int count = shared->pairs == NULL ? 0 : shared->size * shared->size;
    for (int i = 0; i < count; i++) {
        pair *at = &shared->pairs[i];
        while (
            at->sends != NULL) { // only unexpected eager messages are left: nobody asked for them
            threads_transfer *left = at->sends;
            at->sends = left->next;
            if (left->unexpected) eager_release(at, left);
        }
        while (at->unexpected != NULL) {
            unexpected_message *free_one = at->unexpected;
            at->unexpected = free_one->next;
            cy_memory_free(free_one);
        }
        while (at->copies != NULL) {
            message_copy *free_one = at->copies;
            at->copies = free_one->next;
            cy_memory_free(free_one);
        }
        cy_memory_free(at->box_block);
        pthread_mutex_destroy(&at->lock);
    }
    cy_memory_free(shared->pairs_block);
}

// ---- writing

static cy_status box_make(pair *between, mailbox **box)
{
    void *lines = NULL;
    CY_TRY(take_lines(&lines, &between->box_block, sizeof(mailbox)));
    *box = lines;
    atomic_store(&between->box, *box);
    return CY_OK;
}

// All eager messages are unread: the sender takes them out for the receiver.
static cy_status make_room(threads_group *group, pair *between, int to)
{
    pthread_mutex_lock(&between->lock);
    const cy_status status = eager_match(group, between, group->base.rank, to);
    pthread_mutex_unlock(&between->lock);
    return status;
}

cy_status eager_send(threads_group *group, pair *between, threads_transfer *record)
{
    mailbox *box = atomic_load_explicit(&between->box, memory_order_relaxed);
    if (box == NULL) CY_TRY(box_make(between, &box));
    if (box->written - box->seen >= EAGER_MESSAGES) {
        box->seen = atomic_load_explicit(&between->taken, memory_order_acquire);
        if (box->written - box->seen >= EAGER_MESSAGES) {
            CY_TRY(make_room(group, between, record->peer));
            box->seen = atomic_load_explicit(&between->taken, memory_order_acquire);
        }
    }
    eager_message *mine = &box->eager_messages[box->written % EAGER_MESSAGES];
    mine->count = cy_view_count(record->view);
    mine->tag = record->tag;
    mine->dtype = record->view.dtype;
    const size_t bytes = cy_view_bytes(record->view);
    if (bytes > 0) memcpy(mine->data, record->view.data, bytes);
    box->written++;
    // Sequentially consistent, as the look at who sleeps that follows.
    atomic_store(&mine->number, box->written);
    atomic_store_explicit(&record->state, MESSAGE_DONE, memory_order_relaxed);
    return CY_OK;
}

// ---- reading

static eager_message *next_eager(const pair *between)
{
    mailbox *box = atomic_load_explicit(&between->box, memory_order_acquire);
    if (box == NULL) return NULL;
    const uint64_t taken = atomic_load_explicit(&between->taken, memory_order_relaxed);
    eager_message *next = &box->eager_messages[taken % EAGER_MESSAGES];
    return atomic_load(&next->number) == taken + 1 ? next : NULL;
}

bool eager_pending(const pair *between)
{
    return next_eager(between) != NULL;
}

static cy_status keep(pair *between, const eager_message *found)
{
    if (between->unexpected == NULL) {
        void *block = NULL;
        CY_TRY(cy_memory_alloc(&block, 1, sizeof(unexpected_message)));
        between->unexpected = block;
    }
    unexpected_message *made = between->unexpected;
    between->unexpected = made->next;
    made->record.base.kind = CY_OP_SEND;
    made->record.tag = found->tag;
    made->record.unexpected = true;
    made->record.view = cy_view_of(made->data, found->dtype, 1, found->count);
    memcpy(made->data, found->data, cy_view_bytes(made->record.view));
    message_append(&between->sends, &made->record);
    return CY_OK;
}

void eager_release(pair *between, threads_transfer *record)
{
    unexpected_message *known =
        (unexpected_message *)(void *)record; // the record is its first member
    known->next = between->unexpected;
    between->unexpected = known;
}

cy_status eager_match(threads_group *group, pair *between, int from, int to)
{
    for (eager_message *found; (found = next_eager(between)) != NULL;) {
        threads_transfer *receiver = message_unlink(&between->recvs, found->tag);
        if (receiver == NULL) {
            CY_TRY(keep(between, found));
        } else {
            const cy_view sent = cy_view_of(found->data, found->dtype, 1, found->count);
            const cy_status status =
                message_check(group, from, to, found->tag, sent, receiver->view);
            const size_t bytes = cy_view_bytes(sent);
            if (status == CY_OK) {
                message_take_in(&receiver->operation, receiver->view.data, found->data, bytes);
            }
            atomic_store(&receiver->state, status == CY_OK ? MESSAGE_DONE : MESSAGE_FAILED);
            CY_TRY(status);
        }
        const uint64_t taken = atomic_load_explicit(&between->taken, memory_order_relaxed);
        atomic_store_explicit(&between->taken, taken + 1, memory_order_release);
    }
    return CY_OK;
}
