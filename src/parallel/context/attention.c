// Computes attention over a split sequence: the ring, the style that gathers all keys, and the
// choice between the styles.

#include "parallel/context/attention.h"

enum { TAG_KEYS, TAG_GRADIENTS };

// K and V side by side, [t, 2 kv_cols].
static cy_view keys_of(cy_view kv)
{
    return cy_view_cols(kv, 0, kv.cols / 2);
}

static cy_view values_of(cy_view kv)
{
    return cy_view_cols(kv, kv.cols / 2, kv.cols / 2);
}

// ---- the ring
//
// In round i a rank attends to the keys of the rank i places before it, while it passes them on to
// the next one:
//
//   round     0     1     2     3            forward: o and lse of the rounds are merged
//   rank 0    kv0   kv3   kv2   kv1          backward: the gradients of a block of keys follow it,
//   rank 1    kv1   kv0   kv3   kv2          one round behind, and every rank adds its share; those
//   rank 2    kv2   kv1   kv0   kv3          of the own block (round 0) stay at home, so that they
//   rank 3    kv3   kv2   kv1   kv0          make as many steps as the keys did
//
// Backward, the last step of the gradients would have nothing to travel under. So half of the own
// block's heads are left for it: the first half runs while the first keys are in flight, the second
// while the last gradients are.

static cy_view pack(cy_queue *queue, cy_view k, cy_view v)
{
    const cy_view kv = cy_view_alloc(queue->scratch, k.dtype, k.rows, 2 * k.cols);
    cy_copy(queue, keys_of(kv), k);
    cy_copy(queue, values_of(kv), v);
    return kv;
}

// The ring as one rank sees it.
typedef struct ring {
    cy_group *group;
    cy_queue *queue;
    int rank, size, next, previous;
    cy_request send_keys, receive_keys;
    cy_request send_gradients, receive_gradients;
} ring;

static ring ring_of(const cy_context_parallel *parallel, cy_queue *queue)
{
    const int rank = cy_group_rank(parallel->group), size = cy_group_size(parallel->group);
    return (ring){
        .group = parallel->group,
        .queue = queue,
        .rank = rank,
        .size = size,
        .next = (rank + 1) % size,
        .previous = (rank + size - 1) % size,
    };
}

// Whose keys a rank has in a round.
static int owner(const ring *at, int round)
{
    return (at->rank + at->size - round) % at->size;
}

// Passes `present` on and receives the keys of the next round, unless this is the last one.
static cy_status start_keys(ring *at, int round, cy_view present, cy_view incoming)
{
    if (round + 1 == at->size) return CY_OK;
    CY_TRY(cy_group_start_send(at->group, at->queue, &at->send_keys, present, at->next, TAG_KEYS));
    return cy_group_start_recv(
        at->group, at->queue, &at->receive_keys, incoming, at->previous, TAG_KEYS);
}

static cy_status wait_keys(ring *at)
{
    CY_TRY(cy_group_wait(at->group, at->queue, &at->receive_keys));
    return cy_group_wait(at->group, at->queue, &at->send_keys);
}

// ranked [ranks t, n], of which this rank has written its part: receives the others' round the
// ring.
static cy_status ring_collect(const cy_context_parallel *parallel, cy_queue *queue, cy_view ranked)
{
    ring at = ring_of(parallel, queue);
    const int64_t rows = ranked.rows / at.size;
    for (int round = 0; round + 1 < at.size; round++) {
        CY_TRY(start_keys(&at, round, cy_view_rows(ranked, owner(&at, round) * rows, rows),
            cy_view_rows(ranked, owner(&at, round + 1) * rows, rows)));
        CY_TRY(wait_keys(&at));
    }
    return CY_OK;
}

static cy_status ring_forward(const cy_context_parallel *parallel, cy_queue *queue, cy_view o,
    cy_view lse, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    ring at = ring_of(parallel, queue);
    const cy_dtype sum_dtype = cy_sum_dtype(q.dtype);
    cy_view present = pack(queue, k, v);
    cy_view incoming = cy_view_alloc(queue->scratch, k.dtype, present.rows, present.cols);
    const cy_view part = cy_view_alloc(queue->scratch, sum_dtype, o.rows, o.cols);
    const cy_view part_lse = cy_view_alloc(queue->scratch, lse.dtype, lse.rows, lse.cols);
    cy_view sum = o;
    if (o.dtype != sum_dtype) sum = cy_view_alloc(queue->scratch, sum_dtype, o.rows, o.cols);

    for (int round = 0; round < at.size; round++) {
        CY_TRY(start_keys(&at, round, present, incoming));
        const cy_attention_spec meet =
            cy_context_spec_of(parallel->tables, spec, owner(&at, round));
        if (round == 0) {
            cy_attention_forward(queue, sum, lse, q, keys_of(present), values_of(present), &meet);
        } else if (meet.span_count > 0) {
            cy_attention_forward(
                queue, part, part_lse, q, keys_of(present), values_of(present), &meet);
            cy_attention_merge(queue, sum, lse, part, part_lse, spec->heads);
        }
        CY_TRY(wait_keys(&at));
        const cy_view passed = present;
        present = incoming;
        incoming = passed;
    }
    if (o.dtype != sum_dtype) cy_copy(queue, o, sum);
    return CY_OK;
}

// ---- backward

// The gradients of keys on their way. Those of a round are in flight while the next one is made.
typedef struct partials {
    cy_view own;     // [t, 2 kv_cols], of round 0
    cy_view made[2]; // of this round and of the one before
    cy_view arrived; // what the ranks before this one have added up
} partials;

static partials alloc_partials(cy_queue *queue, cy_dtype dtype, int64_t rows, int64_t cols)
{
    partials taken = {.own = cy_view_alloc(queue->scratch, dtype, rows, cols)};
    taken.made[0] = cy_view_alloc(queue->scratch, dtype, rows, cols);
    taken.made[1] = cy_view_alloc(queue->scratch, dtype, rows, cols);
    taken.arrived = cy_view_alloc(queue->scratch, dtype, rows, cols);
    return taken;
}

// Some kv heads, and the query heads that read them.
typedef struct head_range {
    int first, count;
} head_range;

// The first or the second half of the kv heads; all are first where there is one.
static head_range half_of(const cy_attention_spec *spec, bool second)
{
    const int first = (spec->kv_heads + 1) / 2;
    return second ? (head_range){first, spec->kv_heads - first} : (head_range){0, first};
}

// Their columns and rows; `width` is the columns of one kv head.
static cy_view cols_of(cy_view view, head_range heads, int64_t width)
{
    return cy_view_cols(view, heads.first * width, heads.count * width);
}

static cy_view statistics_of(cy_view view, head_range heads, int64_t group)
{
    return cy_view_rows(view, heads.first * group, heads.count * group);
}

// dq and `share` [t, 2 kv_cols] of some heads, for the keys and values that `meet` is about.
static void backward_heads(const ring *at, const cy_context_gradients *of, cy_view dq,
    cy_view share, cy_view k, cy_view v, const cy_attention_spec *meet, head_range heads)
{
    const int group = meet->heads / meet->kv_heads;
    const int64_t kv_width = meet->head_dim, q_width = group * meet->head_dim;
    cy_attention_spec part = *meet;
    part.heads = heads.count * group;
    part.kv_heads = heads.count;
    cy_attention_backward(at->queue, cols_of(dq, heads, q_width),
        cols_of(keys_of(share), heads, kv_width), cols_of(values_of(share), heads, kv_width),
        cols_of(of->d_o, heads, q_width), statistics_of(of->lse, heads, group),
        statistics_of(of->delta, heads, group), cols_of(of->q, heads, q_width),
        cols_of(k, heads, kv_width), cols_of(v, heads, kv_width), &part);
}

// Half the heads of the own keys: the first half writes, the second adds to zeros, because dq has
// come to hold what the other rounds added.
static void backward_own(const ring *at, const cy_context_parallel *parallel,
    const cy_context_gradients *of, cy_view dq, cy_view share, cy_view k, cy_view v,
    const cy_attention_spec *spec, bool second)
{
    cy_attention_spec meet = cy_context_spec_of(parallel->tables, spec, at->rank);
    const head_range rest = half_of(spec, true);
    meet.accumulate = second;
    if (second) {
        if (rest.count > 0) backward_heads(at, of, dq, share, k, v, &meet, rest);
        return;
    }
    if (rest.count > 0) {
        const int64_t kv_width = spec->head_dim;
        const int64_t q_width = spec->heads / spec->kv_heads * spec->head_dim;
        cy_fill(at->queue, cols_of(dq, rest, q_width), 0.0);
        cy_fill(at->queue, cols_of(keys_of(share), rest, kv_width), 0.0);
        cy_fill(at->queue, cols_of(values_of(share), rest, kv_width), 0.0);
    }
    backward_heads(at, of, dq, share, k, v, &meet, half_of(spec, false));
}

// All heads of another rank's keys: dq adds, `share` is written.
static void backward_other(const ring *at, const cy_context_parallel *parallel,
    const cy_context_gradients *of, cy_view dq, cy_view share, cy_view kv, int round,
    const cy_attention_spec *spec)
{
    cy_attention_spec meet = cy_context_spec_of(parallel->tables, spec, owner(at, round));
    cy_fill(at->queue, share, 0.0);
    if (meet.span_count == 0) return;
    meet.accumulate = true;
    backward_heads(
        at, of, dq, share, keys_of(kv), values_of(kv), &meet, (head_range){0, spec->kv_heads});
}

// One round: the share is made while the keys of the next round and the sum of the partials of the
// ranks before are on their way; then it is added and sent on.
static cy_status backward_round(ring *at, const cy_context_parallel *parallel,
    const cy_context_gradients *of, const partials *part, cy_view dq, cy_view present,
    cy_view incoming, int round, const cy_attention_spec *spec)
{
    const cy_view share = round == 0 ? part->own : part->made[round % 2];
    CY_TRY(start_keys(at, round, present, incoming));
    if (round >= 2) {
        CY_TRY(cy_group_start_recv(at->group, at->queue, &at->receive_gradients, part->arrived,
            at->previous, TAG_GRADIENTS));
    }
    if (round == 0) {
        backward_own(at, parallel, of, dq, share, of->k, of->v, spec, false);
        return wait_keys(at);
    }
    backward_other(at, parallel, of, dq, share, present, round, spec);
    CY_TRY(wait_keys(at));
    if (round >= 2) {
        CY_TRY(cy_group_wait(at->group, at->queue, &at->receive_gradients));
        cy_add(at->queue, share, share, part->arrived);
        CY_TRY(cy_group_wait(at->group, at->queue, &at->send_gradients));
    }
    return cy_group_start_send(
        at->group, at->queue, &at->send_gradients, share, at->next, TAG_GRADIENTS);
}

static cy_status ring_backward(const cy_context_parallel *parallel, cy_queue *queue,
    const cy_context_gradients *of, const cy_attention_spec *spec)
{
    ring at = ring_of(parallel, queue);
    const cy_dtype sum_dtype = cy_sum_dtype(of->q.dtype);
    cy_view present = pack(queue, of->k, of->v);
    cy_view incoming = cy_view_alloc(queue->scratch, of->k.dtype, present.rows, present.cols);
    const partials part = alloc_partials(queue, sum_dtype, present.rows, present.cols);
    cy_view dq = of->dq;
    if (dq.dtype != sum_dtype) dq = cy_view_alloc(queue->scratch, sum_dtype, dq.rows, dq.cols);

    for (int round = 0; round < at.size; round++) {
        CY_TRY(backward_round(&at, parallel, of, &part, dq, present, incoming, round, spec));
        const cy_view passed = present;
        present = incoming;
        incoming = passed;
    }
    CY_TRY(cy_group_start_recv(
        at.group, queue, &at.receive_gradients, part.arrived, at.previous, TAG_GRADIENTS));
    // The own keys were passed on; what they are is still where they were projected.
    backward_own(&at, parallel, of, dq, part.own, of->k, of->v, spec, true);
    if (of->dq.dtype != sum_dtype) cy_copy(queue, of->dq, dq);
    CY_TRY(cy_group_wait(at.group, queue, &at.receive_gradients));
    CY_TRY(cy_group_wait(at.group, queue, &at.send_gradients));
    cy_add(queue, of->dk, keys_of(part.own), keys_of(part.arrived));
    cy_add(queue, of->dv, values_of(part.own), values_of(part.arrived));
    return CY_OK;
}

// ---- gathered keys
//
// Every rank holds all keys and values of one layer while it works on it: two messages a layer and
// pass instead of many, nothing in flight under the work, and memory for keys and values that does
// not shrink with the number of ranks. In strict mode the ring does the same, and brings them round
// the ring.

static cy_status bring(
    const cy_context_parallel *parallel, cy_queue *queue, cy_view ranked, cy_view own)
{
    if (parallel->style == CY_CONTEXT_RING) {
        return ring_collect(parallel, queue, ranked);
    }
    return cy_group_all_gather(parallel->group, queue, ranked, own);
}

// Memory for gradients of keys and values that several ranks add to.
static cy_view take_sums(
    cy_queue *queue, const cy_context_gradients *of, int64_t rows, int64_t cols)
{
    const bool fixed = of->dk.dtype == CY_FX64;
    const cy_dtype dtype = fixed ? CY_FX64 : cy_sum_dtype(of->q.dtype);
    return cy_view_of_sum(cy_view_alloc(queue->scratch, dtype, rows, cols), of->dk);
}

// *all [sequences length, 2 kv_cols]: keys and values of all ranks in the order of positions.
static cy_status gather(
    const cy_context_parallel *parallel, cy_queue *queue, cy_view *all, cy_view k, cy_view v)
{
    const int64_t rows = k.rows * cy_group_size(parallel->group), cols = 2 * k.cols;
    const cy_view ordered = cy_view_alloc(queue->scratch, k.dtype, rows, cols);
    const size_t mark = cy_arena_mark(queue->scratch);
    const cy_view ranked = cy_view_alloc(queue->scratch, k.dtype, rows, cols);
    const cy_view own = cy_view_rows(ranked, cy_group_rank(parallel->group) * k.rows, k.rows);
    cy_copy(queue, keys_of(own), k);
    cy_copy(queue, values_of(own), v);
    CY_TRY(bring(parallel, queue, ranked, own));
    cy_context_to_order(parallel->tables, queue, ordered, ranked);
    cy_arena_rewind(queue->scratch, mark);
    *all = ordered;
    return CY_OK;
}

static cy_status gather_forward(const cy_context_parallel *parallel, cy_queue *queue, cy_view o,
    cy_view lse, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    cy_view all;
    CY_TRY(gather(parallel, queue, &all, k, v));
    const cy_attention_spec meet = cy_context_spec_of_all(parallel->tables, spec);
    cy_attention_forward(queue, o, lse, q, keys_of(all), values_of(all), &meet);
    return CY_OK;
}

static cy_status gather_backward(const cy_context_parallel *parallel, cy_queue *queue,
    const cy_context_gradients *of, const cy_attention_spec *spec)
{
    cy_view all;
    CY_TRY(gather(parallel, queue, &all, of->k, of->v));
    const cy_view ordered = take_sums(queue, of, all.rows, all.cols);
    const cy_attention_spec meet = cy_context_spec_of_all(parallel->tables, spec);
    cy_attention_backward(queue, of->dq, keys_of(ordered), values_of(ordered), of->d_o, of->lse,
        of->delta, of->q, keys_of(all), values_of(all), &meet);

    const cy_view ranked = take_sums(queue, of, all.rows, all.cols);
    const cy_view own = take_sums(queue, of, of->k.rows, all.cols);
    cy_context_to_ranks(parallel->tables, queue, ranked, ordered);
    CY_TRY(cy_group_reduce_scatter(parallel->group, queue, own, ranked, CY_SUM));
    cy_copy(queue, of->dk, keys_of(own));
    cy_copy(queue, of->dv, values_of(own));
    return CY_OK;
}

// ---- the choice of a style

cy_status cy_context_attention_forward(const cy_context_parallel *parallel, cy_queue *queue,
    cy_view o, cy_view lse, cy_view q, cy_view k, cy_view v, const cy_attention_spec *spec)
{
    if (cy_group_size(parallel->group) == 1) {
        cy_attention_forward(queue, o, lse, q, k, v, spec);
        return CY_OK;
    }
    cy_status status = CY_OK;
    const size_t mark = cy_arena_mark(queue->scratch);
    switch (parallel->style) {
    case CY_CONTEXT_RING:
        status = parallel->in_order ? gather_forward(parallel, queue, o, lse, q, k, v, spec)
                                    : ring_forward(parallel, queue, o, lse, q, k, v, spec);
        break;
    case CY_CONTEXT_ALL_GATHER:
        status = gather_forward(parallel, queue, o, lse, q, k, v, spec);
        break;
    case CY_CONTEXT_ULYSSES:
        status = cy_context_ulysses_forward(parallel, queue, o, lse, q, k, v, spec);
        break;
    }
    cy_arena_rewind(queue->scratch, mark);
    return status;
}

cy_status cy_context_attention_backward(const cy_context_parallel *parallel, cy_queue *queue,
    cy_view dq, cy_view dk, cy_view dv, cy_view d_o, cy_view lse, cy_view delta, cy_view q,
    cy_view k, cy_view v, const cy_attention_spec *spec)
{
    if (cy_group_size(parallel->group) == 1) {
        cy_attention_backward(queue, dq, dk, dv, d_o, lse, delta, q, k, v, spec);
        return CY_OK;
    }
    const cy_context_gradients of = {
        .dq = dq,
        .dk = dk,
        .dv = dv,
        .d_o = d_o,
        .lse = lse,
        .delta = delta,
        .q = q,
        .k = k,
        .v = v,
    };
    cy_status status = CY_OK;
    const size_t mark = cy_arena_mark(queue->scratch);
    switch (parallel->style) {
    case CY_CONTEXT_RING:
        status = parallel->in_order ? gather_backward(parallel, queue, &of, spec)
                                    : ring_backward(parallel, queue, &of, spec);
        break;
    case CY_CONTEXT_ALL_GATHER:
        status = gather_backward(parallel, queue, &of, spec);
        break;
    case CY_CONTEXT_ULYSSES:
        status = cy_context_ulysses_backward(parallel, queue, &of, spec);
        break;
    }
    cy_arena_rewind(queue->scratch, mark);
    return status;
}
