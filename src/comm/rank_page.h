// comm/rank_page.h: what a rank says of itself, so that those who wait for it can tell whether it
// is alive and what it does. Included by backends only.
//
// A page lies where others see it: in the memory of the process, or in memory that the processes of
// a machine share. Its rank writes it, everybody reads it. The pages of a world are a list by world
// rank; NULL stands for a rank of another machine, which shows no page.

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

// A page of a rank of this process that has not said anything.
void cy_rank_page_init(cy_rank_page *page);

// Tells everybody what the rank is about to do. It is a heartbeat.
void cy_rank_page_set_call(
    cy_rank_page *page, const char *dimension, cy_operation_kind kind, uint64_t sequence);

// The rank that `rank` really waits for: followed through ranks that wait for others themselves.
int cy_rank_page_root_cause(cy_rank_page *const *pages, int size, int rank);

// What changes as long as the rank computes, calls others, or comes back from calls on files.
uint64_t cy_rank_page_progress(const cy_rank_page *page);

// What changes as long as the rank may be waited for. Who waits for nobody in particular is inside
// of a collective to which all have come: it looks after the others itself, and that is life.
uint64_t cy_rank_page_heartbeat(const cy_rank_page *page);

// How long the sign of a rank may stay the same: what it does with a file has a limit of its own. A
// rank that shows no page may be at a file as well as not.
double cy_rank_page_timeout_s(const cy_rank_page *page, const cy_world_options *options);

// Whether the rank's process is stopped (SIGSTOP); no, where it is this one.
bool cy_rank_page_is_stopped(const cy_rank_page *page);

// Begins to watch a rank that shows this sign.
void cy_watch_begin(cy_watchdog *watch, int rank, uint64_t sign);

// A look at which the sign was the same: for how long it has been, in the time that the rank that
// waits has looked. Time between two looks counts half a second at most, so that a rank that was
// stopped itself, or got no processor, does not take its own absence for the silence of another.
double cy_watch_silence_s(cy_watchdog *watch);

// "no heartbeat for 60 s from", with the name of the limit where it is that of files.
void cy_rank_page_describe_timeout(
    const cy_rank_page *page, const cy_world_options *options, char *text, size_t bytes);

// "rank 3 (host), syncing weights-00003.safetensors for 1800 s, last seen in send 12 of pp" into a
// buffer. `page` may be NULL.
void cy_rank_page_describe(
    const cy_rank_page *page, int rank, const char *host, char *text, size_t bytes);

#endif
