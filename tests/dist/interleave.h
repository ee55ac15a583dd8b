// tests/dist/interleave.h: collectives of all axes of a mesh, mixed at random. What runs on one
// group must not disturb what runs on another.

#ifndef CY_TESTS_DIST_INTERLEAVE_H
#define CY_TESTS_DIST_INTERLEAVE_H

#include "dist/group_suite.h"

#include "base/random.h"
#include "comm/algorithm.h"
#include "comm/backend.h"
#include "comm/mesh.h"

#include <stdlib.h>

#define INTERLEAVE_FLIGHT 8

// Elements of an operation: below a cache line, more than a note's room takes, cut into tasks. The
// last is rare, so that a hundred thousand operations end.
static const int interleave_counts[] = {4, 48, 1024, 24576};
#define INTERLEAVE_LARGEST 24576

// One operation of so many has the last number. Sanitizers look at every byte.
#define INTERLEAVE_RARE (CY_TEST_SANITIZED ? 256 : 64)

typedef struct interleave_flight {
    cy_request request;
    cy_operation_kind what;
    int kind; // of group
    int number;
    int count; // elements that this rank gets
    int peer;
    cy_reduce_op reduce;
    int64_t *in;  // owned, [INTERLEAVE_LARGEST]
    int64_t *out; // owned, [INTERLEAVE_LARGEST]
} interleave_flight;

static const cy_mesh_kind interleave_kinds[] = {CY_MESH_TP, CY_MESH_CP, CY_MESH_PP, CY_MESH_DP,
    CY_MESH_CP_DP, CY_MESH_MODEL, CY_MESH_EP, CY_MESH_EDP, CY_MESH_WORLD};
#define INTERLEAVE_KINDS 9

typedef struct interleave_mesh {
    cy_group *groups[INTERLEAVE_KINDS];
    int members[INTERLEAVE_KINDS][16];
} interleave_mesh;

// What world rank `rank` brings to operation `number` at element i.
static inline int64_t interleave_value(int rank, int number, int64_t i)
{
    return (int64_t)rank * 1000003 + number + i % 1000;
}

// What this rank should have of one part afterwards: at element i of it, base + factor * ((shift +
// i) % 1000).
typedef struct interleave_part {
    int64_t base, factor, shift;
} interleave_part;

static inline interleave_part interleave_wanted(
    const interleave_mesh *mesh, const interleave_flight *flight, int64_t part, int64_t length)
{
    const int *members = mesh->members[flight->kind];
    const int size = cy_group_size(mesh->groups[flight->kind]);
    const int rank = cy_group_rank(mesh->groups[flight->kind]);
    const int number = flight->number;
    if (flight->what == CY_OP_ALL_REDUCE || flight->what == CY_OP_REDUCE_SCATTER) {
        const int64_t shift = flight->what == CY_OP_ALL_REDUCE ? part * length : rank * length;
        if (flight->reduce == CY_MAX) {
            return (interleave_part){interleave_value(members[size - 1], number, 0), 1, shift};
        }
        int64_t base = 0;
        for (int m = 0; m < size; m++)
            base += interleave_value(members[m], number, 0);
        return (interleave_part){base, size, shift};
    }
    if (flight->what == CY_OP_ALL_GATHER) {
        return (interleave_part){interleave_value(members[part], number, 0), 1, 0};
    }
    if (flight->what == CY_OP_ALL_TO_ALL) {
        return (interleave_part){interleave_value(members[part], number, 0), 1, length * rank};
    }
    // A broadcast, or a message.
    return (interleave_part){interleave_value(members[flight->peer], number, 0), 1, part * length};
}

static inline cy_status interleave_finish(const interleave_mesh *mesh, interleave_flight *flight)
{
    if (flight->request.handle == NULL) return CY_OK;
    CY_TRY(cy_group_wait(mesh->groups[flight->kind], NULL, &flight->request));
    if (flight->what == CY_OP_SEND || flight->what == CY_OP_BARRIER) return CY_OK;
    const int size = cy_group_size(mesh->groups[flight->kind]);
    const int64_t parts = flight->what == CY_OP_REDUCE_SCATTER ? 1 : size;
    const int64_t length = flight->count / parts;
    for (int64_t p = 0; p < parts; p++) {
        const interleave_part wanted = interleave_wanted(mesh, flight, p, length);
        const int64_t *out = flight->out + p * length;
        int64_t i = 0;
        while (i < length && out[i] == wanted.base + wanted.factor * ((wanted.shift + i) % 1000))
            i++;
        SUITE_EXPECT(i == length, "operation %d, %s of %s: element %lld of part %lld is %lld",
            flight->number, cy_operation_name(flight->what),
            cy_mesh_kind_name(interleave_kinds[flight->kind]), (long long)i, (long long)p,
            (long long)out[i]);
    }
    return CY_OK;
}

// Members 2k and 2k + 1 exchange: the even ones send first.
static inline cy_status interleave_message(
    cy_group *group, interleave_flight *flight, cy_view in, cy_view out)
{
    const int rank = cy_group_rank(group);
    const int peer = rank ^ 1;
    if (peer >= cy_group_size(group)) return CY_OK;
    flight->peer = peer;
    flight->what = rank % 2 == 0 ? CY_OP_SEND : CY_OP_RECV;
    if (rank % 2 == 0) return cy_group_start_send(group, NULL, &flight->request, in, peer, 1);
    return cy_group_start_recv(group, NULL, &flight->request, out, peer, 1);
}

static inline cy_status interleave_start(
    const interleave_mesh *mesh, interleave_flight *flight, int me, uint64_t dice)
{
    static const cy_operation_kind operations[] = {CY_OP_ALL_REDUCE, CY_OP_ALL_REDUCE,
        CY_OP_REDUCE_SCATTER, CY_OP_ALL_GATHER, CY_OP_ALL_TO_ALL, CY_OP_BROADCAST, CY_OP_BARRIER,
        CY_OP_SEND};
    cy_group *group = mesh->groups[flight->kind];
    const int size = cy_group_size(group);
    const int about = interleave_counts[(dice >> 20) % INTERLEAVE_RARE == 0 ? 3 : (dice >> 28) % 3];
    const int count = about > size ? about / size * size : size;
    const int64_t part = count / size;
    flight->what = operations[(dice >> 32) % 8];
    flight->reduce = (dice >> 16) % 2 == 0 ? CY_SUM : CY_MAX;
    flight->peer = (int)((dice >> 40) % (uint64_t)size);
    flight->count = flight->what == CY_OP_REDUCE_SCATTER ? (int)part : count;
    for (int64_t i = 0; i < count; i++)
        flight->in[i] = interleave_value(me, flight->number, i);
    const cy_view in = cy_view_of(flight->in, CY_I64, size, part);
    const cy_view out = cy_view_of(flight->out, CY_I64, size, part);
    switch (flight->what) {
    case CY_OP_ALL_REDUCE:
        memcpy(flight->out, flight->in, (size_t)count * sizeof(int64_t));
        return cy_group_start_all_reduce(group, NULL, &flight->request, out, flight->reduce);
    case CY_OP_REDUCE_SCATTER:
        return cy_group_start_reduce_scatter(
            group, NULL, &flight->request, cy_view_rows(out, 0, 1), in, flight->reduce);
    case CY_OP_ALL_GATHER:
        return cy_group_start_all_gather(
            group, NULL, &flight->request, out, cy_view_rows(in, 0, 1));
    case CY_OP_ALL_TO_ALL:
        return cy_group_start_all_to_all(group, NULL, &flight->request, out, in);
    case CY_OP_BROADCAST:
        memcpy(flight->out, flight->in, (size_t)count * sizeof(int64_t));
        return cy_group_start_broadcast(group, NULL, &flight->request, out, flight->peer);
    case CY_OP_BARRIER:
        return cy_group_barrier(group);
    case CY_OP_SEND:
    case CY_OP_RECV:
    case CY_OP_ALL_TO_ALLV:
        break;
    }
    return interleave_message(group, flight, in, out);
}

// How many operations, and, where fragment_bytes is not 0, by rings whose pieces go in such
// fragments and are added where they have come, as between processes.
typedef struct interleave_job {
    int operations;
    size_t fragment_bytes;
} interleave_job;

static inline cy_status interleave_wrap(cy_group **group, size_t fragment_bytes)
{
    if (fragment_bytes == 0 || cy_group_size(*group) == 1) return CY_OK;
    (*group)->fragment_bytes = fragment_bytes;
    (*group)->reduces_on_recv = false;
    const cy_algorithm_options options = {
        .table = cy_algorithm_always(CY_ALGORITHM_RING), .progress_thread = true};
    return cy_algorithm_open(group, *group, &options);
}

// Axes of two ranks as far as there are so many, or one axis.
static inline cy_status interleave_open(
    interleave_mesh *made, cy_world *world, size_t fragment_bytes)
{
    const int size = cy_world_size(world);
    cy_mesh_spec request = {.tp = 1,
        .cp = 1,
        .pp = 1,
        .dp = 1,
        .ep = size == 16 ? 4 : 1,
        .etp = 1,
        .rank_order = "tp,cp,pp,dp",
        .world = size};
    int *const axes[] = {&request.tp, &request.dp, &request.pp, &request.cp};
    int left = size;
    for (int i = 0; i < 4 && left % 2 == 0; i++, left /= 2)
        *axes[i] = 2;
    request.tp *= left;
    cy_mesh mesh;
    CY_TRY(cy_mesh_make(&mesh, &request));
    for (int k = 0; k < INTERLEAVE_KINDS; k++) {
        cy_mesh_ranks(&mesh, interleave_kinds[k], cy_world_rank(world), made->members[k]);
        CY_TRY(cy_world_open_group(world, &made->groups[k], made->members[k],
            cy_mesh_group_size(&mesh, interleave_kinds[k]),
            cy_mesh_kind_dimension(interleave_kinds[k])));
        CY_TRY(interleave_wrap(&made->groups[k], fragment_bytes));
    }
    return CY_OK;
}

// Operation i goes to the group that the random numbers say, the same kind on every rank, and up
// to INTERLEAVE_FLIGHT of them are waited for out of order.
static inline cy_status interleave(cy_world *world, const interleave_job *job)
{
    interleave_mesh mesh = {0};
    CY_TRY(interleave_open(&mesh, world, job->fragment_bytes));
    const int me = cy_world_rank(world);
    interleave_flight flights[INTERLEAVE_FLIGHT];
    memset(flights, 0, sizeof(flights));
    for (int f = 0; f < INTERLEAVE_FLIGHT; f++) {
        flights[f].in = calloc(INTERLEAVE_LARGEST, sizeof(int64_t));
        flights[f].out = calloc(INTERLEAVE_LARGEST, sizeof(int64_t));
        SUITE_EXPECT(flights[f].in != NULL && flights[f].out != NULL, "no memory");
    }
    for (int i = 0; i < job->operations; i++) {
        const uint64_t dice = cy_random_bits(7, (uint64_t)i);
        interleave_flight *flight = &flights[dice % INTERLEAVE_FLIGHT];
        CY_TRY(interleave_finish(&mesh, flight));
        flight->number = i;
        flight->kind = (int)((dice >> 8) % INTERLEAVE_KINDS);
        CY_TRY(interleave_start(&mesh, flight, me, dice));
        if (cy_random_bits(8 + (uint64_t)me, (uint64_t)i) % 4 == 0)
            CY_TRY(interleave_finish(&mesh, flight));
    }
    for (int f = 0; f < INTERLEAVE_FLIGHT; f++)
        CY_TRY(interleave_finish(&mesh, &flights[f]));
    for (int f = 0; f < INTERLEAVE_FLIGHT; f++) {
        free(flights[f].in);
        free(flights[f].out);
    }
    for (int k = 0; k < INTERLEAVE_KINDS; k++)
        cy_group_close(mesh.groups[k]);
    return CY_OK;
}

static inline cy_status interleave_rank(cy_world *world, void *context)
{
    return interleave(world, context);
}

#endif
