// parallel/tensor/overlap.h: gathers and sums of tokens, cut into chunks that travel under the
// products beside them (Wang et al., "Overlap communication with dependent computation via
// decomposition", 2023).
//
// With sequence parallelism a chunk is the tokens of one rank. A gather returns the rank's own
// chunk first, while that of the next rank travels; a sum returns the own chunk last, while those
// of the others travel. Each rank sends to every other only what that rank needs, so the bytes are
// those of the collective. Pieces that arrive are added in the order of the collectives and rounded
// once.
//
//   gather                                     sum
//   start              own rows travel         start
//   next -> own rows   (product)               next -> rows of another rank   (product)
//   next -> others     (product)               next -> own rows, the others' travel   (product)
//   next -> none                               next -> none; more work may follow
//                                              end: `outside` is the sum
//
// Without it every rank has all tokens on both sides. There is nothing to gather; the chunks of a
// sum are ranges of rows in ascending order, the same on every rank, with an all-reduce each. Rows
// whose sum has arrived can be used while the others travel:
//
//   next -> rows 0        (product)            arrived -> rows 0   (what reads the sum)
//   next -> rows 1, all-reduce of rows 0 under the product
//   next -> none, all-reduce of rows 1         arrived -> rows 1, which travelled under that
//
// Where the group is one rank, or overlap is off, or rows are few, there is one chunk of all rows:
// the same loop serves dense layers, and the traffic is that of one collective.
//
// A gather or sum belongs to the rank that started it. Matrices are the caller's or from the
// scratch arena, which the caller rewinds after the end; nothing may be rewound before it.

#ifndef CY_PARALLEL_TENSOR_OVERLAP_H
#define CY_PARALLEL_TENSOR_OVERLAP_H

#include "comm/group.h"
#include "device/view.h"

typedef struct cy_tensor_parallel {
    cy_group *group;  // borrowed
    bool sequence;    // tokens are split over the group outside the linear layers
    bool overlap;     // traffic runs under products
    bool keep_inputs; // with sequence: gathered inputs are kept for the weight gradients
} cy_tensor_parallel;

// Rows [first, first + count) of a matrix of all tokens; count 0: there are no more.
typedef struct cy_tensor_rows {
    int64_t first, count;
} cy_tensor_rows;

// Start from a zeroed struct.
typedef struct cy_tensor_gather_state {
    const cy_tensor_parallel *parallel; // borrowed
    cy_queue *queue;                    // borrowed
    cy_view outside;                    // the own tokens
    cy_view all;                        // all tokens
    cy_request send, receive;
    int handed; // chunks handed out
} cy_tensor_gather_state;

// Pieces of a sum of whole matrices: at most so many, cut at multiples of so many rows. Products of
// fewer rows take longer, and the head works on tiles of as many, so that tiles are the same with
// and without overlap.
#define CY_TENSOR_CHUNKS     2
#define CY_TENSOR_CHUNK_ROWS 512

// Start from a zeroed struct, which is a sum that is over.
typedef struct cy_tensor_reduce_state {
    const cy_tensor_parallel *parallel; // borrowed
    cy_queue *queue;                    // borrowed
    cy_view outside;                    // becomes the sum
    cy_view reduced;          // receives the sum: `outside`, or its fixed-point counterpart
    cy_view partial;          // [all tokens, cols]: this rank's part of the sum
    cy_view residual;         // added to `outside` as rows of the sum arrive; or none
    cy_view first;            // receives the first chunk of another rank
    cy_request send, receive; // between two ranks
    cy_request sums[CY_TENSOR_CHUNKS]; // of all ranks, one for each range of rows
    int handed, arrived;               // chunks
} cy_tensor_reduce_state;

// Whether tokens are split over the group outside the linear layers.
bool cy_tensor_sequence_parallel(const cy_tensor_parallel *parallel);

static inline cy_view cy_tensor_rows_of(cy_view view, cy_tensor_rows rows)
{
    return cy_view_rows(view, rows.first, rows.count);
}

// Tokens that a rank holds outside the linear layers, of `tokens` inside.
int64_t cy_tensor_local_tokens(const cy_tensor_parallel *parallel, int64_t tokens);

// A matrix of all tokens for `outside`: `outside` itself where it holds them already, otherwise
// from the scratch arena.
cy_view cy_tensor_all_tokens(const cy_tensor_parallel *parallel, cy_queue *queue, cy_view outside);

// Gathers `outside` into `all` (from cy_tensor_all_tokens, or a place of the same size that is
// kept). `gathering` is not moved until its last call.
CY_MUST_CHECK cy_status cy_tensor_gather_start(cy_tensor_gather_state *gathering,
    const cy_tensor_parallel *parallel, cy_queue *queue, cy_view all, cy_view outside);

// The next rows of `all` that have arrived.
CY_MUST_CHECK cy_status cy_tensor_gather_next(
    cy_tensor_gather_state *gathering, cy_tensor_rows *rows);

// Returns when all rows have arrived.
CY_MUST_CHECK cy_status cy_tensor_gather_finish(cy_tensor_gather_state *gathering);

// A gather that is over: `all` holds all tokens.
cy_tensor_gather_state cy_tensor_gather_done(const cy_tensor_parallel *parallel, cy_view all);

// start and rest; *all is a matrix from cy_tensor_all_tokens.
CY_MUST_CHECK cy_status cy_tensor_gather(
    const cy_tensor_parallel *parallel, cy_queue *queue, cy_view *all, cy_view outside);

// `outside` is to become the sum over the group of `partial`, which is taken here: `outside` itself
// where no scattering follows, otherwise from the scratch arena. With `fixed` given (strict mode)
// partial is in fixed point, and the sum is rounded to `outside` once it is whole; or NULL.
void cy_tensor_reduce_start(cy_tensor_reduce_state *summing, const cy_tensor_parallel *parallel,
    cy_queue *queue, cy_view outside, cy_fixed *fixed);

// The rows of `partial` to be written next. Those of the call before have been, and are sent.
CY_MUST_CHECK cy_status cy_tensor_reduce_next(
    cy_tensor_reduce_state *summing, cy_tensor_rows *rows);

// Once cy_tensor_reduce_next has said that there are no more rows: the next rows of `outside` that
// are the sum, with `residual` added; none where all have been handed out.
CY_MUST_CHECK cy_status cy_tensor_reduce_arrived(
    cy_tensor_reduce_state *summing, cy_tensor_rows *rows);

// Returns when all rows have arrived.
CY_MUST_CHECK cy_status cy_tensor_reduce_finish(cy_tensor_reduce_state *summing);

// ---- columns: between a matrix that is whole on every rank and one whose columns are split evenly
// over the group
//
// Each is the gradient of the other. Matrices are dense and the caller's, but for the `x` of
// cy_tensor_scatter_cols; scratch memory is from the queue.

// y [rows, cols * size]: the columns of all ranks side by side, from x [rows, cols]. Fails when the
// group does.
CY_MUST_CHECK cy_status cy_tensor_gather_cols(
    cy_group *group, cy_queue *queue, cy_view y, cy_view x);

// y [rows, cols / size]: this rank's columns of x [rows, cols], which is the same on every rank.
void cy_tensor_scatter_cols(const cy_group *group, cy_queue *queue, cy_view y, cy_view x);

#endif
