// cyclotron bench: the machine's and the program's figures.

#include "cli/commands.h"
#include "cli/options.h"

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
