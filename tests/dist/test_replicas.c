// Ranks that hold copies of the same numbers are compared: one flipped bit is found on any mesh,
// the rank and the parameter are named, and no checkpoint is written.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include "checkpoint/folder.h"
#include "base/memory.h"
#include "optim/adamw.h"
#include "train/replicas.h"

#include <stdio.h>
#include <string.h>

#define NORM  "model.layers.1.input_layernorm.weight"
#define EMBED "model.embed_tokens.weight"

// Which array of a rank is changed.
typedef enum target {
    NOTHING,
    WHOLE_WEIGHT, // for compute
    OWNED_WEIGHT,
    OWNED_MASTER,
    OWNED_M,
    OWNED_V,
} target;

typedef struct fault {
    int tp, cp, pp, dp, zero;
    bool tied;
    cy_dtype dtype;
    int rank;
    target target;
    const char *parameter;
    const char *expected; // NULL: no failure
} fault;

static cy_status flip(cy_queue *queue, void *element)
{
    unsigned char byte = 0;
    cy_queue_download(queue, &byte, element, 1);
    CY_TRY(cy_queue_synchronize(queue));
    byte ^= 1u;
    cy_queue_upload(queue, element, &byte, 1);
    return cy_queue_synchronize(queue);
}

typedef struct flipper {
    const fault *fault;
    cy_queue *queue;
    int flipped;
} flipper;

static cy_status flip_owned(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    flipper *at = context;
    const fault *f = at->fault;
    if (strcmp(param_range->tensor->param->name, f->parameter) != 0) return CY_OK;
    const cy_view all = f->target == OWNED_WEIGHT ? range->weight
        : f->target == OWNED_MASTER               ? range->master
        : f->target == OWNED_M                    ? range->m
                                                  : range->v;
    if (cy_view_is_none(all)) return CY_FAIL(CY_ERR_REQUEST, "rank has no such array");
    at->flipped++;
    return flip(at->queue, cy_view_at(all, 0, param_range->at + param_range->count / 2));
}

static cy_status flip_whole(cy_engine *engine, const fault *f)
{
    const cy_storage *storage = &engine->storage;
    for (int i = 0; i < storage->tensor_count; i++) {
        const cy_tensor *tensor = &storage->tensors[i];
        if (strcmp(tensor->param->name, f->parameter) != 0) continue;
        return flip(&engine->queue, cy_tensor_weight(storage, tensor, 0).data);
    }
    return CY_FAIL(CY_ERR_REQUEST, "rank has no %s", f->parameter);
}

static cy_status plant(cy_engine *engine, const cy_rank *rank, const fault *f)
{
    if (f->target == NOTHING || rank->rank != f->rank) return CY_OK;
    if (f->target == WHOLE_WEIGHT) return flip_whole(engine, f);
    flipper at = {.fault = f, .queue = &engine->queue};
    CY_TRY(cy_param_ranges_visit(&engine->storage, flip_owned, &at));
    return at.flipped > 0 ? CY_OK : CY_FAIL(CY_ERR_REQUEST, "rank owns no %s", f->parameter);
}

static cy_status train(cy_engine *engine, const cy_rank *rank, int steps)
{
    CY_TRY(cy_engine_initialize(engine));
    CY_TRY(cy_replicas_check(engine, rank, 0));
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    for (int step = 1; step <= steps; step++) {
        const cy_adamw_spec adamw = cy_test_adamw(1e-3, step);
        cy_step_result result;
        CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
        CY_TRY(cy_replicas_check(engine, rank, step));
    }
    return CY_OK;
}

// Every rank must fail, and with the same words: the last to go checks it by waiting for the
// others.
static cy_status expect_difference(cy_engine *engine, const cy_rank *rank, const fault *f)
{
    const cy_status status = cy_replicas_check(engine, rank, 3);
    CY_TRY(cy_group_barrier(rank->groups.world));
    const bool right = f->expected == NULL
        ? status == CY_OK
        : status == CY_ERR_PEER && strcmp(cy_error_text(), f->expected) == 0;
    return right
        ? CY_OK
        : CY_FAIL(CY_ERR_CORRUPT, "rank %d says %s, expected %s", rank->rank,
              status == CY_OK ? "nothing" : cy_error_text(), f->expected ? f->expected : "nothing");
}

static cy_status use(cy_engine *engine, const cy_rank *rank, void *context)
{
    const fault *f = context;
    CY_TRY(train(engine, rank, 3));
    CY_TRY(plant(engine, rank, f));
    return expect_difference(engine, rank, f);
}

static cy_config configured(const fault *f)
{
    cy_config config;
    cy_test_config(&config, f->dtype);
    config.shape.tied = f->tied;
    config.shape.qkv_bias = config.shape.out_bias = true;
    config.shape.rope.factor = 0; // without scaling, as a resolved configuration has it
    config.training.gradient_accumulation_steps = 4;
    cy_config_distributed *d = &config.distributed;
    d->tp_size = f->tp;
    d->cp_size = f->cp;
    d->pp_size = f->pp;
    d->dp_size = f->dp;
    d->zero_stage = f->zero;
    d->bucket_mb = 0.01;
    return config;
}

static void run(const fault *faults, size_t count, cy_config_device device)
{
    for (size_t i = 0; i < count; i++) {
        cy_config config = configured(&faults[i]);
        config.distributed.device = device;
        print_message("tp %d cp %d pp %d dp %d zero %d, rank %d, %s\n", faults[i].tp, faults[i].cp,
            faults[i].pp, faults[i].dp, faults[i].zero, faults[i].rank,
            faults[i].parameter ? faults[i].parameter : "nothing");
        CY_CHECK_OK(cy_test_on_mesh(&config, "auto", NULL, use, cy_memory_writable(&faults[i])));
    }
}
#define RUN(faults) run(faults, CY_TEST_COUNT(faults), CY_CONFIG_DEVICE_CPU)

static void copies_stay_equal(void **state)
{
    (void)state;
    static const fault meshes[] = {
        {1, 1, 1, 1, 0, false, CY_F32, 0, NOTHING, NULL, NULL},
        {1, 1, 1, 3, 0, false, CY_BF16, 0, NOTHING, NULL, NULL},
        {4, 1, 1, 2, 0, false, CY_F32, 0, NOTHING, NULL, NULL},
        {4, 1, 1, 2, 3, false, CY_BF16, 0, NOTHING, NULL, NULL},
        {2, 2, 2, 1, 0, true, CY_F32, 0, NOTHING, NULL, NULL},
        {1, 1, 2, 2, 1, true, CY_BF16, 0, NOTHING, NULL, NULL},
        {2, 1, 2, 2, 3, true, CY_BF16, 0, NOTHING, NULL, NULL},
    };
    RUN(meshes);
}

static void replicas_of_data_and_context(void **state)
{
    (void)state;
    static const fault faults[] = {
        // Two against one: whoever is alone is named.
        {1, 1, 1, 3, 0, false, CY_F32, 2, WHOLE_WEIGHT, NORM,
            "rank 2: parameter " NORM " differs from rank 0's copy at step 3"},
        {1, 1, 1, 3, 2, false, CY_BF16, 0, WHOLE_WEIGHT, EMBED,
            "rank 0: parameter " EMBED " differs from rank 1's copy at step 3"},
        {1, 1, 1, 2, 1, false, CY_BF16, 1, WHOLE_WEIGHT, NORM,
            "rank 1: parameter " NORM " differs from rank 0's copy at step 3"},
        {1, 2, 1, 1, 0, false, CY_F32, 1, WHOLE_WEIGHT, "model.layers.0.self_attn.o_proj.weight",
            "rank 1: parameter model.layers.0.self_attn.o_proj.weight differs from rank 0's copy "
            "at step 3"},
        {1, 2, 1, 2, 0, false, CY_F32, 2, OWNED_V, NORM,
            "rank 2: the second moment of parameter " NORM " differs from rank 0's copy at step 3"},
        {1, 1, 1, 2, 0, false, CY_BF16, 1, OWNED_MASTER, NORM,
            "rank 1: the master copy of parameter " NORM " differs from rank 0's copy at step 3"},
        {1, 1, 1, 2, 0, false, CY_BF16, 0, OWNED_M, "lm_head.weight",
            "rank 1: the first moment of parameter lm_head.weight differs from rank 0's copy at "
            "step 3"},
    };
    RUN(faults);
}

static void what_tensor_parallel_ranks_share(void **state)
{
    (void)state;
    static const fault faults[] = {
        {2, 1, 1, 1, 0, false, CY_F32, 1, WHOLE_WEIGHT, NORM,
            "rank 1: parameter " NORM " differs from rank 0's copy at step 3"},
        {4, 1, 1, 1, 0, false, CY_F32, 2, OWNED_M, "model.norm.weight",
            "rank 2: the first moment of parameter model.norm.weight differs from rank 0's copy "
            "at step 3"},
        {2, 1, 1, 1, 0, false, CY_F32, 1, WHOLE_WEIGHT, "model.layers.0.self_attn.o_proj.bias",
            "rank 1: parameter model.layers.0.self_attn.o_proj.bias differs from rank 0's copy at "
            "step 3"},
        // Four ranks share two kv heads.
        {4, 1, 1, 1, 0, false, CY_F32, 3, WHOLE_WEIGHT, "model.layers.1.self_attn.k_proj.weight",
            "rank 3: parameter model.layers.1.self_attn.k_proj.weight differs from rank 2's copy "
            "at step 3"},
        {4, 1, 1, 2, 3, false, CY_BF16, 5, OWNED_WEIGHT, "model.layers.1.self_attn.v_proj.weight",
            "rank 5: parameter model.layers.1.self_attn.v_proj.weight differs from rank 4's copy "
            "at step 3"},
    };
    RUN(faults);
}

// Hashes are added in memory that the host cannot reach.
static void copies_on_a_device(void **state)
{
    (void)state;
    static const fault faults[] = {
        {2, 1, 2, 2, 3, true, CY_BF16, 0, NOTHING, NULL, NULL},
        {1, 1, 1, 3, 0, false, CY_F32, 2, WHOLE_WEIGHT, NORM,
            "rank 2: parameter " NORM " differs from rank 0's copy at step 3"},
        {4, 1, 1, 1, 0, false, CY_F32, 2, OWNED_M, "model.norm.weight",
            "rank 2: the first moment of parameter model.norm.weight differs from rank 0's copy "
            "at step 3"},
    };
    run(faults, CY_TEST_COUNT(faults), CY_CONFIG_DEVICE_TEST);
}

static void a_tied_embedding_on_two_stages(void **state)
{
    (void)state;
    static const fault faults[] = {
        {1, 1, 2, 1, 0, true, CY_F32, 1, WHOLE_WEIGHT, EMBED,
            "rank 1: parameter " EMBED " differs from rank 0's copy at step 3"},
        {1, 1, 2, 2, 1, true, CY_BF16, 1, OWNED_MASTER, EMBED,
            "rank 1: the master copy of parameter " EMBED " differs from rank 0's copy at step 3"},
    };
    RUN(faults);
}

// ---- checkpoints

typedef struct save_job {
    const fault *fault;
    const char *folder;
} save_job;

static cy_status save_twice(cy_engine *engine, const cy_rank *rank, void *context)
{
    const save_job *job = context;
    CY_TRY(train(engine, rank, 1));
    CY_TRY(
        cy_test_save_engine(engine, rank, job->folder, (cy_run_position){.step = 1, .tokens = 1}));
    CY_TRY(plant(engine, rank, job->fault));
    const cy_status status =
        cy_test_save_engine(engine, rank, job->folder, (cy_run_position){.step = 3, .tokens = 1});
    CY_TRY(cy_group_barrier(rank->groups.world));
    const bool right = status == CY_ERR_PEER && strcmp(cy_error_text(), job->fault->expected) == 0;
    return right ? CY_OK : CY_FAIL(CY_ERR_CORRUPT, "the save ends with %d", (int)status);
}

static cy_status load_first(cy_engine *engine, const cy_rank *rank, void *context)
{
    const save_job *job = context;
    char path[400];
    cy_run_position position = {0};
    cy_checkpoint_traffic traffic = {0};
    snprintf(path, sizeof(path), "%s/step-00000001", job->folder);
    return cy_state_load(engine, rank, path, false, &position, &traffic);
}

static void diverged_replicas_are_not_saved(void **state)
{
    (void)state;
    static const fault f = {1, 1, 1, 2, 0, false, CY_F32, 1, WHOLE_WEIGHT, NORM,
        "rank 1: parameter " NORM " differs from rank 0's copy at step 3"};
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    save_job job = {.fault = &f, .folder = folder};
    const cy_config config = configured(&f);
    CY_CHECK_OK(cy_test_on_mesh(&config, "auto", NULL, save_twice, &job));
    int64_t *steps = NULL;
    int count = 0;
    CY_CHECK_OK(cy_folder_steps(&steps, &count, folder));
    assert_int_equal(count, 1);
    assert_int_equal(steps[0], 1);
    cy_memory_free(steps);
    CY_CHECK_OK(cy_test_on_mesh(&config, "auto", NULL, load_first, &job));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_stay_equal),
        cmocka_unit_test(replicas_of_data_and_context),
        cmocka_unit_test(what_tensor_parallel_ranks_share),
        cmocka_unit_test(a_tied_embedding_on_two_stages),
        cmocka_unit_test(copies_on_a_device),
        cmocka_unit_test(diverged_replicas_are_not_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
