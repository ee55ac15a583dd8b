#include "parallel/tensor/pieces.h"

#include "base/assert.h"
#include "kernel/kernel.h"

enum { TAG_GATHER, TAG_SUM };

static bool splits_tokens(const cy_tensor_parallel *parallel)
{
    return parallel->sequence && cy_group_size(parallel->group) > 1;
}

bool cy_tensor_in_pieces(const cy_tensor_parallel *parallel)
{
    return splits_tokens(parallel) && parallel->overlap;
}

int64_t cy_tensor_outside(const cy_tensor_parallel *parallel, int64_t tokens)
{
    if (!splits_tokens(parallel)) return tokens;
    CY_ASSERT(tokens % cy_group_size(parallel->group) == 0);
    return tokens / cy_group_size(parallel->group);
}

cy_view cy_tensor_inside(const cy_tensor_parallel *parallel, cy_queue *queue, cy_view outside)
{
    if (!splits_tokens(parallel)) return outside;
    const int64_t tokens = outside.rows * cy_group_size(parallel->group);
    return cy_view_take(queue->scratch, outside.dtype, tokens, outside.cols);
}

// The rank `distance` places after this one, or before it where that is negative.
static int neighbour(const cy_tensor_parallel *parallel, int distance)
{
    const int size = cy_group_size(parallel->group);
    return (cy_group_rank(parallel->group) + size + distance) % size;
}

// The tokens of a rank.
static cy_tensor_rows piece_of(cy_view outside, int rank)
{
    return (cy_tensor_rows){.first = rank * outside.rows, .count = outside.rows};
}

static cy_view rows_of(cy_view all, cy_tensor_rows rows)
{
    return cy_view_rows(all, rows.first, rows.count);
}

// ---- gathering

static cy_status exchange_own(cy_tensor_gathering *gathering, int distance)
{
    const cy_tensor_parallel *parallel = gathering->parallel;
    const int to = neighbour(parallel, distance), from = neighbour(parallel, -distance);
    const cy_view place = rows_of(gathering->all, piece_of(gathering->outside, from));
    CY_TRY(cy_group_start_send(
        parallel->group, gathering->queue, &gathering->send, gathering->outside, to, TAG_GATHER));
    return cy_group_start_recv(
        parallel->group, gathering->queue, &gathering->receive, place, from, TAG_GATHER);
}

static cy_status gather_wait(cy_tensor_gathering *gathering)
{
    cy_group *group = gathering->parallel->group;
    CY_TRY(cy_group_wait(group, gathering->queue, &gathering->receive));
    return cy_group_wait(group, gathering->queue, &gathering->send);
}

cy_status cy_tensor_gather_start(cy_tensor_gathering *gathering, const cy_tensor_parallel *parallel,
    cy_queue *queue, cy_view all, cy_view outside)
{
    *gathering = (cy_tensor_gathering){
        .parallel = parallel,
        .queue = queue,
        .outside = outside,
        .all = all,
    };
    if (!splits_tokens(parallel)) {
        CY_ASSERT(all.data == outside.data);
        return CY_OK;
    }
    CY_ASSERT(all.rows == outside.rows * cy_group_size(parallel->group));
    if (cy_tensor_in_pieces(parallel)) {
        const cy_tensor_rows own = piece_of(outside, cy_group_rank(parallel->group));
        cy_copy(queue, rows_of(all, own), outside);
        return exchange_own(gathering, 1);
    }
    return cy_group_all_gather(parallel->group, queue, all, outside);
}

cy_status cy_tensor_gather_next(cy_tensor_gathering *gathering, cy_tensor_rows *rows)
{
    const cy_tensor_parallel *parallel = gathering->parallel;
    const int size = cy_tensor_in_pieces(parallel) ? cy_group_size(parallel->group) : 1;
    const int step = gathering->handed;
    *rows = (cy_tensor_rows){0};
    if (step >= size) return CY_OK;
    if (step > 0) CY_TRY(gather_wait(gathering));
    if (step > 0 && step + 1 < size) CY_TRY(exchange_own(gathering, step + 1));
    gathering->handed++;
    if (size == 1) {
        rows->count = gathering->all.rows;
    } else {
        *rows = piece_of(gathering->outside, neighbour(parallel, -step));
    }
    return CY_OK;
}

cy_status cy_tensor_gather_rest(cy_tensor_gathering *gathering)
{
    cy_tensor_rows rows;
    do {
        CY_TRY(cy_tensor_gather_next(gathering, &rows));
    } while (rows.count > 0);
    return CY_OK;
}

cy_tensor_gathering cy_tensor_gathered(const cy_tensor_parallel *parallel, cy_view all)
{
    return (cy_tensor_gathering){
        .parallel = parallel, .all = all, .handed = cy_group_size(parallel->group)};
}

cy_status cy_tensor_gather(
    const cy_tensor_parallel *parallel, cy_queue *queue, cy_view *all, cy_view outside)
{
    cy_tensor_gathering gathering;
    *all = cy_tensor_inside(parallel, queue, outside);
    CY_TRY(cy_tensor_gather_start(&gathering, parallel, queue, *all, outside));
    return cy_tensor_gather_rest(&gathering);
}

// ---- summing

static cy_view of_kind(cy_view view, cy_fixed *fixed)
{
    return fixed == NULL ? view : cy_fixed_view(fixed, view);
}

void cy_tensor_sum_start(cy_tensor_summing *summing, const cy_tensor_parallel *parallel,
    cy_queue *queue, cy_view outside, cy_fixed *fixed)
{
    cy_view reduced = outside;
    if (fixed != NULL) reduced = cy_fixed_take(fixed, queue->scratch, outside.rows, outside.cols);
    *summing = (cy_tensor_summing){
        .parallel = parallel,
        .queue = queue,
        .outside = outside,
        .reduced = reduced,
        .partial = of_kind(cy_tensor_inside(parallel, queue, reduced), fixed),
    };
    if (!cy_tensor_in_pieces(parallel)) return;
    summing->arrived =
        of_kind(cy_view_take(queue->scratch, reduced.dtype, reduced.rows, reduced.cols), fixed);
}

// Rounds what was summed in fixed point.
static void finish_sum(const cy_tensor_summing *summing)
{
    if (summing->reduced.dtype == summing->outside.dtype) return;
    cy_copy(summing->queue, summing->outside, summing->reduced);
}

// Where what the rank `distance` places before this one sends lies: in the place of the piece that
// was sent one step ago.
static cy_view arrival(const cy_tensor_summing *summing, int distance)
{
    if (distance == 1) return summing->arrived;
    const int sent = neighbour(summing->parallel, distance - 1);
    return rows_of(summing->partial, piece_of(summing->outside, sent));
}

static cy_status sum_wait(cy_tensor_summing *summing)
{
    cy_group *group = summing->parallel->group;
    CY_TRY(cy_group_wait(group, summing->queue, &summing->receive));
    return cy_group_wait(group, summing->queue, &summing->send);
}

static cy_status exchange_parts(cy_tensor_summing *summing, int distance)
{
    const cy_tensor_parallel *parallel = summing->parallel;
    const int to = neighbour(parallel, distance), from = neighbour(parallel, -distance);
    const cy_view piece = rows_of(summing->partial, piece_of(summing->outside, to));
    CY_TRY(sum_wait(summing));
    CY_TRY(
        cy_group_start_send(parallel->group, summing->queue, &summing->send, piece, to, TAG_SUM));
    return cy_group_start_recv(parallel->group, summing->queue, &summing->receive,
        arrival(summing, distance), from, TAG_SUM);
}

// One collective for all rows.
static cy_status start_whole(cy_tensor_summing *summing)
{
    cy_group *group = summing->parallel->group;
    if (splits_tokens(summing->parallel)) {
        return cy_group_start_reduce_scatter(
            group, summing->queue, &summing->receive, summing->reduced, summing->partial, CY_SUM);
    }
    return cy_group_start_all_reduce(
        group, summing->queue, &summing->receive, summing->partial, CY_SUM);
}

cy_status cy_tensor_sum_whole(cy_tensor_summing *summing)
{
    CY_ASSERT(summing->handed == 0 && !cy_tensor_in_pieces(summing->parallel));
    CY_TRY(start_whole(summing));
    CY_TRY(cy_group_wait(summing->parallel->group, summing->queue, &summing->receive));
    finish_sum(summing);
    return CY_OK;
}

cy_status cy_tensor_sum_next(cy_tensor_summing *summing, cy_tensor_rows *rows)
{
    const cy_tensor_parallel *parallel = summing->parallel;
    const int step = summing->handed++;
    *rows = (cy_tensor_rows){0};
    if (!cy_tensor_in_pieces(parallel)) {
        rows->count = step == 0 ? summing->partial.rows : 0;
        if (step == 0) return CY_OK;
        CY_TRY(start_whole(summing));
        return parallel->overlap ? CY_OK : sum_wait(summing);
    }
    const int size = cy_group_size(parallel->group);
    CY_ASSERT(step <= size);
    if (step > 0 && step < size) CY_TRY(exchange_parts(summing, step));
    if (step < size) *rows = piece_of(summing->outside, neighbour(parallel, step + 1));
    return CY_OK;
}

// What rank `from` added to this rank's tokens.
static cy_view part_from(const cy_tensor_summing *summing, int from)
{
    const cy_tensor_parallel *parallel = summing->parallel;
    const int size = cy_group_size(parallel->group), rank = cy_group_rank(parallel->group);
    if (from == rank) return rows_of(summing->partial, piece_of(summing->outside, rank));
    return arrival(summing, (rank + size - from) % size);
}

cy_status cy_tensor_sum_end(cy_tensor_summing *summing)
{
    const cy_tensor_parallel *parallel = summing->parallel;
    cy_queue *queue = summing->queue;
    CY_TRY(sum_wait(summing));
    if (!cy_tensor_in_pieces(parallel)) {
        finish_sum(summing);
        return CY_OK;
    }

    // In the order of ranks, so that the sum does not depend on who holds it, and rounded once.
    const int size = cy_group_size(parallel->group);
    const cy_view outside = summing->reduced;
    const size_t mark = cy_arena_mark(queue->scratch);
    cy_view sum = part_from(summing, 0);
    cy_view wide = outside;
    if (size > 2 && cy_dtype_size(outside.dtype) < sizeof(float)) {
        wide = cy_view_take(queue->scratch, CY_F32, outside.rows, outside.cols);
    }
    for (int from = 1; from < size; from++) {
        const cy_view to = from + 1 < size ? wide : outside;
        cy_add(queue, to, sum, part_from(summing, from));
        sum = to;
    }
    cy_arena_rewind(queue->scratch, mark);
    finish_sum(summing);
    return CY_OK;
}
