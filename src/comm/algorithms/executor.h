// comm/algorithms/executor.h: the inside of groups that follow plans. Included by
// comm/algorithms/*.c only.

#ifndef CY_COMM_ALGORITHMS_EXECUTOR_H
#define CY_COMM_ALGORITHMS_EXECUTOR_H

#include "comm/algorithm.h"
#include "comm/algorithms/plan.h"
#include "comm/backend.h"

#include <pthread.h>

// Messages of a round that may be in flight at once, in each direction.
#define PLANNED_IN_FLIGHT 4

// One direction of a round: a message for each segment of the piece, in order.
typedef struct planned_way {
    cy_request requests[PLANNED_IN_FLIGHT]; // of segment i: number i % PLANNED_IN_FLIGHT
    int64_t posted, done;                   // segments
} planned_way;

typedef struct planned_transfer {
    cy_transfer base;
    struct planned_transfer *next; // of those in flight, or of the free ones
    cy_operation operation;
    cy_transfer *message; // what the group inside does itself
    cy_plan plan;         // owned
    int round;
    bool posted; // the requests of this round are under way
    bool folds;  // of this round: the group inside takes in what arrives
    bool done;
    int tag;
    planned_way send, recv;
    cy_dtype dtype;     // of what travels
    int64_t segment;    // elements of a message at most
    const char *source; // borrowed: what is sent
    char *target;       // borrowed: where what arrives ends
    char *work;         // owned: partial results
    size_t work_bytes;
    char *arrived; // owned: PLANNED_IN_FLIGHT segments that are yet to be added
    size_t arrived_bytes;
    _Atomic bool overflow;
} planned_transfer;

typedef struct planned_group {
    cy_group base;
    cy_group *inside; // owned
    cy_algorithm_options options;
    cy_algorithm_counters sent;
    int64_t moves; // rounds that have begun, messages that have arrived or gone
    uint64_t sequence;
    planned_transfer *head; // in flight, oldest first
    planned_transfer *tail;
    planned_transfer *records; // owned: free ones
    cy_status status;          // of the first failure
    char text[1024];
    // The progress thread and the rank's own take turns under this lock.
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    bool has_thread;
    bool closing;
} planned_group;

// executor.c: makes the plan of a collective and takes its memory; done may be set at once.
cy_status planned_prepare(
    planned_group *group, planned_transfer *record, const cy_operation *operation);

// Counts a message that is sent.
void planned_count(planned_group *group, const cy_operation *send);

// Goes on with one transfer as far as it goes without waiting.
cy_status planned_advance(planned_group *group, planned_transfer *record);

#endif
