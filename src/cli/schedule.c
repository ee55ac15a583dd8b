// cyclotron schedule: prints, checks and draws the schedule of a pipeline.

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"

#include "base/output.h"
#include "base/status.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/timeline.h"

#include <inttypes.h>
#include <string.h>

typedef struct values {
    const char *engine;
    int64_t stages;
    int64_t microbatches;
    int64_t chunks;
    const char *csv;
    const char *svg;
    double forward;
    double backward_input;
    double backward_weight;
    double latency;
    double message;
    bool json;
} values;

static const cy_option options[] = {
    {"engine", CY_OPTION_CHOICE, offsetof(values, engine),
        .values = "afab|1f1b|interleaved|zero_bubble|csv", .required = true,
        .doc = "how it is made; interleaved differs from 1f1b from --chunks=2 on"},
    {"stages", CY_OPTION_COUNT, offsetof(values, stages), .low = 1, .high = 1024, .word = "P",
        .required = true, .doc = "ranks of the pipeline"},
    {"microbatches", CY_OPTION_COUNT, offsetof(values, microbatches), .low = 1, .high = 65536,
        .word = "M", .required = true, .doc = "microbatches of a step"},
    {"chunks", CY_OPTION_COUNT, offsetof(values, chunks), .initial = "1", .low = 1, .high = 64,
        .word = "V", .doc = "pieces of the model a rank; zero_bubble: 1 is ZB-H1, 2 is ZB-V"},
    {"csv", CY_OPTION_TEXT, offsetof(values, csv), .word = "FILE",
        .doc = "the schedule of the csv engine"},
    {"svg", CY_OPTION_TEXT, offsetof(values, svg), .word = "FILE", .doc = "draw it to this file"},
    {"forward", CY_OPTION_NUMBER, offsetof(values, forward), .initial = "1", .low = 1e-3,
        .high = 1e6, .word = "TICKS", .doc = "time of a chunk's forward, for table and picture"},
    {"backward-input", CY_OPTION_NUMBER, offsetof(values, backward_input), .initial = "1",
        .low = 1e-3, .high = 1e6, .word = "TICKS", .doc = "of its input gradient"},
    {"backward-weight", CY_OPTION_NUMBER, offsetof(values, backward_weight), .initial = "1",
        .low = 1e-3, .high = 1e6, .word = "TICKS", .doc = "of its weight gradients"},
    {"latency", CY_OPTION_NUMBER, offsetof(values, latency), .initial = "0", .high = 1e6,
        .word = "TICKS", .doc = "of a message"},
    {"message", CY_OPTION_NUMBER, offsetof(values, message), .initial = "0", .high = 1e6,
        .word = "TICKS", .doc = "that a message keeps its link busy"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print JSON only"},
};

static const cy_usage usage = {
    .name = "schedule",
    .doc = "Prints, checks and draws a pipeline schedule.",
    .more = "F forward, B backward, I input gradient, W weight gradient, each with its microbatch "
            "(and .chunk).",
    .options = options,
    .option_count = CY_COUNT(options),
};

typedef struct result {
    cy_schedule schedule;
    cy_schedule_cost cost;
    cy_timeline timeline;
} result;

static json_t *actions_to_json(const cy_schedule *schedule, int rank)
{
    const cy_action_list *list = &schedule->ranks[rank];
    json_t *actions = json_array();
    for (size_t i = 0; i < list->count; i++) {
        char buffer[CY_ACTION_TEXT_BYTES];
        cy_json_append(&actions, json_string(cy_action_text(buffer, schedule, list->actions[i])));
    }
    return actions;
}

static json_t *rank_to_json(const result *r, int rank)
{
    const cy_rank_cost *cost = &r->cost.ranks[rank];
    return json_pack("{s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:o}", "rank", rank, "peak_stash",
        cost->peak_stash, "peak_kept", cost->peak_kept, "sends", cost->sends, "first_tick",
        (json_int_t)cost->first_tick, "last_tick", (json_int_t)cost->last_tick, "busy_ticks",
        (json_int_t)cost->busy_ticks, "actions", actions_to_json(&r->schedule, rank));
}

static json_t *to_json(const result *r)
{
    const cy_schedule *s = &r->schedule;
    const cy_schedule_cost *cost = &r->cost;
    json_t *ranks = json_array();
    for (int rank = 0; rank < s->stages; rank++)
        cy_json_append(&ranks, rank_to_json(r, rank));
    json_t *simulated = json_pack("{s:o, s:o, s:o, s:o}", "end", cy_json_real(r->timeline.end),
        "span", cy_json_real(r->timeline.span), "bubble", cy_json_real(r->timeline.bubble),
        "bubble_alone", cy_json_real(r->timeline.bubble_alone));
    return json_pack("{s:s, s:i, s:i, s:i, s:s, s:I, s:I, s:o, s:o, s:I, s:i, s:i, s:o, s:o}",
        "engine", cy_pipeline_engine_name(s->engine), "stages", s->stages, "microbatches",
        s->microbatches, "chunks", s->chunks, "placement",
        s->placement == CY_PLACEMENT_V ? "v" : "loop", "ticks", (json_int_t)cost->ticks, "span",
        (json_int_t)cost->span, "bubble", cy_json_real(cost->bubble), "bubble_alone",
        cy_json_real(cost->bubble_alone), "messages", (json_int_t)cost->messages, "peak_stash",
        cost->peak_stash, "peak_kept", cost->peak_kept, "simulated", simulated, "ranks", ranks);
}

static cy_status add_table(cy_text *text, const result *r, double tick)
{
    const cy_schedule_cost *cost = &r->cost;
    CY_TRY(cy_timeline_draw_text(text, &r->timeline, tick));
    CY_TRY(cy_text_add(text, "\nticks           %" PRId64 "\n", cost->ticks));
    CY_TRY(cy_text_add(text, "bubble          %.2f %%\n", 100.0 * cost->bubble));
    if (cost->span != cost->ticks) {
        CY_TRY(cy_text_add(text,
            "                %.2f %% of a step after which all ranks wait for each other\n",
            100.0 * cost->bubble_alone));
    }
    CY_TRY(cy_text_add(text, "simulated       %g ticks, bubble %.2f %%\n", r->timeline.end,
        100.0 * r->timeline.bubble));
    CY_TRY(cy_text_add(text, "live stashes    "));
    for (int rank = 0; rank < r->schedule.stages; rank++) {
        CY_TRY(cy_text_add(text, "%s%d", rank == 0 ? "" : " ", cost->ranks[rank].peak_stash));
    }
    CY_TRY(cy_text_add(text, "   (by rank, from forward to input gradient)\nkept stashes    "));
    for (int rank = 0; rank < r->schedule.stages; rank++) {
        CY_TRY(cy_text_add(text, "%s%d", rank == 0 ? "" : " ", cost->ranks[rank].peak_kept));
    }
    CY_TRY(
        cy_text_add(text, "   (the part that stays until the weight gradient)\nsends           "));
    for (int rank = 0; rank < r->schedule.stages; rank++) {
        CY_TRY(cy_text_add(text, "%s%d", rank == 0 ? "" : " ", cost->ranks[rank].sends));
    }
    return cy_text_add(text, "   (%" PRId64 " messages in all)\n", cost->messages);
}

static cy_status write_svg(const char *path, const result *r)
{
    const cy_schedule *s = &r->schedule;
    cy_text title = {0}, picture = {0};
    cy_status status = cy_text_add(&title, "%s: %d stages, %d microbatches, %d chunk%s a stage",
        cy_pipeline_engine_name(s->engine), s->stages, s->microbatches, s->chunks,
        s->chunks == 1 ? "" : "s");
    if (status == CY_OK) {
        status = cy_text_add(&title, "; bubble %.1f %%", 100.0 * r->timeline.bubble);
    }
    if (status == CY_OK) {
        status = cy_timeline_draw_svg(&picture, &r->timeline,
            &(cy_drawing){.title = title.bytes, .unit = "ticks", .scale = 1.0});
    }
    if (status == CY_OK)
        status = cy_output_write(path, &cy_output_svg, picture.bytes, picture.length);
    cy_text_free(&title);
    cy_text_free(&picture);
    return status;
}

static cy_status make(result *r, const values *v)
{
    const cy_schedule_options wanted = {
        .stages = (int)v->stages,
        .microbatches = (int)v->microbatches,
        .chunks = (int)v->chunks,
        .csv = v->csv,
    };
    cy_schedule_options made = wanted;
    const bool known = cy_pipeline_engine_from_name(&made.engine, v->engine);
    CY_ASSERT(known);
    CY_TRY(cy_schedule_open(&r->schedule, &made));
    CY_TRY(cy_schedule_check(&r->cost, &r->schedule, NULL));
    const cy_durations durations = {
        .forward = v->forward,
        .backward_input = v->backward_input,
        .backward_weight = v->backward_weight,
        .latency = v->latency,
        .message = v->message,
    };
    return cy_schedule_simulate(&r->timeline, &r->schedule, &durations);
}

static double shortest(const values *v)
{
    double tick = v->forward;
    if (v->backward_input < tick) tick = v->backward_input;
    if (v->backward_weight < tick) tick = v->backward_weight;
    return tick;
}

static int print_schedule(const values *v)
{
    result r = {0};
    cy_text text = {0};
    cy_status status = make(&r, v);
    if (status == CY_OK) {
        status = v->json ? cy_json_add(&text, to_json(&r), JSON_COMPACT)
                         : add_table(&text, &r, shortest(v));
    }
    if (status == CY_OK && v->json) status = cy_text_add(&text, "\n");
    if (status == CY_OK && v->svg != NULL) status = write_svg(v->svg, &r);
    if (status == CY_OK) fwrite(text.bytes, 1, text.length, stdout);
    cy_text_free(&text);
    cy_timeline_close(&r.timeline);
    cy_schedule_cost_close(&r.cost);
    cy_schedule_close(&r.schedule);
    return status == CY_OK ? cy_report_output(CY_EXIT_DONE) : cy_report_status(status);
}

int cy_command_schedule(int argc, char **argv)
{
    values v;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &v, &usage, argc, argv);
    if (status == CY_RUN_COMMAND && v.csv != NULL && strcmp(v.engine, "csv") != 0) {
        status = cy_usage_error(&usage, "--csv goes with --engine=csv, not %s", v.engine);
    }
    if (status == CY_RUN_COMMAND && v.csv != NULL && cy_report_missing(&v.csv, 1)) {
        status = CY_EXIT_REQUEST;
    }
    if (status == CY_RUN_COMMAND) status = print_schedule(&v);
    cy_arguments_free(&arguments);
    return status;
}
