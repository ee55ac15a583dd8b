// parallel/pipeline/slots.h: where each microbatch of a rank lies, worked out from the schedule.
//
// Buffers and stashes of microbatches that are never there at the same time share a place. The
// numbers of places are the peaks of the schedule: those of stashes are the checker's. Pure data
// after it is opened; owns its table.

#ifndef CY_PARALLEL_PIPELINE_SLOTS_H
#define CY_PARALLEL_PIPELINE_SLOTS_H

#include "parallel/pipeline/schedule.h"

typedef enum cy_slot_kind {
    CY_SLOT_STASH,    // from forward to input gradient
    CY_SLOT_KEPT,     // from forward to weight gradient
    CY_SLOT_INPUT,    // what forward reads: from the posted receive to the weight gradient
    CY_SLOT_GRADIENT, // what backward reads: from the posted receive to the weight gradient
    CY_SLOT_OUTPUT,   // what forward makes for another rank: until it is sent, and one more so
                      // that the next can be made while it travels
    CY_SLOT_INPUT_GRADIENT, // what backward makes for another rank: likewise
    CY_SLOT_KINDS,
} cy_slot_kind;

typedef struct cy_slots {
    int *table; // owned, [CY_SLOT_KINDS, chunks, microbatches]; -1 where there is none
    int microbatches;
    int chunks;
    int count[CY_SLOT_KINDS]; // places of a kind
} cy_slots;

// For one rank of a schedule that has passed the checker.
CY_MUST_CHECK cy_status cy_slots_open(cy_slots *slots, const cy_schedule *schedule, int rank);
void cy_slots_close(cy_slots *slots);

// The place of a microbatch in a chunk, or -1 where it needs none of this kind.
int cy_slots_at(const cy_slots *slots, cy_slot_kind kind, int chunk, int microbatch);

#endif
