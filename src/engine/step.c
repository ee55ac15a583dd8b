// Runs one optimizer step, and an evaluation.

#include "base/status.h"
#include "optim/adamw.h"
#include "engine/engine_parts.h"

#include <math.h>

// ---- gradients that tensor-parallel ranks hold in parts
//
// Most parameters are either split over the tensor-parallel ranks, and then each rank's gradient is
// complete, or replicated with the same gradient on all of them. Three kinds are neither: their
// gradients still have to be summed over ranks.
//
//   the norms of q and k, one weight for all heads: a rank adds gradients of its own heads only;
//   norms and output biases with sequence parallelism: a rank adds those of its own tokens only;
//   K and V of kv heads that several ranks share: a rank adds those of its own query heads only.
//
// They are summed once a step, after the reduction over data, over the ranges that a rank owns:
// with ZeRO only a shard is sent.

// A run of gradients that are adjacent in memory and are summed over the same group.
typedef struct sums {
    cy_engine *engine;
    cy_group *group; // of the run; NULL: there is no run
    int param_group;
    cy_owned_range range; // contains the run
    int64_t first, end;   // in the range
} sums;

static cy_group *group_of(const cy_engine *engine, const cy_param *param)
{
    const cy_engine_groups *groups = &engine->options.groups;
    const cy_role role = param->key.role;
    switch (param->split) {
    case CY_SPLIT_KV_ROWS:
        return cy_group_size(groups->kv) > 1 ? groups->kv : NULL;
    case CY_SPLIT_NONE:
        if (cy_group_size(groups->tp) == 1) return NULL;
        if (role == CY_ROLE_Q_NORM || role == CY_ROLE_K_NORM) return groups->tp;
        return engine->context.tp.sequence ? groups->tp : NULL;
    case CY_SPLIT_ROWS:
    case CY_SPLIT_VOCAB:
    case CY_SPLIT_COLS:
        return NULL;
    }
    return NULL;
}

static cy_status finish_run(sums *run)
{
    if (run->group == NULL) return CY_OK;
    cy_group *group = run->group;
    run->group = NULL;
    return cy_group_all_reduce(group, &run->engine->queue,
        cy_view_cols(run->range.grad, run->first, run->end - run->first), CY_SUM);
}

// Ranges come in order, so neighbours such as K and V travel in one message.
static cy_status add_param_range(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    sums *run = context;
    cy_group *group = group_of(run->engine, param_range->tensor->param);
    const bool goes_on = run->group == group && run->param_group == param_range->tensor->group &&
        run->range.first == range->first && run->end == param_range->at;
    if (!goes_on) {
        CY_TRY(finish_run(run));
        run->group = group;
        run->param_group = param_range->tensor->group;
        run->range = *range;
        run->first = param_range->at;
    }
    run->end = param_range->at + param_range->count;
    return CY_OK;
}

static cy_status reduce_partial_grads(cy_engine *engine)
{
    sums run = {.engine = engine};
    if (cy_group_size(engine->options.groups.tp) == 1) return CY_OK;
    CY_TRY(cy_param_ranges_visit(&engine->storage, add_param_range, &run));
    return finish_run(&run);
}

// ---- a step

// Copies what kernels left into the readings and waits for it. In a step `settle` alone calls it,
// and in an evaluation its end: nothing else makes the host wait for the device.
static cy_status read_values(cy_engine *engine)
{
    cy_queue *queue = &engine->queue;
    cy_engine_readings *readings = engine->readings;
    const bool strict = engine->context.sums != NULL;
    void *loss = strict ? (void *)&readings->loss_units : (void *)&readings->loss;
    cy_queue_download(queue, loss, engine->loss.data, cy_view_bytes(engine->loss));
    const cy_view norm = engine->update.cells.norm;
    cy_queue_download(queue, &readings->grad_norm, norm.data, cy_view_bytes(norm));
    if (strict) {
        cy_queue_download(
            queue, engine->amaxes_read, engine->amaxes.data, cy_view_bytes(engine->amaxes));
    }
    return cy_queue_synchronize(queue);
}

typedef struct finite_search {
    cy_engine *engine;
    int64_t found; // index in the manifest of the first tensor whose gradient is not finite
} finite_search;

static cy_status look_for_not_finite(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    finite_search *search = context;
    const int64_t place = param_range->tensor->param - search->engine->storage.manifest.params;
    if (place >= search->found) return CY_OK;
    const cy_view sum = search->engine->update.cells.sum_squares;
    cy_queue *queue = &search->engine->queue;
    double *squares = &search->engine->readings->squares;
    cy_fill(queue, sum, 0.0);
    cy_sum_squares(queue, sum, cy_param_range_grad(&search->engine->storage, range, param_range));
    cy_queue_download(queue, squares, sum.data, sizeof(*squares));
    CY_TRY(cy_queue_synchronize(queue));
    if (!isfinite(*squares)) search->found = place;
    return CY_OK;
}

// All ranks report the same tensor, whichever rank holds it: the user sees the message of the first
// rank that fails.
static cy_status report_not_finite(cy_engine *engine, const cy_step_result *result, int64_t step)
{
    const cy_manifest *manifest = &engine->storage.manifest;
    finite_search search = {.engine = engine, .found = manifest->count};
    CY_TRY(cy_param_ranges_visit(&engine->storage, look_for_not_finite, &search));
    CY_TRY(cy_group_all_reduce(
        engine->options.groups.world, NULL, cy_view_of(&search.found, CY_I64, 1, 1), CY_MIN));
    return CY_FAIL(CY_ERR_NOT_FINITE,
        "step %lld: loss %g, gradient norm %g; first tensor whose gradient is not finite: %s",
        (long long)step, isnan(result->loss) ? fabs(result->loss) : result->loss,
        fabs(result->grad_norm), // no "-nan"
        search.found < manifest->count ? manifest->params[search.found].name : "none");
}

// A try of a step, and what was decided about it.
typedef struct attempt {
    int64_t step;
    double tokens; // of the global batch
    int raised;    // strict mode: bits by which exponents are raised
    bool again;    // strict mode: a term did not fit, and the step is tried once more
} attempt;

// Sums the losses and decides what becomes of the try. This is the one point of a step where the
// host waits for the device and reads values of it: loss, gradient norm, and in strict mode the
// largest terms and whether one overflowed. One block of pinned memory takes them all.
static cy_status settle(cy_engine *engine, attempt *try, cy_step_result *result)
{
    // The last stage of each pipeline has the losses of its tokens.
    const cy_engine_groups *groups = &engine->options.groups;
    CY_TRY(cy_group_all_reduce(groups->gradient, &engine->queue, engine->loss, CY_SUM));
    CY_TRY(cy_group_all_reduce(groups->pp, &engine->queue, engine->loss, CY_SUM));
    CY_TRY(cy_engine_reduce_amaxes(engine));
    result->skipped = false;
    try->again = false;
    if (engine->queue.dry) return CY_OK;

    CY_TRY(read_values(engine));
    CY_TRY(cy_engine_end_try(engine, try->step, &try->raised, &try->again));
    if (try->again) return CY_OK;
    result->loss = cy_engine_loss(engine) / try->tokens;
    result->grad_norm = engine->readings->grad_norm;
    result->repeats = cy_engine_repeats(try->raised);
    const bool finite = isfinite(result->loss) && isfinite(result->grad_norm);
    if (engine->options.config->model.dtype == CY_F16 && isfinite(result->loss)) {
        const cy_loss_scaler_spec scaling = cy_loss_scaler_defaults();
        result->skipped = !cy_loss_scaler_step(&engine->scaler, &scaling, !finite);
    } else if (!finite) {
        return report_not_finite(engine, result, try->step);
    }
    return CY_OK;
}

// Computes losses, gradients and their norm.
static cy_status try_step(cy_engine *engine, double tokens)
{
    cy_storage_begin_step(&engine->storage, &engine->queue);
    cy_fill(&engine->queue, engine->loss, 0.0);
    CY_TRY(cy_engine_run_pipeline(engine));
    CY_TRY(cy_engine_finalize_grads(engine));
    CY_TRY(reduce_partial_grads(engine));
    return cy_optimizer_grad_norm(&engine->update, tokens * cy_engine_loss_scale(engine));
}

// The largest step ahead of a weight, in learning rates: a bound for weights whose second moment is
// still close to zero.
#define MOST_AHEAD 10.0
#define HELD_BELOW 0.25

// The number of first steps of topk in which AdamW updates its second moment. After them it is held
// (Tang et al., "1-bit Adam", 2021): once less than a quarter of the elements is sent, an element
// is a late sum over several steps, and its square says nothing about the gradient of one step. 0:
// it is never held.
static int64_t moment_steps(const cy_config_distributed *distributed)
{
    const double ratio = distributed->topk_ratio;
    const int64_t warmup = distributed->topk_warmup_steps;
    const int stages = cy_topk_stages(ratio, warmup);
    int stage = 0;
    while (stage < stages && cy_topk_stage_ratio(ratio, warmup, stage) >= HELD_BELOW)
        stage++;
    if (stage == stages && ratio >= HELD_BELOW) return 0;
    return cy_topk_stage_first(ratio, warmup, stage) - 1;
}

static void begin_topk(cy_engine *engine, cy_adamw_spec *adamw)
{
    const cy_config *config = engine->options.config;
    const cy_config_distributed *distributed = &config->distributed;
    const double ratio =
        cy_topk_ratio_at(distributed->topk_ratio, distributed->topk_warmup_steps, adamw->step);
    cy_reducer_set_ratio(engine->compressed, ratio);
    adamw->freeze.steps = moment_steps(distributed);
    adamw->freeze.share = ratio / 4.0; // some sums span more steps than most

    if (adamw->step == 1 && !engine->queue.dry) return; // there is no residual yet
    cy_adamw_spec before = *adamw;
    before.step--;
    const double seen = (double)cy_adamw_second_moment_of(&before).steps;
    const cy_step_ahead_spec ahead = {
        .learning_rate = adamw->learning_rate,
        .scale = 1.0 / (double)cy_config_batch_tokens(config),
        .root = 1.0 / sqrt(1.0 - pow(adamw->beta2, seen)),
        .eps = adamw->eps,
        .most = MOST_AHEAD,
    };
    cy_reducer_step_ahead(engine->compressed, &ahead);
}

// Reads microbatches [first, first + count) of the source as the first `count` of the step. The
// rows belong to the queue until the last copy of them is done.
static cy_status read_rows(
    cy_engine *engine, const cy_batch_source *source, int64_t first, int64_t count)
{
    cy_queue *queue = &engine->queue;
    int32_t *inputs = engine->rows;
    int32_t *targets = inputs + engine->microbatches * engine->tokens;
    CY_TRY(cy_event_wait(queue, &engine->rows_copied));
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i * engine->tokens;
        CY_TRY(source->fill(source->context, first + i, inputs + at, targets + at));
    }
    const size_t bytes = (size_t)(count * engine->tokens) * sizeof(int32_t);
    cy_queue_upload(queue, engine->inputs, inputs, bytes);
    cy_queue_upload(queue, engine->targets, targets, bytes);
    cy_queue_record(queue, &engine->rows_copied);
    return CY_OK;
}

cy_status cy_engine_read(cy_engine *engine, const cy_batch_source *source)
{
    return read_rows(engine, source, 0, engine->microbatches);
}

cy_status cy_engine_train_step(cy_engine *engine, const cy_batch_source *source,
    const cy_adamw_spec *adamw, cy_step_result *result)
{
    attempt try = {
        .step = adamw->step,
        .tokens = (double)cy_config_batch_tokens(engine->options.config),
    };
    cy_adamw_spec held = *adamw;
    if (engine->options.config->distributed.compression == CY_COMPRESSION_TOPK) {
        begin_topk(engine, &held);
        adamw = &held;
    }
    if (source != NULL) CY_TRY(cy_engine_read(engine, source));
    do {
        cy_engine_begin_try(engine);
        CY_TRY(try_step(engine, try.tokens));
        CY_TRY(settle(engine, &try, result));
        // Weights that were gathered ahead belong to the try that is over.
        if (try.again) CY_TRY(cy_storage_share_weights(&engine->storage));
    } while (try.again);
    if (!result->skipped) CY_TRY(cy_optimizer_step(&engine->update, adamw));
    cy_engine_end_step(engine, try.raised);
    return cy_storage_share_weights(&engine->storage);
}

cy_status cy_engine_evaluate(
    cy_engine *engine, const cy_batch_source *source, int64_t microbatch, double *loss_sum)
{
    cy_engine_begin_evaluation(engine);
    cy_fill(&engine->queue, engine->loss, 0.0);
    if (!engine->queue.dry) {
        CY_TRY(read_rows(engine, source, microbatch, 1));
    }
    CY_TRY(cy_engine_forward_only(engine));
    if (!engine->queue.dry) {
        CY_TRY(read_values(engine));
        *loss_sum = cy_engine_loss(engine);
    }
    return cy_engine_end_evaluation(engine);
}
