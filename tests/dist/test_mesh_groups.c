// Every kind of group of a mesh, opened on all ranks: a sum over the members of a number that each
// rank alone has is that of the ranks which the coordinates say, worked out here once more and rank
// by rank. With threads over every way to cut eight ranks and some of sixteen; as processes of MPI,
// with and without threads in them, over some.

#define _GNU_SOURCE
#include "support/mpirun.h"
#include "support/support.h"

#include "comm/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cut {
    int tp, cp, pp, dp, ep, etp;
    const char *order;
} cut;

// Where a rank is: the axes in the order of `at`, then those of the experts.
typedef struct place {
    int at[CY_AXES];
    int etp, ep, edp;
} place;

static const char *const axes[CY_AXES] = {"tp", "cp", "pp", "dp"};

static place place_of(const cut *of, int rank)
{
    const int sizes[CY_AXES] = {of->tp, of->cp, of->pp, of->dp};
    place found = {0};
    int in_stage = 0, stride = 1;
    for (int i = 0; i < CY_AXES; i++) {
        int axis = 0;
        while (strncmp(axes[axis], of->order + (size_t)i * 3, 2) != 0)
            axis++;
        found.at[axis] = rank % sizes[axis];
        rank /= sizes[axis];
        if (axis == CY_AXIS_PP) continue;
        in_stage += found.at[axis] * stride;
        stride *= sizes[axis];
    }
    found.etp = in_stage % of->etp;
    found.ep = in_stage / of->etp % of->ep;
    found.edp = in_stage / of->etp / of->ep;
    return found;
}

// Whether two ranks are together in a group of this kind: who differs in the named axes alone.
static bool together(const cut *of, cy_mesh_kind kind, const place *a, const place *b)
{
    static const char *const differ[CY_MESH_KINDS] = {
        [CY_MESH_TP] = "tp",
        [CY_MESH_CP] = "cp",
        [CY_MESH_PP] = "pp",
        [CY_MESH_DP] = "dp",
        [CY_MESH_CP_DP] = "cp dp",
        [CY_MESH_PP_DP] = "pp dp",
        [CY_MESH_MODEL] = "tp pp",
        [CY_MESH_STAGE] = "tp cp dp",
        [CY_MESH_EMBEDDING] = "pp",
        [CY_MESH_WORLD] = "tp cp pp dp",
    };
    if (kind == CY_MESH_EP || kind == CY_MESH_ETP || kind == CY_MESH_EDP) {
        return a->at[CY_AXIS_PP] == b->at[CY_AXIS_PP] && (kind == CY_MESH_EP || a->ep == b->ep) &&
            (kind == CY_MESH_ETP || a->etp == b->etp) && (kind == CY_MESH_EDP || a->edp == b->edp);
    }
    for (int axis = 0; axis < CY_AXES; axis++) {
        const bool may_differ = strstr(differ[kind], axes[axis]) != NULL;
        if (!may_differ && a->at[axis] != b->at[axis]) return false;
    }
    if (kind != CY_MESH_EMBEDDING) return true;
    const int last = of->pp - 1;
    const int of_a = a->at[CY_AXIS_PP], of_b = b->at[CY_AXIS_PP];
    return (of_a == 0 || of_a == last) && (of_b == 0 || of_b == last);
}

// One bit for each rank, so that no two sets of ranks have one sum. A rank of no group is alone.
static int64_t wanted_sum(const cut *of, cy_mesh_kind kind, int rank, int world)
{
    const place mine = place_of(of, rank);
    int64_t sum = INT64_C(1) << rank;
    for (int r = 0; r < world; r++) {
        const place theirs = place_of(of, r);
        if (r != rank && together(of, kind, &mine, &theirs)) sum += INT64_C(1) << r;
    }
    return sum;
}

static cy_status check_cut(cy_world *world, const cut *of)
{
    const int size = cy_world_size(world), rank = cy_world_rank(world);
    const cy_mesh_spec request = {
        .tp = of->tp,
        .cp = of->cp,
        .pp = of->pp,
        .dp = of->dp,
        .ep = of->ep,
        .etp = of->etp,
        .rank_order = of->order,
        .world = size,
    };
    cy_mesh mesh;
    CY_TRY(cy_mesh_make(&mesh, &request));
    cy_group *groups[CY_MESH_KINDS];
    for (int k = 0; k < CY_MESH_KINDS; k++)
        CY_TRY(cy_world_open_kind(world, &groups[k], &mesh, (cy_mesh_kind)k));
    for (int k = 0; k < CY_MESH_KINDS; k++) {
        int64_t sum = INT64_C(1) << rank;
        CY_TRY(cy_group_all_reduce(groups[k], NULL, cy_view_of(&sum, CY_I64, 1, 1), CY_SUM));
        const int64_t wanted = wanted_sum(of, (cy_mesh_kind)k, rank, size);
        if (sum != wanted) {
            return CY_FAIL(CY_ERR_CORRUPT,
                "tp %d cp %d pp %d dp %d ep %d etp %d, %s: rank %d has %llx in %s, not %llx",
                of->tp, of->cp, of->pp, of->dp, of->ep, of->etp, of->order, rank,
                (unsigned long long)sum, cy_mesh_kind_name((cy_mesh_kind)k),
                (unsigned long long)wanted);
        }
    }
    for (int k = 0; k < CY_MESH_KINDS; k++)
        cy_group_close(groups[k]);
    return CY_OK;
}

#define DEFAULT_ORDER "tp,cp,pp,dp"

static cy_status check_cuts(cy_world *world, void *context)
{
    for (const cut *of = context; of->order != NULL; of++)
        CY_TRY(check_cut(world, of));
    return CY_OK;
}

// Every way to cut the ranks of a world, with the experts cut in turn in each way that fits.
static cy_status check_all(cy_world *world, void *context)
{
    static const char *const orders[] = {DEFAULT_ORDER, "dp,pp,cp,tp", "pp,tp,dp,cp"};
    (void)context;
    const int size = cy_world_size(world);
    int count = 0;
    for (int tp = 1; tp <= size; tp *= 2) {
        for (int cp = 1; tp * cp <= size; cp *= 2) {
            for (int pp = 1; tp * cp * pp <= size; pp *= 2) {
                for (int ep = 1; ep * pp <= size; ep *= 2) {
                    const int etp = count % 2 == 0 && 2 * ep * pp <= size ? 2 : 1;
                    const cut of = {tp, cp, pp, size / tp / cp / pp, ep, etp, orders[count++ % 3]};
                    CY_TRY(check_cut(world, &of));
                }
            }
        }
    }
    return count > 20 ? CY_OK : CY_FAIL(CY_ERR_CORRUPT, "%d cuts", count);
}

static cut of_sixteen[] = {
    {2, 2, 2, 2, 4, 1, DEFAULT_ORDER},
    {2, 2, 2, 2, 2, 2, "dp,tp,pp,cp"},
    {4, 1, 4, 1, 2, 1, DEFAULT_ORDER},
    {1, 4, 2, 2, 8, 1, DEFAULT_ORDER},
    {1, 1, 16, 1, 1, 1, DEFAULT_ORDER},
    {1, 2, 1, 8, 16, 1, "cp,dp,tp,pp"},
    {0},
};

static cut of_eight[] = {
    {2, 2, 2, 1, 2, 1, DEFAULT_ORDER},
    {2, 1, 2, 2, 1, 2, "dp,pp,cp,tp"},
    {1, 2, 4, 1, 2, 1, DEFAULT_ORDER},
    {1, 1, 1, 8, 4, 2, DEFAULT_ORDER},
    {0},
};

static void with_threads(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 8;
    CY_CHECK_OK(cy_world_run_threads(&options, check_all, NULL));
    options.ranks = 16;
    CY_CHECK_OK(cy_world_run_threads(&options, check_cuts, of_sixteen));
}

static void expect_success(int processes, int ranks)
{
    static char printed[1 << 16];
    char words[16];
    snprintf(words, sizeof(words), "%d", ranks);
    const int status = cy_test_mpirun_all(processes, words, printed, sizeof(printed));
    if (status != 0) fail_msg("%d ranks in %d processes: %s", ranks, processes, printed);
}

static void with_processes(void **state)
{
    (void)state;
    expect_success(8, 8);
    expect_success(2, 8);
    expect_success(4, 16);
}

static int run_ranks(int ranks)
{
    cy_world_options options = cy_world_defaults();
    options.ranks = ranks;
    const cy_status status =
        cy_world_run_mpi(&options, check_cuts, ranks == 8 ? of_eight : of_sixteen);
    if (status == CY_OK) return 0;
    fprintf(stderr, "cyclotron: error: %s\n", cy_error_text());
    cy_world_end_job(1);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc > 1) return run_ranks((int)strtol(argv[1], NULL, 10));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_threads),
        cmocka_unit_test(with_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
