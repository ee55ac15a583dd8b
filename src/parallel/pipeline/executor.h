// parallel/pipeline/executor.h: runs one rank's list of a schedule.
//
// The executor knows no model: a stage is a few callbacks, forward and backward of a microbatch
// through a chunk. Activations and gradients travel in the activation dtype while the rank
// computes: a receive is posted at the latest one compute action before its data are needed; the
// executor waits for a send when its buffer is needed again, or at the end of the step. Neighbour
// segments on the same rank hand over in place, without a copy.
//
// Buffers come from the arena that cy_executor_alloc takes, as many as the schedule needs at once.
// On a dry queue the same calls are made and no data move, which is how memory is planned.
//
// The executor borrows schedule, group and arena memory; the rank's thread alone uses it. After a
// failure messages may be in flight: the group can only be aborted and closed, and the buffers must
// live until then.

#ifndef CY_PARALLEL_PIPELINE_EXECUTOR_H
#define CY_PARALLEL_PIPELINE_EXECUTOR_H

#include "comm/group.h"
#include "parallel/pipeline/timeline.h"

// ---- slots: the buffers and stashes of a rank, assigned to microbatches from the schedule
//
// Buffers and stashes whose lifetimes do not overlap share a slot. The number of slots of a kind is
// the peak of the schedule; the checker counts the same number of stashes.

typedef enum cy_slot_kind {
    CY_SLOT_STASH,    // from forward to input gradient
    CY_SLOT_KEPT,     // from forward to weight gradient
    CY_SLOT_INPUT,    // what forward reads: from the posted receive to the weight gradient
    CY_SLOT_GRADIENT, // what backward reads: from the posted receive to the weight gradient
    CY_SLOT_OUTPUT,   // what forward makes for another rank: until it is sent, and one more slot
                      // for the next one while it travels
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

// ---- the executor

// Which microbatch and chunk a callback is for, and where its stash lies: places count from 0 and
// are fewer than cy_executor_slot_count() of their kind.
typedef struct cy_pipeline_call {
    int microbatch;
    int chunk;
    int segment; // of the model, in order
    int stash;   // place of what lives from forward to input gradient
    int kept;    // place of what lives from forward to weight gradient
    bool last; // of the step to add to the chunk's weight gradients: they are final when it returns
} cy_pipeline_call;

// What a stage does, on the queue that cy_executor_run gets. Views are [rows, cols] in the
// activation dtype. The first segment has no input and no input gradient, the last no output and no
// output gradient: those views are none.
typedef struct cy_pipeline_stage {
    void *context; // borrowed, handed to each; it knows the queue
    cy_status (*forward)(
        void *context, const cy_pipeline_call *call, cy_view output, cy_view input);
    // Both parts at once. Adds to the weight gradients.
    cy_status (*backward)(void *context, const cy_pipeline_call *call, cy_view input_gradient,
        cy_view output_gradient, cy_view input);
    cy_status (*backward_input)(void *context, const cy_pipeline_call *call, cy_view input_gradient,
        cy_view output_gradient, cy_view input);
    // input and output_gradient are still those of the call before.
    cy_status (*backward_weight)(
        void *context, const cy_pipeline_call *call, cy_view output_gradient, cy_view input);
} cy_pipeline_stage;

typedef struct cy_executor_options {
    const cy_schedule *schedule; // borrowed: has passed the checker
    cy_group *group;             // borrowed: the pipeline's ranks, in the order of the stages
    cy_dtype dtype;              // of activations and their gradients
    int64_t rows;                // tokens of a microbatch on this rank
    int64_t cols;
} cy_executor_options;

typedef struct cy_executor {
    cy_executor_options options;
    int rank;
    cy_slots slots;
    void *buffers[CY_SLOT_KINDS];        // borrowed from the arena; [slots.count] matrices
    cy_request *requests[CY_SLOT_KINDS]; // owned, [slots.count]; of the kinds that travel
    size_t *last_weight;                 // owned, [chunks]: index of the last action that adds to
                                         // the chunk's weight gradients
} cy_executor;

CY_MUST_CHECK cy_status cy_executor_open(cy_executor *executor, const cy_executor_options *options);
void cy_executor_close(cy_executor *executor);

// Takes the buffers from an arena, which may be a measuring one. Once before the first run, and
// again whenever the arena has been rewound.
void cy_executor_alloc(cy_executor *executor, cy_arena *arena);

// How many places the stage must have for what it stashes.
int cy_executor_slot_count(const cy_executor *executor, cy_slot_kind kind);

// One step: the whole list. Returns when all is computed and every message has left. times, where
// it is not NULL, gets what each action of the list took, in seconds of cy_clock_s(): [count of the
// rank's list]. Each action also goes to the queue's trace.
CY_MUST_CHECK cy_status cy_executor_run(
    cy_executor *executor, cy_queue *queue, const cy_pipeline_stage *stage, cy_timed_action *times);

// ---- measured times: the timeline of a step, gathered from its ranks. It has the form of a
// simulated one, so it can be drawn and its bubble compared.

// All ranks of the executor's group call it after a step, with the times that cy_executor_run
// filled. zero_s is this rank's clock at an instant that all ranks share, such as the return of a
// barrier; ranks on one machine share the clock itself and give the same number. Stage 0 gets the
// timeline, which it closes; on the others *timeline is zeroed.
CY_MUST_CHECK cy_status cy_timeline_gather(cy_timeline *timeline, const cy_executor *executor,
    const cy_timed_action *times, double zero_s);

#endif
