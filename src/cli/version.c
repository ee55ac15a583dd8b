// cyclotron version and --version: print what this binary is, its build, and what it found.

#include "base/platform.h"
#include "build_info.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"

#include <stdio.h>
#include <string.h>

typedef struct version_values {
    bool json;
} version_values;

static const cy_option version_options[] = {
    {"json", CY_OPTION_FLAG, offsetof(version_values, json),
        .doc = "print {version, commit, compiler, backends, products, processor} only"},
};

static const cy_usage version_usage = {
    .name = "version",
    .doc = "Prints what this binary is, what it was built with, and what it found.",
    .options = version_options,
    .option_count = CY_COUNT(version_options),
};

static const char *const backends = CY_HAVE_MPI ? "self threads mpi" : "self threads";

static void print_text(const char *features)
{
    printf("cyclotron %s\n", CY_VERSION);
    printf("commit: %s\n", CY_COMMIT);
    printf("compiler: %s\n", CY_COMPILER);
    printf("backends: %s\n", backends);
    printf("matrix products: %s\n", CY_HAVE_DNNL ? "onednn" : "own kernels (slower: no oneDNN)");
    printf(
        "processor: %s\n", features[0] != '\0' ? features : "nothing that kernels are tuned for");
}

// Words that single blanks separate, as an array.
static json_t *words_to_json(const char *words)
{
    json_t *array = json_array();
    for (const char *word = words; *word != '\0';) {
        const size_t length = strcspn(word, " ");
        cy_json_append(&array, cy_json_string(word, length));
        word += length + (word[length] == ' ');
    }
    return array;
}

static json_t *to_json(const char *features)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:s, s:o}", "version", CY_VERSION, "commit", CY_COMMIT,
        "compiler", cy_json_string(CY_COMPILER, strlen(CY_COMPILER)), "backends",
        words_to_json(backends), "products", CY_HAVE_DNNL ? "onednn" : "own", "processor",
        words_to_json(features));
}

static int print_version(bool json)
{
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    char features[64];
    snprintf(features, sizeof(features), "%s%s%s%s%s", cpu.neon ? "neon" : "",
        cpu.avx2 ? "avx2" : "", cpu.avx512 ? " avx512" : "", cpu.avx512_bf16 ? " avx512_bf16" : "",
        cpu.amx ? " amx" : "");
    if (!json) {
        print_text(features);
        return cy_report_output(CY_EXIT_DONE);
    }
    return cy_report_output(cy_report_status(cy_report_json(to_json(features), 0)));
}

int cy_command_version(int argc, char **argv)
{
    version_values values;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &values, &version_usage, argc, argv);
    if (status == CY_RUN_COMMAND) status = print_version(values.json);
    cy_arguments_free(&arguments);
    return status;
}
