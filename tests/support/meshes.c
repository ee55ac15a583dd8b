#include "support/meshes.h"

#include "support/support.h"

#include "base/memory.h"
#include "base/random.h"
#include "optim/adamw.h"
#include "train/replicas.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// The position of token number `i` of a sequence on a rank that holds these ranges.
static int64_t position_of(const cy_context_range *ranges, int64_t i)
{
    const int64_t in_first = ranges[0].count;
    return i < in_first ? ranges[0].first + i : ranges[1].first + i - in_first;
}

static cy_status fill(void *context, int64_t microbatch, int32_t *inputs, int32_t *targets)
{
    const cy_test_batch *batch = context;
    const cy_config *config = batch->config;
    const cy_context_layout layout = cy_engine_layout(config);
    cy_context_range ranges[CY_CONTEXT_RANGES];
    cy_context_ranges(&layout, batch->at.at[CY_AXIS_CP], ranges);
    const uint64_t vocab = (uint64_t)config->shape.vocab;
    const int64_t rows = config->training.micro_batch_size;
    const int64_t round = microbatch * config->distributed.dp_size + batch->at.at[CY_AXIS_DP];
    for (int64_t row = 0; row < rows; row++) {
        const uint64_t sample = (uint64_t)(round * rows + row);
        const uint64_t key = cy_random_key_at(cy_random_key(7, "tokens"), sample);
        for (int64_t i = 0; i < batch->columns; i++) {
            const uint64_t position = (uint64_t)position_of(ranges, i);
            inputs[row * batch->columns + i] = (int32_t)(cy_random_bits(key, position) % vocab);
            targets[row * batch->columns + i] =
                (int32_t)(cy_random_bits(key, position + 1) % vocab);
        }
    }
    return CY_OK;
}

cy_batch_source cy_test_batch_source(cy_test_batch *batch)
{
    return (cy_batch_source){.context = batch, .fill = fill};
}

typedef struct mesh_run {
    const cy_config *config;
    cy_test_training *training;
    pthread_mutex_t lock; // of the arrays
} mesh_run;

typedef struct collection {
    mesh_run *run;
    const cy_engine *engine;
} collection;

static double element(cy_view view, int64_t i)
{
    const void *at = cy_view_at(view, 0, i);
    if (view.dtype == CY_FX64) return (double)*(const int64_t *)at; // its units
    return view.dtype == CY_F64 ? *(const double *)at : (double)*(const float *)at;
}

static void put(mesh_run *run, double *place, double value)
{
    // NaN marks what nobody has written yet.
    if (!isnan(*place) && memcmp(place, &value, sizeof(value)) != 0) run->training->copies_differ++;
    *place = value;
}

static cy_status collect(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    const collection *to = context;
    const cy_manifest *manifest = &to->engine->storage.manifest;
    const cy_param *param = param_range->tensor->param;
    int64_t base = 0;
    for (const cy_param *p = manifest->params; p != param; p++)
        base += p->rows * p->cols;
    cy_param_block part;
    for (int64_t done = 0; cy_param_range_next(param_range, &done, &part);) {
        for (int64_t i = 0; i < part.rows * part.cols; i++) {
            const int64_t global =
                base + part.global_first + i / part.cols * param->cols + i % part.cols;
            const int64_t at = param_range->at + part.at + i;
            put(to->run, &to->run->training->grads[global], element(range->grad, at));
            put(to->run, &to->run->training->weights[global], element(range->master, at));
        }
    }
    return CY_OK;
}

cy_adamw_spec cy_test_adamw(double learning_rate, int step)
{
    return (cy_adamw_spec){.learning_rate = learning_rate,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .weight_decay = 0.01,
        .step = step};
}

cy_test_batch cy_test_batch_of(const cy_engine *engine, const cy_rank *rank)
{
    const cy_config *config = engine->options.config;
    return (cy_test_batch){
        .config = config,
        .at = rank->at,
        .columns = engine->tokens / config->training.micro_batch_size,
    };
}

static cy_traffic since(cy_group *group, cy_traffic before)
{
    const cy_traffic now = cy_group_counters(group);
    return (cy_traffic){
        .bytes = now.bytes - before.bytes,
        .messages = now.messages - before.messages,
        .seconds = now.seconds - before.seconds,
        .exposed_s = now.exposed_s - before.exposed_s,
    };
}

static cy_status train(cy_engine *engine, const cy_rank *rank, void *context)
{
    mesh_run *run = context;
    const cy_config *config = run->config;
    cy_test_training *training = run->training;
    CY_TRY(cy_engine_initialize(engine));
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    cy_traffic tp = {0}, kv = {0}, cp = {0}, gradient = {0};
    CY_TRY(cy_replicas_check(engine, rank, 0));
    for (int step = 1; step <= training->steps; step++) {
        const cy_adamw_spec adamw = cy_test_adamw(config->training.learning_rate, step);
        cy_step_result result;
        tp = cy_group_counters(rank->groups.tp);
        kv = cy_group_counters(rank->groups.kv);
        cp = cy_group_counters(rank->groups.cp);
        gradient = cy_group_counters(rank->groups.gradient);
        CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
        if (rank->rank != 0) continue;
        training->loss[step - 1] = result.loss;
        training->norm[step - 1] = result.grad_norm;
    }
    if (rank->rank == 0) {
        training->tp = since(rank->groups.tp, tp);
        training->kv = since(rank->groups.kv, kv);
        training->cp = since(rank->groups.cp, cp);
        training->gradient = since(rank->groups.gradient, gradient);
        training->scratch_bytes = engine->memory.scratch;
    }
    CY_TRY(cy_replicas_check(engine, rank, training->steps));
    uint64_t hash;
    CY_TRY(cy_engine_params_hash(engine, &hash));
    if (rank->rank == 0) training->hash = hash;
    collection to = {.run = run, .engine = engine};
    pthread_mutex_lock(&run->lock);
    const cy_status status = cy_param_ranges_visit(&engine->storage, collect, &to);
    pthread_mutex_unlock(&run->lock);
    return status;
}

cy_status cy_test_with_engine(
    const cy_rank *rank, const cy_config *config, const char *isa, cy_engine_use use, void *context)
{
    cy_engine_options options = cy_rank_engine_options(rank, config);
    options.isa = cy_test_isa(isa);
    options.threads = 1;
    return cy_rank_with_engine(rank, &options, use, context);
}

typedef struct engine_run {
    const cy_config *config;
    const char *isa;
    cy_engine_use use;
    void *context;
} engine_run;

static cy_status run_rank(const cy_rank *rank, void *context)
{
    const engine_run *run = context;
    return cy_test_with_engine(rank, run->config, run->isa, run->use, run->context);
}

cy_status cy_test_on_mesh(const cy_config *config, const char *isa, const cy_world_delay *delay,
    cy_engine_use use, void *context)
{
    const cy_config_machine machine = {.cores = 2};
    engine_run run = {.config = config, .isa = isa, .use = use, .context = context};
    return cy_ranks_run_delayed(config, &machine, delay, run_rank, &run);
}

void cy_test_train(cy_test_training *training, const cy_config *config, int steps, const char *isa)
{
    *training = (cy_test_training){.steps = steps};
    cy_manifest manifest;
    CY_CHECK_OK(cy_manifest_open(&manifest, &config->shape, cy_precision_of(config->model.dtype)));
    training->elements = cy_manifest_elements(&manifest);
    cy_manifest_close(&manifest);
    training->grads = malloc((size_t)training->elements * sizeof(double));
    training->weights = malloc((size_t)training->elements * sizeof(double));
    if (training->grads == NULL || training->weights == NULL) abort();
    for (int64_t i = 0; i < training->elements; i++)
        training->grads[i] = training->weights[i] = (double)NAN;

    mesh_run run = {.config = config, .training = training};
    pthread_mutex_init(&run.lock, NULL);
    CY_CHECK_OK(cy_test_on_mesh(config, isa, NULL, train, &run));
    pthread_mutex_destroy(&run.lock);
}

cy_config cy_test_dense(const cy_config *split)
{
    cy_config dense = *split;
    cy_config_distributed *d = &dense.distributed;
    dense.training.gradient_accumulation_steps *= d->dp_size;
    d->tp_size = d->cp_size = d->pp_size = d->dp_size = 1;
    d->zero_stage = 0;
    d->sequence_parallel = d->sequence_keep_inputs = false;
    return dense;
}

void cy_test_training_close(cy_test_training *training)
{
    free(training->grads);
    free(training->weights);
    *training = (cy_test_training){0};
}

double cy_test_loss_difference(const cy_test_training *a, const cy_test_training *b)
{
    double most = 0;
    for (int i = 0; i < a->steps; i++) {
        const double difference = fabs(a->loss[i] - b->loss[i]);
        cy_test_worse(&most, difference);
    }
    return most;
}

double cy_test_norm_difference(const cy_test_training *a, const cy_test_training *b)
{
    double most = 0;
    for (int i = 0; i < a->steps; i++) {
        const double difference = fabs(a->norm[i] / b->norm[i] - 1.0);
        cy_test_worse(&most, difference);
    }
    return most;
}

double cy_test_gradient_difference(
    const cy_test_training *a, const cy_test_training *b, const cy_config *config)
{
    cy_manifest manifest;
    CY_CHECK_OK(cy_manifest_open(&manifest, &config->shape, cy_precision_of(config->model.dtype)));
    double worst = 0;
    int64_t at = 0;
    for (int p = 0; p < manifest.count; p++) {
        const int64_t count = manifest.params[p].rows * manifest.params[p].cols;
        double largest = 0, most = 0;
        for (int64_t i = at; i < at + count; i++) {
            const double difference = fabs(a->grads[i] - b->grads[i]);
            if (fabs(b->grads[i]) > largest) largest = fabs(b->grads[i]);
            cy_test_worse(&most, difference);
        }
        cy_test_worse(&worst, most / largest);
        at += count;
    }
    cy_manifest_close(&manifest);
    return worst;
}

double cy_test_weight_difference(
    const cy_test_training *a, const cy_test_training *b, const cy_config *config)
{
    cy_manifest manifest;
    CY_CHECK_OK(cy_manifest_open(&manifest, &config->shape, cy_precision_of(config->model.dtype)));
    assert_int_equal(a->elements, b->elements);
    double worst = 0;
    int64_t at = 0;
    for (int p = 0; p < manifest.count; p++) {
        const int64_t count = manifest.params[p].rows * manifest.params[p].cols;
        double difference = 0, norm = 0;
        for (int64_t i = at; i < at + count; i++) {
            difference += (a->weights[i] - b->weights[i]) * (a->weights[i] - b->weights[i]);
            norm += b->weights[i] * b->weights[i];
        }
        cy_test_worse(&worst, sqrt(difference / norm));
        at += count;
    }
    assert_int_equal(at, a->elements);
    cy_manifest_close(&manifest);
    return worst;
}
