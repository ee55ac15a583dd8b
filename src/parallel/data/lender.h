// parallel/data/lender.h: room for whole units that are kept as shards, lent while they are in use.
//
// How many rooms there are and how large they are is learned, not configured: on a measuring arena
// a room is made or enlarged whenever none is free, so the dry run of a step leaves exactly what a
// step needs; then the same rooms are placed. Units whose sizes have as many binary digits share
// rooms: layers do not sit in the embedding's. The first free one is lent, so the real run makes
// the choices of the dry one. A lender belongs to one reducer.

#ifndef CY_PARALLEL_DATA_LENDER_H
#define CY_PARALLEL_DATA_LENDER_H

#include "device/view.h"

#include "base/status.h"

typedef struct cy_room {
    cy_view data; // [1, capacity]; while measuring, only its size is meant
    bool lent;
} cy_room;

typedef struct cy_lender {
    cy_dtype dtype;
    cy_room *rooms; // owned, [most]
    int room_count;
    int most;
    cy_arena *measuring; // borrowed; NULL once the rooms are placed
} cy_lender;

CY_MUST_CHECK cy_status cy_lender_open(cy_lender *lender, cy_dtype dtype, int most);
void cy_lender_close(cy_lender *lender);

// From a measuring arena: forgets all rooms. From another: places those that were learned.
void cy_lender_take(cy_lender *lender, cy_arena *run);

// Lends a room for `count` elements; its number is what gives it back.
int cy_lender_lend(cy_lender *lender, int64_t count);
cy_view cy_lender_room(const cy_lender *lender, int room, int64_t count); // [1, count]
void cy_lender_return(cy_lender *lender, int room);

size_t cy_lender_bytes(const cy_lender *lender);

#endif
