#include "cli/version.h"

#include "base/cpu.h"
#include "build_info.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"

#include <stdio.h>

static void print_processor(void)
{
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    printf("processor:%s%s%s%s%s\n", cpu.avx2 ? " avx2" : "", cpu.avx512 ? " avx512" : "",
        cpu.avx512_bf16 ? " avx512_bf16" : "", cpu.amx ? " amx" : "",
        cpu.avx2 ? "" : " nothing that kernels are tuned for");
}

int cy_version_print(void)
{
    printf("cyclotron %s\n", CY_VERSION);
    printf("commit: %s\n", CY_COMMIT);
    printf("compiler: %s\n", CY_COMPILER);
    printf("backends: self threads%s\n", CY_HAVE_MPI ? " mpi" : "");
    printf("matrix products: %s\n", CY_HAVE_DNNL ? "onednn" : "own kernels (slower: no oneDNN)");
    print_processor();
    return cy_report_output(CY_EXIT_DONE);
}

int cy_command_version(int argc, char **argv)
{
    static const cy_usage usage = {
        .name = "version",
        .doc = "Prints what this binary is, what it was built with, and what it found.",
    };
    struct {
        char none;
    } values;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &values, &usage, argc, argv);
    if (status == CY_GO_ON) status = cy_version_print();
    cy_arguments_free(&arguments);
    return status;
}
