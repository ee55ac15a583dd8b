// comm/group.h: an ordered set of ranks that communicate together.
//
// All ranks of a group issue the same collectives in the same order. A `start_` call only queues
// the work: the buffers belong to the group until the matching wait returns. Views are dense.
//
// With a queue the views are in the memory of the queue's device. The transfer has its place in the
// order of the queue: what was given to the queue before the start is done before the data leave,
// and what is given to it after the wait finds the result. On a device that works later the wait
// may return before the result is there. A NULL queue is for host memory: the result is there when
// the wait returns. A start and its wait have the same queue.
//
// Groups of one are served here, without a backend: an operation on one rank is a copy or nothing.
// The order of a reduction is fixed, so all ranks hold the same bits, in every repeat.
//
// On a dry queue nothing moves: the group counts the bytes and messages that it would have sent.

#ifndef CY_COMM_GROUP_H
#define CY_COMM_GROUP_H

#include "device/queue.h"
#include "device/view.h"

typedef struct cy_group cy_group;

typedef enum cy_reduce_op {
    CY_SUM,
    CY_AVG,
    CY_MIN,
    CY_MAX,
    CY_PROD,
} cy_reduce_op;

// One transfer in flight. Start from a zeroed struct; it is zeroed again by the wait.
typedef struct cy_request {
    void *handle; // the backend's own record; NULL when nothing is in flight
} cy_request;

// What this rank has sent through a group, and how long that took.
typedef struct cy_traffic {
    double bytes;     // payload that left this rank
    int64_t messages; // operations started, of groups larger than one
    double seconds;   // from start to completion, summed over operations
    double exposed_s; // the part of it that this rank spent inside these calls
    // The part of the bytes that left this rank's node: as plans really sent it, or by the rule of
    // the backend's own collectives, in which every rank deals with every other directly.
    double bytes_between_nodes;
} cy_traffic;

int cy_group_rank(const cy_group *group);
int cy_group_size(const cy_group *group);

// The mesh axis that the group serves: "tp", "cp", "pp", "dp", "ep". Lives as long as the group.
const char *cy_group_dimension(const cy_group *group);

// The name of the backend as configurations spell it. Static storage.
const char *cy_group_backend(const cy_group *group);

// Counts since the group was opened, dry operations included.
cy_traffic cy_group_counters(const cy_group *group);

// Sets the counters back to what they were, so that work such as a measurement is not counted.
void cy_group_set_counters(cy_group *group, cy_traffic counters);

// data [rows, cols]: replaces every rank's data by the reduction over all ranks.
CY_MUST_CHECK cy_status cy_group_start_all_reduce(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view data, cy_reduce_op op);

// `in` holds size equal parts of rows; writes the reduction of part `rank` to `out`. out may be
// that part of in.
CY_MUST_CHECK cy_status cy_group_start_reduce_scatter(cy_group *group, cy_queue *queue,
    cy_request *request, cy_view out, cy_view in, cy_reduce_op op);

// Writes all ranks' `in` to `out`, in order of rank, by rows. in may be part `rank` of out.
CY_MUST_CHECK cy_status cy_group_start_all_gather(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view out, cy_view in);

// Part i of `in` goes to rank i, whose part becomes part i of `out`. Equal parts of rows.
CY_MUST_CHECK cy_status cy_group_start_all_to_all(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view out, cy_view in);

// The same with uneven parts: counts of rows per rank, on the host.
CY_MUST_CHECK cy_status cy_group_start_all_to_allv(cy_group *group, cy_queue *queue,
    cy_request *request, cy_view out, const int64_t *out_rows, cy_view in, const int64_t *in_rows);

// Copies the root's data to every rank.
CY_MUST_CHECK cy_status cy_group_start_broadcast(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view data, int root);

// Point to point: messages between a pair of ranks with one tag arrive in the order sent. A tag is
// in [0, CY_TAG_LIMIT); larger ones belong to the algorithms. A group of one has no peer to send
// to.
#define CY_TAG_LIMIT 16384
CY_MUST_CHECK cy_status cy_group_start_send(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view data, int to, int tag);
CY_MUST_CHECK cy_status cy_group_start_recv(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view data, int from, int tag);

// Returns when the transfer is done, or with CY_ERR_TIMEOUT or CY_ERR_PEER, after which the group
// can only be aborted and closed. Waiting for a request that is not in flight succeeds at once.
CY_MUST_CHECK cy_status cy_group_wait(cy_group *group, cy_queue *queue, cy_request *request);

// Sets *done; a done request still needs its wait, which then returns at once.
CY_MUST_CHECK cy_status cy_group_test(cy_group *group, cy_request *request, bool *done);

// Returns when all ranks have called it.
CY_MUST_CHECK cy_status cy_group_barrier(cy_group *group);

// The group of this rank alone. Static storage: nothing to close.
cy_group *cy_group_self(void);

// Makes every wait of every member fail with CY_ERR_PEER and this text, now and from now on.
void cy_group_abort(cy_group *group, const char *text);

// Nothing may be in flight, unless the group was aborted. The group of one rank is left alone.
void cy_group_close(cy_group *group);

// A group for planning: it has a rank and a size and serves dry queues only. *group is owned.
CY_MUST_CHECK cy_status cy_group_open_dry(
    cy_group **group, int rank, int size, const char *dimension);

// Shorthand for start and wait.
CY_MUST_CHECK cy_status cy_group_all_reduce(
    cy_group *group, cy_queue *queue, cy_view data, cy_reduce_op op);
CY_MUST_CHECK cy_status cy_group_reduce_scatter(
    cy_group *group, cy_queue *queue, cy_view out, cy_view in, cy_reduce_op op);
CY_MUST_CHECK cy_status cy_group_all_gather(
    cy_group *group, cy_queue *queue, cy_view out, cy_view in);
CY_MUST_CHECK cy_status cy_group_all_to_all(
    cy_group *group, cy_queue *queue, cy_view out, cy_view in);
CY_MUST_CHECK cy_status cy_group_broadcast(
    cy_group *group, cy_queue *queue, cy_view data, int root);
CY_MUST_CHECK cy_status cy_group_send(
    cy_group *group, cy_queue *queue, cy_view data, int to, int tag);
CY_MUST_CHECK cy_status cy_group_recv(
    cy_group *group, cy_queue *queue, cy_view data, int from, int tag);

#endif
