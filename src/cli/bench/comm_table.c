// The rows of `bench comm`, and what it prints of them.

#include "cli/bench/comm.h"
#include "cli/options.h"

#include "base/memory.h"
#include "kernel/peak.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

cy_status bench_add_row(bench_table *t, bench_row added)
{
    void *block = t->rows;
    CY_TRY(cy_memory_grow(&block, &t->capacity, (size_t)t->count + 1, sizeof(bench_row)));
    t->rows = block;
    t->rows[t->count++] = added;
    return CY_OK;
}

const bench_row *bench_find_row(
    const bench_table *t, const char *backend, bench_op op, const char *algorithm, int64_t bytes)
{
    for (int i = 0; i < t->count; i++) {
        const bench_row *r = &t->rows[i];
        if (r->op == op && r->bytes == bytes && strcmp(r->backend, backend) == 0 &&
            strcmp(r->algorithm, algorithm) == 0) {
            return r;
        }
    }
    return NULL;
}

cy_status bench_rows_to_json(cy_text *text, const bench_table *t)
{
    CY_TRY(cy_text_add(text, "["));
    for (int i = 0; i < t->count; i++) {
        const bench_row *r = &t->rows[i];
        CY_TRY(cy_text_add(text,
            "%s\n{\"op\":\"%s\",\"algorithm\":\"%s\",\"backend\":\"%s\",\"ranks\":%d,"
            "\"bytes\":%lld,\"us\":%s,\"bus_gb_s\":%s}",
            i == 0 ? "" : ",", bench_op_name(r->op), r->algorithm, r->backend, r->ranks,
            (long long)r->bytes, cy_json_number(r->us, 6).bytes,
            cy_json_number(r->bus_gb_s, 6).bytes));
    }
    return cy_text_add(text, "\n]\n");
}

static const char *const algorithms[] = {
    "auto", "native", "ring", "tree", "doubling", "hierarchical", "server"};

// The fastest all_reduce of this size over the backend, of those that are no choice among others.
static const bench_row *fastest(const bench_table *t, const char *backend, int64_t bytes)
{
    const bench_row *best = NULL;
    for (int a = 1; a < CY_COUNT(algorithms); a++) {
        const bench_row *r = bench_find_row(t, backend, BENCH_ALL_REDUCE, algorithms[a], bytes);
        if (r != NULL && (best == NULL || r->us < best->us)) best = r;
    }
    return best;
}

static void print_algorithm_row(const bench_table *t, const char *backend, int64_t bytes)
{
    const bench_row *best = fastest(t, backend, bytes);
    printf("%10lld", (long long)bytes);
    for (int a = 0; a < CY_COUNT(algorithms); a++) {
        const bench_row *r = bench_find_row(t, backend, BENCH_ALL_REDUCE, algorithms[a], bytes);
        if (r == NULL) {
            printf(" %13s", "-");
        } else {
            printf(" %12.2f%c", r->us, r == best ? '*' : ' ');
        }
    }
    printf("\n");
}

// How far what `auto` chose is behind the fastest.
static void print_auto(const bench_table *t, const char *backend)
{
    const bench_row *worst = NULL;
    double most = 1.0;
    bool measured = false;
    for (int i = 0; i < t->count; i++) {
        const bench_row *r = &t->rows[i];
        if (strcmp(r->backend, backend) != 0 || strcmp(r->algorithm, "auto") != 0) continue;
        const bench_row *best = fastest(t, backend, r->bytes);
        if (best == NULL) continue;
        measured = true;
        const double behind = r->us / best->us;
        if (behind > most) {
            most = behind;
            worst = r;
        }
    }
    if (!measured) return;
    if (worst == NULL) {
        printf("auto is as fast as the fastest at every size\n");
    } else {
        printf("auto is within %.0f %% of the fastest, farthest at %lld bytes (%s)\n",
            (most - 1.0) * 100.0, (long long)worst->bytes,
            fastest(t, backend, worst->bytes)->algorithm);
    }
}

// Microseconds of every algorithm of all_reduce by size, and what `auto` makes of it.
static void print_algorithms(const bench_table *t, const char *backend)
{
    bool titled = false;
    for (int i = 0; i < t->count; i++) {
        const bench_row *r = &t->rows[i];
        if (strcmp(r->backend, backend) != 0 || r->op != BENCH_ALL_REDUCE) continue;
        if (strcmp(r->algorithm, "native") != 0) continue;
        if (!titled) {
            printf("\nall_reduce over %s, microseconds (* the fastest)\n%10s", backend, "bytes");
            for (int a = 0; a < CY_COUNT(algorithms); a++)
                printf(" %13s", algorithms[a]);
            printf("\n");
            titled = true;
        }
        print_algorithm_row(t, backend, r->bytes);
    }
    if (titled) print_auto(t, backend);
}

// One cell: microseconds, or a dash.
static void print_us(const bench_row *r)
{
    if (r == NULL) {
        printf(" %12s", "-");
    } else {
        printf(" %12.2f", r->us);
    }
}

// Every operation as the backends do it, beside what MPI does by itself between processes.
static void print_operations(const bench_table *t)
{
    printf("\nmicroseconds of each backend's own, and of the MPI library between processes\n"
           "%15s %10s %12s %12s %12s %12s\n",
        "operation", "bytes", "threads", "mpi", "MPI library", "bus GB/s");
    for (int i = 0; i < t->count; i++) {
        const bench_row *r = &t->rows[i];
        if (strcmp(r->algorithm, "native") != 0) continue;
        const bench_row *threads = bench_find_row(t, "threads", r->op, "native", r->bytes);
        const bench_row *mpi = bench_find_row(t, "mpi", r->op, "native", r->bytes);
        if (r != threads && threads != NULL) continue; // printed with the other backend's
        printf("%15s %10lld", bench_op_name(r->op), (long long)r->bytes);
        print_us(threads);
        print_us(mpi);
        print_us(bench_find_row(t, "mpi", r->op, BENCH_MPI, r->bytes));
        printf(" %12.2f\n", r->bus_gb_s);
    }
}

// A message takes alpha + bytes / beta: from the smallest and the largest that were sent.
static void print_link(const bench_table *t, const bench_values *v, const char *backend)
{
    const bench_row *small = bench_find_row(t, backend, BENCH_SEND, "native", 8);
    const bench_row *large = bench_find_row(t, backend, BENCH_SEND, "native", v->bytes);
    if (small == NULL || large == NULL || large == small) return;
    printf("\nlink over %s: alpha %.2f us, ", backend, small->us);
    if (large->us < 2.0 * small->us) { // what sending costs hides what the bytes cost
        printf("beta needs larger messages than %lld bytes\n", (long long)v->bytes);
        return;
    }
    printf(
        "beta %.2f GB/s\n", (double)(large->bytes - small->bytes) / (large->us - small->us) * 1e-3);
}

// The ring against what its links carry when every rank sends to its neighbour at once.
static void print_ring(const bench_table *t, const bench_values *v, const char *backend)
{
    const bench_row *ring = bench_find_row(t, backend, BENCH_ALL_REDUCE, "ring", v->bytes);
    const bench_row *link = bench_find_row(t, backend, BENCH_NEIGHBOUR, "native", v->bytes);
    if (ring == NULL || link == NULL) return;
    printf("ring over %s, %lld bytes: %.2f GB/s, %.0f %% of the %.2f GB/s that neighbours send\n",
        backend, (long long)v->bytes, ring->bus_gb_s, 100.0 * ring->bus_gb_s / link->bus_gb_s,
        link->bus_gb_s);
}

// Bytes that memory must give and take for n bytes on P ranks of one process, as multiples of n:
// what is read, each datum once, and what is written.
typedef struct touched {
    double read;
    double written;
} touched;

static touched touched_by(bench_op op, double ranks)
{
    switch (op) {
    case BENCH_ALL_REDUCE:
    case BENCH_ALL_TO_ALL:
        return (touched){ranks, ranks};
    case BENCH_REDUCE_SCATTER:
        return (touched){ranks, 1.0};
    case BENCH_ALL_GATHER:
        return (touched){1.0, ranks};
    case BENCH_BROADCAST:
        return (touched){1.0, ranks - 1.0};
    case BENCH_SEND:
        return (touched){1.0, 1.0};
    case BENCH_NEIGHBOUR:
        return (touched){ranks / 2.0, ranks / 2.0};
    case BENCH_BARRIER:
        break;
    }
    return (touched){0.0, 0.0};
}

// The largest operations between threads against a copy of as many bytes by as many threads.
static cy_status print_memory(const bench_table *t, const bench_values *v)
{
    if (v->bytes < 1 << 20) return CY_OK;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int workers = cores < v->ranks ? (int)cores : (int)v->ranks;
    cy_thread_pool *pool = NULL;
    CY_TRY(cy_thread_pool_open(&pool, workers, -1, true));
    cy_queue queue = {.pool = pool};
    cy_bandwidth memory;
    const cy_status status = cy_bandwidth_measure(&memory, &queue, (size_t)v->bytes);
    cy_thread_pool_close(pool);
    CY_TRY(status);
    bool titled = false;
    for (int op = 0; op < BENCH_OPS; op++) {
        const bench_row *r = bench_find_row(t, "threads", (bench_op)op, "native", v->bytes);
        if (r == NULL) continue;
        if (!titled) {
            printf("\n%lld bytes over threads against memory: %d threads copy %.1f GB/s, read and "
                   "written bytes counted\n%15s %10s %10s %10s %8s\n",
                (long long)v->bytes, workers, memory.copy * 1e-9, "operation", "read", "written",
                "GB/s", "share");
            titled = true;
        }
        const touched bytes = touched_by((bench_op)op, (double)r->ranks);
        const double rate = (bytes.read + bytes.written) * (double)r->bytes / r->us * 1e-3;
        printf("%15s %9.0fn %9.0fn %10.1f %7.0f%%\n", bench_op_name(r->op), bytes.read,
            bytes.written, rate, rate / memory.copy * 1e11);
    }
    return CY_OK;
}

cy_status bench_print(const bench_table *t, const bench_values *v)
{
    static const char *const backends[] = {"threads", "mpi"};
    print_operations(t);
    for (int i = 0; i < CY_COUNT(backends); i++) {
        print_algorithms(t, backends[i]);
        print_link(t, v, backends[i]);
        print_ring(t, v, backends[i]);
    }
    return print_memory(t, v);
}
