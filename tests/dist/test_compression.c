// Compressed gradients. In the reducer: what is sent and what is kept back is the gradient,
// exactly, step after step. In training on every kind of mesh: copies stay equal, a repeat has the
// same bits, int8 stays near the dense run, and top-k that sends everything is the dense run.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"
#include "support/worlds.h"

#include "base/random.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// ---- the reducer alone, on integers: float sums of them are exact in any order

#define RANKS      3
#define ELEMENTS   (INT64_C(192) * 40)
#define STEPS      5
#define ARENA_SIZE ((size_t)8 << 20)

#define BLOCK INT64_C(192) // elements that divide by the ranks and by a cache line

static const cy_flat_range units[] = {
    {0, BLOCK * 7}, {BLOCK * 7, BLOCK * 30}, {BLOCK * 37, BLOCK * 3}};
static const cy_flat_range vectors[] = {{BLOCK * 7 - 10, 10}, {BLOCK * 20 + 5, 33}};

typedef struct reducer_run {
    cy_dtype dtype;
    double most_norm;
    int vector_count;                   // of those that are sent whole
    size_t bytes;                       // that compression took
    float sums[RANKS][STEPS][ELEMENTS]; // what each rank has after each step
    float kept[RANKS][STEPS][ELEMENTS];
} reducer_run;

static float gradient(int rank, int step, int64_t i)
{
    const uint64_t bits = cy_random_bits((uint64_t)rank + (uint64_t)step * RANKS + 1, (uint64_t)i);
    return (float)((int)(bits % 401) - 200);
}

static void put(cy_view to, int64_t i, float value)
{
    if (to.dtype == CY_F64) {
        ((double *)to.data)[i] = (double)value;
    } else {
        ((float *)to.data)[i] = value;
    }
}

static float get(cy_view from, int64_t i)
{
    return from.dtype == CY_F64 ? (float)((const double *)from.data)[i]
                                : ((const float *)from.data)[i];
}

static cy_status reduce_step(cy_reducer *reducer, reducer_run *run, int rank, int step)
{
    cy_reducer_zero(reducer);
    for (int u = 0; u < 3; u++) {
        const cy_view grads =
            cy_view_of(cy_reducer_grads(reducer, u), run->dtype, 1, units[u].count);
        for (int64_t i = 0; i < units[u].count; i++)
            put(grads, i, gradient(rank, step, units[u].first + i));
        CY_TRY(cy_reducer_gradient_final(reducer, u, true));
    }
    CY_TRY(cy_reducer_finish(reducer));
    const cy_view residual = cy_reducer_residual(reducer);
    for (int u = 0; u < 3; u++) {
        const cy_owned_range owned = cy_reducer_owned(reducer, u);
        for (int64_t i = 0; i < owned.count; i++) {
            run->sums[rank][step][owned.first + i] = get(owned.grad, i);
            run->kept[rank][step][owned.first + i] = get(residual, owned.first + i);
        }
    }
    return CY_OK;
}

static cy_status reduce_all(cy_test_machine *machine, cy_group *group, void *context)
{
    reducer_run *run = context;
    const cy_reducer_spec spec = {
        .group = group,
        .queue = &machine->queue,
        .bucket_bytes = 12 * BLOCK * sizeof(float),
        .weight_dtype = run->dtype,
        .master_dtype = run->dtype,
        .grad_dtype = run->dtype,
        .train = true,
        .compression = {.kind = CY_COMPRESSION_TOPK,
            .ratio = 0.07,
            .most_ratio = 0.07,
            .most_norm = run->most_norm,
            .model = cy_group_self(),
            .dense = vectors,
            .dense_count = run->vector_count},
    };
    cy_reducer *reducer = NULL;
    CY_TRY(cy_reducer_open(&reducer, &spec, units, 3));
    cy_reducer_alloc(reducer, &machine->data);
    if (cy_group_rank(group) == 0) run->bytes = cy_reducer_memory(reducer).compression;
    cy_status status = CY_OK;
    for (int step = 0; step < STEPS && status == CY_OK; step++)
        status = reduce_step(reducer, run, cy_group_rank(group), step);
    cy_reducer_close(reducer);
    return status;
}

static cy_status reduce(reducer_run *run)
{
    cy_world_options options = cy_world_defaults();
    options.ranks = RANKS;
    return cy_test_on_machines(&options, "auto", ARENA_SIZE, reduce_all, run);
}

static bool is_vector(int64_t i)
{
    for (int v = 0; v < 2; v++) {
        if (vectors[v].first <= i && i < vectors[v].first + vectors[v].count) return true;
    }
    return false;
}

// Over all steps, everything that every rank had is in the sums or is kept back by somebody.
static void expect_conserved(const reducer_run *run)
{
    int64_t delayed = 0;
    for (int64_t i = 0; i < ELEMENTS; i++) {
        float given = 0.0f, summed = 0.0f;
        for (int step = 0; step < STEPS; step++) {
            float kept = 0.0f;
            summed += run->sums[0][step][i];
            for (int rank = 0; rank < RANKS; rank++) {
                given += gradient(rank, step, i);
                kept += run->kept[rank][step][i];
                assert_true(run->sums[rank][step][i] == run->sums[0][step][i]);
                assert_true(!is_vector(i) || run->kept[rank][step][i] == 0.0f);
            }
            if (!(given == summed + kept)) {
                fail_msg("step %d, element %lld: %g given, %g sent, %g kept back", step,
                    (long long)i, (double)given, (double)summed, (double)kept);
            }
            delayed += kept != 0.0f;
        }
    }
    assert_true(delayed > ELEMENTS); // it does keep something back
}

static void sent_and_residual_are_the_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        reducer_run *run = calloc(1, sizeof(*run));
        assert_non_null(run);
        run->dtype = i == 0 ? CY_F32 : CY_F64;
        run->vector_count = 2;
        CY_CHECK_OK(reduce(run));
        expect_conserved(run);
        // What is sent whole has a room of its own.
        const size_t bytes = run->bytes;
        run->vector_count = 0;
        CY_CHECK_OK(reduce(run));
        assert_int_equal(bytes - run->bytes, (10 + 33) * cy_dtype_size(run->dtype));
        free(run);
    }
}

// A gradient that is twice too long enters halved: the same as half of it without a limit.
static void a_gradient_is_clipped_before_it_is_kept(void **state)
{
    (void)state;
    reducer_run *run = calloc(1, sizeof(*run));
    assert_non_null(run);
    double squares = 0;
    for (int64_t i = 0; i < ELEMENTS; i++) {
        if (!is_vector(i)) squares += pow((double)gradient(0, 0, i), 2);
    }
    run->dtype = CY_F64;
    run->vector_count = 2;
    run->most_norm = sqrt(squares) / 2;
    CY_CHECK_OK(reduce(run));
    for (int64_t i = 0; i < ELEMENTS; i++) {
        if (is_vector(i) || run->kept[0][0][i] == 0.0f) continue;
        assert_true(fabs((double)run->kept[0][0][i] / (double)gradient(0, 0, i) - 0.5) < 1e-6);
    }
    free(run);
}

// ---- training

typedef struct mesh_case {
    int tp, cp, pp, dp;
    bool tied;
    int kv_heads;
    cy_dtype dtype;
} mesh_case;

static cy_config config_of(const mesh_case *mesh, cy_compression kind, double ratio)
{
    cy_config config;
    cy_test_config(&config, mesh->dtype);
    config.distributed.tp_size = mesh->tp;
    config.distributed.cp_size = mesh->cp;
    config.distributed.pp_size = mesh->pp;
    config.distributed.dp_size = mesh->dp;
    config.distributed.pp_engine = CY_PIPELINE_1F1B;
    config.distributed.bucket_mb = 0.01;
    config.distributed.compression = kind;
    config.distributed.topk_ratio = ratio;
    config.shape.tied = mesh->tied;
    config.shape.kv_heads = mesh->kv_heads;
    return config;
}

static const mesh_case meshes[] = {
    {1, 1, 1, 2, true, 2, CY_F32}, {1, 1, 1, 3, false, 2, CY_F64},
    {2, 1, 1, 2, false, 1, CY_F32}, // two copies of the one head of keys and values
    {1, 2, 1, 2, true, 2, CY_BF16}, {1, 1, 2, 2, true, 2, CY_F32}, // two copies of the embedding
};

static void expect_equal_copies(const mesh_case *mesh, cy_compression kind, double ratio)
{
    cy_test_training first, second;
    const cy_config config = config_of(mesh, kind, ratio);
    cy_test_train(&first, &config, 6, "auto"); // compares the replicas' weights itself
    cy_test_train(&second, &config, 6, "auto");
    assert_int_equal(first.copies_differ, 0);
    assert_true(first.hash == second.hash);
    cy_test_training_close(&first);
    cy_test_training_close(&second);
}

static void copies_stay_equal_on_every_mesh(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(meshes) / sizeof(meshes[0]); i++) {
        expect_equal_copies(&meshes[i], CY_COMPRESSION_TOPK, 0.05);
        expect_equal_copies(&meshes[i], CY_COMPRESSION_INT8, 0.05);
    }
}

// ---- the limit of a rank's gradient

typedef struct kept_norm {
    pthread_mutex_t lock;
    double least, most; // of the ranks' norms of what they keep back
} kept_norm;

static cy_status measure_kept(cy_engine *engine, const cy_rank *rank, void *context)
{
    kept_norm *seen = context;
    CY_TRY(cy_engine_initialize(engine));
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    const cy_adamw_spec adamw = cy_test_adamw(1e-3, 1);
    cy_step_result result;
    CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
    const cy_view residual = cy_reducer_residual(engine->compressed);
    double squares = 0;
    for (int64_t i = 0; i < residual.cols; i++)
        squares += pow((double)((const float *)residual.data)[i], 2);
    pthread_mutex_lock(&seen->lock);
    seen->least = fmin(seen->least, sqrt(squares));
    seen->most = fmax(seen->most, sqrt(squares));
    pthread_mutex_unlock(&seen->lock);
    return CY_OK;
}

// The clip of the whole, in sums over tokens, divided by the root of the ranks; of a gradient that
// is longer than that nearly everything is kept back where next to nothing is sent.
static void a_rank_is_clipped_to_its_share(void **state)
{
    (void)state;
    for (int dp = 2; dp <= 4; dp += 2) {
        const mesh_case mesh = {1, 1, 1, dp, true, 2, CY_F32};
        cy_config config = config_of(&mesh, CY_COMPRESSION_TOPK, 1e-4);
        config.training.grad_clip = 0.01;
        kept_norm seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .least = (double)INFINITY};
        CY_CHECK_OK(cy_test_on_mesh(&config, "ref", NULL, measure_kept, &seen));
        const double share = 0.01 * (double)cy_config_batch_tokens(&config) / sqrt(dp);
        if (!(seen.least > 0.8 * share && seen.most <= 1.0001 * share)) {
            fail_msg("%d ranks keep %g to %g, their share is %g", dp, seen.least, seen.most, share);
        }
    }
}

// With a limit that nothing reaches, top-k that sends all elements has the dense run's sums, if not
// in its order.
static void all_that_is_sent_is_dense(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(meshes) / sizeof(meshes[0]); i++) {
        mesh_case mesh = meshes[i];
        mesh.dtype = CY_F64;
        cy_test_training dense, all;
        cy_config config = config_of(&mesh, CY_COMPRESSION_NONE, 1);
        config.training.grad_clip = 0;
        cy_test_train(&dense, &config, 4, "ref");
        config.distributed.compression = CY_COMPRESSION_TOPK;
        cy_test_train(&all, &config, 4, "ref");
        assert_true(cy_test_loss_difference(&dense, &all) <= 1e-11);
        assert_true(cy_test_gradient_difference(&dense, &all, &config) <= 1e-9);
        cy_test_training_close(&dense);
        cy_test_training_close(&all);
    }
}

// Two roundings to a 127th of the largest of a block, of 2 ranks' gradients and of their sum.
static void int8_is_near_the_dense_gradient(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(meshes) / sizeof(meshes[0]); i++) {
        cy_test_training dense, near;
        cy_config config = config_of(&meshes[i], CY_COMPRESSION_NONE, 1);
        cy_test_train(&dense, &config, 1, "auto");
        config.distributed.compression = CY_COMPRESSION_INT8;
        cy_test_train(&near, &config, 1, "auto");
        double difference = 0, norm = 0;
        for (int64_t e = 0; e < dense.elements; e++) {
            difference += pow(near.grads[e] - dense.grads[e], 2);
            norm += pow(dense.grads[e], 2);
        }
        const double error = sqrt(difference / norm);
        if (!(error > 1e-5 && error < 0.02)) fail_msg("mesh %zu: error %g", i, error);
        cy_test_training_close(&dense);
        cy_test_training_close(&near);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sent_and_residual_are_the_gradient),
        cmocka_unit_test(a_gradient_is_clipped_before_it_is_kept),
        cmocka_unit_test(copies_stay_equal_on_every_mesh),
        cmocka_unit_test(a_rank_is_clipped_to_its_share),
        cmocka_unit_test(all_that_is_sent_is_dense),
        cmocka_unit_test(int8_is_near_the_dense_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
