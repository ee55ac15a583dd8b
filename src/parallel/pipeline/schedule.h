// parallel/pipeline/schedule.h: what each rank of a pipeline does, in which order, as data: the
// schedule, the checker that proves it, and the layers of each segment.
//
// The model is cut into stages * chunks segments, in order. A rank (a stage) holds `chunks` of
// them. A schedule is one list of actions per rank: forward and backward of a microbatch through a
// chunk, and the transfers between them. The same lists are checked, simulated and drawn
// (timeline.h) and run (executor.h). The lists depend on the engine's options alone.
//
// A schedule owns its lists. It is built once, before the run, and read from any thread afterwards.

#ifndef CY_PARALLEL_PIPELINE_SCHEDULE_H
#define CY_PARALLEL_PIPELINE_SCHEDULE_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cy_action_kind {
    CY_ACTION_FORWARD,
    CY_ACTION_BACKWARD,        // both parts at once
    CY_ACTION_BACKWARD_INPUT,  // the gradient of the input only
    CY_ACTION_BACKWARD_WEIGHT, // the gradients of the weights, later
    CY_ACTION_SEND_ACTIVATION, // what this chunk's forward made, to the next segment
    CY_ACTION_RECV_ACTIVATION, // what this chunk's forward needs
    CY_ACTION_SEND_GRADIENT,   // what this chunk's backward made, to the segment before
    CY_ACTION_RECV_GRADIENT,   // what this chunk's backward needs
    CY_ACTION_KINDS,
} cy_action_kind;

typedef struct cy_action {
    cy_action_kind kind;
    int microbatch;
    int chunk;
    int peer; // of a transfer: the other rank; otherwise -1
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

// Makes the schedule with its transfers and checks it. Options that the engine does not support,
// and errors in a CSV file, are CY_ERR_REQUEST with the reason.
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

// ---- the checker: proves a schedule before it runs, and counts what it costs
//
// It proves that every forward and backward of every microbatch and chunk occurs once, in a
// possible order; that every transfer that is needed occurs once, to the right rank, after the
// action that produces its data and before the one that needs it; that sends and receives of a
// boundary have the same order; and that ranks do not wait for each other in a cycle, not even
// where a send blocks until its receive.
//
// A failure is CY_ERR_REQUEST and names the rank and the action. Pure: safe from any thread.

// Ticks: one for a chunk's forward, its input gradient and its weight gradient each, two for a
// whole backward, none for a message.
typedef struct cy_rank_cost {
    int peak_stash;     // chunks' stashes between forward and input gradient, at most
    int peak_kept;      // the part of them that stays until the weight gradient, at most
    int sends;          // messages
    int64_t first_tick; // its first action starts
    int64_t last_tick;  // its last action ends
    int64_t busy_ticks;
} cy_rank_cost;

typedef struct cy_schedule_cost {
    int64_t ticks; // from the first start to the last end, over all ranks
    int64_t span;  // the longest that one rank takes from its first start to its last end
    // The share of idle time. `bubble` is of the span: a rank begins its next step when it is done
    // with this one, so what others still do then costs nothing. `bubble_alone` is of the ticks: a
    // step after which all ranks wait for each other. They differ for ZB-V only.
    double bubble;
    double bubble_alone;
    int peak_stash; // of all ranks, at most
    int peak_kept;
    int64_t messages;
    cy_rank_cost *ranks; // owned, [stages]
} cy_schedule_cost;

// More than that is a failure; 0 is no limit.
typedef struct cy_schedule_limits {
    int peak_stash;
    int peak_kept;
} cy_schedule_limits;

// cost may be NULL, and limits too. *cost is written only on success and closed by the caller.
CY_MUST_CHECK cy_status cy_schedule_check(
    cy_schedule_cost *cost, const cy_schedule *schedule, const cy_schedule_limits *limits);
void cy_schedule_cost_close(cy_schedule_cost *cost);

// Checks the compute actions alone: each once, in range, in a possible order.
CY_MUST_CHECK cy_status cy_schedule_check_compute(const cy_schedule *schedule);

// ---- partition: which layers each segment of the model holds
//
// Segments are in the order of the model. The embedding goes with the first segment, the final norm
// and the head with the last; their cost counts, so that the first and last segment may get fewer
// layers. Pure: safe from any thread.

typedef struct cy_layer_range {
    int first;
    int count;
} cy_layer_range;

// What a forward costs, in any unit: measured or modelled. Only ratios matter.
typedef struct cy_partition_costs {
    double layer;
    double embedding;
    double head;
} cy_partition_costs;

// Fills ranges [segments] so that the most expensive rank is as cheap as it can be, and among
// those cuts the one whose layers are spread most evenly. Each segment gets at least one layer:
// more segments than layers is CY_ERR_REQUEST.
CY_MUST_CHECK cy_status cy_partition_by_cost(cy_layer_range *ranges, const cy_schedule *schedule,
    int layers, const cy_partition_costs *costs);

// From a list that a user gave: the layers of each segment, in the order of the model. Their sum
// must be `layers`, each at least 1.
CY_MUST_CHECK cy_status cy_partition_by_list(cy_layer_range *ranges, const cy_schedule *schedule,
    int layers, const int *list, int list_count);

#endif
