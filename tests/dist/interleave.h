// tests/dist/interleave.h: collectives of all axes of a mesh, mixed at random. What runs on one
// group must not disturb what runs on another.

#ifndef CY_TESTS_DIST_INTERLEAVE_H
#define CY_TESTS_DIST_INTERLEAVE_H

#include "dist/group_suite.h"

#include "base/random.h"
#include "comm/mesh.h"

#define INTERLEAVE_FLIGHT 8

typedef struct interleave_flight {
    cy_request request;
    int64_t data[4];
    int64_t wanted;
    int kind;
} interleave_flight;

static const cy_mesh_kind interleave_kinds[] = {CY_MESH_TP, CY_MESH_CP, CY_MESH_PP, CY_MESH_DP,
    CY_MESH_CP_DP, CY_MESH_MODEL, CY_MESH_EP, CY_MESH_EDP, CY_MESH_WORLD};
#define INTERLEAVE_KINDS 9

static inline cy_status interleave_finish(cy_group **groups, interleave_flight *flight)
{
    if (flight->request.handle == NULL) return CY_OK;
    CY_TRY(cy_group_wait(groups[flight->kind], NULL, &flight->request));
    SUITE_EXPECT(flight->data[3] == flight->wanted, "%s: %lld, not %lld",
        cy_mesh_kind_name(interleave_kinds[flight->kind]), (long long)flight->data[3],
        (long long)flight->wanted);
    return CY_OK;
}

// Operation i goes to the group that the random numbers say, the same kind on every rank, and up
// to INTERLEAVE_FLIGHT of them are waited for out of order.
static inline cy_status interleave(cy_world *world, int operations)
{
    const cy_mesh_request request = {.tp = 2,
        .cp = 2,
        .pp = 2,
        .dp = 2,
        .ep = 4,
        .etp = 1,
        .rank_order = "tp,cp,pp,dp",
        .world = cy_world_size(world)};
    cy_mesh mesh;
    CY_TRY(cy_mesh_make(&mesh, &request));
    cy_group *groups[INTERLEAVE_KINDS];
    int members[INTERLEAVE_KINDS][16];
    const int me = cy_world_rank(world);
    for (int k = 0; k < INTERLEAVE_KINDS; k++) {
        cy_mesh_ranks(&mesh, interleave_kinds[k], me, members[k]);
        CY_TRY(cy_world_open_group(world, &groups[k], members[k],
            cy_mesh_group_size(&mesh, interleave_kinds[k]),
            cy_mesh_kind_dimension(interleave_kinds[k])));
    }
    interleave_flight flights[INTERLEAVE_FLIGHT];
    memset(flights, 0, sizeof(flights));
    for (int i = 0; i < operations; i++) {
        const uint64_t dice = cy_random_bits(7, (uint64_t)i);
        interleave_flight *flight = &flights[dice % INTERLEAVE_FLIGHT];
        CY_TRY(interleave_finish(groups, flight));
        const int k = (int)((dice >> 8) % INTERLEAVE_KINDS);
        const int size = cy_group_size(groups[k]);
        const cy_reduce op = (dice >> 16) % 2 == 0 ? CY_SUM : CY_MAX;
        int64_t sum = 0;
        for (int m = 0; m < size; m++)
            sum += (int64_t)members[k][m] * 1000003 + i;
        flight->kind = k;
        flight->wanted = op == CY_SUM ? sum : (int64_t)members[k][size - 1] * 1000003 + i;
        for (int j = 0; j < 4; j++)
            flight->data[j] = (int64_t)me * 1000003 + i;
        CY_TRY(cy_group_start_all_reduce(
            groups[k], NULL, &flight->request, cy_view_of(flight->data, CY_I64, 1, 4), op));
        if (cy_random_bits(8 + (uint64_t)me, (uint64_t)i) % 4 == 0)
            CY_TRY(interleave_finish(groups, flight));
    }
    for (int f = 0; f < INTERLEAVE_FLIGHT; f++)
        CY_TRY(interleave_finish(groups, &flights[f]));
    for (int k = 0; k < INTERLEAVE_KINDS; k++)
        cy_group_close(groups[k]);
    return CY_OK;
}

static inline cy_status interleave_rank(cy_world *world, void *context)
{
    const int *operations = context;
    return interleave(world, *operations);
}

#endif
