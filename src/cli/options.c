// Parses command lines by a table, and prints the pages made from it: help, manual, completion.

#include "cli/options.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/report.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- parsing

#define OPTIONS_MAX 64

// The state of parsing a command line.
typedef struct parser {
    const cy_usage *usage;
    cy_arguments *arguments;
    char *values; // the command's struct
    int argc;
    char **argv;
    int next; // the argument to read next
    int made; // texts put together so far
    int errors;
    bool given[OPTIONS_MAX];
} parser;

static bool same_name(const char *a, const char *b, size_t length)
{
    if (strlen(b) != length) return false;
    for (size_t i = 0; i < length; i++) {
        if ((a[i] == '_' ? '-' : a[i]) != (b[i] == '_' ? '-' : b[i])) return false;
    }
    return true;
}

static bool read_count(int64_t *value, const char *text)
{
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    if (end == text || errno != 0 || isspace((unsigned char)text[0])) return false;
    if (!isfinite(number)) return false;
    double scale = 1;
    if (*end == 'k' || *end == 'K') scale = 1e3;
    if (*end == 'M') scale = 1e6;
    if (*end == 'G') scale = 1e9;
    if (scale > 1) end++;
    if (*end != '\0') return false;
    if (scale > 1 || strcspn(text, ".eExX") != strlen(text)) {
        const double scaled = number * scale;
        if (!(fabs(scaled) < 0x1p53) || scaled != nearbyint(scaled)) return false;
        *value = (int64_t)scaled;
        return true;
    }
    *value = strtoll(text, &end, 10); // exact beyond 2^53
    return errno == 0 && *end == '\0';
}

static bool read_number(double *value, const char *text)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value) && !isspace((unsigned char)text[0]);
}

// Sets *value to `text` when it is one of the choices.
static bool read_choice(const char **value, const cy_option *option, const char *text)
{
    const size_t length = strlen(text);
    for (const char *choice = option->values; choice != NULL;) {
        const size_t width = strcspn(choice, "|");
        if (width == length && strncmp(choice, text, width) == 0) {
            *value = text;
            return true;
        }
        choice = choice[width] == '|' ? choice + width + 1 : NULL;
    }
    return false;
}

static bool in_range(const cy_option *option, double value)
{
    return option->low <= value && value <= option->high;
}

static void range_error(const cy_option *option, const char *text)
{
    cy_report_error("--%s=%s: a %s from %.12g to %.12g is wanted", option->name, text,
        option->kind == CY_OPTION_COUNT ? "whole number" : "number", option->low, option->high);
}

// Reads `text` into the option's place; false after an error was reported.
static bool set_value(parser *p, const cy_option *option, const char *text)
{
    void *place = p->values + option->offset;
    switch (option->kind) {
    case CY_OPTION_FLAG: {
        const bool yes = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
        if (!yes && strcmp(text, "false") != 0 && strcmp(text, "0") != 0) {
            cy_report_error("--%s=%s: true or false is wanted", option->name, text);
            return false;
        }
        memcpy(place, &yes, sizeof(yes));
        return true;
    }
    case CY_OPTION_TEXT:
        memcpy(place, &text, sizeof(text));
        return true;
    case CY_OPTION_CHOICE: {
        const char *choice = NULL;
        if (!read_choice(&choice, option, text)) {
            cy_report_error("--%s=%s: one of %s is wanted", option->name, text, option->values);
            return false;
        }
        memcpy(place, &choice, sizeof(choice));
        return true;
    }
    case CY_OPTION_COUNT: {
        int64_t count = 0;
        if (!read_count(&count, text) || !in_range(option, (double)count)) {
            range_error(option, text);
            return false;
        }
        memcpy(place, &count, sizeof(count));
        return true;
    }
    case CY_OPTION_NUMBER: {
        double number = 0;
        if (!read_number(&number, text) || !in_range(option, number)) {
            range_error(option, text);
            return false;
        }
        memcpy(place, &number, sizeof(number));
        return true;
    }
    }
    return false;
}

static void set_defaults(parser *p)
{
    for (int i = 0; i < p->usage->option_count; i++) {
        const cy_option *option = &p->usage->options[i];
        if (option->initial != NULL) {
            const bool is_right = set_value(p, option, option->initial);
            CY_ASSERT(is_right);
        } else if (option->kind == CY_OPTION_FLAG) {
            memset(p->values + option->offset, 0, sizeof(bool));
        } else if (option->kind == CY_OPTION_COUNT || option->kind == CY_OPTION_NUMBER) {
            memset(p->values + option->offset, 0, sizeof(int64_t)); // either's zero
        } else {
            const char *none = NULL;
            memcpy(p->values + option->offset, &none, sizeof(none));
        }
    }
}

static void unknown_option(parser *p, const char *name, size_t length)
{
    char copy[128];
    if (length >= sizeof(copy)) length = sizeof(copy) - 1;
    memcpy(copy, name, length);
    copy[length] = '\0';
    const char *names[OPTIONS_MAX + 1] = {"help"};
    for (int i = 0; i < p->usage->option_count; i++)
        names[i + 1] = p->usage->options[i].name;
    const char *nearest = cy_nearest(copy, names, (size_t)p->usage->option_count + 1);
    cy_report_error("cyclotron %s has no option --%s", p->usage->name, copy);
    if (nearest != NULL) cy_report_hint("did you mean --%s?", nearest);
    p->errors++;
}

// The value behind `--name value`, or NULL after an error was reported.
static const char *next_value(parser *p, const char *name)
{
    if (p->next < p->argc && strncmp(p->argv[p->next], "--", 2) != 0) return p->argv[p->next++];
    cy_report_error("--%s needs a value", name);
    p->errors++;
    return NULL;
}

static void read_override(parser *p, const char *text)
{
    cy_arguments *arguments = p->arguments;
    if (strchr(text, '=') != NULL) {
        arguments->overrides[arguments->override_count++] = text;
        return;
    }
    const char *value = next_value(p, text);
    if (value == NULL) return;
    cy_text joined = {0};
    if (cy_text_add(&joined, "%s=%s", text, value) != CY_OK) {
        p->errors++;
        cy_report_status(CY_ERR_MEMORY);
        return;
    }
    arguments->made[p->made++] = joined.bytes;
    arguments->overrides[arguments->override_count++] = joined.bytes;
}

static void read_option(parser *p, const char *text)
{
    const size_t length = strcspn(text, "=");
    const cy_usage *usage = p->usage;
    if (usage->overrides && memchr(text, '.', length) != NULL) {
        read_override(p, text);
        return;
    }
    int found = -1;
    for (int i = 0; i < usage->option_count; i++) {
        if (same_name(text, usage->options[i].name, length)) found = i;
    }
    if (found < 0) {
        unknown_option(p, text, length);
        // The next argument may be its value: skip it, so that one mistake is one error.
        if (text[length] == '\0' && p->next < p->argc && p->argv[p->next][0] != '-' &&
            p->arguments->count >= usage->least) {
            p->next++;
        }
        return;
    }
    const cy_option *option = &usage->options[found];
    const char *value = text[length] == '=' ? text + length + 1 : NULL;
    if (value == NULL)
        value = option->kind == CY_OPTION_FLAG ? "true" : next_value(p, option->name);
    if (value == NULL) return;
    if (p->given[found]) {
        cy_report_error("--%s is given twice", option->name);
        p->errors++;
        return;
    }
    p->given[found] = true;
    if (!set_value(p, option, value)) p->errors++;
}

static void check_complete(parser *p)
{
    const cy_usage *usage = p->usage;
    const int count = p->arguments->count;
    if (count < usage->least) {
        cy_report_error("cyclotron %s needs %s", usage->name, usage->positional);
        p->errors++;
    }
    if (usage->most >= 0 && count > usage->most) {
        cy_report_error("cyclotron %s: '%s' is one argument too many", usage->name,
            p->arguments->positional[usage->most]);
        p->errors++;
    }
    for (int i = 0; i < usage->option_count; i++) {
        if (usage->options[i].required && !p->given[i]) {
            cy_report_error("cyclotron %s needs --%s", usage->name, usage->options[i].name);
            p->errors++;
        }
    }
}

static cy_status make_room(cy_arguments *arguments, int argc)
{
    const size_t count = (size_t)argc + 1;
    *arguments = (cy_arguments){0};
    CY_TRY(CY_ALLOC(&arguments->positional, count));
    CY_TRY(CY_ALLOC(&arguments->overrides, count));
    return CY_ALLOC(&arguments->made, count);
}

int cy_options_parse(
    cy_arguments *arguments, void *values, const cy_usage *usage, int argc, char **argv)
{
    CY_ASSERT(usage->option_count <= OPTIONS_MAX);
    *arguments = (cy_arguments){0};
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        cy_help_form form;
        if (cy_help_asked(&form, argv[i])) return cy_help_print(usage, form);
    }
    const cy_status room = make_room(arguments, argc);
    if (room != CY_OK) return cy_report_status(room);
    parser p = {
        .usage = usage, .arguments = arguments, .values = values, .argc = argc, .argv = argv};
    set_defaults(&p);

    bool only_positional = false;
    while (p.next < argc) {
        const char *text = argv[p.next++];
        if (only_positional || text[0] != '-' || strcmp(text, "-") == 0) {
            arguments->positional[arguments->count++] = text;
        } else if (strcmp(text, "--") == 0) {
            only_positional = true;
        } else if (text[1] == '-') {
            read_option(&p, text + 2);
        } else {
            unknown_option(&p, text + 1, strcspn(text + 1, "="));
        }
    }
    check_complete(&p);
    if (p.errors == 0) return CY_RUN_COMMAND;
    cy_report_hint("'cyclotron %s --help' shows how it is called", usage->name);
    return CY_EXIT_REQUEST;
}

void cy_arguments_free(cy_arguments *arguments)
{
    for (int i = 0; arguments->made != NULL && arguments->made[i] != NULL; i++) {
        cy_memory_free(arguments->made[i]);
    }
    cy_memory_free(arguments->made);
    cy_memory_free(arguments->positional);
    cy_memory_free(arguments->overrides);
    *arguments = (cy_arguments){0};
}

int cy_usage_error(const cy_usage *usage, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    cy_report_error("%s", text);
    cy_report_hint("'cyclotron %s --help' shows how it is called", usage->name);
    return CY_EXIT_REQUEST;
}

// ---- pages

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

// The words after an option's own doc: its default, or that it is required.
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

// Prints text for man, which takes a backslash, and a dot or quote at the start of a line, as
// commands.
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
