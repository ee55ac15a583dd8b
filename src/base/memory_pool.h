// base/memory_pool.h: pieces of one range, allocated and freed in any order.
//
// The memory of a training step is planned and lies in arenas (base/memory.h). A pool serves sizes
// that no plan knows because they depend on the data, such as the rows that each expert gets. It
// never allocates from the system: the caller owns its range, and its table of pieces is made when
// it is opened. Adjacent free ranges are merged at once. Pieces have handles, so that compaction
// may move them.
//
// Three policies choose a free range (`build/bench/pools` and docs/memory.md compare them):
//   first fit  the lowest that is large enough: one list in order of addresses;
//   best fit   the smallest that is large enough, the lowest of those: the same list;
//   classes    a list for each of eight classes of sizes between powers of two, searched from the
//              class all of whose ranges are large enough: a constant number of steps ("TLSF",
//              Masmano, Ripoll, Crespo, Real, "TLSF: a new dynamic memory allocator for real-time
//              systems", ECRTS 2004).
// All three fail only where no free range is large enough.
//
// Any thread may call these functions; the thread that took a piece owns it. Compaction moves all
// pieces: no thread may use one meanwhile, and cy_memory_pool_at gives its address afterwards.

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
    CY_MEMORY_POLICIES, // their number
} cy_memory_policy;

typedef struct cy_memory_pool cy_memory_pool;

// Sizes are in bytes, rounded up to multiples of CY_ARENA_ALIGN, at least one.
typedef struct cy_memory_pool_stats {
    size_t capacity;
    size_t used;         // now
    size_t peak;         // largest `used`
    size_t reach;        // end of the highest piece so far
    size_t largest_free; // the largest piece that could be taken now
    int pieces;          // now
    int64_t takes, gives;
    int64_t failures; // takes that found no range
    int64_t moved;    // bytes that compaction has moved
} cy_memory_pool_stats;

// Opens a pool over `bytes` bytes at `base`, aligned to CY_ARENA_ALIGN. The caller owns them, and
// they must outlive the pool. It has at most most_pieces at a time. The caller owns *pool.
CY_MUST_CHECK cy_status cy_memory_pool_open(
    cy_memory_pool **pool, void *base, size_t bytes, int most_pieces, cy_memory_policy policy);

// Closes the pool. Pieces that were not given back are lost; cy_memory_pool_look counts them.
void cy_memory_pool_close(cy_memory_pool *pool);

// Takes a piece of at least `bytes` bytes with undefined content; *piece is its handle.
// CY_ERR_MEMORY where no free range is large enough or the table is full.
CY_MUST_CHECK cy_status cy_memory_pool_take(cy_memory_pool *pool, int *piece, size_t bytes);

// The address of a piece, aligned to CY_ARENA_ALIGN. It stays until the next compaction.
void *cy_memory_pool_at(const cy_memory_pool *pool, int piece);

// Gives a piece back. Giving one that is not taken is a programmer error.
void cy_memory_pool_give(cy_memory_pool *pool, int piece);

// Moves all pieces with their contents to the front, in order: all free ranges become one.
void cy_memory_pool_compact(cy_memory_pool *pool);

cy_memory_pool_stats cy_memory_pool_look(cy_memory_pool *pool);

// The share of the free bytes that lie outside the largest free range; 0 where no byte is free.
double cy_memory_pool_fragmentation(const cy_memory_pool_stats *stats);

#endif
