// cli/options.h: one table per command drives its parsing, its --help, its completion and its page
// of the manual.
//
// A command declares a struct for its values and a table that names, types and places them:
//
//     typedef struct values { int64_t max_tokens; double temperature; bool json; } values;
//     static const cy_option options[] = {
//         {"max-tokens", CY_OPTION_COUNT, offsetof(values, max_tokens), .initial = "128", .low = 1,
//             .doc = "stop after N tokens", .word = "N"},
//         {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print JSON only"},
//     };
//     static const cy_usage usage = {.name = "generate", .positional = "CHECKPOINT", .least = 1,
//         .most = 1, .doc = "...", .options = options, .option_count = CY_COUNT(options)};
//
//     int cy_command_generate(int argc, char **argv)
//     {
//         values v;
//         cy_arguments arguments;
//         int status = cy_options_parse(&arguments, &v, &usage, argc, argv);
//         if (status == CY_RUN_COMMAND) { status = generate(&v, &arguments); }
//         cy_arguments_free(&arguments);
//         return status;
//     }
//
// `-` and `_` in names mean the same; both `--name=value` and `--name value` work; `--` ends the
// options; `-` alone is positional. All faults of a command line are reported at once. Texts that
// are handed out are borrowed from argv or the table.

#ifndef CY_CLI_OPTIONS_H
#define CY_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CY_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

// What cy_options_parse returns when the command should do its work. Otherwise it returns the exit
// status: it printed help, or reported errors.
#define CY_RUN_COMMAND (-1)

typedef enum cy_option_kind {
    CY_OPTION_FLAG,   // bool: --name, or --name=true and --name=false
    CY_OPTION_TEXT,   // const char *; NULL when not given and without an initial text
    CY_OPTION_CHOICE, // const char *, one of `values`
    CY_OPTION_COUNT,  // int64_t, from low to high; 4096, 4k, 1M and 2G (powers of 1000) are read
    CY_OPTION_NUMBER, // double, from low to high
} cy_option_kind;

typedef struct cy_option {
    const char *name; // "max-tokens", without dashes
    cy_option_kind kind;
    unsigned offset;     // of the value in the command's struct, in bytes
    const char *initial; // the default as it would be typed; NULL: false, 0 or NULL
    const char *values;  // CHOICE: "afab|1f1b|csv"
    double low, high;    // COUNT, NUMBER: the range, ends included
    const char *word;    // what stands for the value in --help; NULL: from the kind
    bool required;
    const char *doc;
} cy_option;

typedef struct cy_usage {
    const char *name;       // "tokenizer train"
    const char *positional; // "CHECKPOINT DATA...", as --help shows it; NULL when there are none
    int least, most;        // how many positional arguments; most < 0: any number
    const char *doc;        // one line
    const char *more;       // further lines for --help, or NULL
    const cy_option *options;
    int option_count;
    bool overrides; // takes --section.key=value
} cy_usage;

typedef struct cy_arguments {
    const char **positional; // owned; the texts are borrowed
    int count;
    const char **overrides; // owned; "section.key=value" without dashes, in order
    int override_count;
    char **made; // owned: texts that had to be put together
} cy_arguments;

// Fills all of *values, defaults first, and *arguments, which the caller frees in any case.
int cy_options_parse(
    cy_arguments *arguments, void *values, const cy_usage *usage, int argc, char **argv);
void cy_arguments_free(cy_arguments *arguments);

// For a fault of the command line that only the command itself can see: reports the text and points
// to --help. Returns the exit status.
int cy_usage_error(const cy_usage *usage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// ---- the pages made from a table

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
