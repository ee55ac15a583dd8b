// The whole state of an engine goes from any mesh to any other with the same bits, and each rank
// reads its share of the bytes and no more.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include "optim/adamw.h"
#include "train/state.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct mesh {
    int tp, cp, pp, dp, zero;
    cy_pipeline_engine engine;
    int chunks;
} mesh;

static const mesh meshes[] = {
    {1, 1, 1, 1, 0, CY_PIPELINE_1F1B, 1},
    {8, 1, 1, 1, 0, CY_PIPELINE_1F1B, 1}, // kv heads that ranks share
    {1, 1, 1, 3, 2, CY_PIPELINE_1F1B, 1},
    {1, 1, 4, 1, 0, CY_PIPELINE_1F1B, 1},
    {2, 2, 1, 2, 1, CY_PIPELINE_1F1B, 1},
    {1, 1, 3, 1, 0, CY_PIPELINE_AFAB, 1},
    {1, 1, 1, 8, 3, CY_PIPELINE_1F1B, 1},
    {2, 1, 2, 1, 0, CY_PIPELINE_ZERO_BUBBLE, 2},
    {1, 2, 2, 2, 3, CY_PIPELINE_INTERLEAVED, 2},
};
#define MESHES ((int)(sizeof(meshes) / sizeof(meshes[0])))

static void configure(cy_config *config, const mesh *m, cy_dtype dtype)
{
    cy_test_config(config, dtype);
    config->shape.layers = 8;
    config->shape.heads = 8;
    config->shape.kv_heads = 4;
    config->shape.head_dim = 4;
    config->shape.tied = true;
    config->shape.qkv_bias = true;
    config->shape.rope.factor = 0; // without scaling, as a resolved configuration has it
    config->training.gradient_accumulation_steps = 4;
    cy_config_distributed *d = &config->distributed;
    d->tp_size = m->tp;
    d->cp_size = m->cp;
    d->pp_size = m->pp;
    d->dp_size = m->dp;
    d->zero_stage = m->zero;
    d->sequence_parallel = m->tp > 1;
    d->pp_engine = m->engine;
    d->pp_chunks = m->chunks;
    d->bucket_mb = 0.01;
}

typedef struct job {
    const char *folder; // of checkpoints
    int64_t save_step;  // 0: save nothing
    int64_t load_step;  // 0: load nothing, train a step instead
    uint64_t hash;      // of all masters, after loading or training
    atomic_int wrong;
} job;

static cy_status count_owned(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    (void)range;
    *(int64_t *)context += param_range->count;
    return CY_OK;
}

static cy_status train_one_step(cy_engine *engine, const cy_rank *rank)
{
    CY_TRY(cy_engine_initialize(engine));
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    const cy_adamw_spec adamw = cy_test_adamw(1e-3, 1);
    cy_step_result result;
    return cy_engine_train_step(engine, &source, &adamw, &result);
}

static cy_status load(cy_engine *engine, const cy_rank *rank, job *j)
{
    char path[400];
    cy_run_position position = {0};
    cy_checkpoint_traffic traffic = {0};
    snprintf(path, sizeof(path), "%s/step-%08lld", j->folder, (long long)j->load_step);
    CY_TRY(cy_state_load(engine, rank, path, false, &position, &traffic));
    int64_t owned = 0;
    CY_TRY(cy_param_ranges_visit(&engine->storage, count_owned, &owned));
    // Masters and both moments, four bytes each: neither less nor 10 % more.
    const double share = 12.0 * (double)owned;
    const double read = (double)traffic.read_bytes;
    if (!(read >= share && read <= 1.1 * share) || position.step != j->load_step) {
        print_error("rank %d of %d read %g bytes for a share of %g; step %lld\n", rank->rank,
            rank->mesh.world, read, share, (long long)position.step);
        atomic_fetch_add(&j->wrong, 1);
    }
    return CY_OK;
}

static cy_status save(cy_engine *engine, const cy_rank *rank, const job *j)
{
    const cy_run_position position = {.step = j->save_step, .tokens = 1};
    return cy_test_save_engine(engine, rank, j->folder, position);
}

static cy_status use(cy_engine *engine, const cy_rank *rank, void *context)
{
    job *j = context;
    CY_TRY(j->load_step > 0 ? load(engine, rank, j) : train_one_step(engine, rank));
    uint64_t hash = 0;
    CY_TRY(cy_engine_params_hash(engine, &hash));
    if (rank->rank == 0) j->hash = hash;
    return j->save_step > 0 ? save(engine, rank, j) : CY_OK;
}

static uint64_t run(const char *folder, const mesh *m, int64_t load_step, int64_t save_step)
{
    cy_config config;
    configure(&config, m, CY_BF16);
    job j = {.folder = folder, .load_step = load_step, .save_step = save_step};
    CY_CHECK_OK(cy_test_on_mesh(&config, "auto", NULL, use, &j));
    assert_int_equal(atomic_load(&j.wrong), 0);
    return j.hash;
}

// All elements of a stored tensor, in the order of the rows.
static void read_tensor(cy_checkpoint *checkpoint, const cy_global_tensor *tensor, float *values)
{
    cy_checkpoint_traffic traffic = {0};
    const cy_tensor_shard piece =
        cy_tensor_shard_of_view(0, cy_view_of(values, CY_F32, tensor->rows, tensor->cols), 0, 0);
    CY_CHECK_OK(cy_checkpoint_load(checkpoint, tensor, &piece, 1, &traffic));
}

static void expect_same_tensors(const char *folder, int64_t one_step, int64_t other_step)
{
    static float one[100000], other[100000];
    char path[400];
    cy_checkpoint a, b;
    snprintf(path, sizeof(path), "%s/step-%08lld", folder, (long long)one_step);
    CY_CHECK_OK(cy_checkpoint_open(&a, path));
    snprintf(path, sizeof(path), "%s/step-%08lld", folder, (long long)other_step);
    CY_CHECK_OK(cy_checkpoint_open(&b, path));
    assert_int_equal(a.tensor_count, b.tensor_count);
    int moments = 0;
    for (int i = 0; i < a.tensor_count; i++) {
        const cy_global_tensor *tensor = &a.tensors[i].tensor;
        const size_t count = (size_t)(tensor->rows * tensor->cols);
        assert_true(count <= sizeof(one) / sizeof(one[0]));
        read_tensor(&a, tensor, one);
        read_tensor(&b, tensor, other);
        assert_memory_equal(one, other, count * sizeof(float));
        for (size_t k = 0; k < count; k++)
            moments += tensor->kind != CY_TENSOR_WEIGHT && one[k] != 0.0f;
    }
    assert_true(moments > 1000); // a step was trained: they are no zeros
    cy_checkpoint_close(&a);
    cy_checkpoint_close(&b);
}

// Saved on one mesh, loaded and saved again by the next, round and round: the bits of the first.
static void state_survives_every_mesh(void **state)
{
    (void)state;
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    const uint64_t hash = run(folder, &meshes[0], 0, 1);
    for (int i = 1; i <= MESHES; i++)
        assert_true(run(folder, &meshes[i % MESHES], i, i + 1) == hash);
    for (int i = 1; i <= MESHES; i++)
        expect_same_tensors(folder, 1, i + 1);
}

// And in the other direction, so that each pair of neighbours has been both.
static void in_both_directions(void **state)
{
    (void)state;
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    const uint64_t hash = run(folder, &meshes[0], 0, 1);
    for (int i = 1; i <= MESHES; i++)
        assert_true(run(folder, &meshes[MESHES - i], i, i + 1) == hash);
    expect_same_tensors(folder, 1, MESHES + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_survives_every_mesh),
        cmocka_unit_test(in_both_directions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
