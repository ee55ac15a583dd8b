// support/mpirun.h: a test program that starts itself again as the ranks of MPI.

#ifndef CY_TESTS_MPIRUN_H
#define CY_TESTS_MPIRUN_H

#include <stddef.h>
#include <stdio.h>

// Starts this program under mpirun on `ranks` ranks, with `arguments`, words of the shell, behind
// its name. What the ranks print to stdout is read from the file, which the caller closes with
// pclose. Skips the test, and says so, where the build has no MPI.
FILE *cy_test_mpirun(int ranks, const char *arguments);

// The same until its end: `printed` [bytes] gets what went to stdout and stderr. Returns the exit
// status, 128 where a signal ended it.
int cy_test_mpirun_all(int ranks, const char *arguments, char *printed, size_t bytes);

#endif
