// cli/commands.h: the subcommands of the program.
//
// A command's function gets the arguments after its own name and returns the exit status. A new
// command is a function here, a file cli/<name>.c, and a line in a table of main.c.

#ifndef CY_CLI_COMMANDS_H
#define CY_CLI_COMMANDS_H

typedef struct cy_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *doc; // one line
} cy_command;

// Runs the command of `commands` [count] that argv[0] names: of a group such as `config check`,
// with `group` "config", or of the program itself, with "".
int cy_commands_run(
    const cy_command *commands, int count, const char *group, int argc, char **argv);

// The program's own commands: the table of main.c.
const cy_command *cy_commands(int *count);

int cy_command_bench(int argc, char **argv);
int cy_command_checkpoint(int argc, char **argv);
int cy_command_completion(int argc, char **argv);
int cy_command_config(int argc, char **argv);
int cy_command_doctor(int argc, char **argv);
int cy_command_eval(int argc, char **argv);
int cy_command_generate(int argc, char **argv);
int cy_command_man(int argc, char **argv);
int cy_command_metrics(int argc, char **argv);
int cy_command_data(int argc, char **argv);
int cy_command_plan(int argc, char **argv);
int cy_command_schedule(int argc, char **argv);
int cy_command_train(int argc, char **argv);
int cy_command_tokenizer(int argc, char **argv);
int cy_command_version(int argc, char **argv);

// Commands of groups that have a file of their own.
int cy_command_bench_checkpoint(int argc, char **argv);
int cy_command_bench_comm(int argc, char **argv);
int cy_command_bench_kernel(int argc, char **argv);
int cy_command_bench_step(int argc, char **argv);
int cy_command_bench_decode(int argc, char **argv);

#endif
