// comm/group.h: an ordered set of ranks that communicate together.
//
// All ranks of a group issue the same collectives in the same order. A `start_` call only queues
// the work: the buffers belong to the group until the matching wait returns. Views are dense.
// Groups of one are served here, without a backend: an operation on one rank is a copy or nothing.
// The order of a reduction is fixed, so all ranks hold the same bits, in every repeat.
//
// On a dry queue nothing moves: the group counts the bytes and messages that it would have sent.

#ifndef CY_COMM_GROUP_H
#define CY_COMM_GROUP_H

#include "device/queue.h"
#include "device/view.h"

typedef struct cy_group cy_group;

typedef enum cy_reduce {
    CY_SUM,
    CY_AVG,
    CY_MIN,
    CY_MAX,
    CY_PROD,
} cy_reduce;

// One transfer in flight. Start from a zeroed struct; it is zeroed again by the wait.
typedef struct cy_request {
    void *handle; // the backend's own record; NULL when nothing is in flight
} cy_request;

int cy_group_rank(const cy_group *group);
int cy_group_size(const cy_group *group);

// data [rows, cols]: every rank's becomes the reduction over all ranks.
CY_MUST_CHECK cy_status cy_group_start_all_reduce(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view data, cy_reduce op);

// `in` holds size equal parts of rows; `out` becomes the reduction of part `rank`. out may be that
// part of in.
CY_MUST_CHECK cy_status cy_group_start_reduce_scatter(cy_group *group, cy_queue *queue,
    cy_request *request, cy_view out, cy_view in, cy_reduce op);

// `out` becomes all ranks' `in`, in order of rank, by rows. in may be part `rank` of out.
CY_MUST_CHECK cy_status cy_group_start_all_gather(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view out, cy_view in);

// Part i of `in` goes to rank i, whose part becomes part i of `out`. Equal parts of rows.
CY_MUST_CHECK cy_status cy_group_start_all_to_all(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view out, cy_view in);

// The same with uneven parts: counts of rows per rank, on the host.
CY_MUST_CHECK cy_status cy_group_start_all_to_allv(cy_group *group, cy_queue *queue,
    cy_request *request, cy_view out, const int64_t *out_rows, cy_view in, const int64_t *in_rows);

// Everybody's data becomes rank root's.
CY_MUST_CHECK cy_status cy_group_start_broadcast(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view data, int root);

// Point to point: messages between a pair of ranks with one tag arrive in the order sent.
CY_MUST_CHECK cy_status cy_group_start_send(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view data, int to, int tag);
CY_MUST_CHECK cy_status cy_group_start_recv(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view data, int from, int tag);

// Returns when the transfer is done, or with CY_ERR_TIMEOUT or CY_ERR_PEER, after which the group
// can only be aborted and closed. Waiting for a request that is not in flight succeeds at once.
CY_MUST_CHECK cy_status cy_group_wait(cy_group *group, cy_queue *queue, cy_request *request);

// Sets *done; a done request still needs its wait, which then returns at once.
CY_MUST_CHECK cy_status cy_group_test(cy_group *group, cy_request *request, bool *done);

// Returns when all ranks have come here.
CY_MUST_CHECK cy_status cy_group_barrier(cy_group *group);

// The group of this rank alone. Static storage: nothing to close.
cy_group *cy_group_self(void);

// Shorthand for start and wait.
CY_MUST_CHECK cy_status cy_group_all_reduce(
    cy_group *group, cy_queue *queue, cy_view data, cy_reduce op);

#endif
