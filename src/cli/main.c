// The program: finds the command, or the command of a group, and hands it its arguments.

#define _POSIX_C_SOURCE 200809L
#include "base/io.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- finding a command

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

// ---- the commands

// In the order of a user's work: one line a command, whose function commands.h declares.
static const cy_command commands[] = {
    {"train", cy_command_train, "train as a configuration says"},
    {"generate", cy_command_generate, "continue a text with a trained model"},
    {"eval", cy_command_eval, "loss and perplexity of a model on a text"},
    {"bench", cy_command_bench, "the machine's and the program's figures"},
    {"tokenizer", cy_command_tokenizer, "train a tokenizer; text to token ids and back"},
    {"data", cy_command_data, "make token shards of text; look into them"},
    {"config", cy_command_config, "make, check and show configurations"},
    {"checkpoint", cy_command_checkpoint, "look at checkpoints; Hugging Face folders in and out"},
    {"metrics", cy_command_metrics, "compare runs: one CSV row each, or a loss curve"},
    {"plan", cy_command_plan, "mesh, shards, schedule, memory and traffic of a configuration"},
    {"schedule", cy_command_schedule, "print, check and draw a pipeline schedule"},
    {"doctor", cy_command_doctor, "what this machine offers, what is missing"},
    {"completion", cy_command_completion, "print a shell's completion of this program"},
    {"man", cy_command_man, "print the manual page of this program"},
    {"version", cy_command_version, "what this binary is and what it was built with"},
};

// Commands that this version does not have yet, and what to use instead.
static const struct {
    const char *name;
    const char *instead;
} absent[] = {
    {"monitor",
        "'cyclotron metrics RUN --plot' draws the loss of a run, also while it goes on; "
        "--logging.tensorboard=true writes curves as well"},
    {"submit", "in a job script, 'srun cyclotron train CONFIG' takes the ranks that the job has"},
};

const cy_command *cy_commands(int *count)
{
    *count = CY_COUNT(commands);
    return commands;
}

static const cy_command benchmarks[] = {
    {"checkpoint", cy_command_bench_checkpoint, "saving and loading beside plain files"},
    {"comm", cy_command_bench_comm, "moving data between ranks"},
    {"decode", cy_command_bench_decode, "a saved model: its first token and those after it"},
    {"kernel", cy_command_bench_kernel, "each operator against this machine's peaks"},
    {"step", cy_command_bench_step, "optimizer steps on random tokens"},
};

int cy_command_bench(int argc, char **argv)
{
    return cy_commands_run(benchmarks, CY_COUNT(benchmarks), "bench", argc, argv);
}

// ---- starting

// Where a standard stream is closed, the first file that is opened would get its number, and prints
// would go into that file. Opens /dev/null under such numbers, in the mode that makes reads and
// writes fail as on a closed stream.
static bool hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        const int mode = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (fcntl(fd, F_GETFD) < 0 && cy_io_open("/dev/null", mode) != fd) return false;
    }
    return true;
}

// Checked at the start, because running out of stack ends the program without a message.
static bool has_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= CY_MAIN_STACK_BYTES) return true;
    cy_report_error("the stack is limited to %llu KiB, %zu KiB are needed",
        (unsigned long long)limit.rlim_cur / 1024, CY_MAIN_STACK_BYTES / 1024);
    cy_report_hint("'ulimit -s %zu' before the program, or more", CY_THREAD_STACK_BYTES / 1024);
    return false;
}

// Where the umask removes the owner's rights, the program could not use the files and folders that
// it makes, and a run could not save.
static void keep_owner_rights(void)
{
    const mode_t mask = umask(0);
    umask(mask & (mode_t)~S_IRWXU);
}

int main(int argc, char **argv)
{
    if (!hold_standard_streams()) return CY_EXIT_FAILED;
    if (!has_stack()) return CY_EXIT_REQUEST;
    keep_owner_rights();
    // Growing a file beyond its limit is then a failed write, reported like a full disk.
    signal(SIGXFSZ, SIG_IGN);
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        return cy_command_version(argc - 2, argv + 2);
    }
    for (int i = 0; argc > 1 && i < CY_COUNT(absent); i++) {
        if (strcmp(argv[1], absent[i].name) != 0) continue;
        cy_report_error("this version has no command '%s' yet", absent[i].name);
        cy_report_hint("%s", absent[i].instead);
        return CY_EXIT_REQUEST;
    }
    return cy_commands_run(commands, CY_COUNT(commands), "", argc - 1, argv + 1);
}
