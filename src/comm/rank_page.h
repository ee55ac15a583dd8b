// comm/rank_page.h: the state that a rank publishes, by which a rank that waits for it can tell
// whether it is alive and what it does. Included by backends only.
//
// A page lies where others see it: in the memory of the process, or in memory that the processes of
// a machine share. Its rank writes it, all ranks read it. The pages of a world are a list by world
// rank; NULL stands for a rank of another machine, which has no page here.

#ifndef CY_COMM_RANK_PAGE_H
#define CY_COMM_RANK_PAGE_H

#include "base/io.h"
#include "comm/backend.h"
#include "comm/world.h"

#include <stdatomic.h>

typedef struct cy_rank_page {
    _Alignas(64) _Atomic uint64_t heartbeat; // its rank's calls and kernels: see cy_world_heartbeat
    _Atomic uint64_t looks;                  // that its rank took while it waited
    _Atomic uint64_t last_call;              // sequence << 8 | kind
    _Atomic uint64_t last_dimension;         // its first 8 letters
    _Atomic int waiting_for;                 // a world rank, or -1
    _Atomic int ended;
    _Atomic int process;
    cy_activity activity; // of its rank's thread: what it does with files
} cy_rank_page;

// Fills in the page of a rank of this process that has called nothing yet.
void cy_rank_page_init(cy_rank_page *page);

// Publishes the operation that the rank is about to start. This counts as a heartbeat.
void cy_rank_page_set_call(
    cy_rank_page *page, const char *dimension, cy_operation_kind kind, uint64_t sequence);

// The rank at the end of a chain of waits: `rank`, or the rank that it waits for, and so on.
int cy_rank_page_root_cause(cy_rank_page *const *pages, int size, int rank);

// A number that changes as long as the rank computes, calls its groups, or returns from calls on
// files.
uint64_t cy_rank_page_progress(const cy_rank_page *page);

// A number that changes as long as others may wait for the rank. A rank that waits for no rank in
// particular is inside of a collective to which all have come: its looks after the others count,
// too.
uint64_t cy_rank_page_heartbeat(const cy_rank_page *page);

// How long the heartbeat of a rank may stay the same. A call on a file has a limit of its own. A
// rank without a page may be in such a call, so it gets the longer limit.
double cy_rank_page_timeout_s(const cy_rank_page *page, const cy_world_options *options);

// Whether the rank's process is stopped (SIGSTOP); no, where it is this one.
bool cy_rank_page_is_stopped(const cy_rank_page *page);

// Begins to watch a rank that shows this heartbeat.
void cy_watch_begin(cy_watchdog *watch, int rank, uint64_t sign);

// Call it at a look that found the same heartbeat: returns for how long it has been the same, in
// time during which the waiting rank has looked. Time between two looks counts half a second at
// most, so that a rank that was stopped itself, or got no processor, does not blame another for
// that time.
double cy_watch_silence_s(cy_watchdog *watch);

// "no heartbeat for 60 s from", with the name of the limit where it is that of files.
void cy_rank_page_describe_timeout(
    const cy_rank_page *page, const cy_world_options *options, char *text, size_t bytes);

// "rank 3 (host), syncing weights-00003.safetensors for 1800 s, last seen in send 12 of pp" into a
// buffer. `page` may be NULL.
void cy_rank_page_describe(
    const cy_rank_page *page, int rank, const char *host, char *text, size_t bytes);

#endif
