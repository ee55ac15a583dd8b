// base/memory_pool.h: pieces of one range, taken and given back in any order.
//
// What a step needs is planned and lies in arenas (base/memory.h). A pool is for what no plan
// knows: sizes that depend on the data, such as the rows that each expert gets. It never asks the
// system for memory: its range is the caller's, its table of pieces is made when it is opened.
// Neighbours that are free become one at once. Pieces have handles, so that compaction may move
// them.
//
// Three ways to choose a free piece, to be compared (`build/bench/pools`, docs/memory.md):
//   first fit  the lowest that is large enough: one list in order of addresses;
//   best fit   the smallest that is large enough, the lowest of those: the same list;
//   classes    a list for each of eight classes of sizes between powers of two, searched from the
//              class all of whose pieces are large enough: a constant number of steps ("TLSF",
//              Masmano, Ripoll, Crespo, Real, "TLSF: a new dynamic memory allocator for real-time
//              systems", ECRTS 2004).
// All three fail only where no free piece is large enough.
//
// Any thread may take, give and ask; a piece belongs to who took it. Compaction moves all pieces:
// nobody may use one meanwhile, and each is where cy_memory_pool_at says afterwards.

#ifndef CY_BASE_MEMORY_POOL_H
#define CY_BASE_MEMORY_POOL_H

#include "base/memory.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef enum cy_memory_policy {
    CY_MEMORY_FIRST_FIT,
    CY_MEMORY_BEST_FIT,
    CY_MEMORY_CLASSES,
    CY_MEMORY_POLICIES, // how many there are
} cy_memory_policy;

typedef struct cy_memory_pool cy_memory_pool;

// All in bytes but the counts. Sizes are rounded up to CY_ARENA_ALIGN, at least one.
typedef struct cy_memory_pool_stats {
    size_t capacity;
    size_t used;         // now
    size_t peak;         // largest `used`
    size_t reach;        // end of the highest piece that there ever was
    size_t largest_free; // piece that could be taken now
    int pieces;          // now
    int64_t takes, gives;
    int64_t failures; // takes that found no room
    int64_t moved;    // by compaction
} cy_memory_pool_stats;

// A pool over `bytes` bytes at `base`, aligned to CY_ARENA_ALIGN, which the caller owns and
// which must outlive it. At most most_pieces at a time. *pool is owned by the caller.
CY_MUST_CHECK cy_status cy_memory_pool_open(
    cy_memory_pool **pool, void *base, size_t bytes, int most_pieces, cy_memory_policy policy);

// Pieces that were not given back are lost with it: cy_memory_pool_look counts them before.
void cy_memory_pool_close(cy_memory_pool *pool);

// A piece of at least `bytes` bytes, of undefined content; *piece is its handle. CY_ERR_MEMORY with
// the numbers where no free piece is large enough or the table is full.
CY_MUST_CHECK cy_status cy_memory_pool_take(cy_memory_pool *pool, int *piece, size_t bytes);

// Where a piece is: aligned to CY_ARENA_ALIGN, the same until the next compaction.
void *cy_memory_pool_at(const cy_memory_pool *pool, int piece);

// Gives a piece back. One that is not taken is a programmer's error.
void cy_memory_pool_give(cy_memory_pool *pool, int piece);

// Moves all pieces down in order, contents included: what is free becomes one piece.
void cy_memory_pool_compact(cy_memory_pool *pool);

cy_memory_pool_stats cy_memory_pool_look(cy_memory_pool *pool);

// The part of what is free that is not in its largest piece: 0 where nothing is free.
double cy_memory_pool_fragmentation(const cy_memory_pool_stats *stats);

#endif
