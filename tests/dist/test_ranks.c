// Each rank of a configuration gets its threads, its cores and the groups of its place in the mesh,
// and so does the same rank where nothing runs.

#include "support/engines.h"
#include "support/support.h"

#include "train/ranks.h"

#include <stdatomic.h>

// ---- threads and cores

typedef struct share {
    int dp, cores, asked; // threads that the configuration asks for, 0 for none
    int threads;          // wanted
    bool spin;            // wanted
} share;

typedef struct seen {
    const share *wanted;
    const cy_config *config;
    atomic_int ranks, wrong;
} seen;

static cy_status look(const cy_rank *rank, void *context)
{
    seen *s = context;
    const cy_engine_options options = cy_rank_engine_options(rank, s->config);
    const int first_core = s->wanted->spin ? rank->rank * s->wanted->threads : -1;
    atomic_fetch_add(&s->ranks, 1);
    if (rank->threads == s->wanted->threads && rank->spin == s->wanted->spin &&
        options.threads == rank->threads && options.spin == rank->spin &&
        options.first_core == first_core && options.train && options.world == rank->world) {
        return CY_OK;
    }
    print_error("dp %d, %d cores, asked %d: rank %d has %d threads, spin %d, first core %d\n",
        s->wanted->dp, s->wanted->cores, s->wanted->asked, rank->rank, rank->threads, rank->spin,
        options.first_core);
    atomic_fetch_add(&s->wrong, 1);
    return CY_OK;
}

static void cores_are_shared_out(void **state)
{
    (void)state;
    static const share shares[] = {
        {1, 4, 0, 4, true},
        {1, 4, 3, 3, true},
        {1, 4, 4, 4, true},
        {1, 4, 5, 5, false},
        {2, 4, 0, 2, true},
        {2, 4, 2, 2, true},
        {2, 3, 0, 1, true},
        {2, 3, 2, 2, false},
        {2, 1, 0, 1, false},
        {3, 2, 0, 1, false},
        {3, 6, 2, 2, true},
        {3, 5, 2, 2, false},
        {3, 7, 0, 2, true},
    };
    for (size_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
        cy_config config;
        cy_test_config(&config, CY_F32);
        config.distributed.dp_size = shares[i].dp;
        config.distributed.threads_per_rank = shares[i].asked;
        const cy_config_machine machine = {.cores = shares[i].cores};
        seen s = {.wanted = &shares[i], .config = &config};
        CY_CHECK_OK(cy_ranks_run(&config, &machine, look, &s));
        assert_int_equal(atomic_load(&s.ranks), shares[i].dp);
        assert_int_equal(atomic_load(&s.wrong), 0);
    }
}

// ---- groups

#define GROUPS 8

static void list_groups(int *table, const cy_engine_groups *groups)
{
    cy_group *const all[GROUPS] = {groups->tp, groups->kv, groups->cp, groups->pp,
        groups->embedding, groups->gradient, groups->norm, groups->world};
    for (int64_t i = 0; i < GROUPS; i++) {
        table[2 * i] = cy_group_rank(all[i]);
        table[2 * i + 1] = cy_group_size(all[i]);
    }
}

typedef struct places {
    const cy_config *config;
    int found[8][2 * GROUPS]; // of each rank: its place in the group, the group's size
} places;

static cy_status note_groups(const cy_rank *rank, void *context)
{
    places *p = context;
    list_groups(p->found[rank->rank], &rank->groups);
    return CY_OK;
}

static cy_config mesh_of(int tp, int cp, int pp, int dp, int zero)
{
    cy_config config;
    cy_test_config(&config, CY_F32); // two heads of keys and values
    config.distributed.tp_size = tp;
    config.distributed.cp_size = cp;
    config.distributed.pp_size = pp;
    config.distributed.dp_size = dp;
    config.distributed.zero_stage = zero;
    return config;
}

// By rank: what a table of the mesh says, where the tensor axis runs fastest and data slowest.
static void expect_places(const cy_config *config)
{
    const cy_config_distributed *d = &config->distributed;
    const int tp = d->tp_size, cp = d->cp_size, pp = d->pp_size, dp = d->dp_size;
    const int world = tp * cp * pp * dp, copies = tp > 2 ? tp / 2 : 1;
    const cy_config_machine machine = {.cores = 2};
    places p = {.config = config};
    CY_CHECK_OK(cy_ranks_run(config, &machine, note_groups, &p));
    for (int r = 0; r < world; r++) {
        const int at_tp = r % tp, at_cp = r / tp % cp, at_pp = r / tp / cp % pp;
        const int at_dp = r / tp / cp / pp;
        const bool zero = d->zero_stage > 0;
        const int wanted[2 * GROUPS] = {at_tp, tp, at_tp % copies, copies, at_cp, cp, at_pp, pp,
            at_pp, pp, at_cp + cp * at_dp, cp * dp, zero ? r : at_tp + tp * at_pp,
            zero ? world : tp * pp, r, world};
        assert_memory_equal(p.found[r], wanted, sizeof(wanted));
        cy_rank dry;
        int planned[2 * GROUPS];
        CY_CHECK_OK(cy_rank_open_dry(&dry, config, &machine, r));
        list_groups(planned, &dry.groups);
        assert_memory_equal(planned, wanted, sizeof(wanted));
        assert_null(dry.world);
        assert_int_equal(dry.threads, world < 2 ? 2 : 1);
        cy_rank_close_dry(&dry);
    }
}

static void groups_are_those_of_the_mesh(void **state)
{
    (void)state;
    const cy_config configs[] = {
        mesh_of(4, 1, 1, 2, 0), // pairs of ranks share a head of keys and values
        mesh_of(4, 1, 2, 1, 0),
        mesh_of(2, 2, 2, 1, 0),
        mesh_of(1, 2, 2, 2, 1),
        mesh_of(2, 1, 1, 3, 3),
        mesh_of(1, 1, 2, 2, 0),
    };
    for (size_t i = 0; i < sizeof(configs) / sizeof(*configs); i++)
        expect_places(&configs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_are_shared_out),
        cmocka_unit_test(groups_are_those_of_the_mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
