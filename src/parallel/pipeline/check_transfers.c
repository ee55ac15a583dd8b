// Sends against receives, and whether blocking transports can run the lists.

#include "parallel/pipeline/check_internal.h"

#include "base/memory.h"

// The microbatches that pass each boundary, in the order of the sends and in that of the receives.
typedef struct passing {
    int *sent;           // owned, [boundaries * 2, microbatches]
    int *received;       // owned, the same
    int *sent_count;     // owned, [boundaries * 2]
    int *received_count; // owned
} passing;

static bool is_send(cy_action_kind kind)
{
    return kind == CY_ACTION_SEND_ACTIVATION || kind == CY_ACTION_SEND_GRADIENT;
}

// Each boundary has its own tag, and the lists hold every transfer once: the sequences have the
// same length and need only be compared.
static cy_status compare_orders(const cy_schedule *schedule, passing *p)
{
    const int count = schedule->microbatches;
    for (int rank = 0; rank < schedule->stages; rank++) {
        const cy_action_list *list = &schedule->ranks[rank];
        for (size_t i = 0; i < list->count; i++) {
            const cy_action action = list->actions[i];
            if (!cy_action_is_transfer(action.kind)) continue;
            const int tag = cy_action_tag(schedule, rank, action);
            const bool send = is_send(action.kind);
            int *filled = send ? &p->sent_count[tag] : &p->received_count[tag];
            (send ? p->sent : p->received)[(int64_t)tag * count + (*filled)++] = action.microbatch;
        }
    }
    for (int tag = 0; tag < 2 * cy_schedule_segments(schedule); tag++) {
        for (int i = 0; i < p->sent_count[tag]; i++) {
            const int sent = p->sent[(int64_t)tag * count + i];
            const int received = p->received[(int64_t)tag * count + i];
            if (sent == received) continue;
            return CY_FAIL(CY_ERR_REQUEST,
                "%s between segments %d and %d: message %d is sent as microbatch %d and received "
                "as %d",
                tag % 2 == 0 ? "activations" : "gradients", tag / 2, tag / 2 + 1, i, sent,
                received);
        }
    }
    return CY_OK;
}

static cy_status check_matching(const cy_schedule *schedule)
{
    const size_t tags = 2 * (size_t)cy_schedule_segments(schedule);
    const size_t counts[4] = {
        tags * (size_t)schedule->microbatches, tags * (size_t)schedule->microbatches, tags, tags};
    void *blocks[4] = {0};
    cy_status status = CY_OK;
    for (int i = 0; i < 4 && status == CY_OK; i++) {
        status = cy_memory_alloc(&blocks[i], counts[i], sizeof(int));
    }
    if (status == CY_OK) {
        passing p = {
            .sent = blocks[0],
            .received = blocks[1],
            .sent_count = blocks[2],
            .received_count = blocks[3],
        };
        status = compare_orders(schedule, &p);
    }
    for (int i = 0; i < 4; i++)
        cy_memory_free(blocks[i]);
    return status;
}

// The transfer at which a rank stands, or NULL at the end of its list; everything else is passed
// over, since it needs only what an earlier receive of the same list has brought.
static const cy_action *next_transfer(const cy_schedule *schedule, int rank, size_t *next)
{
    const cy_action_list *list = &schedule->ranks[rank];
    while (*next < list->count && !cy_action_is_transfer(list->actions[*next].kind))
        (*next)++;
    return *next < list->count ? &list->actions[*next] : NULL;
}

static bool meets(const cy_schedule *schedule, int rank, const cy_action *mine, size_t *next)
{
    const cy_action *theirs = next_transfer(schedule, mine->peer, &next[mine->peer]);
    return theirs != NULL && theirs->peer == rank && is_send(mine->kind) != is_send(theirs->kind) &&
        mine->microbatch == theirs->microbatch &&
        cy_action_tag(schedule, rank, *mine) == cy_action_tag(schedule, mine->peer, *theirs);
}

static cy_status fail_deadlock(const cy_schedule *schedule, int rank, size_t *next)
{
    for (int i = 0; i < schedule->stages; i++) {
        const cy_action *action = next_transfer(schedule, rank, &next[rank]);
        if (action == NULL) break; // its peer waits for a rank that has ended
        rank = action->peer;
    }
    cy_text text = {0};
    cy_status status = CY_OK;
    int at = rank;
    do {
        char buffer[CY_ACTION_TEXT_BYTES];
        const cy_action *action = next_transfer(schedule, at, &next[at]);
        if (action == NULL) break;
        status = cy_text_add(&text, "%srank %d stands at %s with rank %d", at == rank ? "" : ", ",
            at, cy_action_text(buffer, schedule, *action), action->peer);
        at = action->peer;
    } while (status == CY_OK && at != rank);
    if (status == CY_OK) {
        status =
            CY_FAIL(CY_ERR_REQUEST, "deadlock where a send waits for its receive: %s", text.bytes);
    }
    cy_text_free(&text);
    return status;
}

// Plays the lists with rendezvous transfers: both sides stand at it, then both go on.
static cy_status check_blocking(const cy_schedule *schedule, size_t *next)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < schedule->stages; rank++) {
            const cy_action *action;
            while ((action = next_transfer(schedule, rank, &next[rank])) != NULL &&
                meets(schedule, rank, action, next)) {
                next[rank]++;
                next[action->peer]++;
                moved = true;
            }
        }
    }
    for (int rank = 0; rank < schedule->stages; rank++) {
        if (next_transfer(schedule, rank, &next[rank]) != NULL) {
            return fail_deadlock(schedule, rank, next);
        }
    }
    return CY_OK;
}

cy_status cy_check_transfers(const cy_schedule *schedule)
{
    CY_TRY(check_matching(schedule));
    void *next = NULL;
    CY_TRY(cy_memory_alloc(&next, (size_t)schedule->stages, sizeof(size_t)));
    const cy_status status = check_blocking(schedule, next);
    cy_memory_free(next);
    return status;
}
