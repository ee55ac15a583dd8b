#include "cli/version.h"

#include "build_info.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"

#include <stdio.h>

static void print_processor(void)
{
    printf("processor:");
#if defined(__x86_64__)
    static const char *const none = " nothing beyond the base instructions";
    int found = 0;
#define SAY(feature)                                                                               \
    if (__builtin_cpu_supports(feature)) found += printf(" %s", feature)
    SAY("avx2");
    SAY("fma");
    SAY("avx512f");
    SAY("avx512bw");
    SAY("avx512vl");
    SAY("avx512bf16");
#undef SAY
    printf("%s\n", found > 0 ? "" : none);
#else
    printf(" not looked at on this architecture\n");
#endif
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
