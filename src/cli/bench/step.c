// cyclotron bench step: measures how fast a configuration trains on this machine.

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/output.h"
#include "base/random.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/report.h"
#include "comm/world.h"
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

// ---- measuring

typedef struct bench_options {
    int warmup; // steps that are not measured
    int steps;  // steps that are measured, at least 1
    cy_config_machine machine;
    const cy_world_delay *delay; // borrowed; NULL: links have their own speed
    double process_start_s;      // of cy_clock_s; for first_step_s
    cy_text *profile;            // borrowed; NULL, or gets rank zero's table of operators
    bool profile_json;           // the same as a JSON object
    cy_text *timeline;           // borrowed; NULL, or gets rank zero's last step as a Chrome trace
    cy_text *schedule_svg; // borrowed; NULL, or gets a picture of the times of the last step's
                           // schedule, of rank zero's pipeline
} bench_options;

typedef struct bench_result {
    double tok_s, tok_s_min, tok_s_max; // median, least, most over steps, of all ranks together
    double mfu, mfu_causal;
    double flops_per_token;
    double peak_flop_s; // of all ranks' threads
    double peak_rss_bytes;
    double planned_bytes; // resident before the first step, plus the plans of all ranks
    double first_step_s;  // from the process's start to the end of the first step
    int ranks;
    int threads; // of a rank
    int64_t params;
    cy_rank_traffic traffic; // of rank zero in the last step
} bench_result;

typedef struct bench_run {
    const cy_config *config;
    const bench_options *options;
    bench_result *result; // written by rank zero
    double *seconds;      // [steps], written by rank zero
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

// Replaces a value by its sum, or its maximum, over all ranks.
static cy_status over_ranks(cy_engine *engine, double *value, cy_reduce_op op)
{
    return cy_group_all_reduce(
        engine->options.groups.world, NULL, cy_view_of(value, CY_F64, 1, 1), op);
}

// Gathers the times of the last step over each pipeline; rank zero draws those of its own.
static cy_status draw_schedule(cy_engine *engine, const cy_rank *rank, cy_text *picture)
{
    if (picture == NULL) return CY_OK;
    cy_timeline timeline = {0};
    // Ranks on one machine share a clock. Others count from the end of a barrier.
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

// Writes the timeline and the profile of rank zero's last step, where they are wanted.
static cy_status write_profile(const bench_options *options, const cy_trace *trace, cy_peaks peaks)
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

// Measures the peaks of this rank's cores while the other ranks measure theirs. The bandwidth is
// measured for a profile only.
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
    const bench_options *options = bench->options;
    // The mapped range is not touched yet: only the program and its libraries are resident.
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
    *bench->result = (bench_result){
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
    bench_result *result = bench->result;
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

static cy_status run_steps(
    const cy_config *config, const bench_options *options, bench_result *result)
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

// ---- the command

typedef struct values {
    int64_t warmup, steps;
    double link_gb_s, link_us;
    const char *timeline;
    const char *schedule_svg;
    const char *isa;
    bool profile, json;
} values;

static const cy_option options[] = {
    {"warmup", CY_OPTION_COUNT, offsetof(values, warmup), .initial = "2", .high = 1000,
        .doc = "steps that are not counted", .word = "N"},
    {"steps", CY_OPTION_COUNT, offsetof(values, steps), .initial = "5", .low = 1, .high = 100000,
        .doc = "steps that are", .word = "N"},
    {"profile", CY_OPTION_FLAG, offsetof(values, profile),
        .doc = "add where the time went: operators with their share of the machine's peak"},
    {"timeline", CY_OPTION_TEXT, offsetof(values, timeline),
        .doc = "write the last step as a Chrome trace", .word = "FILE"},
    {"schedule-svg", CY_OPTION_TEXT, offsetof(values, schedule_svg),
        .doc = "draw what the last step's schedule took, stage by stage", .word = "FILE"},
    {"link-gb-s", CY_OPTION_NUMBER, offsetof(values, link_gb_s), .initial = "0", .high = 1e6,
        .doc = "slow the links between ranks down to G gigabytes a second; 0: as they are",
        .word = "G"},
    {"link-us", CY_OPTION_NUMBER, offsetof(values, link_us), .initial = "0", .high = 1e6,
        .doc = "and each message by US microseconds", .word = "US"},
    {"isa", CY_OPTION_CHOICE, offsetof(values, isa), .values = CY_CONFIG_ISA_NAMES,
        .doc = "instead of distributed.isa", .word = "LEVEL"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print one JSON object only"},
};

static const cy_usage usage = {
    .name = "bench step",
    .positional = "CONFIG",
    .least = 1,
    .most = 1,
    .doc = "Times optimizer steps on random tokens; needs no dataset.",
    .options = options,
    .option_count = CY_COUNT(options),
    .overrides = true,
};

// Prints a member of the JSON object; a figure that was not measured is null.
static void print_member(const char *name, double value)
{
    printf("\"%s\": %s, ", name, cy_json_number(value, 6).bytes);
}

// `profile` is the operators' object, or NULL.
static void print_json(const cy_config *config, const bench_result *r, const char *profile)
{
    printf("{");
    print_member("tok_s", r->tok_s);
    print_member("tok_s_min", r->tok_s_min);
    print_member("tok_s_max", r->tok_s_max);
    print_member("mfu", r->mfu);
    print_member("mfu_causal", r->mfu_causal);
    printf("\"flops_per_token\": %s, ", cy_json_number(r->flops_per_token, 17).bytes);
    print_member("peak_gflop_s", r->peak_flop_s > 0 ? r->peak_flop_s * 1e-9 : (double)NAN);
    print_member("peak_rss_gb", r->peak_rss_bytes * 0x1p-30);
    print_member("planned_gb", r->planned_bytes * 0x1p-30);
    print_member("first_step_s", r->first_step_s);
    printf("\"ranks\": %d, \"threads\": %d, \"dtype\": \"%s\", \"seq\": %lld, \"batch\": %lld, "
           "\"params\": %lld, \"traffic\": [",
        r->ranks, r->threads, cy_dtype_name(config->model.dtype),
        (long long)config->training.seq_length, (long long)cy_config_batch_samples(config),
        (long long)r->params);
    const char *comma = "";
    for (int i = 0; i < CY_TRAFFIC_WORLD; i++) {
        const cy_traffic *sent = &r->traffic.of[i];
        if (sent->messages == 0) continue;
        printf("%s{\"dimension\": \"%s\", \"bytes\": %s, \"messages\": %lld, "
               "\"exposed_s\": %s}",
            comma, cy_traffic_dimension(i), cy_json_number(sent->bytes, 17).bytes,
            (long long)sent->messages, cy_json_number(sent->exposed_s, 6).bytes);
        comma = ", ";
    }
    printf("]");
    if (profile != NULL) printf(", \"profile\": %s", profile);
    printf("}\n");
}

static void print_table(const cy_config *config, const bench_result *r)
{
    printf("tokens/s      %.1f (%.1f to %.1f), %d rank%s of %d thread%s, %s\n", r->tok_s,
        r->tok_s_min, r->tok_s_max, r->ranks, r->ranks == 1 ? "" : "s", r->threads,
        r->threads == 1 ? "" : "s", cy_dtype_name(config->model.dtype));
    if (r->peak_flop_s > 0) {
        printf(
            "share         %.1f %% of the measured matrix peak of %.0f GFLOP/s (%.1f %% with half "
            "the attention)\n",
            r->mfu * 100, r->peak_flop_s * 1e-9, r->mfu_causal * 100);
    }
    printf("memory        %.2f GB at most, %.2f GB planned\n", r->peak_rss_bytes * 0x1p-30,
        r->planned_bytes * 0x1p-30);
    printf("first step    done %.2f s after the start\n", r->first_step_s);
    printf("model         %lld parameters, %lld x %lld tokens a step\n", (long long)r->params,
        (long long)cy_config_batch_samples(config), (long long)config->training.seq_length);
    for (int i = 0; i < CY_TRAFFIC_WORLD; i++) {
        const cy_traffic *sent = &r->traffic.of[i];
        if (sent->messages == 0) continue;
        printf(
            "traffic %-5s %.1f MB in %lld messages from rank 0 in the last step, %.1f ms exposed\n",
            cy_traffic_dimension(i), sent->bytes * 0x1p-20, (long long)sent->messages,
            sent->exposed_s * 1e3);
    }
}

static int bench(const values *given, const cy_config *config)
{
    cy_text profile = {0}, timeline = {0}, picture = {0};
    const cy_world_delay delay = {
        .between = {.latency_s = given->link_us * 1e-6, .bytes_per_s = given->link_gb_s * 1e9},
        .node_ranks = 1, // every rank is a node of its own
    };
    const bench_options wanted = {
        .warmup = (int)given->warmup,
        .steps = (int)given->steps,
        .machine = cy_machine_found(),
        .delay = given->link_gb_s > 0 || given->link_us > 0 ? &delay : NULL,
        .process_start_s = cy_process_start_s(),
        .profile = given->profile ? &profile : NULL,
        .profile_json = given->json,
        .timeline = given->timeline != NULL ? &timeline : NULL,
        .schedule_svg = given->schedule_svg != NULL ? &picture : NULL,
    };
    const bool tells = wanted.machine.rank == 0;
    bench_result result;
    cy_status status = CY_OK;
    if (tells && given->timeline != NULL) {
        status = cy_output_check(given->timeline, &cy_timeline_kind);
    }
    if (status == CY_OK && tells && given->schedule_svg != NULL) {
        status = cy_output_check(given->schedule_svg, &cy_output_svg);
    }
    if (status == CY_OK) status = run_steps(config, &wanted, &result);
    if (status == CY_OK && tells && given->timeline != NULL) {
        status =
            cy_output_write(given->timeline, &cy_timeline_kind, timeline.bytes, timeline.length);
    }
    if (status == CY_OK && tells && given->schedule_svg != NULL) {
        status =
            cy_output_write(given->schedule_svg, &cy_output_svg, picture.bytes, picture.length);
    }
    if (status == CY_OK && tells) {
        if (given->json) {
            print_json(config, &result, profile.bytes);
        } else {
            print_table(config, &result);
            if (profile.bytes != NULL) fputs(profile.bytes, stdout);
        }
    }
    cy_text_free(&profile);
    cy_text_free(&timeline);
    cy_text_free(&picture);
    if (status == CY_OK) return cy_report_output(CY_EXIT_DONE);
    return cy_report_ranks(status);
}

int cy_command_bench_step(int argc, char **argv)
{
    cy_arguments arguments;
    values given;
    int status = cy_options_parse(&arguments, &given, &usage, argc, argv);
    cy_config config;
    if (status == CY_RUN_COMMAND) status = cy_load_config(&config, &arguments, CY_CONFIG_FOR_SHAPE);
    if (status == CY_RUN_COMMAND && given.isa != NULL) {
        config.distributed.isa = cy_config_isa_named(given.isa);
    }
    if (status == CY_RUN_COMMAND) status = bench(&given, &config);
    cy_arguments_free(&arguments);
    return status;
}
