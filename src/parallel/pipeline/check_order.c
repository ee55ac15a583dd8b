// What can be proved of each rank's list alone.

#include "parallel/pipeline/check_internal.h"

#include "base/memory.h"

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

static bool of_all_allowed(cy_action_kind kind)
{
    return kind == CY_ACTION_GATHER || kind == CY_ACTION_REDUCE || kind == CY_ACTION_OPTIMIZER;
}

static cy_status check_range(const places *p, cy_action action)
{
    const cy_schedule *schedule = p->schedule;
    if ((int)action.kind < 0 || action.kind >= CY_ACTION_KINDS) {
        return CY_FAIL(CY_ERR_REQUEST, "rank %d: there is no action %d", p->rank, (int)action.kind);
    }
    const bool all_microbatches = action.microbatch == -1 && of_all_allowed(action.kind);
    if (!all_microbatches &&
        (action.microbatch < 0 || action.microbatch >= schedule->microbatches)) {
        return CY_FAIL(CY_ERR_REQUEST, "rank %d: %s of microbatch %d, there are %d", p->rank,
            cy_action_code(action.kind), action.microbatch, schedule->microbatches);
    }
    const bool all_chunks = action.chunk == -1 && action.kind == CY_ACTION_OPTIMIZER;
    if (!all_chunks && (action.chunk < 0 || action.chunk >= schedule->chunks)) {
        return CY_FAIL(CY_ERR_REQUEST, "rank %d: %s%d of chunk %d, there are %d", p->rank,
            cy_action_code(action.kind), action.microbatch, action.chunk, schedule->chunks);
    }
    return CY_OK;
}

// Fills the table and refuses what comes twice.
static cy_status find_places(const places *p)
{
    const cy_action_list *list = &p->schedule->ranks[p->rank];
    for (size_t i = 0; i < p->cells * CY_ACTION_KINDS; i++)
        p->at[i] = ABSENT;
    for (size_t i = 0; i < list->count; i++) {
        const cy_action action = list->actions[i];
        CY_TRY(check_range(p, action));
        if (of_all_allowed(action.kind)) continue;
        int64_t *at = place(p, action.kind, action.microbatch, action.chunk);
        if (*at != ABSENT) return fail(p, action, "comes twice");
        *at = (int64_t)i;
    }
    return CY_OK;
}

// Both must be there, the first before the second.
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

// A recomputed or fetched stash must be there when the backward comes.
static cy_status check_stash(const places *p, int m, int c)
{
    const cy_action_kind backward = backward_kind(p, m, c);
    if (*place(p, CY_ACTION_RECOMPUTE, m, c) != ABSENT) {
        CY_TRY(in_order(p, CY_ACTION_FORWARD, CY_ACTION_RECOMPUTE, m, c));
        CY_TRY(in_order(p, CY_ACTION_RECOMPUTE, backward, m, c));
    }
    const bool moved =
        *place(p, CY_ACTION_OFFLOAD, m, c) != ABSENT || *place(p, CY_ACTION_FETCH, m, c) != ABSENT;
    if (moved) {
        CY_TRY(in_order(p, CY_ACTION_FORWARD, CY_ACTION_OFFLOAD, m, c));
        CY_TRY(in_order(p, CY_ACTION_OFFLOAD, CY_ACTION_FETCH, m, c));
        CY_TRY(in_order(p, CY_ACTION_FETCH, backward, m, c));
    }
    return CY_OK;
}

// One transfer: there exactly when the neighbour segment lies on another rank, with that rank as
// its peer. compute is what makes it (a send) or needs it (a receive).
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
    CY_TRY(check_stash(p, m, c));
    if (!with_transfers) return CY_OK;
    const int segment = cy_schedule_segment(p->schedule, p->rank, c);
    const cy_action_kind forward = CY_ACTION_FORWARD, backward = backward_kind(p, m, c);
    CY_TRY(check_transfer(p, CY_ACTION_RECV_ACTIVATION, forward, segment - 1, m, c));
    CY_TRY(check_transfer(p, CY_ACTION_SEND_ACTIVATION, forward, segment + 1, m, c));
    CY_TRY(check_transfer(p, CY_ACTION_RECV_GRADIENT, backward, segment + 1, m, c));
    return check_transfer(p, CY_ACTION_SEND_GRADIENT, backward, segment - 1, m, c);
}

// Reductions and the optimizer must not run before the gradients that they take.
static cy_status check_gradients_ready(const places *p)
{
    const cy_action_list *list = &p->schedule->ranks[p->rank];
    for (size_t i = list->count; i-- > 0;) {
        const cy_action late = list->actions[i];
        if (late.kind != CY_ACTION_BACKWARD && late.kind != CY_ACTION_BACKWARD_WEIGHT) continue;
        for (size_t j = 0; j < i; j++) {
            const cy_action early = list->actions[j];
            if (early.kind != CY_ACTION_REDUCE && early.kind != CY_ACTION_OPTIMIZER) continue;
            const bool same_chunk = early.chunk == -1 || early.chunk == late.chunk;
            const bool same_microbatch =
                early.microbatch == -1 || early.microbatch == late.microbatch;
            if (same_chunk && same_microbatch) return fail_pair(p, early, "comes before", late);
        }
    }
    return CY_OK;
}

// No chunk is updated twice.
static cy_status check_updates(const places *p)
{
    const cy_action_list *list = &p->schedule->ranks[p->rank];
    for (size_t i = 0; i < list->count; i++) {
        const cy_action late = list->actions[i];
        for (size_t j = 0; j < i && late.kind == CY_ACTION_OPTIMIZER; j++) {
            const cy_action early = list->actions[j];
            if (early.kind != CY_ACTION_OPTIMIZER) continue;
            if (early.chunk == -1 || late.chunk == -1 || early.chunk == late.chunk) {
                return fail(p, late, "comes twice");
            }
        }
    }
    return CY_OK;
}

static bool has_late_actions(const cy_action_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const cy_action_kind kind = list->actions[i].kind;
        if (kind == CY_ACTION_REDUCE || kind == CY_ACTION_OPTIMIZER) return true;
    }
    return false;
}

static cy_status check_rank(const places *p, bool with_transfers)
{
    CY_TRY(find_places(p));
    for (int c = 0; c < p->schedule->chunks; c++) {
        for (int m = 0; m < p->schedule->microbatches; m++) {
            CY_TRY(check_cell(p, m, c, with_transfers));
        }
    }
    // Quadratic, so only where it can find something.
    if (!has_late_actions(&p->schedule->ranks[p->rank])) return CY_OK;
    CY_TRY(check_gradients_ready(p));
    return check_updates(p);
}

cy_status cy_check_order(const cy_schedule *schedule, bool with_transfers)
{
    places p = {
        .schedule = schedule,
        .cells = (size_t)schedule->chunks * (size_t)schedule->microbatches,
    };
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, p.cells * CY_ACTION_KINDS, sizeof(int64_t)));
    p.at = block;
    cy_status status = CY_OK;
    for (p.rank = 0; p.rank < schedule->stages && status == CY_OK; p.rank++) {
        status = check_rank(&p, with_transfers);
    }
    cy_memory_free(block);
    return status;
}
