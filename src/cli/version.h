// cli/version.h: what this binary is and what it found.

#ifndef CY_CLI_VERSION_H
#define CY_CLI_VERSION_H

// Prints version, commit, compiler, backends built in, processor features found. Returns the exit
// status.
int cy_version_print(void);

#endif
