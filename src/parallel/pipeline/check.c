// Proves a pipeline schedule before it runs: the list of each rank, sends against receives,
// deadlock; and counts what the schedule costs.

#include "base/memory.h"
#include "parallel/pipeline/build.h"

// ---- the list of each rank

#define ABSENT (-1)

// Where in one rank's list the actions of each microbatch and chunk stand.
typedef struct places {
    const cy_schedule *schedule; // borrowed
    int rank;
    int64_t *at; // owned, [CY_ACTION_KINDS, chunks, microbatches], ABSENT where there is none
    size_t cells;
} places;

static int64_t *place(const places *p, cy_action_kind kind, int microbatch, int chunk)
{
    return &p->at[(size_t)kind * p->cells + (size_t)chunk * (size_t)p->schedule->microbatches +
        (size_t)microbatch];
}

static cy_status fail(const places *p, cy_action action, const char *words)
{
    char buffer[CY_ACTION_TEXT_BYTES];
    return CY_FAIL(CY_ERR_REQUEST, "rank %d: %s %s", p->rank,
        cy_action_text(buffer, p->schedule, action), words);
}

static cy_status fail_pair(const places *p, cy_action first, const char *words, cy_action second)
{
    char left[CY_ACTION_TEXT_BYTES], right[CY_ACTION_TEXT_BYTES];
    return CY_FAIL(CY_ERR_REQUEST, "rank %d: %s %s %s", p->rank,
        cy_action_text(left, p->schedule, first), words,
        cy_action_text(right, p->schedule, second));
}

static cy_status check_range(const places *p, cy_action action)
{
    const cy_schedule *schedule = p->schedule;
    if ((int)action.kind < 0 || action.kind >= CY_ACTION_KINDS) {
        return CY_FAIL(CY_ERR_REQUEST, "rank %d: there is no action %d", p->rank, (int)action.kind);
    }
    if (action.microbatch < 0 || action.microbatch >= schedule->microbatches) {
        return CY_FAIL(CY_ERR_REQUEST, "rank %d: %s of microbatch %d, there are %d", p->rank,
            cy_action_code(action.kind), action.microbatch, schedule->microbatches);
    }
    if (action.chunk < 0 || action.chunk >= schedule->chunks) {
        return CY_FAIL(CY_ERR_REQUEST, "rank %d: %s%d of chunk %d, there are %d", p->rank,
            cy_action_code(action.kind), action.microbatch, action.chunk, schedule->chunks);
    }
    return CY_OK;
}

// Fills the table and rejects an action that occurs twice.
static cy_status find_places(const places *p)
{
    const cy_action_list *list = &p->schedule->ranks[p->rank];
    for (size_t i = 0; i < p->cells * CY_ACTION_KINDS; i++)
        p->at[i] = ABSENT;
    for (size_t i = 0; i < list->count; i++) {
        const cy_action action = list->actions[i];
        CY_TRY(check_range(p, action));
        int64_t *at = place(p, action.kind, action.microbatch, action.chunk);
        if (*at != ABSENT) return fail(p, action, "comes twice");
        *at = (int64_t)i;
    }
    return CY_OK;
}

// Checks that both occur, the first before the second.
static cy_status in_order(
    const places *p, cy_action_kind first, cy_action_kind second, int m, int c)
{
    const cy_action a = {.kind = first, .microbatch = m, .chunk = c};
    const cy_action b = {.kind = second, .microbatch = m, .chunk = c};
    const int64_t at_first = *place(p, first, m, c), at_second = *place(p, second, m, c);
    if (at_first == ABSENT) return fail(p, a, "is missing");
    if (at_second == ABSENT) return fail(p, b, "is missing");
    if (at_first > at_second) return fail_pair(p, a, "comes after", b);
    return CY_OK;
}

static cy_status check_compute(const places *p, int m, int c)
{
    const bool whole = *place(p, CY_ACTION_BACKWARD, m, c) != ABSENT;
    const bool split = *place(p, CY_ACTION_BACKWARD_INPUT, m, c) != ABSENT;
    const bool weight = *place(p, CY_ACTION_BACKWARD_WEIGHT, m, c) != ABSENT;
    if (whole && (split || weight)) {
        return fail_pair(p, (cy_action){.kind = CY_ACTION_BACKWARD, .microbatch = m, .chunk = c},
            "is whole, yet there is also",
            (cy_action){.kind = split ? CY_ACTION_BACKWARD_INPUT : CY_ACTION_BACKWARD_WEIGHT,
                .microbatch = m,
                .chunk = c});
    }
    if (split || weight) {
        CY_TRY(in_order(p, CY_ACTION_BACKWARD_INPUT, CY_ACTION_BACKWARD_WEIGHT, m, c));
        return in_order(p, CY_ACTION_FORWARD, CY_ACTION_BACKWARD_INPUT, m, c);
    }
    return in_order(p, CY_ACTION_FORWARD, CY_ACTION_BACKWARD, m, c);
}

static cy_action_kind backward_kind(const places *p, int m, int c)
{
    const bool whole = *place(p, CY_ACTION_BACKWARD, m, c) != ABSENT;
    return whole ? CY_ACTION_BACKWARD : CY_ACTION_BACKWARD_INPUT;
}

// Checks one transfer: it occurs exactly where the neighbour segment lies on another rank, with
// that rank as its peer. compute is the action that produces it (a send) or needs it (a receive).
static cy_status check_transfer(
    const places *p, cy_action_kind kind, cy_action_kind compute, int neighbour, int m, int c)
{
    const cy_schedule *schedule = p->schedule;
    const bool inside = 0 <= neighbour && neighbour < cy_schedule_segments(schedule);
    const int peer = inside ? cy_schedule_segment_rank(schedule, neighbour) : p->rank;
    const int64_t at = *place(p, kind, m, c);
    const cy_action action = {.kind = kind, .microbatch = m, .chunk = c};
    if (peer == p->rank) {
        return at == ABSENT ? CY_OK : fail(p, action, "has no other rank to go to or come from");
    }
    const bool send = kind == CY_ACTION_SEND_ACTIVATION || kind == CY_ACTION_SEND_GRADIENT;
    CY_TRY(send ? in_order(p, compute, kind, m, c) : in_order(p, kind, compute, m, c));
    const int wrong = schedule->ranks[p->rank].actions[at].peer;
    if (wrong == peer) return CY_OK;
    char buffer[CY_ACTION_TEXT_BYTES];
    return CY_FAIL(CY_ERR_REQUEST, "rank %d: %s has rank %d as its peer, it must be %d", p->rank,
        cy_action_text(buffer, schedule, action), wrong, peer);
}

static cy_status check_cell(const places *p, int m, int c, bool with_transfers)
{
    CY_TRY(check_compute(p, m, c));
    if (!with_transfers) return CY_OK;
    const int segment = cy_schedule_segment(p->schedule, p->rank, c);
    const cy_action_kind forward = CY_ACTION_FORWARD, backward = backward_kind(p, m, c);
    CY_TRY(check_transfer(p, CY_ACTION_RECV_ACTIVATION, forward, segment - 1, m, c));
    CY_TRY(check_transfer(p, CY_ACTION_SEND_ACTIVATION, forward, segment + 1, m, c));
    CY_TRY(check_transfer(p, CY_ACTION_RECV_GRADIENT, backward, segment + 1, m, c));
    return check_transfer(p, CY_ACTION_SEND_GRADIENT, backward, segment - 1, m, c);
}

static cy_status check_rank(const places *p, bool with_transfers)
{
    CY_TRY(find_places(p));
    for (int c = 0; c < p->schedule->chunks; c++) {
        for (int m = 0; m < p->schedule->microbatches; m++) {
            CY_TRY(check_cell(p, m, c, with_transfers));
        }
    }
    return CY_OK;
}

static cy_status check_lists(const cy_schedule *schedule, bool with_transfers)
{
    places p = {
        .schedule = schedule,
        .cells = (size_t)schedule->chunks * (size_t)schedule->microbatches,
    };
    CY_TRY(CY_ALLOC(&p.at, p.cells * CY_ACTION_KINDS));
    cy_status status = CY_OK;
    for (p.rank = 0; p.rank < schedule->stages && status == CY_OK; p.rank++) {
        status = check_rank(&p, with_transfers);
    }
    cy_memory_free(p.at);
    return status;
}

// ---- transfers: sends against receives, and whether blocking transports can run the lists

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
    const size_t messages = tags * (size_t)schedule->microbatches;
    passing p = {0};
    cy_status status = CY_ALLOC(&p.sent, messages);
    if (status == CY_OK) status = CY_ALLOC(&p.received, messages);
    if (status == CY_OK) status = CY_ALLOC(&p.sent_count, tags);
    if (status == CY_OK) status = CY_ALLOC(&p.received_count, tags);
    if (status == CY_OK) status = compare_orders(schedule, &p);
    cy_memory_free(p.sent);
    cy_memory_free(p.received);
    cy_memory_free(p.sent_count);
    cy_memory_free(p.received_count);
    return status;
}

// The next transfer of a rank, or NULL at the end of its list. Other actions are skipped: they need
// only what an earlier receive of the same list has brought.
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

// Plays the lists with rendezvous transfers: both sides must reach a transfer before either goes
// on.
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

static cy_status check_transfers(const cy_schedule *schedule)
{
    CY_TRY(check_matching(schedule));
    size_t *next = NULL;
    CY_TRY(CY_ALLOC(&next, (size_t)schedule->stages));
    const cy_status status = check_blocking(schedule, next);
    cy_memory_free(next);
    return status;
}

// ---- costs and limits

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static cy_rank_cost rank_cost(const cy_schedule *schedule, const cy_ticks *flow, int rank)
{
    const cy_action_list *list = &schedule->ranks[rank];
    cy_rank_cost cost = {.first_tick = -1};
    int stash = 0, kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        const cy_action_kind kind = list->actions[i].kind;
        const int64_t end = flow->end[flow->first[rank] + i];
        const int64_t ticks = cy_action_ticks(kind);
        if (kind == CY_ACTION_FORWARD) {
            stash++;
            kept++;
        }
        cost.peak_stash = larger(cost.peak_stash, stash);
        cost.peak_kept = larger(cost.peak_kept, kept);
        if (kind == CY_ACTION_BACKWARD || kind == CY_ACTION_BACKWARD_INPUT) stash--;
        if (kind == CY_ACTION_BACKWARD || kind == CY_ACTION_BACKWARD_WEIGHT) kept--;
        if (kind == CY_ACTION_SEND_ACTIVATION || kind == CY_ACTION_SEND_GRADIENT) cost.sends++;
        if (ticks == 0) continue;
        if (cost.first_tick < 0) cost.first_tick = end - ticks;
        cost.last_tick = end;
        cost.busy_ticks += ticks;
    }
    return cost;
}

static cy_status add_up(cy_schedule_cost *cost, const cy_schedule *schedule, const cy_ticks *flow)
{
    cy_rank_cost *ranks = NULL;
    CY_TRY(CY_ALLOC(&ranks, (size_t)schedule->stages));
    *cost = (cy_schedule_cost){.ticks = flow->ticks, .ranks = ranks};
    double busy = 0;
    for (int rank = 0; rank < schedule->stages; rank++) {
        const cy_rank_cost one = rank_cost(schedule, flow, rank);
        const int64_t span = one.last_tick - one.first_tick;
        cost->ranks[rank] = one;
        if (span > cost->span) cost->span = span;
        cost->peak_stash = larger(cost->peak_stash, one.peak_stash);
        cost->peak_kept = larger(cost->peak_kept, one.peak_kept);
        cost->messages += one.sends;
        busy += (double)one.busy_ticks / schedule->stages;
    }
    cost->bubble = ((double)cost->span - busy) / (double)cost->span;
    cost->bubble_alone = ((double)cost->ticks - busy) / (double)cost->ticks;
    return CY_OK;
}

static cy_status check_limits(const cy_schedule_cost *cost, const cy_schedule_limits *limits)
{
    if (limits->peak_stash > 0 && cost->peak_stash > limits->peak_stash) {
        return CY_FAIL(CY_ERR_REQUEST, "a rank holds %d stashes at once, the limit is %d",
            cost->peak_stash, limits->peak_stash);
    }
    if (limits->peak_kept > 0 && cost->peak_kept > limits->peak_kept) {
        return CY_FAIL(CY_ERR_REQUEST,
            "a rank keeps %d stashes for their weight gradients at once, the limit is %d",
            cost->peak_kept, limits->peak_kept);
    }
    return CY_OK;
}

cy_status cy_schedule_check(
    cy_schedule_cost *cost, const cy_schedule *schedule, const cy_schedule_limits *limits)
{
    CY_TRY(check_lists(schedule, true));
    cy_ticks flow;
    CY_TRY(cy_ticks_run(&flow, schedule));
    cy_schedule_cost found = {0};
    cy_status status = check_transfers(schedule);
    if (status == CY_OK) status = add_up(&found, schedule, &flow);
    if (status == CY_OK && limits != NULL) status = check_limits(&found, limits);
    cy_ticks_close(&flow);
    if (status == CY_OK && cost != NULL) {
        *cost = found;
    } else {
        cy_schedule_cost_close(&found);
    }
    return status;
}

cy_status cy_schedule_check_compute(const cy_schedule *schedule)
{
    return check_lists(schedule, false);
}

void cy_schedule_cost_close(cy_schedule_cost *cost)
{
    cy_memory_free(cost->ranks);
    *cost = (cy_schedule_cost){0};
}
