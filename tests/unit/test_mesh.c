// The mesh, proved over every factorisation of every world up to 64 ranks and every axis order.

#include "support/support.h"

#include "base/file.h"
#include "comm/mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORLD 64

static const char *const orders[24] = {"tp,cp,pp,dp", "tp,cp,dp,pp", "tp,pp,cp,dp", "tp,pp,dp,cp",
    "tp,dp,cp,pp", "tp,dp,pp,cp", "cp,tp,pp,dp", "cp,tp,dp,pp", "cp,pp,tp,dp", "cp,pp,dp,tp",
    "cp,dp,tp,pp", "cp,dp,pp,tp", "pp,tp,cp,dp", "pp,tp,dp,cp", "pp,cp,tp,dp", "pp,cp,dp,tp",
    "pp,dp,tp,cp", "pp,dp,cp,tp", "dp,tp,cp,pp", "dp,tp,pp,cp", "dp,cp,tp,pp", "dp,cp,pp,tp",
    "dp,pp,tp,cp", "dp,pp,cp,tp"};

// Calls `check` on every mesh of `world` ranks with this order; experts too when asked.
static void each_mesh(int world, const char *order, bool experts, void (*check)(const cy_mesh *))
{
    for (int tp = 1; tp <= world; tp++) {
        if (world % tp != 0) continue;
        for (int cp = 1; cp <= world / tp; cp++) {
            if (world / tp % cp != 0) continue;
            for (int pp = 1; pp <= world / tp / cp; pp++) {
                if (world / tp / cp % pp != 0) continue;
                const int stage = world / pp;
                for (int ep = 1; ep <= (experts ? stage : 1); ep++) {
                    for (int etp = 1; etp <= (experts ? stage / ep : 1); etp++) {
                        if (stage % (ep * etp) != 0) continue;
                        const cy_mesh_spec request = {.tp = tp,
                            .cp = cp,
                            .pp = pp,
                            .dp = world / tp / cp / pp,
                            .ep = ep,
                            .etp = etp,
                            .rank_order = order,
                            .world = world};
                        cy_mesh mesh;
                        CY_CHECK_OK(cy_mesh_make(&mesh, &request));
                        check(&mesh);
                    }
                }
            }
        }
    }
}

// The checks use plain conditions: a cmocka assertion costs more than what it checks here.
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) fail_msg("%s", #condition);                                              \
    } while (0)

static cy_coordinates table[WORLD]; // of the mesh under test, filled by is_bijection

static void is_bijection(const cy_mesh *mesh)
{
    for (int rank = 0; rank < mesh->world; rank++) {
        const cy_coordinates c = cy_mesh_coordinates(mesh, rank);
        HOLDS(cy_mesh_rank(mesh, c.at[CY_AXIS_TP], c.at[CY_AXIS_CP], c.at[CY_AXIS_PP],
                  c.at[CY_AXIS_DP]) == rank);
        HOLDS(cy_mesh_expert_rank(mesh, c.at[CY_AXIS_PP], c.etp, c.ep, c.edp) == rank);
        for (int axis = 0; axis < CY_AXES; axis++) {
            HOLDS(0 <= c.at[axis] && c.at[axis] < mesh->size[axis]);
        }
        table[rank] = c;
        HOLDS(c.ep < mesh->ep && c.etp < mesh->etp && c.edp < mesh->edp);
    }
}

// Groups of a kind cover the world without overlap, ascend, and every member lists the same group.
static void partitions(const cy_mesh *mesh, cy_mesh_kind kind)
{
    int ranks[WORLD];
    static int lists[WORLD][WORLD];
    const int size = cy_mesh_group_size(mesh, kind);
    int owner[WORLD];
    memset(owner, -1, sizeof(owner));
    for (int rank = 0; rank < mesh->world; rank++) {
        const int place = cy_mesh_ranks(mesh, kind, rank, ranks);
        HOLDS(0 <= place && place < size && ranks[place] == rank);
        HOLDS(cy_mesh_group_rank(mesh, kind, rank) == place);
        for (int i = 1; i < size; i++)
            HOLDS(ranks[i - 1] < ranks[i]);
        if (owner[rank] < 0) {
            memcpy(lists[rank], ranks, sizeof(int) * (size_t)size);
            for (int i = 0; i < size; i++) {
                HOLDS(owner[ranks[i]] < 0);
                owner[ranks[i]] = rank;
            }
        } else {
            HOLDS(memcmp(ranks, lists[owner[rank]], sizeof(int) * (size_t)size) == 0);
        }
    }
}

static void attention_groups_up_to(const cy_mesh *mesh, int kinds)
{
    is_bijection(mesh);
    int sizes[CY_MESH_KINDS];
    for (int k = 0; k < CY_MESH_KINDS; k++) {
        sizes[k] = cy_mesh_group_size(mesh, (cy_mesh_kind)k);
        if (k < kinds && k != CY_MESH_EMBEDDING) partitions(mesh, (cy_mesh_kind)k);
    }
    for (int axis = 0; axis < CY_AXES; axis++)
        HOLDS(sizes[axis] == mesh->size[axis]);
    HOLDS(sizes[CY_MESH_CP_DP] == mesh->size[CY_AXIS_CP] * mesh->size[CY_AXIS_DP]);

    // Members differ in the group's own axes and in no other: a builder that returned the
    // complement would fail here.
    static const unsigned differs[] = {1, 2, 4, 8, 2 + 8, 4 + 8, 1 + 4, 1 + 2 + 8};
    int ranks[WORLD];
    for (int k = 0; k <= CY_MESH_STAGE && k < kinds; k++) {
        for (int rank = 0; rank < mesh->world; rank++) {
            const cy_coordinates me = table[rank];
            cy_mesh_ranks(mesh, (cy_mesh_kind)k, rank, ranks);
            // With a partition proved, comparing with the first member compares all pairs.
            const cy_coordinates first = table[ranks[0]];
            for (int axis = 0; axis < CY_AXES; axis++) {
                HOLDS((differs[k] >> axis & 1u) != 0 || first.at[axis] == me.at[axis]);
            }
        }
    }
}

static void axis_groups(const cy_mesh *mesh)
{
    attention_groups_up_to(mesh, CY_MESH_DP + 1);
}

static void all_groups(const cy_mesh *mesh)
{
    attention_groups_up_to(mesh, CY_MESH_KINDS);
}

static void expert_groups(const cy_mesh *mesh)
{
    is_bijection(mesh);
    int ranks[WORLD];
    for (int k = CY_MESH_EP; k <= CY_MESH_EDP; k++) {
        partitions(mesh, (cy_mesh_kind)k);
        const int size = cy_mesh_group_size(mesh, (cy_mesh_kind)k);
        for (int rank = 0; rank < mesh->world; rank++) {
            const cy_coordinates me = table[rank];
            cy_mesh_ranks(mesh, (cy_mesh_kind)k, rank, ranks);
            for (int i = 0; i < size; i++) {
                const cy_coordinates other = table[ranks[i]];
                HOLDS(other.at[CY_AXIS_PP] == me.at[CY_AXIS_PP]);
                HOLDS(other.ep == (k == CY_MESH_EP ? i : me.ep));
                HOLDS(other.etp == (k == CY_MESH_ETP ? i : me.etp));
                HOLDS(other.edp == (k == CY_MESH_EDP ? i : me.edp));
            }
        }
    }
}

static void every_mesh_partitions_its_world(void **state)
{
    (void)state;
    for (int world = 1; world <= WORLD; world++) {
        for (int o = 0; o < 24; o++) {
            // Composite groups are made of the same strides: a sixth of the orders each.
            each_mesh(world, orders[o], false, o % 6 == world % 6 ? all_groups : axis_groups);
        }
    }
}

static void experts_fold_over_every_stage(void **state)
{
    (void)state;
    for (int world = 1; world <= WORLD; world++) {
        // Order and folding are independent: all orders on worlds that have every shape, one
        // order (another one each time) on the others.
        const bool all = world == 12 || world == 16 || world == 24;
        for (int o = 0; o < 24; o++) {
            if (all || o == world % 24) each_mesh(world, orders[o], true, expert_groups);
        }
    }
}

// Groups of two different axes meet in exactly one rank.
static void axes_meet_once(void **state)
{
    (void)state;
    cy_mesh mesh;
    const cy_mesh_spec request = {
        .tp = 2, .cp = 3, .pp = 2, .dp = 4, .ep = 1, .etp = 1, .rank_order = "dp,tp,pp,cp"};
    CY_CHECK_OK(cy_mesh_make(&mesh, &request));
    int a[WORLD];
    int b[WORLD];
    for (int rank = 0; rank < mesh.world; rank++) {
        for (int k = 0; k < CY_AXES; k++) {
            for (int l = 0; l < k; l++) {
                cy_mesh_ranks(&mesh, (cy_mesh_kind)k, rank, a);
                cy_mesh_ranks(&mesh, (cy_mesh_kind)l, rank, b);
                int common = 0;
                for (int i = 0; i < mesh.size[k]; i++) {
                    for (int j = 0; j < mesh.size[l]; j++)
                        common += a[i] == b[j];
                }
                assert_int_equal(common, 1);
            }
        }
    }
}

static void default_order_is_tp_first(void **state)
{
    (void)state;
    cy_mesh mesh;
    const cy_mesh_spec request = {.tp = 2,
        .cp = 3,
        .pp = 4,
        .dp = 2,
        .ep = 1,
        .etp = 1,
        .rank_order = "tp,cp,pp,dp",
        .world = 48};
    CY_CHECK_OK(cy_mesh_make(&mesh, &request));
    for (int dp = 0; dp < 2; dp++) {
        for (int pp = 0; pp < 4; pp++) {
            for (int cp = 0; cp < 3; cp++) {
                for (int tp = 0; tp < 2; tp++) {
                    assert_int_equal(
                        cy_mesh_rank(&mesh, tp, cp, pp, dp), tp + 2 * (cp + 3 * (pp + 4 * dp)));
                }
            }
        }
    }
    int ranks[2];
    assert_int_equal(cy_mesh_ranks(&mesh, CY_MESH_EMBEDDING, 18, ranks), 1);
    assert_int_equal(ranks[0], 0);
    assert_int_equal(ranks[1], 18);
    assert_int_equal(cy_mesh_ranks(&mesh, CY_MESH_EMBEDDING, 6, ranks), -1); // a middle stage
}

static void overview_reads_as_before(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof(path), "%s/tests/golden/mesh_overview.txt", getenv("SOURCE"));
    cy_text expected = {0};
    CY_CHECK_OK(cy_file_read(&expected, path, 1 << 20));
    const cy_mesh_spec requests[] = {
        {.tp = 4, .cp = 1, .pp = 3, .dp = 2, .ep = 1, .etp = 1, .rank_order = "tp,cp,pp,dp"},
        {.tp = 2, .cp = 2, .pp = 2, .dp = 4, .ep = 4, .etp = 2, .rank_order = "tp,dp,cp,pp"},
        {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .ep = 1, .etp = 1, .rank_order = "tp,cp,pp,dp"},
        {.tp = 8, .cp = 1, .pp = 8, .dp = 16, .ep = 64, .etp = 1, .rank_order = "tp,cp,pp,dp"},
    };
    cy_text text = {0};
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        cy_mesh mesh;
        CY_CHECK_OK(cy_mesh_make(&mesh, &requests[i]));
        CY_CHECK_OK(cy_mesh_describe(&mesh, &text));
        CY_CHECK_OK(cy_text_add(&text, "\n"));
    }
    if (strcmp(text.bytes, expected.bytes) != 0) {
        print_error("%s\n", text.bytes);
        fail_msg("differs from %s", path);
    }
    cy_text_free(&text);
    cy_text_free(&expected);
}

static void wrong_sizes_are_named(void **state)
{
    (void)state;
    cy_mesh mesh;
    cy_mesh_spec request = {
        .tp = 2, .cp = 1, .pp = 3, .dp = 2, .ep = 1, .etp = 1, .rank_order = "tp,cp,pp,dp"};
    request.world = 8;
    CY_CHECK_FAILS(cy_mesh_make(&mesh, &request), CY_ERR_REQUEST,
        "tp 2 x cp 1 x pp 3 x dp 2 = 12 ranks, but there are 8");
    request.world = 0;
    request.ep = 3;
    CY_CHECK_FAILS(cy_mesh_make(&mesh, &request), CY_ERR_REQUEST,
        "ep 3 x etp 1 = 3 does not divide the 4 ranks of a stage (tp 2 x cp 1 x dp 2)");
    request.ep = 1;
    request.dp = 0;
    CY_CHECK_FAILS(cy_mesh_make(&mesh, &request), CY_ERR_REQUEST, "dp_size is 0");
    request.dp = 2000000000;
    CY_CHECK_FAILS(cy_mesh_make(&mesh, &request), CY_ERR_REQUEST, "too many ranks");
    request.dp = 2;
    static const char *const wrong[] = {"", "tp", "tp,cp,pp", "tp,cp,pp,pp", "tp,cp,pp,dp,",
        "tp,cp,pp,dp,tp", "tp,cp,pp,ep", ",tp,cp,pp,dp", "tp cp pp dp"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        request.rank_order = wrong[i];
        CY_CHECK_FAILS(cy_mesh_make(&mesh, &request), CY_ERR_REQUEST, "rank_order \"");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mesh_partitions_its_world),
        cmocka_unit_test(experts_fold_over_every_stage),
        cmocka_unit_test(axes_meet_once),
        cmocka_unit_test(default_order_is_tp_first),
        cmocka_unit_test(overview_reads_as_before),
        cmocka_unit_test(wrong_sizes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
