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

// Adds words that single blanks separate as an array.
static cy_status add_words(cy_text *json, const char *words)
{
    CY_TRY(cy_text_add(json, "["));
    for (const char *word = words; *word != '\0';) {
        const size_t length = strcspn(word, " ");
        CY_TRY(cy_text_add(json, "%s", word > words ? ", " : ""));
        CY_TRY(cy_text_add_json_string(json, word, length));
        word += length + (word[length] == ' ');
    }
    return cy_text_add(json, "]");
}

static cy_status add_json(cy_text *json, const char *features)
{
    CY_TRY(cy_text_add(
        json, "{\"version\": \"%s\", \"commit\": \"%s\", \"compiler\": ", CY_VERSION, CY_COMMIT));
    CY_TRY(cy_text_add_json_string(json, CY_COMPILER, strlen(CY_COMPILER)));
    CY_TRY(cy_text_add(json, ", \"backends\": "));
    CY_TRY(add_words(json, backends));
    CY_TRY(cy_text_add(
        json, ", \"products\": \"%s\", \"processor\": ", CY_HAVE_DNNL ? "onednn" : "own"));
    CY_TRY(add_words(json, features));
    return cy_text_add(json, "}\n");
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
    cy_text text = {0};
    return cy_report_text(add_json(&text, features), &text);
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
