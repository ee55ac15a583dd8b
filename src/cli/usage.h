// cli/usage.h: the pages made from a command's table: --help, the manual's section, and the words
// that a shell completes.

#ifndef CY_CLI_USAGE_H
#define CY_CLI_USAGE_H

#include "cli/options.h"

typedef enum cy_help_form {
    CY_HELP_PAGE,  // --help or -h: for a person
    CY_HELP_MAN,   // --help=man: a section of the manual page, in man's language
    CY_HELP_WORDS, // --help=words: one option a line, for the shell's completion
} cy_help_form;

// Whether this argument asks for help, and in which form.
bool cy_help_asked(cy_help_form *form, const char *argument);

// Prints the page on stdout; returns the exit status.
int cy_help_print(const cy_usage *usage, cy_help_form form);

#endif
