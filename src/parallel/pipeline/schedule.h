// parallel/pipeline/schedule.h: what each rank of a pipeline does, in which order, as data.
//
// The model is cut into stages * chunks segments, in order. A rank (a stage) holds `chunks` of
// them. A schedule is one list of actions per rank: forward and backward of a microbatch through a
// chunk, the transfers between them, and the actions of the other dimensions, so that there is one
// scheduler. The same lists are checked (check.h), simulated (simulate.h), drawn (draw.h) and run
// (executor.h). Which list an engine makes depends on nothing but its options.
//
// A schedule owns its lists. It is built once, before the run, and then only read: from any thread.

#ifndef CY_PARALLEL_PIPELINE_SCHEDULE_H
#define CY_PARALLEL_PIPELINE_SCHEDULE_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum cy_action_kind {
    CY_ACTION_FORWARD,
    CY_ACTION_BACKWARD,        // both parts at once
    CY_ACTION_BACKWARD_INPUT,  // the gradient of the input only
    CY_ACTION_BACKWARD_WEIGHT, // the gradients of the weights, later
    CY_ACTION_SEND_ACTIVATION, // what this chunk's forward made, to the next segment
    CY_ACTION_RECV_ACTIVATION, // what this chunk's forward needs
    CY_ACTION_SEND_GRADIENT,   // what this chunk's backward made, to the segment before
    CY_ACTION_RECV_GRADIENT,   // what this chunk's backward needs
    CY_ACTION_GATHER,          // parameters of a chunk from their shards
    CY_ACTION_REDUCE,          // gradients of a chunk over the data-parallel group
    CY_ACTION_RECOMPUTE,       // the stash of a microbatch again
    CY_ACTION_OFFLOAD,         // the stash of a microbatch to the host
    CY_ACTION_FETCH,           // and back
    CY_ACTION_OPTIMIZER,
    CY_ACTION_KINDS,
} cy_action_kind;

typedef struct cy_action {
    cy_action_kind kind;
    int microbatch; // -1: of all of them (gather, reduce, optimizer)
    int chunk;      // -1: of all of them (optimizer)
    int peer;       // of a transfer: the other rank; otherwise -1
} cy_action;

typedef struct cy_action_list {
    cy_action *actions; // owned, [count]
    size_t count;
    size_t capacity;
} cy_action_list;

typedef enum cy_pipeline_engine {
    CY_PIPELINE_AFAB,        // all forwards, then all backwards: GPipe, arXiv:1811.06965
    CY_PIPELINE_1F1B,        // PipeDream-Flush, arXiv:2006.09503, arXiv:2104.04473
    CY_PIPELINE_INTERLEAVED, // several chunks a rank, in a loop: arXiv:2104.04473
    CY_PIPELINE_ZERO_BUBBLE, // chunks 1: ZB-H1, arXiv:2401.10241; chunks 2: ZB-V, arXiv:2405.15362
    CY_PIPELINE_CSV,         // read from a file: docs/formats/schedule-csv.md
    CY_PIPELINE_ENGINES,
} cy_pipeline_engine;

// Where segment s lies.
typedef enum cy_placement {
    CY_PLACEMENT_LOOP, // rank s % stages
    CY_PLACEMENT_V,    // there and back again: the first and the last segment share rank 0
} cy_placement;

typedef struct cy_schedule {
    cy_pipeline_engine engine;
    cy_placement placement;
    int stages; // ranks
    int microbatches;
    int chunks;            // segments a rank
    cy_action_list *ranks; // owned, [stages]
} cy_schedule;

// Of a step; more than any machine has, and every product stays within an int.
#define CY_PIPELINE_MICROBATCHES 65536

typedef struct cy_schedule_options {
    cy_pipeline_engine engine;
    int stages;
    int microbatches; // at most CY_PIPELINE_MICROBATCHES
    int chunks;
    const char *csv; // borrowed: the path of the file, for CY_PIPELINE_CSV only
} cy_schedule_options;

// Makes the schedule with its transfers and checks it. What an engine cannot take, and what a file
// has wrong, is CY_ERR_REQUEST with the reason.
CY_MUST_CHECK cy_status cy_schedule_open(cy_schedule *schedule, const cy_schedule_options *options);
void cy_schedule_close(cy_schedule *schedule);

// "afab", "1f1b", "interleaved", "zero_bubble", "csv".
const char *cy_pipeline_engine_name(cy_pipeline_engine engine);

// The engine of that name; false when there is none.
bool cy_pipeline_engine_from_name(cy_pipeline_engine *engine, const char *name);

// The segments, in the order of the model: segment(rank, chunk) and back. Of a segment, the chunk
// is segment / stages.
int cy_schedule_segments(const cy_schedule *schedule);
int cy_schedule_segment(const cy_schedule *schedule, int rank, int chunk);
int cy_schedule_segment_rank(const cy_schedule *schedule, int segment);

bool cy_action_is_compute(cy_action_kind kind);
bool cy_action_is_transfer(cy_action_kind kind);

// The letters of a kind, as a CSV file and the table of ticks have them: F, B, I, W, SF, RF, ...
const char *cy_action_code(cy_action_kind kind);

// "F3", or "F3.1" where the schedule has chunks: a short text in `buffer`, which is returned.
#define CY_ACTION_TEXT_BYTES 48
const char *cy_action_text(
    char buffer[CY_ACTION_TEXT_BYTES], const cy_schedule *schedule, cy_action action);

// The tag of a transfer: distinct for activations and gradients and for each segment boundary, so
// that messages of one pair of ranks cannot be mistaken.
int cy_action_tag(const cy_schedule *schedule, int rank, cy_action action);

#endif
