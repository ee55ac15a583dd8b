// Parameters in several groups, with ranks, ZeRO stages and dtypes of their own, train as in one.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include "train/replicas.h"

#include <stdio.h>
#include <string.h>

#define STEPS     3
#define RANKS_MAX 8

typedef struct mesh {
    int tp, cp, pp, dp;
    bool tied;
} mesh;

// What an engine is opened with, what it does, and what came of it.
typedef struct job {
    const cy_config *config;
    bool sets;                  // vectors and the ends of the model are sets of their own
    const cy_dtype_rule *rules; // NULL: one dtype
    int rule_count;
    const char *folder;           // of checkpoints; NULL: none
    int64_t load_step, save_step; // 0: none
    int groups;                   // that rank 0 has
    double loss[STEPS], norm[STEPS];
    uint64_t hash;
} job;

// ---- sets

static bool is_vector(const cy_param *param)
{
    return param->dimensions == 1;
}

static bool is_end(const cy_param *param)
{
    return param->key.role == CY_ROLE_EMBED || param->key.role == CY_ROLE_HEAD;
}

// The ranks of dense parameters in reverse: they own other shards.
static cy_status open_reversed(const cy_rank *rank, cy_group **group)
{
    int forward[RANKS_MAX], reversed[RANKS_MAX];
    const int size = cy_mesh_group_size(&rank->mesh, CY_MESH_CP_DP);
    cy_mesh_ranks(&rank->mesh, CY_MESH_CP_DP, rank->rank, forward);
    for (int i = 0; i < size; i++)
        reversed[i] = forward[size - 1 - i];
    return cy_world_open_group(rank->world, group, reversed, size, "dp");
}

typedef struct own_groups {
    cy_group *reversed, *model;
} own_groups;

// Each set has another ZeRO stage than the dense parameters, and thus other ranks of its norm.
static void make_sets(
    cy_param_set *sets, const cy_rank *rank, const own_groups *own, int zero_stage)
{
    sets[0] = (cy_param_set){
        .holds = is_vector, .ranks = own->reversed, .zero_stage = (zero_stage + 1) % 4};
    sets[1] =
        (cy_param_set){.holds = is_end, .ranks = own->reversed, .zero_stage = (zero_stage + 3) % 4};
    for (int i = 0; i < 2; i++)
        sets[i].norm = sets[i].zero_stage > 0 ? rank->groups.world : own->model;
}

// ---- training

static cy_status train(cy_engine *engine, const cy_rank *rank, job *j)
{
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    for (int step = 1; step <= STEPS; step++) {
        const cy_adamw_spec adamw = cy_test_adamw(1e-2, step);
        cy_step_result result;
        CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
        if (rank->rank != 0) continue;
        j->loss[step - 1] = result.loss;
        j->norm[step - 1] = result.grad_norm;
    }
    return CY_OK;
}

// Weights of fp32 in a model of bf16 are the master copies.
static cy_status check_dtypes(const cy_engine *engine)
{
    const cy_storage *storage = &engine->storage;
    for (int i = 0; i < storage->tensor_count; i++) {
        const cy_tensor *tensor = &storage->tensors[i];
        const cy_param_group *group = &storage->groups[tensor->group];
        if (group->weight_dtype != tensor->param->dtype) {
            return CY_FAIL(CY_ERR_CORRUPT, "%s lies in a group of %s", tensor->param->name,
                cy_dtype_name(group->weight_dtype));
        }
        const cy_owned_range range = cy_reducer_owned(group->reducer, 0);
        const bool separate = !cy_view_is_none(range.weight);
        if (separate != (group->weight_dtype == CY_BF16)) {
            return CY_FAIL(CY_ERR_CORRUPT, "%s: a copy of the master", tensor->param->name);
        }
    }
    return CY_OK;
}

static cy_status use(cy_engine *engine, const cy_rank *rank, void *context)
{
    job *j = context;
    cy_run_position position = {.step = j->save_step, .tokens = 1};
    if (rank->rank == 0) j->groups = engine->storage.group_count;
    if (j->rules != NULL) CY_TRY(check_dtypes(engine));
    if (j->load_step > 0) {
        char path[400];
        cy_checkpoint_traffic traffic = {0};
        snprintf(path, sizeof(path), "%s/step-%08lld", j->folder, (long long)j->load_step);
        CY_TRY(cy_state_load(engine, rank, path, false, &position, &traffic));
    } else {
        CY_TRY(cy_engine_initialize(engine));
    }
    if (j->load_step == 0 || j->save_step == 0) CY_TRY(train(engine, rank, j));
    CY_TRY(cy_replicas_check(engine, rank, STEPS));
    uint64_t hash = 0;
    CY_TRY(cy_engine_params_hash(engine, &hash));
    if (rank->rank == 0) j->hash = hash;
    position.step = j->save_step;
    return j->save_step > 0 ? cy_test_save_engine(engine, rank, j->folder, position) : CY_OK;
}

static cy_status run_rank(const cy_rank *rank, void *context)
{
    job *j = context;
    own_groups own = {cy_group_self(), cy_group_self()};
    cy_param_set sets[2];
    cy_engine_options options = cy_rank_engine_options(rank, j->config);
    options.isa = cy_test_isa("auto");
    options.threads = 1;
    options.dtype_rules = j->rules;
    options.dtype_rule_count = j->rule_count;
    if (rank->world != NULL) {
        CY_TRY(open_reversed(rank, &own.reversed));
        CY_TRY(cy_world_open_kind(rank->world, &own.model, &rank->mesh, CY_MESH_MODEL));
    }
    if (j->sets) {
        make_sets(sets, rank, &own, j->config->distributed.zero_stage);
        options.sets = sets;
        options.set_count = 2;
    }
    const cy_status status = cy_rank_with_engine(rank, &options, use, j);
    if (status != CY_OK) return status;
    cy_group_close(own.model);
    cy_group_close(own.reversed);
    return CY_OK;
}

static cy_config config_of(const mesh *m, int zero_stage, cy_dtype dtype)
{
    cy_config config;
    cy_test_config(&config, dtype);
    config.shape.tied = m->tied;
    config.shape.qk_norm = true;
    config.shape.rope.factor = 0; // without scaling, as a resolved configuration has it
    config.distributed.tp_size = m->tp;
    config.distributed.cp_size = m->cp;
    config.distributed.pp_size = m->pp;
    config.distributed.dp_size = m->dp;
    config.distributed.zero_stage = zero_stage;
    config.distributed.bucket_mb = 0.02; // several buckets
    // Sizes that strict mode can cut on every mesh.
    config.shape.ffn = config.shape.max_positions = 128;
    config.training.seq_length = 128;
    config.training.strict = true;
    config.training.micro_batch_size = 1;
    config.training.gradient_accumulation_steps = 4 / m->dp;
    return config;
}

static void run(job *j)
{
    const cy_config_machine machine = {.cores = 2};
    CY_CHECK_OK(cy_ranks_run(j->config, &machine, run_rank, j));
}

static void expect_same(const job *a, const job *b)
{
    const cy_config_distributed *d = &a->config->distributed;
    if (memcmp(a->loss, b->loss, sizeof(a->loss)) == 0 &&
        memcmp(a->norm, b->norm, sizeof(a->norm)) == 0 && a->hash == b->hash) {
        return;
    }
    fail_msg("tp %d cp %d pp %d dp %d zero %d: loss %.17g not %.17g, norm %.17g not %.17g, "
             "hash %llx not %llx",
        d->tp_size, d->cp_size, d->pp_size, d->dp_size, d->zero_stage, a->loss[STEPS - 1],
        b->loss[STEPS - 1], a->norm[STEPS - 1], b->norm[STEPS - 1], (unsigned long long)a->hash,
        (unsigned long long)b->hash);
}

static const mesh meshes[] = {
    {.tp = 1, .cp = 1, .pp = 1, .dp = 4},
    {.tp = 2, .cp = 1, .pp = 1, .dp = 2},
    {.tp = 1, .cp = 2, .pp = 1, .dp = 2},
    {.tp = 1, .cp = 1, .pp = 2, .dp = 2, .tied = true},
    {.tp = 2, .cp = 1, .pp = 2, .dp = 2},
};
#define MESHES ((int)(sizeof(meshes) / sizeof(meshes[0])))

// ---- tests

static void sets_train_as_one(void **state)
{
    (void)state;
    for (int i = 0; i < MESHES; i++) {
        for (int zero_stage = i % 2; zero_stage < 4; zero_stage += 2) {
            const cy_config config = config_of(&meshes[i], zero_stage, CY_BF16);
            job one = {.config = &config}, several = {.config = &config, .sets = true};
            run(&one);
            run(&several);
            assert_int_equal(one.groups, 1);
            assert_int_equal(several.groups, 3);
            expect_same(&several, &one);
        }
    }
}

static const cy_dtype_rule wide_norms[] = {
    {CY_ROLE_NORM1, CY_EVERY_LAYER, CY_F32},
    {CY_ROLE_NORM2, 1, CY_F32},
    {CY_ROLE_Q_NORM, CY_EVERY_LAYER, CY_F32},
    {CY_ROLE_FINAL_NORM, CY_EVERY_LAYER, CY_F32},
};
#define WIDE_NORMS ((int)(sizeof(wide_norms) / sizeof(wide_norms[0])))

static void dtypes_train_alike_on_every_mesh(void **state)
{
    (void)state;
    for (int i = 0; i < MESHES; i++) {
        const mesh alone = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .tied = meshes[i].tied};
        const cy_config dense = config_of(&alone, 0, CY_BF16);
        job plain = {.config = &dense};
        job reference = {.config = &dense, .rules = wide_norms, .rule_count = WIDE_NORMS};
        run(&plain);
        run(&reference);
        // The first weights of norms are ones in any dtype; the next are not.
        assert_true(reference.loss[0] == plain.loss[0] && reference.norm[0] == plain.norm[0]);
        assert_true(reference.loss[STEPS - 1] != plain.loss[STEPS - 1]);
        assert_true(reference.hash != plain.hash);
        for (int zero_stage = i % 2; zero_stage < 4; zero_stage += 2) {
            const cy_config config = config_of(&meshes[i], zero_stage, CY_BF16);
            job mixed = reference;
            mixed.config = &config;
            run(&mixed);
            assert_int_equal(mixed.groups, 2);
            expect_same(&mixed, &reference);
        }
    }
}

// A save has the tensors of all groups, and no trace of the groups: another mesh, with and without
// them, goes on from it with the same bits.
static void saves_are_of_all_groups(void **state)
{
    (void)state;
    char folder[300];
    cy_test_folder(folder, sizeof(folder));
    const cy_config from = config_of(&meshes[3], 1, CY_BF16);
    const mesh other = {.tp = 2, .cp = 1, .pp = 1, .dp = 2, .tied = true};
    const cy_config to = config_of(&other, 2, CY_BF16);
    job saved = {.config = &from,
        .sets = true,
        .rules = wide_norms,
        .rule_count = WIDE_NORMS,
        .folder = folder,
        .save_step = 1};
    run(&saved);
    job again = saved; // loaded, saved once more
    again.config = &to;
    again.load_step = 1;
    again.save_step = 2;
    run(&again);
    assert_true(again.hash == saved.hash);
    assert_int_equal(again.groups, 4); // matrices, vectors of both dtypes, the embedding

    job on = again; // from either, with groups or without
    on.save_step = 0;
    run(&on);
    job without = on;
    without.config = &from;
    without.load_step = 2;
    without.sets = false;
    run(&without);
    expect_same(&without, &on);
    assert_true(on.hash != saved.hash);
}

// A rank clips the gradient of one reducer before it compresses it.
static void matrices_of_several_groups_are_not_compressed(void **state)
{
    (void)state;
    static cy_engine engine;
    const mesh alone = {.tp = 1, .cp = 1, .pp = 1, .dp = 1};
    cy_config config = config_of(&alone, 0, CY_BF16);
    config.training.strict = false;
    config.distributed.compression = CY_COMPRESSION_INT8;
    cy_engine_options options = cy_test_engine_options(&config, "ref");
    cy_param_set set = {.holds = is_end, .ranks = cy_group_self(), .norm = cy_group_self()};
    options.sets = &set;
    options.set_count = 1;
    CY_CHECK_FAILS(cy_engine_open(&engine, &options), CY_ERR_UNSUPPORTED,
        "distributed.compression: all matrices must be one parameter group without ZeRO");
    set.holds = is_vector;
    CY_CHECK_OK(cy_engine_open(&engine, &options));
    assert_ptr_equal(engine.compressed, engine.storage.groups[0].reducer);
    cy_engine_close(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_train_as_one),
        cmocka_unit_test(dtypes_train_alike_on_every_mesh),
        cmocka_unit_test(saves_are_of_all_groups),
        cmocka_unit_test(matrices_of_several_groups_are_not_compressed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
