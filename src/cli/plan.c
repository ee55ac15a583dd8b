// cyclotron plan: prints the mesh, memory, work and traffic of a configuration before a job starts.

#include "plan/plan.h"

#include "cli/commands.h"
#include "cli/job.h"
#include "cli/report.h"

#include <stdio.h>

typedef struct values {
    bool search, json;
} values;

static const cy_option options[] = {
    {"search", CY_OPTION_FLAG, offsetof(values, search),
        .doc = "look for the best mesh: this version does not"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print one JSON object only"},
};

static const cy_usage usage = {
    .name = "plan",
    .positional = "CONFIG",
    .least = 1,
    .most = 1,
    .doc = "Shows mesh, shards, schedule, memory, work and traffic; needs no dataset.",
    .more = "Nothing is mapped: a model that this machine could not hold is planned as well.",
    .options = options,
    .option_count = CY_COUNT(options),
    .overrides = true,
};

static cy_status print_plan(const cy_config *config, bool json)
{
    cy_plan plan;
    cy_text text = {0};
    const cy_config_machine machine = cy_machine_found();
    CY_TRY(cy_plan_open(&plan, config, &machine));
    const cy_status status = json ? cy_plan_add_json(&text, &plan) : cy_plan_add_text(&text, &plan);
    if (status == CY_OK) fwrite(text.bytes, 1, text.length, stdout);
    cy_text_free(&text);
    cy_plan_close(&plan);
    return status;
}

int cy_command_plan(int argc, char **argv)
{
    cy_arguments arguments;
    values given;
    cy_config config;
    int status = cy_options_parse(&arguments, &given, &usage, argc, argv);
    if (status == CY_RUN_COMMAND && given.search) {
        cy_report_error("--search: this version does not search for meshes yet");
        cy_report_hint("plan one mesh after the other: 'cyclotron plan %s "
                       "--distributed.tp_size=2', and measure with 'cyclotron bench step'",
            arguments.positional[0]);
        status = CY_EXIT_REQUEST;
    }
    if (status == CY_RUN_COMMAND) status = cy_load_config(&config, &arguments, CY_CONFIG_FOR_SHAPE);
    if (status == CY_RUN_COMMAND) {
        const cy_status done = print_plan(&config, given.json);
        status = done == CY_OK ? cy_report_output(CY_EXIT_DONE) : cy_report_status(done);
    }
    cy_arguments_free(&arguments);
    return status;
}
