// cyclotron bench step: measures how fast a configuration trains on this machine.

#include "train/bench_step.h"

#include "base/output.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/report.h"
#include "observe/profile.h"

#include <math.h>
#include <stdio.h>

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
static void print_json(const cy_config *config, const cy_bench_step_result *r, const char *profile)
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

static void print_table(const cy_config *config, const cy_bench_step_result *r)
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
    const cy_bench_step_options wanted = {
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
    cy_bench_step_result result;
    cy_status status = CY_OK;
    if (tells && given->timeline != NULL) {
        status = cy_output_check(given->timeline, &cy_timeline_kind);
    }
    if (status == CY_OK && tells && given->schedule_svg != NULL) {
        status = cy_output_check(given->schedule_svg, &cy_output_svg);
    }
    if (status == CY_OK) status = cy_bench_step(config, &wanted, &result);
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
