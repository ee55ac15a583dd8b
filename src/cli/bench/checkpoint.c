// cyclotron bench checkpoint: times saving and loading a model's state beside plain files.

#include "cli/commands.h"
#include "cli/job.h"
#include "cli/report.h"
#include "train/bench_checkpoint.h"

#include <stdio.h>

typedef struct values {
    int64_t rounds;
    const char *folder;
    const char *load;
    bool json;
} values;

static const cy_option options[] = {
    {"folder", CY_OPTION_TEXT, offsetof(values, folder), .initial = ".",
        .doc = "where to write: saves/ is left there, for --load", .word = "DIR"},
    {"load", CY_OPTION_TEXT, offsetof(values, load),
        .doc = "load this checkpoint, of any mesh, and save none", .word = "DIR"},
    {"rounds", CY_OPTION_COUNT, offsetof(values, rounds), .initial = "3", .low = 1, .high = 1000,
        .doc = "how often; the medians are told", .word = "N"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print one JSON object only"},
};

static const cy_usage usage = {
    .name = "bench checkpoint",
    .positional = "CONFIG",
    .least = 1,
    .most = 1,
    .doc = "Times saving and loading the state of a configuration's model on its mesh, beside\n"
           "writing and reading a plain file of the same size; needs no dataset.",
    .options = options,
    .option_count = CY_COUNT(options),
    .overrides = true,
};

static void print_json(const cy_bench_checkpoint_result *r)
{
    printf("{\"bytes\": %lld, \"save_s\": %s, \"plain_write_s\": %s, \"load_s\": %s, "
           "\"plain_read_s\": %s, \"read_bytes\": %lld, \"verify_bytes\": %lld, "
           "\"file_bytes\": %lld, \"ranks\": %d}\n",
        (long long)r->bytes, cy_json_number(r->save_s, 6).bytes,
        cy_json_number(r->plain_write_s, 6).bytes, cy_json_number(r->load_s, 6).bytes,
        cy_json_number(r->plain_read_s, 6).bytes, (long long)r->read_bytes,
        (long long)r->verify_bytes, (long long)r->file_bytes, r->ranks);
}

static void print_line(const char *what, double seconds, double plain_s, int64_t bytes)
{
    printf("%-5s %7.2f s, %6.2f GB/s: %.2f of a plain file's %.2f GB/s\n", what, seconds,
        (double)bytes * 0x1p-30 / seconds, plain_s / seconds, (double)bytes * 0x1p-30 / plain_s);
}

static void print_table(const cy_bench_checkpoint_result *r)
{
    printf("files %.3f GB, %d rank%s\n", (double)r->bytes * 0x1p-30, r->ranks,
        r->ranks == 1 ? "" : "s");
    if (r->save_s > 0) print_line("save", r->save_s, r->plain_write_s, r->bytes);
    print_line("load", r->load_s, r->plain_read_s, r->bytes);
    printf("read  %.3f GB of files: %.3f GB for the ranks' pieces, %.3f GB checked\n",
        (double)r->file_bytes * 0x1p-30, (double)r->read_bytes * 0x1p-30,
        (double)r->verify_bytes * 0x1p-30);
}

int cy_command_bench_checkpoint(int argc, char **argv)
{
    cy_arguments arguments;
    values given;
    int status = cy_options_parse(&arguments, &given, &usage, argc, argv);
    cy_config config;
    if (status == CY_RUN_COMMAND) status = cy_load_config(&config, &arguments, CY_CONFIG_FOR_SHAPE);
    if (status == CY_RUN_COMMAND) {
        const cy_bench_checkpoint_options wanted = {
            .folder = given.folder,
            .load = given.load,
            .rounds = (int)given.rounds,
            .machine = cy_machine_found(),
        };
        cy_bench_checkpoint_result result;
        const cy_status done = cy_bench_checkpoint(&config, &wanted, &result);
        if (done == CY_OK && wanted.machine.rank == 0) {
            if (given.json) {
                print_json(&result);
            } else {
                print_table(&result);
            }
        }
        status = done == CY_OK ? cy_report_output(CY_EXIT_DONE) : cy_report_ranks(done);
    }
    cy_arguments_free(&arguments);
    return status;
}
