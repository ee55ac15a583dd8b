#include "train/bench_step.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/random.h"
#include "engine/engine_parts.h"
#include "kernel/peak.h"
#include "observe/memory.h"
#include "observe/profile.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/timeline.h"
#include "train/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct bench_run {
    const cy_config *config;
    const cy_bench_step_options *options;
    cy_bench_step_result *result; // written by rank zero
    double *seconds;              // [steps], written by rank zero
} bench_run;

static cy_status fill_random(void *context, int64_t microbatch, int32_t *inputs, int32_t *targets)
{
    const cy_engine *engine = context;
    const uint64_t vocab = (uint64_t)engine->options.config->shape.vocab;
    const uint64_t key = cy_random_key_at(cy_random_key(0, "bench"), (uint64_t)microbatch);
    int32_t token = (int32_t)(cy_random_bits(key, 0) % vocab);
    for (int64_t i = 0; i < engine->tokens; i++) {
        inputs[i] = token;
        token = (int32_t)(cy_random_bits(key, (uint64_t)i + 1) % vocab);
        targets[i] = token;
    }
    return CY_OK;
}

static cy_status run_step(cy_engine *engine, int64_t step, double *seconds)
{
    const double start = cy_clock_s();
    const cy_batch_source source = {.context = engine, .fill = fill_random};
    const cy_adamw_spec adamw = {
        .learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = step};
    cy_step_result result;
    CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
    *seconds = cy_clock_s() - start;
    return CY_OK;
}

// What all ranks add up to, or the largest of them.
static cy_status over_ranks(cy_engine *engine, double *value, cy_reduce_op op)
{
    return cy_group_all_reduce(
        engine->options.groups.world, NULL, cy_view_of(value, CY_F64, 1, 1), op);
}

// What the stages of each pipeline did in the last step; rank zero draws its own.
static cy_status draw_schedule(cy_engine *engine, const cy_rank *rank, cy_text *picture)
{
    if (picture == NULL) return CY_OK;
    cy_timeline timeline = {0};
    // Clocks of one machine agree; those of several are set by a barrier.
    const bool one_clock = strcmp(cy_group_backend(engine->options.groups.pp), "mpi") != 0;
    if (!one_clock) CY_TRY(cy_group_barrier(engine->options.groups.pp));
    const double zero_s = one_clock ? 0.0 : cy_clock_s();
    CY_TRY(cy_timeline_gather(&timeline, &engine->executor, engine->times, zero_s));
    cy_status status = CY_OK;
    if (rank->rank == 0) {
        char title[128];
        snprintf(title, sizeof(title), "%s, measured: %d stages, %d microbatches; bubble %.1f %%",
            cy_pipeline_engine_name(engine->schedule.engine), timeline.stages,
            timeline.microbatches, 100.0 * timeline.bubble);
        const cy_drawing drawing = {.title = title, .unit = "ms", .scale = 1e3};
        status = cy_timeline_draw_svg(picture, &timeline, &drawing);
    }
    cy_timeline_close(&timeline);
    return status;
}

// Rank zero's last step, as far as it was asked for.
static cy_status write_profile(
    const cy_bench_step_options *options, const cy_trace *trace, cy_peaks peaks)
{
    if (options->timeline != NULL) {
        CY_TRY(cy_profile_add_timeline(options->timeline, &trace, 1));
    }
    if (options->profile == NULL) return CY_OK;
    cy_profile profile;
    CY_TRY(cy_profile_open(&profile, trace));
    const cy_status status = (options->profile_json ? cy_profile_add_json : cy_profile_add_table)(
        options->profile, &profile, peaks);
    cy_profile_close(&profile);
    return status;
}

// What a rank's share of the machine gives while the others take theirs; bytes for a profile only.
static cy_status measure_peaks(
    cy_peaks *peaks, const cy_engine *engine, const cy_rank *rank, const bench_run *bench)
{
    const bool profiled = bench->options->profile != NULL;
    *peaks = (cy_peaks){0};
    if (bench->config->logging.measure_peak || profiled) {
        CY_TRY(cy_engine_peak(engine, &peaks->flop_s));
    }
    if (profiled) {
        cy_bandwidth bandwidth;
        CY_TRY(cy_bandwidth_measure(
            &bandwidth, &engine->queue, CY_BANDWIDTH_BYTES / (size_t)rank->mesh.world));
        peaks->bytes_s = fmax(bandwidth.read, bandwidth.copy);
    }
    return CY_OK;
}

static cy_status measure(cy_engine *engine, const cy_rank *rank, void *context)
{
    const bench_run *bench = context;
    const cy_bench_step_options *options = bench->options;
    // The mapped range is not touched yet: what is resident now is the program and libraries.
    cy_rss empty = {0};
    CY_TRY(cy_rss_read(&empty));
    double planned = (double)engine->memory.total;
    CY_TRY(over_ranks(engine, &planned, CY_SUM));
    cy_engine_populate_memory(engine);
    CY_TRY(cy_engine_initialize(engine));

    double seconds = 0, first_step_s = 0;
    cy_rank_traffic before = {0};
    for (int i = 0; i < options->warmup + options->steps; i++) {
        engine->trace.count = 0; // the profile is of the last step
        before = cy_traffic_now(&rank->groups);
        CY_TRY(run_step(engine, i + 1, &seconds));
        if (i == 0) first_step_s = cy_clock_s() - options->process_start_s;
        if (rank->rank == 0 && i >= options->warmup) bench->seconds[i - options->warmup] = seconds;
    }
    const cy_rank_traffic after = cy_traffic_now(&rank->groups);
    CY_TRY(draw_schedule(engine, rank, options->schedule_svg));
    cy_rss resident;
    CY_TRY(cy_rss_read(&resident));
    cy_peaks peaks;
    CY_TRY(measure_peaks(&peaks, engine, rank, bench));
    double peak_flop_s = peaks.flop_s;
    CY_TRY(over_ranks(engine, &peak_flop_s, CY_SUM));
    peaks.flop_s = peak_flop_s / rank->mesh.world;
    if (rank->rank != 0) return CY_OK;
    *bench->result = (cy_bench_step_result){
        .peak_flop_s = peak_flop_s,
        .peak_rss_bytes = (double)resident.peak_bytes,
        .planned_bytes = (double)empty.now_bytes + planned,
        .first_step_s = first_step_s,
        .ranks = rank->mesh.world,
        .threads = rank->threads,
        .traffic = cy_traffic_between(&before, &after),
    };
    return write_profile(options, &engine->trace, peaks);
}

static cy_status run_rank(const cy_rank *rank, void *context)
{
    const bench_run *bench = context;
    cy_engine_options options = cy_rank_engine_options(rank, bench->config);
    options.trace = bench->options->profile != NULL || bench->options->timeline != NULL;
    options.measure = bench->options->schedule_svg != NULL;
    return cy_rank_with_engine(rank, &options, measure, context);
}

static void finish(const bench_run *bench)
{
    const cy_config *config = bench->config;
    cy_bench_step_result *result = bench->result;
    const int steps = bench->options->steps;
    const int64_t length = config->training.seq_length;
    const double tokens = (double)cy_config_batch_tokens(config);
    const double median = cy_median(bench->seconds, steps);
    result->tok_s = tokens / median;
    result->tok_s_min = tokens / bench->seconds[steps - 1];
    result->tok_s_max = tokens / bench->seconds[0];
    result->flops_per_token = cy_flops_per_token(&config->shape, length);
    result->mfu = cy_flops_utilization(result->tok_s, result->flops_per_token, result->peak_flop_s);
    result->mfu_causal = cy_flops_utilization(
        result->tok_s, cy_flops_per_token_causal(&config->shape, length), result->peak_flop_s);
    result->params = cy_params_all(&config->shape);
}

cy_status cy_bench_step(
    const cy_config *config, const cy_bench_step_options *options, cy_bench_step_result *result)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)options->steps, sizeof(double)));
    bench_run run = {.config = config, .options = options, .result = result, .seconds = block};
    const cy_status status =
        cy_ranks_run_delayed(config, &options->machine, options->delay, run_rank, &run);
    if (status == CY_OK && options->machine.rank == 0) finish(&run);
    cy_memory_free(run.seconds);
    return status;
}
