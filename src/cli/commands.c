#include "cli/commands.h"

#include "base/text.h"
#include "cli/report.h"
#include "cli/usage.h"

#include <stdio.h>
#include <string.h>

#define COMMANDS_MAX 32

static void print_list(const cy_command *commands, int count, const char *group, FILE *stream)
{
    fprintf(stream, "usage: cyclotron %s%s<command> [arguments] [--option=value ...]\n\n", group,
        group[0] != '\0' ? " " : "");
    for (int i = 0; i < count; i++) {
        fprintf(stream, "  %-12s %s\n", commands[i].name, commands[i].doc);
    }
    fprintf(stream, "\n'cyclotron %s%s<command> --help' shows what a command takes.\n", group,
        group[0] != '\0' ? " " : "");
}

static int print_help(
    const cy_command *commands, int count, const char *group, cy_help_form form, char *argument)
{
    switch (form) {
    case CY_HELP_PAGE:
        print_list(commands, count, group, stdout);
        break;
    case CY_HELP_WORDS:
        for (int i = 0; i < count; i++)
            printf("%s\n", commands[i].name);
        break;
    case CY_HELP_MAN:
        for (int i = 0; i < count; i++) {
            const int status = commands[i].run(1, &argument);
            if (status != CY_EXIT_DONE) return status;
        }
        break;
    }
    return cy_report_output(CY_EXIT_DONE);
}

int cy_commands_run(const cy_command *commands, int count, const char *group, int argc, char **argv)
{
    if (argc == 0) {
        cy_report_error("cyclotron%s%s needs a command", group[0] != '\0' ? " " : "", group);
        print_list(commands, count, group, stderr);
        return CY_EXIT_REQUEST;
    }
    cy_help_form form;
    if (cy_help_asked(&form, argv[0])) return print_help(commands, count, group, form, argv[0]);
    for (int i = 0; i < count; i++) {
        if (strcmp(argv[0], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    }
    const char *names[COMMANDS_MAX];
    for (int i = 0; i < count && i < COMMANDS_MAX; i++)
        names[i] = commands[i].name;
    const char *nearest = cy_nearest(argv[0], names, (size_t)count);
    const char *space = group[0] != '\0' ? " " : "";
    cy_report_error("there is no command 'cyclotron %s%s%s'", group, space, argv[0]);
    if (nearest != NULL) {
        cy_report_hint("did you mean '%s'?", nearest);
    } else {
        cy_report_hint("'cyclotron %s%s--help' lists the commands", group, space);
    }
    return CY_EXIT_REQUEST;
}
