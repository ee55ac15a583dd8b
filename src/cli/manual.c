// cyclotron man and cyclotron completion: print the manual page and the shell's completion, made
// from the commands' own tables, so that they cannot drift from what is parsed.

#include "build_info.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>

// ---- completion

typedef struct no_values {
    char none;
} no_values;

static const cy_usage completion_usage = {
    .name = "completion",
    .positional = "bash|zsh",
    .least = 1,
    .most = 1,
    .doc = "Prints a script that completes commands, options and configuration keys.",
    .more = "bash: cyclotron completion bash >/etc/bash_completion.d/cyclotron, or source it.",
};

// The script asks the program itself for the words, so a new option needs no new script.
static const char bash_script[] =
    "_cyclotron() {\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} words='' command='' word\n"
    "    COMP_WORDBREAKS=${COMP_WORDBREAKS//=/}\n"
    "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
    "        case $word in\n"
    "        -*) ;;\n"
    "        *) command=\"$command $word\" ;;\n"
    "        esac\n"
    "    done\n"
    "    # The first words may be a command and its subcommand: the longest that answers counts.\n"
    "    set -- $command\n"
    "    words=$(cyclotron $1 $2 --help=words 2>/dev/null) ||\n"
    "        words=$(cyclotron $1 --help=words 2>/dev/null)\n"
    "    case $current in\n"
    "    --*.*) words=$(cyclotron config show --words) ;;\n"
    "    esac\n"
    "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
    "    case $current in\n"
    "    --*) ;;\n"
    "    *) COMPREPLY+=($(compgen -f -- \"$current\")) ;;\n"
    "    esac\n"
    "    [[ ${#COMPREPLY[@]} = 1 && ${COMPREPLY[0]} = *= ]] && compopt -o nospace\n"
    "}\n"
    "complete -o filenames -F _cyclotron cyclotron\n";

static int completion(const char *shell)
{
    if (strcmp(shell, "zsh") == 0) {
        printf("autoload -U +X bashcompinit && bashcompinit\n");
    } else if (strcmp(shell, "bash") != 0) {
        return cy_usage_error(
            &completion_usage, "cyclotron completion knows bash and zsh, not %s", shell);
    }
    fputs(bash_script, stdout);
    return cy_report_output(CY_EXIT_DONE);
}

int cy_command_completion(int argc, char **argv)
{
    no_values values;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &values, &completion_usage, argc, argv);
    if (status == CY_RUN_COMMAND) status = completion(arguments.positional[0]);
    cy_arguments_free(&arguments);
    return status;
}

// ---- man

static const cy_usage man_usage = {
    .name = "man",
    .doc = "Prints the manual page: cyclotron man | man -l -",
};

static const char man_head[] =
    ".SH NAME\n"
    "cyclotron \\- pre\\-train Llama\\-like language models, split over any number of ranks\n"
    ".SH SYNOPSIS\n"
    ".B cyclotron\n"
    "<command> [positional] [\\-\\-option=value | \\-\\-option value | "
    "\\-\\-section.key=value ...]\n"
    ".SH DESCRIPTION\n"
    "One program that prepares text, trains, evaluates and generates. Ranks are threads of one\n"
    "process, or processes started by mpirun or srun, with the same configuration file. Each\n"
    "command prints what it takes with \\-\\-help; machine\\-readable output is asked for with\n"
    "\\-\\-json and is then the only thing on the standard output.\n"
    ".SH COMMANDS\n";

static const char man_tail[] =
    ".SH EXIT STATUS\n"
    ".TP\n0\ndone\n"
    ".TP\n1\nfailed while running\n"
    ".TP\n2\nthe request itself was wrong\n"
    ".TP\n130, 143, 129, 140, 152, 141\nstopped by Ctrl\\-C, SIGTERM, SIGHUP, SIGUSR2, SIGXCPU, a "
    "closed pipe; a training run saves first\n"
    ".SH ENVIRONMENT\n"
    ".TP\nNO_COLOR\nno colours on a terminal\n"
    ".SH CONFIGURATION\n"
    "Keys of a configuration file, which are options \\-\\-section.key=value as well:\n"
    ".PP\n.nf\n";

static int man(void)
{
    printf(".TH CYCLOTRON 1 \"\" \"cyclotron %s\"\n%s", CY_VERSION, man_head);
    int count;
    const cy_command *commands = cy_commands(&count);
    char form[] = "--help=man";
    char *argument = form;
    for (int i = 0; i < count; i++) {
        const int status = commands[i].run(1, &argument);
        if (status != CY_EXIT_DONE) return status;
    }
    fputs(man_tail, stdout);
    cy_text keys = {0};
    const cy_status status = cy_config_doc_text(&keys);
    if (status == CY_OK) fputs(keys.bytes, stdout);
    printf(".fi\n");
    cy_text_free(&keys);
    if (status != CY_OK) return cy_report_status(status);
    return cy_report_output(CY_EXIT_DONE);
}

int cy_command_man(int argc, char **argv)
{
    no_values values;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &values, &man_usage, argc, argv);
    if (status == CY_RUN_COMMAND) status = man();
    cy_arguments_free(&arguments);
    return status;
}
