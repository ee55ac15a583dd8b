#include "cli/usage.h"

#include "cli/report.h"

#include <stdio.h>
#include <string.h>

bool cy_help_asked(cy_help_form *form, const char *argument)
{
    static const struct {
        const char *text;
        cy_help_form form;
    } forms[] = {
        {"--help", CY_HELP_PAGE},
        {"-h", CY_HELP_PAGE},
        {"--help=man", CY_HELP_MAN},
        {"--help=words", CY_HELP_WORDS},
    };
    for (int i = 0; i < CY_COUNT(forms); i++) {
        if (strcmp(argument, forms[i].text) == 0) {
            *form = forms[i].form;
            return true;
        }
    }
    return false;
}

static const char *value_word(const cy_option *option)
{
    if (option->word != NULL) return option->word;
    switch (option->kind) {
    case CY_OPTION_FLAG:
        return NULL;
    case CY_OPTION_CHOICE:
        return option->values;
    case CY_OPTION_COUNT:
        return "N";
    case CY_OPTION_NUMBER:
        return "X";
    case CY_OPTION_TEXT:
        return "TEXT";
    }
    return NULL;
}

// "--temperature=X"
static int option_form(char *text, size_t bytes, const cy_option *option)
{
    const char *word = value_word(option);
    return snprintf(
        text, bytes, "--%s%s%s", option->name, word != NULL ? "=" : "", word != NULL ? word : "");
}

// What is said of an option after its own words: its default, that it is needed.
static void print_notes(const cy_option *option)
{
    if (option->required) printf(" (required)");
    if (option->initial != NULL && option->initial[0] != '\0' && option->kind != CY_OPTION_FLAG) {
        printf(" (default %s)", option->initial);
    }
}

static void print_page(const cy_usage *usage)
{
    printf("usage: cyclotron %s%s%s%s%s\n\n%s\n", usage->name, usage->positional != NULL ? " " : "",
        usage->positional != NULL ? usage->positional : "",
        usage->option_count > 0 ? " [--option=value ...]" : "",
        usage->overrides ? " [--section.key=value ...]" : "", usage->doc);
    if (usage->more != NULL) printf("\n%s\n", usage->more);
    printf("\noptions:\n");
    for (int i = 0; i < usage->option_count; i++) {
        const cy_option *option = &usage->options[i];
        char form[128];
        const int width = option_form(form, sizeof(form), option);
        // A form too long for the column gets a line of its own.
        printf(width <= 24 ? "  %-24s  %s" : "  %-24s\n                            %s", form,
            option->doc);
        print_notes(option);
        printf("\n");
    }
    printf("  %-24s  %s\n", "--help", "this page");
    if (usage->overrides) {
        printf("  %-24s  %s\n", "--section.key=value",
            "any key of the configuration; 'cyclotron config show --keys' lists them");
    }
}

// man reads a backslash, and a dot or quote at the start of a line, as its own.
static void print_escaped(const char *text)
{
    for (bool at_start = true; *text != '\0'; text++) {
        if (at_start && (*text == '.' || *text == '\'')) printf("\\&");
        if (*text == '\\') {
            printf("\\e");
        } else if (*text == '-') {
            printf("\\-");
        } else {
            putchar(*text);
        }
        at_start = *text == '\n';
    }
}

static void print_man(const cy_usage *usage)
{
    printf(".SS cyclotron %s", usage->name);
    if (usage->positional != NULL) printf(" %s", usage->positional);
    printf("\n");
    print_escaped(usage->doc);
    printf("\n");
    if (usage->more != NULL) {
        printf(".PP\n");
        print_escaped(usage->more);
        printf("\n");
    }
    for (int i = 0; i < usage->option_count; i++) {
        char form[128];
        option_form(form, sizeof(form), &usage->options[i]);
        printf(".TP\n\\fB");
        print_escaped(form);
        printf("\\fR\n");
        print_escaped(usage->options[i].doc);
        print_notes(&usage->options[i]);
        printf("\n");
    }
}

static void print_words(const cy_usage *usage)
{
    for (int i = 0; i < usage->option_count; i++) {
        const cy_option *option = &usage->options[i];
        printf("--%s%s\n", option->name, option->kind == CY_OPTION_FLAG ? "" : "=");
    }
    printf("--help\n");
}

int cy_help_print(const cy_usage *usage, cy_help_form form)
{
    switch (form) {
    case CY_HELP_PAGE:
        print_page(usage);
        break;
    case CY_HELP_MAN:
        print_man(usage);
        break;
    case CY_HELP_WORDS:
        print_words(usage);
        break;
    }
    return cy_report_output(CY_EXIT_DONE);
}
