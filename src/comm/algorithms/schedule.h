// comm/algorithms/schedule.h: collectives as data: what one rank sends and receives in each round.
//
// A plan is made by a pure function of (rank, ranks, sizes), so that its rounds and bytes can be
// counted and checked without ranks. In a round a rank sends at most one piece and receives at most
// one; the next round begins when both are done, or, in a ring, with what has come. Offsets and
// counts are in elements.

#ifndef CY_COMM_ALGORITHMS_SCHEDULE_H
#define CY_COMM_ALGORITHMS_SCHEDULE_H

#include "base/status.h"
#include "comm/reduce.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cy_round {
    int to;   // -1: nothing is sent
    int from; // -1: nothing is received
    int64_t send_first, send_count;
    int64_t recv_first, recv_count;
    cy_recv_action recv_action;
} cy_round;

typedef struct cy_coll_schedule {
    cy_round *rounds; // owned
    size_t capacity;
    int count;
    // A ring: every round sends what the round before received, and receives into what was sent
    // P - 1 rounds before. Its rounds may follow each other fragment by fragment.
    bool streams;
} cy_coll_schedule;

// Which rank of how many.
typedef struct cy_coll_rank {
    int rank;
    int size;
} cy_coll_rank;

// Element `first` and `count` of part `part` when `total` elements are cut into `parts`.
typedef struct cy_coll_chunk {
    int64_t first;
    int64_t count;
} cy_coll_chunk;
cy_coll_chunk cy_coll_chunk_of(int64_t total, int parts, int part);

void cy_coll_schedule_free(cy_coll_schedule *plan);
CY_MUST_CHECK cy_status cy_coll_schedule_add(cy_coll_schedule *plan, cy_round round);

// The planners add rounds to a plan. All of all_reduce work in place on `count` elements.

// The ring: P - 1 rounds that add, P - 1 that copy; 2 (P - 1) / P n elements leave each rank.
CY_MUST_CHECK cy_status cy_coll_schedule_ring(
    cy_coll_schedule *plan, cy_coll_rank place, int64_t count);

// The two halves of a ring on their own: rank r ends with part r of `parts` equal ones.
CY_MUST_CHECK cy_status cy_coll_schedule_ring_reduce_scatter(
    cy_coll_schedule *plan, cy_coll_rank place, int64_t part);
CY_MUST_CHECK cy_status cy_coll_schedule_ring_all_gather(
    cy_coll_schedule *plan, cy_coll_rank place, int64_t part);

// Halving, then doubling: 2 ceil(log2 P) rounds. As many bytes as the ring where P is a power of
// two; otherwise some ranks first send all to a neighbour and get the sum from it.
CY_MUST_CHECK cy_status cy_coll_schedule_tree(
    cy_coll_schedule *plan, cy_coll_rank place, int64_t count);

// Doubling: ceil(log2 P) rounds in which everything is exchanged (2 more when P is no power of
// two), for small messages.
CY_MUST_CHECK cy_status cy_coll_schedule_doubling(
    cy_coll_schedule *plan, cy_coll_rank place, int64_t count);

CY_MUST_CHECK cy_status cy_coll_schedule_broadcast(
    cy_coll_schedule *plan, cy_coll_rank place, int64_t count, int root);

// Nothing moves, but no rank ends before every rank has begun.
CY_MUST_CHECK cy_status cy_coll_schedule_barrier(cy_coll_schedule *plan, cy_coll_rank place);

// hierarchical.c: nodes [size] has the node of each rank, numbered from 0 by first ranks. Parts are
// reduced inside a node, then among the ranks of all nodes that hold the same part, then gathered
// inside: 2 (K - 1) / K n elements leave each of K nodes. Ranks beyond the smallest node's number
// first hand their data to one of their node, and get the result from it at the end.
CY_MUST_CHECK cy_status cy_coll_schedule_hierarchical(
    cy_coll_schedule *plan, cy_coll_rank place, int64_t count, const int *nodes);

// Every rank sends its data to rank 0, which adds in order of rank and sends the sum back.
CY_MUST_CHECK cy_status cy_coll_schedule_server(
    cy_coll_schedule *plan, cy_coll_rank place, int64_t count);

// All to all: part i of `in` goes to rank i; P - 1 rounds. Parts are equal, or `in_counts` and
// `out_counts` [size] elements. The own part is not in the plan.
CY_MUST_CHECK cy_status cy_coll_schedule_exchange(cy_coll_schedule *plan, cy_coll_rank place,
    const int64_t *in_counts, const int64_t *out_counts);

#endif
