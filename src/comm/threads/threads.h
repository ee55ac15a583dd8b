// comm/threads/threads.h: the inside of the `threads` backend. Included by comm/threads/*.c only.
//
// Ranks are threads of one process, so one rank may read and write another's buffers once both have
// published where they are. A member publishes what it calls in a descriptor: a cache line that it
// alone writes.
//
// Few bytes travel in the descriptor itself or in a buffer beside it, and every member reads those
// of the others: one line from core to core, no handshake. Many bytes stay where they are. Their
// collective is a slot: every member leaves its operation there, the last one to come cuts the work
// into tasks, and members take tasks while they wait, until none is left. Traffic is thus done by
// ranks that would otherwise be idle; nothing is done while all members compute.
//
// Ownership: the run owns the ranks; members share a group, and the last to close frees it.

#ifndef CY_COMM_THREADS_THREADS_H
#define CY_COMM_THREADS_THREADS_H

#include "comm/backend.h"
#include "comm/world_backend.h"

#include <pthread.h>
#include <time.h>

// A power of two. A rank that starts this many collectives of a group without waiting completes the
// oldest one itself.
#define SLOTS 128

// Data that fit into the line of a descriptor, and into a buffer. See also is_small in
// collective.c.
#define DESCRIPTOR_BYTES 32
#define BUFFER_BYTES     8192

// Data of a message that fit into an eager message, and eager messages that a pair keeps before the
// sender waits for the lock. Powers of two.
#define EAGER_BYTES    104
#define EAGER_MESSAGES 16

// Buffers that a member has from the beginning; it takes more when so many are read late.
#define BUFFERS 4

// ---- ranks

typedef struct threads_run threads_run;

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): counters have a cache line each
typedef struct threads_rank {
    cy_world base;
    threads_run *run; // borrowed
    pthread_t thread;
    cy_status status;

    // A rank that waits sleeps here; see rank_park.
    _Alignas(64) _Atomic int parked;
    _Atomic uint32_t event;
    _Atomic(const void *) wanted; // the one descriptor that it waits for next; NULL: anything
    pthread_mutex_t lock;
    pthread_cond_t changed;

    _Alignas(64) cy_guard guard;

    cy_rank_page own_page; // where the threads are the whole world
} threads_rank;

// The rank that begins with this world; through void, since it is aligned more strictly.
static inline threads_rank *threads_rank_of(cy_world *world)
{
    void *whole = world;
    return whole;
}

#define ABORT_TEXT_BYTES 1024

struct threads_run {
    int size;
    int first;      // world rank of the first of them
    int world_size; // with the ranks of other processes
    bool spin;      // no more threads than cores
    int *cores;     // owned, of each thread of each rank; NULL: the system chooses
    char host[64];
    threads_rank *ranks;        // owned, [size]
    cy_rank_page **pages;       // [world_size]; owned where there is no part
    const cy_world_local *part; // borrowed; NULL: these are all ranks of the world
    cy_rank_function function;
    void *context;        // borrowed
    pthread_mutex_t lock; // of what follows
    pthread_cond_t ended;
    int ended_count;
    struct threads_shared *groups; // those that wait for members to join
    _Atomic bool aborted;
    cy_status failed_status;
    char abort_text[ABORT_TEXT_BYTES]; // written once, before `aborted`
    char abort_hint[ABORT_TEXT_BYTES]; // likewise; "" without one
};

// ---- groups

typedef enum slot_state {
    SLOT_OPEN,   // members are still coming
    SLOT_READY,  // all are here: tasks may be taken
    SLOT_DONE,   // all tasks are done
    SLOT_FAILED, // the members did not agree, or one of them gave up
} slot_state;

typedef struct slot_entry {
    cy_operation operation;
    int64_t *rows; // owned, [2 size]: copies of out_rows and in_rows; NULL until first needed
} slot_entry;

// What one member calls, and its data when they are few. Read by others until they have completed
// the collective.
typedef struct descriptor {
    _Alignas(64) _Atomic uint64_t sequence; // 1 + that of the collective; written last
    uint64_t call;                          // kind, reduction, dtype, exponent, root
    int64_t count;
    const char *buffer; // borrowed: where the data are; NULL: below
    char data[DESCRIPTOR_BYTES];
} descriptor;

// What one member writes and the others read.
typedef struct descriptor_ring {
    descriptor descriptors[SLOTS];
    _Alignas(64) _Atomic uint64_t completed; // its collectives before this one are completed
    char *buffers[SLOTS];                    // owned; the member's own list, freed with the group
} descriptor_ring;

typedef struct slot {
    _Alignas(64) _Atomic uint64_t turn; // the large collective that the slot is for
    _Atomic int state;
    _Atomic int here; // members that have come
    _Atomic int left; // members that have gone again
    int64_t tasks;
    size_t grain; // bytes of a task
    _Atomic bool overflow;
    _Alignas(64) _Atomic int64_t next;
    _Alignas(64) _Atomic int64_t finished;
    _Atomic int running; // members inside a task
    slot_entry *entries; // owned, [size]
} slot;

typedef struct threads_transfer threads_transfer;

// A message of few bytes: one or two cache lines that the sender writes and then forgets.
typedef struct eager_message {
    _Alignas(64) _Atomic uint64_t number; // 1 + that of the eager message in its pair; written last
    int64_t count;
    int32_t tag;
    cy_dtype dtype;
    char data[EAGER_BYTES];
} eager_message;

// What one member writes to another. The counts are the sender's own.
typedef struct mailbox {
    _Alignas(64) uint64_t written; // eager_messages
    uint64_t seen;                 // of those that were taken out
    eager_message eager_messages[EAGER_MESSAGES];
} mailbox;

// The copy of a message of many bytes, which both ends do.
typedef struct message_copy {
    struct message_copy *next; // among the free ones of a pair
    const char *from;          // borrowed, as `to`
    char *to;
    cy_operation received; // how the data are taken in
    size_t bytes;
    size_t grain; // of a chunk
    int64_t chunks;
    int ends;              // that have not left, under the pair's lock
    _Atomic int inside;    // ends that copy a chunk
    _Atomic int64_t taken; // chunks
    _Atomic int64_t finished;
} message_copy;

// Messages from one member to another. Eager messages come after all of `sends`, and in order.
typedef struct pair {
    _Alignas(64) pthread_mutex_t lock; // of all but the box's inside
    threads_transfer
        *sends; // without counterpart, in order; borrowed, or unexpected eager messages
    threads_transfer *recvs; // borrowed
    _Atomic uint64_t taken;  // eager_messages
    _Alignas(
        64) _Atomic(mailbox *) box; // owned through box_block; NULL before the first eager message
    void *box_block;
    struct unexpected_message
        *unexpected;      // owned: free records of eager messages that nobody expected yet
    message_copy *copies; // owned: free ones
} pair;

typedef struct threads_shared {
    struct threads_shared *next; // among those that wait for members
    threads_run *run;            // borrowed
    int size;
    int joined;
    bool *has_joined;                  // owned, [size]
    _Atomic int open;                  // members that have not closed it, or not yet opened it
    int *ranks;                        // owned, [size]: world ranks
    descriptor_ring *descriptor_rings; // owned, [size], one mapping with the slots
    slot *slots;                       // borrowed, [SLOTS]
    _Atomic int late; // members that wait for others to complete what is a ring behind
    pair *pairs;      // [size, size]: from, to; owned through pairs_block
    void *pairs_block;
    char dimension[CY_DIMENSION_BYTES];
    pthread_mutex_t lock;
    _Atomic bool aborted;
    cy_status abort_status;
    char abort_text[ABORT_TEXT_BYTES]; // written once, before `aborted`
} threads_shared;

typedef enum message_state {
    MESSAGE_POSTED,
    MESSAGE_MATCHED, // its counterpart is here: an end that waits copies
    MESSAGE_DONE,
    MESSAGE_FAILED,
} message_state;

struct threads_transfer {
    cy_transfer base;
    threads_transfer *next; // in the list of free records, or of a pair
    uint64_t sequence;
    bool active; // taken, not given back
    cy_operation operation;
    // a collective
    uint64_t turn;  // among the large ones
    bool small;     // its data are in descriptors
    bool completed; // before its wait, with this status
    cy_status status;
    // a message
    _Atomic int state;
    bool unexpected;           // an eager message's, which belongs to the pair
    threads_transfer *partner; // borrowed, while MATCHED and the copy has two ends
    message_copy *copy;        // borrowed, while MATCHED
    cy_view view;
    int peer;
    int tag;
    // checked runs: the operation works on copies, which go to their place in the wait
    void *shadow_out; // owned
    void *shadow_in;  // owned
    cy_view real_out;
};

typedef struct threads_group {
    cy_group base;
    threads_shared *shared;             // shared by the members
    threads_rank *rank;                 // borrowed
    uint64_t sequence;                  // of the next collective
    uint64_t turn;                      // of the next large one
    uint64_t behind;                    // all members have completed what is before this one
    uint64_t messages;                  // sent and received so far
    threads_transfer *in_flight[SLOTS]; // borrowed
    bool done[SLOTS];                   // completed, while one before it is not
    uint64_t until[SLOTS];              // of buffers: free when `behind` has reached this
    threads_transfer *records;          // free ones
    struct record_block *blocks;        // owned
} threads_group;

// ---- wait.c

// The rank shows a heartbeat. Its calls do; a count that is lost to another thread of it is no
// harm.
static inline void rank_heartbeat(threads_rank *rank)
{
    _Atomic uint64_t *shown = &rank->base.page->heartbeat;
    const uint64_t heartbeat = atomic_load_explicit(shown, memory_order_relaxed);
    atomic_store_explicit(shown, heartbeat + 1, memory_order_relaxed);
}

// Wakes a rank if it sleeps.
void rank_notify(threads_rank *rank);

// Sleeps until `holds(context)` or until somebody notifies the rank, whichever is first, but no
// longer than a tenth of a second or so. Spins or yields a little first. Returns what holds says.
bool rank_park(threads_rank *rank, bool (*holds)(void *), void *context);

// When a sleep that begins now ends at the latest, by the monotonic clock.
struct timespec rank_sleep_end(void);

// A rank of this run by its world rank.
static inline threads_rank *rank_of(const threads_run *run, int rank)
{
    return &run->ranks[rank - run->first];
}

// "rank 3 (host), last seen in send 12 of pp" into a buffer. Any rank of the world.
void rank_describe(const threads_run *run, int rank, char *text, size_t bytes);

// Wakes all members that sleep.
void group_notify(threads_shared *shared);

// All waits of the group fail from now on with this status and text; later calls change nothing.
void group_fail(threads_shared *shared, cy_status status, const char *text);

// CY_OK, or the failure that ended the run or the group.
cy_status group_failure(const threads_shared *shared);

// Waits until `holds`, or fails when the group does, or when member `missing(context)` ends or
// shows no heartbeat for the time limit. -1 means that no member is missing: then only failures
// count.
cy_status group_await(threads_group *group, bool (*holds)(void *), int (*missing)(void *),
    void *context, const threads_transfer *record);

// Fails, and the group with it, when the missing member has ended, or has shown no heartbeat for
// the time limit. Called a few times a second at most.
cy_status group_check_member(threads_group *group, cy_watchdog *watchdog, int member, bool finished,
    const threads_transfer *record);

// ---- collective.c

cy_status collective_start(
    threads_group *group, threads_transfer *record, const cy_operation *operation);
cy_status collective_wait(threads_group *group, cy_queue *queue, threads_transfer *record);
bool collective_test(threads_group *group, threads_transfer *record);

// The first member whose descriptor of this collective is not there yet, from `member` on; -1:
// none.
int descriptor_missing(const threads_group *group, uint64_t sequence, int member);

// After a failure: when this returns no member touches this member's buffers any more.
void slot_cancel(threads_group *group, const threads_transfer *record);

// ---- message.c

cy_status message_start(
    threads_group *group, threads_transfer *record, const cy_operation *operation);
cy_status message_wait(threads_group *group, cy_queue *queue, threads_transfer *record);
bool message_test(threads_group *group, threads_transfer *record);

// False while the other end is what this one waits for.
bool message_has_moved(threads_group *group, const threads_transfer *record);

// After a failure: when this returns the other end does not touch this end's buffer any more.
void message_cancel(threads_group *group, threads_transfer *record);

cy_status pairs_make(threads_shared *shared);
void pairs_free(threads_shared *shared);

// ---- group.c

cy_status threads_open_group(
    cy_world *world, cy_group **group, const int *ranks, int count, const char *dimension);
void threads_shared_free(threads_shared *shared);

#endif
