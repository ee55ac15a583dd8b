// comm/algorithms/executor.h: the inside of groups that follow plans. Included by
// comm/algorithms/*.c only.

#ifndef CY_COMM_ALGORITHMS_EXECUTOR_H
#define CY_COMM_ALGORITHMS_EXECUTOR_H

#include "comm/algorithm.h"
#include "comm/algorithms/schedule.h"
#include "comm/backend.h"

#include <pthread.h>

// Messages that may be in flight at once, in each direction.
#define FRAGMENTS_IN_FLIGHT 4

// How many fragments a round of a ring is behind the round before.
#define ROUND_LAG 4

// A message of a plan: fragment number turn - round * lag of a round. In each direction messages go
// by their turn, those of one turn from the last round to the first. With a lag as long as the
// longest piece that is one round after the other.
typedef struct algorithm_place {
    int64_t turn;
    int round;
} algorithm_place;

// One direction: what the rank sends, or what it receives.
typedef struct algorithm_direction {
    cy_request requests[FRAGMENTS_IN_FLIGHT]; // of message i: number i % FRAGMENTS_IN_FLIGHT
    int64_t posted, done;                     // messages
    algorithm_place next;                     // to be posted, unless all are
    algorithm_place awaited;                  // the oldest that is not done, unless all are
    bool all_posted;
    bool over;
} algorithm_direction;

typedef struct algorithm_transfer {
    cy_transfer base;
    struct algorithm_transfer *next; // of those in flight, or of the free ones
    cy_operation operation;
    cy_transfer *message;  // what the group inside does itself
    cy_coll_schedule plan; // owned
    bool done;
    int tag;
    algorithm_direction send, recv;
    cy_dtype dtype;     // of what travels
    int64_t fragment;   // elements of a message at most
    int64_t longest;    // fragments of the longest piece
    int64_t lag;        // fragments that a round is behind the one before
    const char *source; // borrowed: what is sent
    char *target;       // borrowed: where what arrives ends
    char *work;         // owned: partial results
    size_t work_bytes;
    char *arrived; // owned: FRAGMENTS_IN_FLIGHT fragments that are yet to be added
    size_t arrived_bytes;
    size_t place_bytes; // of each of them
    _Atomic bool overflow;
} algorithm_transfer;

typedef struct algorithm_group {
    cy_group base;
    cy_group *inside; // owned
    cy_algorithm_options options;
    cy_algorithm_counters sent;
    int64_t moves; // rounds that have begun, messages that have arrived or gone
    uint64_t sequence;
    algorithm_transfer *head; // in flight, oldest first
    algorithm_transfer *tail;
    algorithm_transfer *records; // owned: free ones
    cy_status status;            // of the first failure
    char text[1024];
    // The progress thread and the rank's own take turns under this lock.
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    bool has_thread;
    bool closing;
} algorithm_group;

// executor.c: makes the plan of a collective and takes its memory; done may be set at once.
cy_status algorithm_prepare(
    algorithm_group *group, algorithm_transfer *record, const cy_operation *operation);

// Counts a message that is sent.
void algorithm_count(algorithm_group *group, const cy_operation *send);

// Goes on with one transfer as far as it goes without waiting.
cy_status algorithm_advance(algorithm_group *group, algorithm_transfer *record);

#endif
