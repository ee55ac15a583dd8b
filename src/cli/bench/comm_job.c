// Starting this program again under mpirun.

#define _GNU_SOURCE
#include "base/io.h"
#include "cli/bench/comm.h"
#include "cli/job.h"
#include "cli/report.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Rows that this program printed under mpirun.
static cy_status read_rows(bench_table *t, const char *text, size_t length)
{
    json_error_t error;
    json_t *array = json_loadb(text, length, 0, &error);
    if (array == NULL) return CY_FAIL(CY_ERR_CORRUPT, "the ranks under mpirun: %s", error.text);
    cy_status status = CY_OK;
    size_t index;
    json_t *item;
    json_array_foreach(array, index, item)
    {
        const char *op = json_string_value(json_object_get(item, "op"));
        const char *algorithm = json_string_value(json_object_get(item, "algorithm"));
        bench_row made = {
            .ranks = (int)json_integer_value(json_object_get(item, "ranks")),
            .bytes = json_integer_value(json_object_get(item, "bytes")),
            .us = json_number_value(json_object_get(item, "us")),
            .bus_gb_s = json_number_value(json_object_get(item, "bus_gb_s")),
        };
        while (made.op < BENCH_OPS && (op == NULL || strcmp(bench_op_name(made.op), op) != 0))
            made.op++;
        if (made.op == BENCH_OPS || algorithm == NULL) {
            status = CY_FAIL(CY_ERR_CORRUPT, "the ranks under mpirun: row %zu is none", index);
            break;
        }
        snprintf(made.algorithm, sizeof(made.algorithm), "%s", algorithm);
        snprintf(made.backend, sizeof(made.backend), "mpi");
        status = bench_add_row(t, made);
        if (status != CY_OK) break;
    }
    json_decref(array);
    return status;
}

// A failure where mpirun ended in another way than with status 0.
static cy_status wait_for(pid_t child)
{
    int how = 0;
    if (waitpid(child, &how, 0) != child) return CY_FAIL_ERRNO(CY_ERR_IO, "wait for mpirun");
    if (WIFSIGNALED(how)) {
        return CY_FAIL(CY_ERR_PEER, "signal %d ended mpirun", WTERMSIG(how));
    }
    if (WEXITSTATUS(how) == 0) return CY_OK;
    return CY_FAIL(CY_ERR_PEER, "mpirun ended with status %d", WEXITSTATUS(how));
}

cy_status bench_run_under_mpi(const bench_values *v, bench_table *t)
{
    char self[1024];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0) return CY_FAIL_ERRNO(CY_ERR_IO, "read /proc/self/exe");
    self[length] = '\0';
    char ranks[16];
    char bytes[48];
    snprintf(ranks, sizeof(ranks), "%d", (int)v->ranks);
    snprintf(bytes, sizeof(bytes), "--bytes=%lld", (long long)v->bytes);
    // Open MPI refuses root and more ranks than cores unless it is told that this is meant.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    char words[][20] = {
        "mpirun", "--oversubscribe", "-n", "bench", "comm", "--backend=mpi", "--json"};
    char op[32];
    snprintf(op, sizeof(op), "--op=%s", v->op);
    char *arguments[] = {words[0], words[1], words[2], ranks, self, words[3], words[4], words[5],
        words[6], bytes, op, NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "make a pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    pid_t child = 0;
    const int refused = posix_spawnp(&child, "mpirun", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    cy_io_close(ends[1]);
    if (refused != 0) {
        cy_io_close(ends[0]);
        if (refused == ENOENT && strcmp(v->backend, "mpi") != 0) {
            cy_report_warning("mpirun is not installed: threads only");
            return CY_OK;
        }
        errno = refused;
        return CY_FAIL_ERRNO(CY_ERR_UNSUPPORTED, "start mpirun");
    }
    cy_text text = {0};
    cy_status status = CY_OK;
    char piece[4096];
    ssize_t got;
    while ((got = cy_io_read(ends[0], piece, sizeof(piece))) > 0) {
        if (status == CY_OK) status = cy_text_add_bytes(&text, piece, (size_t)got);
    }
    cy_io_close(ends[0]);
    if (status == CY_OK) {
        status = wait_for(child);
    } else {
        waitpid(child, NULL, 0); // what went wrong before is what is told
    }
    if (status == CY_OK) status = read_rows(t, text.bytes, text.length);
    cy_text_free(&text);
    return status;
}

bool bench_launched(void)
{
    return cy_machine_found().under_mpi;
}

bool bench_is_rank_zero(void)
{
    return cy_machine_found().rank == 0;
}
