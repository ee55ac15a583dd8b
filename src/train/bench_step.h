// train/bench_step.h: optimizer steps on random tokens, timed.

#ifndef CY_TRAIN_BENCH_STEP_H
#define CY_TRAIN_BENCH_STEP_H

#include "base/text.h"
#include "comm/world.h"
#include "config/config.h"
#include "train/traffic.h"

typedef struct cy_bench_step_options {
    int warmup; // steps that are not counted
    int steps;  // that are, at least 1
    cy_config_machine machine;
    const cy_world_delay *delay; // borrowed; NULL: links as they are
    double process_start_s;      // of cy_clock_s; for first_step_s
    cy_text *profile;            // borrowed; NULL, or gets rank zero's table of operators
    bool profile_json;           // the same as a JSON object
    cy_text *timeline;           // borrowed; NULL, or gets rank zero's last step as a Chrome trace
    cy_text *schedule_svg; // borrowed; NULL, or gets a picture of what the last step's schedule
                           // took, of rank zero's pipeline
} cy_bench_step_options;

typedef struct cy_bench_step_result {
    double tok_s, tok_s_min, tok_s_max; // median, least, most over steps, of all ranks together
    double mfu, mfu_causal;
    double flops_per_token;
    double peak_flop_s; // of all ranks' threads
    double peak_rss_bytes;
    double planned_bytes; // what was resident before, and what the ranks' plans add
    double first_step_s;  // from the process's start to the end of the first step
    int ranks;
    int threads; // of a rank
    int64_t params;
    cy_rank_traffic traffic; // of rank zero in the last step
} cy_bench_step_result;

CY_MUST_CHECK cy_status cy_bench_step(
    const cy_config *config, const cy_bench_step_options *options, cy_bench_step_result *result);

#endif
