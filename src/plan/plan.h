// plan/plan.h: computes mesh, shards, schedule, memory, work and traffic of every rank of a
// configuration, before a job starts.
//
// The plan comes from the code that trains: it opens the engine of each rank with groups that count
// and send nothing, and runs a step on a dry queue. It maps no memory, so a model that is larger
// than the machine can be planned. One thread makes a plan and reads it.

#ifndef CY_PLAN_PLAN_H
#define CY_PLAN_PLAN_H

#include "base/text.h"
#include "comm/mesh.h"
#include "parallel/pipeline/schedule.h"
#include "train/ranks.h"

#define CY_PLAN_LAYER_RUNS 3

// Consecutive layers.
typedef struct cy_layer_run {
    int first, last;
} cy_layer_run;

typedef struct cy_plan_rank {
    cy_coordinates at;
    int layer_count;
    // Its layers in model order. A chunk that continues the one before it belongs to the same run.
    // Of more than CY_PLAN_LAYER_RUNS runs, the first ones and the last one are listed.
    cy_layer_run runs[CY_PLAN_LAYER_RUNS];
    int run_count;
    bool embedding, head;
    int64_t parameters; // elements held, without padding
    cy_engine_memory memory;
    cy_cost cost;            // of a step
    cy_rank_traffic traffic; // sent in a step
} cy_plan_rank;

// Consecutive steps in which top-k compression has the same ratio. The last stage follows the
// warm-up.
typedef struct cy_plan_topk_stage {
    int64_t first; // step, from 1; the stage ends where the next begins, or with the run
    double ratio;
    double bytes; // of gradients that rank 0 sends in a step
} cy_plan_topk_stage;

typedef struct cy_plan {
    const cy_config *config; // borrowed
    cy_mesh mesh;
    int threads;          // of a rank
    cy_plan_rank *ranks;  // owned, [mesh.world]
    cy_manifest manifest; // owned
    cy_schedule schedule; // owned; where pp_size > 1
    cy_schedule_cost schedule_cost;
    bool has_schedule;
    cy_flat_range *buckets; // owned, [bucket_count]: of rank 0; each is a message of gradients
    int bucket_count;
    size_t bucket_element; // bytes of one of their elements
    cy_plan_topk_stage stages[CY_TOPK_STAGES + 1];
    int stage_count;    // 0: without top-k compression
    double dense_bytes; // of gradients that rank 0 would send in a step without compression
    size_t free_bytes;  // of this machine, see cy_free_memory
    size_t resident;    // measured: this process with its libraries, which ranks as threads share
} cy_plan;

// Plans a resolved and checked configuration for a machine.
CY_MUST_CHECK cy_status cy_plan_open(
    cy_plan *plan, const cy_config *config, const cy_config_machine *machine);
void cy_plan_close(cy_plan *plan);

// The rank that needs most memory; the memory of all ranks, with the resident memory.
int cy_plan_largest(const cy_plan *plan);
size_t cy_plan_bytes(const cy_plan *plan);

// The bytes of gradients that rank 0 sends in all steps of the run with top-k compression, and
// those that it would send without it.
double cy_plan_topk_bytes(const cy_plan *plan);
double cy_plan_dense_bytes(const cy_plan *plan);

// Appends the plan as a page for a person, or as one JSON object.
CY_MUST_CHECK cy_status cy_plan_add_text(cy_text *text, const cy_plan *plan);
CY_MUST_CHECK cy_status cy_plan_add_json(cy_text *text, const cy_plan *plan);

#endif
