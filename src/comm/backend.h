// comm/backend.h: what a backend of groups offers. Included by backends and algorithms only.
//
// A backend's own struct begins with cy_group. The wrappers in group.c have checked the arguments,
// served groups of one and dry queues, and counted; a backend sees real work of two or more ranks.
// It fills request->handle with a record of its own that begins with cy_transfer. One rank's group
// is used by one thread at a time. A failed start leaves the request empty.

#ifndef CY_COMM_BACKEND_H
#define CY_COMM_BACKEND_H

#include "comm/group.h"
#include "comm/reduce.h"

#include <stdatomic.h>

typedef enum cy_operation_kind {
    CY_OP_ALL_REDUCE,
    CY_OP_REDUCE_SCATTER,
    CY_OP_ALL_GATHER,
    CY_OP_ALL_TO_ALL,
    CY_OP_ALL_TO_ALLV,
    CY_OP_BROADCAST,
    CY_OP_BARRIER,
    CY_OP_SEND,
    CY_OP_RECV,
} cy_operation_kind;

// Whether it is between two members; the other kinds are collectives.
static inline bool cy_operation_is_message(cy_operation_kind kind)
{
    return kind == CY_OP_SEND || kind == CY_OP_RECV;
}

// One call, as a value. An operation on data in place has it in both `out` and `in`.
typedef struct cy_operation {
    cy_operation_kind kind;
    cy_reduce_op reduce;
    cy_view out;
    cy_view in;
    int peer; // the root, or the other end of a message
    int tag;
    const int64_t *out_rows; // borrowed until start returns: [size], of all_to_allv only
    const int64_t *in_rows;
    // Of a receive in a group with reduces_on_recv: how `reduce` takes the data in, and a flag that
    // an overflow sets (borrowed until the receive is done; NULL: none).
    cy_recv_action recv_action;
    _Atomic bool *overflow;
} cy_operation;

// The beginning of every backend's record of a transfer.
typedef struct cy_transfer {
    int64_t start_ns;
    cy_operation_kind kind;
    double bytes;                    // that this rank sends
    struct cy_staged_buffer *staged; // comm/staged.h; NULL: its data are the caller's own
} cy_transfer;

// The last heartbeat that was seen of a rank while waiting for it. Start with rank -1.
typedef struct cy_watchdog {
    int rank;
    uint64_t heartbeat;
    int64_t looked_ns; // when the rank that waits looked last
    int64_t silent_ns; // since the heartbeat: see cy_watch_silence_s
    int64_t begun_ns;  // where others are watched instead of the one that is missing; 0: not yet
} cy_watchdog;

// Of a rank: which of its threads are at work in memory of callers, its own or another rank's. A
// rank that fails waits until none is inside, and its caller may free the memory then.
typedef struct cy_guard {
    _Atomic int inside;
    const _Atomic bool *failed; // borrowed: the world has
    const char *text;           // borrowed: why; complete once it has
} cy_guard;

// Returns false, and then no such memory may be touched, once the world has failed.
static inline bool cy_guard_enter(cy_guard *guard)
{
    // Sequentially consistent, as the store of `failed` and the look at `inside` that follows it:
    // either this thread sees the failure or the failing rank sees this thread inside.
    atomic_fetch_add(&guard->inside, 1);
    if (!atomic_load(guard->failed)) return true;
    atomic_fetch_sub(&guard->inside, 1);
    return false;
}

static inline void cy_guard_leave(cy_guard *guard)
{
    atomic_fetch_sub(&guard->inside, 1);
}

// Once `failed` is set: returns when no thread is inside.
void cy_guard_await(const cy_guard *guard);

typedef struct cy_group_ops {
    const char *name;
    cy_status (*start)(
        cy_group *group, cy_queue *queue, cy_request *request, const cy_operation *operation);
    // Completes the transfer and gives its record back, also when it fails.
    cy_status (*wait)(cy_group *group, cy_queue *queue, cy_transfer *transfer);
    cy_status (*test)(cy_group *group, cy_transfer *transfer, bool *done);
    // For callers that test instead of waiting: fails when the group has failed, or when the rank
    // that this transfer waits for has shown no heartbeat for the time limit.
    cy_status (*check_peers)(cy_group *group, const cy_transfer *transfer, cy_watchdog *watch);
    void (*abort)(cy_group *group, const char *text);
    void (*close)(cy_group *group);
} cy_group_ops;

// ---- buffers for data that arrive
//
// Processors copy fast where both ends of a copy lie alike within a cache line. The instruction for
// it that systems use between processes takes up to nine times as long on AMD's Zen 4 where the
// distance of the two is no multiple of 16. So a buffer begins with a line, and a message is
// received where it lies in its line as it does where it comes from.

#define CY_LINE_BYTES 64

typedef struct cy_buffer {
    char *data;
    size_t bytes;
    void *block; // owned
    bool mapped;
} cy_buffer;

// Makes room for at least so many bytes; what was there is lost. Start from a zeroed struct.
CY_MUST_CHECK cy_status cy_buffer_reserve(cy_buffer *buffer, size_t bytes);
void cy_buffer_free(cy_buffer *buffer);

// Where an address lies in its line.
static inline size_t cy_line_offset(const void *address)
{
    return (uintptr_t)address % CY_LINE_BYTES;
}

// Bytes from one message to the next, so that each may lie anywhere in a line.
static inline size_t cy_line_stride(size_t bytes)
{
    return (bytes + 2 * CY_LINE_BYTES - 1) / CY_LINE_BYTES * CY_LINE_BYTES;
}

// ---- groups

#define CY_DIMENSION_BYTES 24
#define CY_LABEL_BYTES     (CY_DIMENSION_BYTES + 32)

struct cy_group {
    const cy_group_ops *ops;
    int rank;
    int size;
    char dimension[CY_DIMENSION_BYTES];
    char label[CY_LABEL_BYTES]; // what messages call the group: "dp", or "dp (generation 2)"
    bool reduces_on_recv;       // a receive can reduce what arrives into its place
    size_t fragment_bytes;      // plans cut longer messages into such fragments; 0: they do not
    bool messages_only;         // there are no collectives
    bool counts_between;        // the backend itself counts what leaves the node
    int *nodes;                 // owned, [size]: the node of each member; NULL: all of one
    cy_guard *guard;            // borrowed: of this rank
    cy_traffic counters;
};

// Fills in the base of a backend's group, but for its guard.
void cy_group_init(
    cy_group *group, const cy_group_ops *ops, int rank, int size, const char *dimension);

// Sets the generation of a group, which cy_group_init makes the first. Messages name a later one.
void cy_group_set_generation(cy_group *group, int generation);

// Sets the node of each member: nodes [size], numbered from 0 by their first members; NULL: one
// node has them all. Copied.
CY_MUST_CHECK cy_status cy_group_set_nodes(cy_group *group, const int *nodes);

// The name of a kind of operation, as messages spell it: "all_reduce".
const char *cy_operation_name(cy_operation_kind kind);

// "sum", "avg", "min", "max", "prod".
const char *cy_reduce_op_name(cy_reduce_op reduce);

// Payload bytes that one rank sends in an operation when nothing is sent twice: of an all_reduce
// 2 (P - 1) / P n, and so on. docs/collectives.md has the table.
double cy_operation_bytes(const cy_operation *operation, int rank, int size);

// The part of them that goes to other nodes, where every rank deals with every other directly.
double cy_operation_bytes_between(const cy_group *group, const cy_operation *operation);

#endif
