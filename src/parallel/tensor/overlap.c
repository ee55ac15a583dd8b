// Gathers and sums tokens over the tensor-parallel group in chunks that travel under the products
// beside them, and gathers columns.

#include "parallel/tensor/overlap.h"

#include "base/status.h"
#include "kernel/kernel.h"

enum { TAG_GATHER, TAG_SUM };

bool cy_tensor_sequence_parallel(const cy_tensor_parallel *parallel)
{
    return parallel->sequence && cy_group_size(parallel->group) > 1;
}

// Whether each rank sends others the chunks that they need.
static bool by_rank(const cy_tensor_parallel *parallel)
{
    return cy_tensor_sequence_parallel(parallel) && parallel->overlap;
}

int64_t cy_tensor_local_tokens(const cy_tensor_parallel *parallel, int64_t tokens)
{
    if (!cy_tensor_sequence_parallel(parallel)) return tokens;
    CY_ASSERT(tokens % cy_group_size(parallel->group) == 0);
    return tokens / cy_group_size(parallel->group);
}

cy_view cy_tensor_all_tokens(const cy_tensor_parallel *parallel, cy_queue *queue, cy_view outside)
{
    if (!cy_tensor_sequence_parallel(parallel)) return outside;
    const int64_t tokens = outside.rows * cy_group_size(parallel->group);
    return cy_view_alloc(queue->scratch, outside.dtype, tokens, outside.cols);
}

// The rank `distance` places after this one, or before it where that is negative.
static int neighbour(const cy_tensor_parallel *parallel, int distance)
{
    const int size = cy_group_size(parallel->group);
    return (cy_group_rank(parallel->group) + size + distance) % size;
}

// The rows of a rank's tokens.
static cy_tensor_rows chunk_of(cy_view outside, int rank)
{
    return (cy_tensor_rows){.first = rank * outside.rows, .count = outside.rows};
}

static cy_status wait_both(
    const cy_tensor_parallel *parallel, cy_queue *queue, cy_request *receive, cy_request *send)
{
    CY_TRY(cy_group_wait(parallel->group, queue, receive));
    return cy_group_wait(parallel->group, queue, send);
}

// ---- gathering

static cy_status exchange_own(cy_tensor_gather_state *gathering, int distance)
{
    const cy_tensor_parallel *parallel = gathering->parallel;
    const int to = neighbour(parallel, distance), from = neighbour(parallel, -distance);
    const cy_view place = cy_tensor_rows_of(gathering->all, chunk_of(gathering->outside, from));
    CY_TRY(cy_group_start_send(
        parallel->group, gathering->queue, &gathering->send, gathering->outside, to, TAG_GATHER));
    return cy_group_start_recv(
        parallel->group, gathering->queue, &gathering->receive, place, from, TAG_GATHER);
}

cy_status cy_tensor_gather_start(cy_tensor_gather_state *gathering,
    const cy_tensor_parallel *parallel, cy_queue *queue, cy_view all, cy_view outside)
{
    *gathering = (cy_tensor_gather_state){
        .parallel = parallel,
        .queue = queue,
        .outside = outside,
        .all = all,
    };
    if (!cy_tensor_sequence_parallel(parallel)) {
        CY_ASSERT(all.data == outside.data);
        return CY_OK;
    }
    CY_ASSERT(all.rows == outside.rows * cy_group_size(parallel->group));
    if (by_rank(parallel)) {
        const cy_tensor_rows own = chunk_of(outside, cy_group_rank(parallel->group));
        cy_copy(queue, cy_tensor_rows_of(all, own), outside);
        return exchange_own(gathering, 1);
    }
    return cy_group_all_gather(parallel->group, queue, all, outside);
}

cy_status cy_tensor_gather_next(cy_tensor_gather_state *gathering, cy_tensor_rows *rows)
{
    const cy_tensor_parallel *parallel = gathering->parallel;
    const int size = by_rank(parallel) ? cy_group_size(parallel->group) : 1;
    const int step = gathering->handed;
    *rows = (cy_tensor_rows){0};
    if (step >= size) return CY_OK;
    if (step > 0)
        CY_TRY(wait_both(parallel, gathering->queue, &gathering->receive, &gathering->send));
    if (step > 0 && step + 1 < size) CY_TRY(exchange_own(gathering, step + 1));
    gathering->handed++;
    if (size == 1) {
        rows->count = gathering->all.rows;
    } else {
        *rows = chunk_of(gathering->outside, neighbour(parallel, -step));
    }
    return CY_OK;
}

cy_status cy_tensor_gather_finish(cy_tensor_gather_state *gathering)
{
    cy_tensor_rows rows;
    do {
        CY_TRY(cy_tensor_gather_next(gathering, &rows));
    } while (rows.count > 0);
    return CY_OK;
}

cy_tensor_gather_state cy_tensor_gather_done(const cy_tensor_parallel *parallel, cy_view all)
{
    return (cy_tensor_gather_state){
        .parallel = parallel, .all = all, .handed = cy_group_size(parallel->group)};
}

cy_status cy_tensor_gather(
    const cy_tensor_parallel *parallel, cy_queue *queue, cy_view *all, cy_view outside)
{
    cy_tensor_gather_state gathering;
    *all = cy_tensor_all_tokens(parallel, queue, outside);
    CY_TRY(cy_tensor_gather_start(&gathering, parallel, queue, *all, outside));
    return cy_tensor_gather_finish(&gathering);
}

// ---- summing

static cy_view of_kind(cy_view view, cy_fixed *fixed)
{
    return fixed == NULL ? view : cy_fixed_view(fixed, view);
}

void cy_tensor_reduce_start(cy_tensor_reduce_state *summing, const cy_tensor_parallel *parallel,
    cy_queue *queue, cy_view outside, cy_fixed *fixed)
{
    cy_view reduced = outside;
    if (fixed != NULL) reduced = cy_fixed_alloc(fixed, queue->scratch, outside.rows, outside.cols);
    *summing = (cy_tensor_reduce_state){
        .parallel = parallel,
        .queue = queue,
        .outside = outside,
        .reduced = reduced,
        .partial = of_kind(cy_tensor_all_tokens(parallel, queue, reduced), fixed),
    };
    if (!by_rank(parallel)) return;
    summing->first =
        of_kind(cy_view_alloc(queue->scratch, reduced.dtype, reduced.rows, reduced.cols), fixed);
}

// Ranges that the rows of a sum are cut into, where it is not cut by rank.
static int range_count(const cy_tensor_reduce_state *summing)
{
    const cy_tensor_parallel *parallel = summing->parallel;
    const bool whole = parallel->sequence || !parallel->overlap;
    if (whole || cy_group_size(parallel->group) == 1) return 1;
    const int64_t count = summing->outside.rows / CY_TENSOR_CHUNK_ROWS;
    return count < 1 ? 1 : count < CY_TENSOR_CHUNKS ? (int)count : CY_TENSOR_CHUNKS;
}

// Range `index` of the rows of `all`; empty behind the last one. The first ranges are the longer
// ones: no product may remain to hide the transfer of the last.
static cy_tensor_rows range_of(const cy_tensor_reduce_state *summing, cy_view all, int index)
{
    const int64_t count = range_count(summing), units = all.rows / CY_TENSOR_CHUNK_ROWS;
    const int64_t first = (units * index + count - 1) / count * CY_TENSOR_CHUNK_ROWS;
    const int64_t next = (units * (index + 1) + count - 1) / count * CY_TENSOR_CHUNK_ROWS;
    if (index >= count) return (cy_tensor_rows){0};
    return (cy_tensor_rows){.first = first, .count = (index + 1 < count ? next : all.rows) - first};
}

// Where the chunk from the rank `distance` places before this one arrives: in the memory of the
// chunk that was sent one step before.
static cy_view arrival(const cy_tensor_reduce_state *summing, int distance)
{
    if (distance == 1) return summing->first;
    const int sent = neighbour(summing->parallel, distance - 1);
    return cy_tensor_rows_of(summing->partial, chunk_of(summing->outside, sent));
}

static cy_status exchange_parts(cy_tensor_reduce_state *summing, int distance)
{
    const cy_tensor_parallel *parallel = summing->parallel;
    const int to = neighbour(parallel, distance), from = neighbour(parallel, -distance);
    const cy_view chunk = cy_tensor_rows_of(summing->partial, chunk_of(summing->outside, to));
    CY_TRY(wait_both(parallel, summing->queue, &summing->receive, &summing->send));
    CY_TRY(
        cy_group_start_send(parallel->group, summing->queue, &summing->send, chunk, to, TAG_SUM));
    return cy_group_start_recv(parallel->group, summing->queue, &summing->receive,
        arrival(summing, distance), from, TAG_SUM);
}

static cy_status next_by_rank(cy_tensor_reduce_state *summing, cy_tensor_rows *rows)
{
    const cy_tensor_parallel *parallel = summing->parallel;
    const int size = cy_group_size(parallel->group), step = summing->handed++;
    CY_ASSERT(step <= size);
    *rows = (cy_tensor_rows){0};
    if (step > 0 && step < size) CY_TRY(exchange_parts(summing, step));
    if (step < size) *rows = chunk_of(summing->outside, neighbour(parallel, step + 1));
    return CY_OK;
}

// The collective of a range.
static cy_status start_range(cy_tensor_reduce_state *summing, int index)
{
    cy_group *group = summing->parallel->group;
    cy_request *request = &summing->sums[index];
    if (cy_tensor_sequence_parallel(summing->parallel)) {
        return cy_group_start_reduce_scatter(
            group, summing->queue, request, summing->reduced, summing->partial, CY_SUM);
    }
    const cy_tensor_rows rows = range_of(summing, summing->partial, index);
    return cy_group_start_all_reduce(
        group, summing->queue, request, cy_tensor_rows_of(summing->partial, rows), CY_SUM);
}

cy_status cy_tensor_reduce_next(cy_tensor_reduce_state *summing, cy_tensor_rows *rows)
{
    if (by_rank(summing->parallel)) return next_by_rank(summing, rows);
    const int step = summing->handed++;
    CY_ASSERT(step <= range_count(summing));
    *rows = range_of(summing, summing->partial, step);
    if (step == 0) return CY_OK;
    CY_TRY(start_range(summing, step - 1));
    if (summing->parallel->overlap) return CY_OK;
    return cy_group_wait(summing->parallel->group, summing->queue, &summing->sums[step - 1]);
}

// ---- adding parts
//
// The parts of ranks are added in the order of the collectives (comm/reduce.h has it), so a sum has
// the same bits whichever way it is computed: the first 2 e of 2^k + e in pairs, then pairs of the
// results, and so on.

// The part of the sum of this rank's tokens that rank `from` computed.
static cy_view part_from(const cy_tensor_reduce_state *summing, int from)
{
    const cy_tensor_parallel *parallel = summing->parallel;
    const int size = cy_group_size(parallel->group), rank = cy_group_rank(parallel->group);
    if (from == rank) return cy_tensor_rows_of(summing->partial, chunk_of(summing->outside, rank));
    return arrival(summing, (rank + size - from) % size);
}

// The view that the sum of two parts is written to: the result, or scratch memory that does not
// round.
static cy_view target_of_sum(const cy_tensor_reduce_state *summing, bool last)
{
    const cy_view to = summing->reduced;
    if (last) return to;
    const bool narrow = cy_dtype_size(to.dtype) < sizeof(float);
    cy_view made =
        cy_view_alloc(summing->queue->scratch, narrow ? CY_F32 : to.dtype, to.rows, to.cols);
    made.exponent = to.exponent;
    return made;
}

// The sum of `count` terms from `first` on, a power of two: term i is a pair of parts where i is
// below `pairs`, otherwise one part.
static cy_view sum_terms(
    const cy_tensor_reduce_state *summing, int first, int count, int pairs, bool last)
{
    cy_view left;
    cy_view right;
    if (count > 1) {
        left = sum_terms(summing, first, count / 2, pairs, false);
        right = sum_terms(summing, first + count / 2, count / 2, pairs, false);
    } else if (first < pairs) {
        left = part_from(summing, 2 * first);
        right = part_from(summing, 2 * first + 1);
    } else {
        return part_from(summing, first + pairs);
    }
    const cy_view sum = target_of_sum(summing, last);
    cy_add(summing->queue, sum, left, right);
    return sum;
}

// summing->reduced = the sum of all ranks' parts, rounded once.
static void add_parts(const cy_tensor_reduce_state *summing)
{
    const int size = cy_group_size(summing->parallel->group);
    int core = 1;
    while (core * 2 <= size)
        core *= 2;
    const size_t mark = cy_arena_mark(summing->queue->scratch);
    (void)sum_terms(summing, 0, core, size - core, true);
    cy_arena_rewind(summing->queue->scratch, mark);
}

// ---- the end of a sum

// Rounds what was summed in fixed point, and adds the residual.
static void finish_rows(const cy_tensor_reduce_state *summing, cy_tensor_rows rows)
{
    const cy_view sum = cy_tensor_rows_of(summing->outside, rows);
    if (summing->reduced.dtype != summing->outside.dtype) {
        cy_copy(summing->queue, sum, cy_tensor_rows_of(summing->reduced, rows));
    }
    if (cy_view_is_none(summing->residual)) return;
    cy_add(summing->queue, sum, sum, cy_tensor_rows_of(summing->residual, rows));
}

cy_status cy_tensor_reduce_arrived(cy_tensor_reduce_state *summing, cy_tensor_rows *rows)
{
    *rows = (cy_tensor_rows){0};
    const int index = summing->arrived;
    if (summing->parallel == NULL || index >= range_count(summing)) return CY_OK;
    CY_ASSERT(summing->handed > range_count(summing)); // all has been sent
    summing->arrived++;
    *rows = range_of(summing, summing->outside, index);
    if (by_rank(summing->parallel)) {
        CY_TRY(wait_both(summing->parallel, summing->queue, &summing->receive, &summing->send));
        add_parts(summing);
    } else {
        CY_TRY(cy_group_wait(summing->parallel->group, summing->queue, &summing->sums[index]));
    }
    finish_rows(summing, *rows);
    return CY_OK;
}

cy_status cy_tensor_reduce_finish(cy_tensor_reduce_state *summing)
{
    cy_tensor_rows rows;
    do {
        CY_TRY(cy_tensor_reduce_arrived(summing, &rows));
    } while (rows.count > 0);
    return CY_OK;
}

// ---- columns

cy_status cy_tensor_gather_cols(cy_group *group, cy_queue *queue, cy_view y, cy_view x)
{
    const int size = cy_group_size(group);
    CY_ASSERT(x.cols * size == y.cols);
    const size_t mark = cy_arena_mark(queue->scratch);
    // Blocks arrive rank after rank and go to their columns.
    const cy_view blocks = cy_view_alloc(queue->scratch, x.dtype, size * x.rows, x.cols);
    CY_TRY(cy_group_all_gather(group, queue, blocks, x));
    for (int rank = 0; rank < size; rank++) {
        cy_copy(queue, cy_view_cols(y, rank * x.cols, x.cols),
            cy_view_rows(blocks, rank * x.rows, x.rows));
    }
    cy_arena_rewind(queue->scratch, mark);
    return CY_OK;
}

void cy_tensor_scatter_cols(const cy_group *group, cy_queue *queue, cy_view y, cy_view x)
{
    CY_ASSERT(y.cols * cy_group_size(group) == x.cols);
    cy_copy(queue, y, cy_view_cols(x, cy_group_rank(group) * y.cols, y.cols));
}
