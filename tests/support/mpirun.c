#define _POSIX_C_SOURCE 200809L
#include "support/mpirun.h"

#include "support/support.h"

#include "build_info.h"

#include <sys/wait.h>
#include <unistd.h>

FILE *cy_test_mpirun(int ranks, const char *arguments)
{
    if (!CY_HAVE_MPI) {
        print_message("no MPI in this build\n");
        skip();
    }
    char self[512], command[1024];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(length > 0);
    self[length] = '\0';
    snprintf(command, sizeof(command),
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
        "mpirun --oversubscribe -n %d %s %s",
        ranks, self, arguments);
    FILE *printed = popen(command, "r");
    assert_non_null(printed);
    return printed;
}

int cy_test_mpirun_all(int ranks, const char *arguments, char *printed, size_t bytes)
{
    char with_errors[256];
    snprintf(with_errors, sizeof(with_errors), "%s 2>&1", arguments);
    FILE *output = cy_test_mpirun(ranks, with_errors);
    printed[fread(printed, 1, bytes - 1, output)] = '\0';
    const int status = pclose(output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
