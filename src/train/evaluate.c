// Computes the loss over a split of a data set: during a run, and of a checkpoint.
#include "train/evaluate.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/convert.h"
#include "checkpoint/state_dict.h"
#include "checkpoint/identity.h"
#include "train/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- during a run

typedef struct split_evaluation {
    const cy_run_data *data;
    cy_batch_shape shape;
    int64_t samples; // of all ranks together
    int64_t seq_length;
    int64_t tokens;   // with a target, so far, on this rank
    cy_status status; // of reading; the other ranks learn of it at the end
    char error[512];  // its text
} split_evaluation;

static void clear_row(int32_t *in, int32_t *out, int64_t columns)
{
    memset(in, 0, (size_t)columns * sizeof(int32_t));
    for (int64_t i = 0; i < columns; i++)
        out[i] = -1;
}

static cy_status read_row(const split_evaluation *run, int32_t *in, int32_t *out, int64_t sample)
{
    const cy_batch_shape *shape = &run->shape;
    for (int i = 0; i < shape->range_count; i++) {
        const cy_position_range range = shape->ranges[i];
        CY_TRY(cy_dataset_read(
            run->data->dataset, in, shape->split, sample, range.first, range.count));
        CY_TRY(cy_dataset_read(
            run->data->dataset, out, shape->split, sample, range.first + 1, range.count));
        in += range.count;
        out += range.count;
    }
    return CY_OK;
}

// Microbatch i takes the i-th round of samples. Rows beyond the last sample have no targets. After
// a failed read no row has: the rank computes on, so that the other ranks can finish.
static cy_status fill_evaluation(
    void *context, int64_t microbatch, int32_t *inputs, int32_t *targets)
{
    split_evaluation *run = context;
    const cy_batch_shape *shape = &run->shape;
    const int64_t columns = cy_batch_columns(shape, run->seq_length);
    for (int64_t row = 0; row < shape->micro_batch_size; row++) {
        const int64_t sample = cy_batch_sample(shape, microbatch + 1, 0, row);
        int32_t *in = inputs + row * columns;
        int32_t *out = targets + row * columns;
        const bool wanted = sample < run->samples && run->status == CY_OK;
        if (wanted) run->status = read_row(run, in, out, sample);
        if (wanted && run->status != CY_OK) {
            snprintf(run->error, sizeof(run->error), "%s", cy_error_text());
        }
        if (wanted && run->status == CY_OK) {
            run->tokens += columns;
        } else {
            clear_row(in, out, columns);
        }
    }
    return CY_OK;
}

cy_status cy_evaluate_split(cy_engine *engine, const cy_run_data *data, const cy_coordinates *at,
    cy_dataset_split split, int64_t max_tokens, double *loss, int64_t *tokens, bool *unread)
{
    const cy_config *config = engine->options.config;
    cy_position_range ranges[CY_CONTEXT_RANGES];
    split_evaluation run = {
        .data = data,
        .shape = cy_data_iterator_shape(config, at, split, ranges),
        .samples = cy_dataset_samples(data->dataset, split),
        .seq_length = config->training.seq_length,
    };
    run.shape.accumulation = 1;
    CY_TRY(cy_dataset_check(data->dataset, split));
    const int64_t wanted = max_tokens / run.seq_length + (max_tokens % run.seq_length != 0);
    if (max_tokens > 0 && wanted < run.samples) run.samples = wanted;

    const cy_batch_source source = {.context = &run, .fill = fill_evaluation};
    const int64_t round = run.shape.micro_batch_size * run.shape.dp_size;
    double sums[2] = {0};
    for (int64_t i = 0; i * round < run.samples; i++) {
        double sum = 0;
        CY_TRY(cy_engine_evaluate(engine, &source, i, &sum));
        sums[0] += sum;
    }
    sums[1] = (double)run.tokens;
    const cy_engine_groups *groups = &engine->options.groups;
    double failed = run.status != CY_OK;
    CY_TRY(cy_group_all_reduce(groups->world, NULL, cy_view_of(&failed, CY_F64, 1, 1), CY_MAX));
    *unread = failed > 0;
    if (run.status != CY_OK) return CY_FAIL(run.status, "%s", run.error);
    if (failed > 0) return CY_FAIL(CY_ERR_PEER, "another rank could not read its samples");
    CY_TRY(cy_group_all_reduce(groups->gradient, NULL, cy_view_of(sums, CY_F64, 1, 2), CY_SUM));
    // Every stage has counted the tokens; only the last one has losses.
    CY_TRY(cy_group_all_reduce(groups->pp, NULL, cy_view_of(sums, CY_F64, 1, 1), CY_SUM));
    *loss = sums[0] / sums[1];
    *tokens = (int64_t)sums[1];
    return CY_OK;
}

// ---- of a checkpoint

#define DEFAULT_LENGTH_MAX 2048

typedef struct evaluate_run {
    const cy_evaluate_options *options;
    cy_config config;
    cy_checkpoint checkpoint;
    cy_run_data data;
    cy_evaluation *evaluation;
} evaluate_run;

// Sets a path of a configuration. A path that does not fit is an error: it must not be cut.
static cy_status set_path(char *field, const char *folder, const char *name)
{
    const int length = snprintf(field, CY_CONFIG_PATH_BYTES, "%s%s", folder, name);
    if (length >= 0 && length < CY_CONFIG_PATH_BYTES) return CY_OK;
    return CY_FAIL(CY_ERR_REQUEST, "%s%s: a path of %d bytes, at most %d are taken", folder, name,
        length, CY_CONFIG_PATH_BYTES - 1);
}

// Makes the configuration that the model was trained with, for one rank and the given data; for a
// Hugging Face folder, the defaults.
static cy_status make_config(evaluate_run *run)
{
    const cy_evaluate_options *options = run->options;
    cy_config *config = &run->config;
    const char *json = run->checkpoint.config_json;
    cy_config_errors errors = {0};
    const cy_status status = cy_config_read(
        config, &errors, json, json != NULL ? strlen(json) : 0, run->checkpoint.path, NULL, 0);
    cy_config_errors_free(&errors);
    CY_TRY(status);

    // A model that was not trained here has the dtype of its files, and the longest sequences that
    // the model takes.
    const bool was_trained = json != NULL && run->checkpoint.step > 0;
    const cy_dtype dtype =
        was_trained ? config->model.dtype : run->checkpoint.tensors[0].tensor.dtype;
    const cy_config_training trained = config->training;
    const double held_out = config->dataset.validation_fraction;
    cy_config_defaults(config);
    config->shape = run->checkpoint.model;
    config->model.dtype = dtype;
    const int64_t most = config->shape.max_positions < DEFAULT_LENGTH_MAX
        ? config->shape.max_positions
        : DEFAULT_LENGTH_MAX;
    config->training.seq_length = options->seq_length > 0 ? options->seq_length
        : was_trained                                     ? trained.seq_length
                                                          : most;
    if (config->training.seq_length > config->shape.max_positions) {
        return CY_FAIL(CY_ERR_REQUEST, "a sample of %lld tokens, the model has %lld positions",
            (long long)config->training.seq_length, (long long)config->shape.max_positions);
    }
    config->training.micro_batch_size = trained.micro_batch_size > 0 ? trained.micro_batch_size : 1;
    config->training.gradient_accumulation_steps = 1;
    config->training.seed = trained.seed;
    config->dataset.validation_fraction =
        options->validation_fraction < 0 ? held_out : options->validation_fraction;
    CY_TRY(set_path(config->dataset.tokenizer, run->checkpoint.path, "/tokenizer.json"));
    bool there = false;
    CY_TRY(cy_path_find(&there, config->dataset.tokenizer));
    if (!there) config->dataset.tokenizer[0] = '\0';
    for (int i = 0; i < options->data_count; i++) {
        CY_TRY(set_path(config->dataset.sources[i].path, options->data[i], ""));
    }
    config->dataset.source_count = options->data_count;
    return CY_OK;
}

// Counts the bytes of text of the first `tokens` targets of a split. The end token has no text.
static cy_status count_bytes(
    const evaluate_run *run, cy_dataset_split split, int64_t tokens, int64_t *bytes)
{
    const int64_t length = run->config.training.seq_length;
    const int32_t end = cy_tokenizer_end_token(run->data.tokenizer);
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)length, sizeof(int32_t)));
    int32_t *ids = block;
    cy_status status = CY_OK;
    *bytes = 0;
    for (int64_t sample = 0; sample * length < tokens && status == CY_OK; sample++) {
        status = cy_dataset_read(run->data.dataset, ids, split, sample, 1, length);
        for (int64_t i = 0; i < length && status == CY_OK; i++) {
            size_t count = 0;
            cy_tokenizer_token(run->data.tokenizer, ids[i], &count);
            if (ids[i] != end) *bytes += (int64_t)count;
        }
    }
    cy_memory_free(ids);
    return status;
}

// Adds the values of a weight that are not finite to *found.
static cy_status count_not_finite(int64_t *found, cy_engine *engine, const cy_tensor_shard *piece)
{
    const int64_t cols = piece->rectangle.cols;
    char *buffer = NULL;
    CY_TRY(CY_ALLOC(&buffer, (size_t)cols * cy_dtype_size(piece->dtype)));
    cy_status status = CY_OK;
    for (int64_t row = 0; row < piece->rectangle.rows && status == CY_OK; row++) {
        const char *values = NULL;
        status = cy_tensor_shard_read(&values, buffer, &engine->queue, piece, row * cols, cols);
        if (status == CY_OK) {
            *found += cy_convert_not_finite(piece->dtype, values, piece->dtype, cols);
        }
    }
    cy_memory_free(buffer);
    return status;
}

// Names the cause where it is in the weights, as the model holds them.
static cy_status report_not_finite(
    const evaluate_run *run, cy_engine *engine, const cy_evaluation *result)
{
    cy_state_dict weights = {0};
    CY_TRY(cy_state_dict_of_weights(&weights, &engine->storage));
    const char *name = NULL;
    int64_t found = 0;
    cy_status status = CY_OK;
    for (size_t i = 0; i < weights.piece_count && found == 0 && status == CY_OK; i++) {
        name = weights.tensors[weights.pieces[i].tensor].name;
        status = count_not_finite(&found, engine, &weights.pieces[i]);
    }
    if (status == CY_OK)
        status = CY_FAIL(CY_ERR_NOT_FINITE, "%s: the loss over %lld tokens is not finite%s%s%s",
            run->checkpoint.path, (long long)result->tokens, found > 0 ? ": so are values of " : "",
            found > 0 ? name : "", found > 0 ? "" : ", though all weights are");
    cy_state_dict_close(&weights);
    return status;
}

static cy_status evaluate_engine(cy_engine *engine, const cy_rank *rank, void *context)
{
    evaluate_run *run = context;
    const cy_evaluate_options *options = run->options;
    cy_evaluation *result = run->evaluation;
    // Without a held-out part, all of the data is evaluated.
    result->held_out = run->config.dataset.validation_fraction > 0;
    const cy_dataset_split split = result->held_out ? options->split : CY_DATASET_TRAIN;
    cy_checkpoint_traffic traffic = {0};
    CY_TRY(cy_state_load_weights(engine, rank, &run->checkpoint, &traffic));
    bool unread = false; // and the status says so
    CY_TRY(cy_evaluate_split(engine, &run->data, &rank->at, split, options->max_tokens,
        &result->loss, &result->tokens, &unread));
    if (!isfinite(result->loss)) return report_not_finite(run, engine, result);
    int64_t bytes = 0;
    if (run->data.tokenizer != NULL) CY_TRY(count_bytes(run, split, result->tokens, &bytes));
    const double bits = result->loss * (double)result->tokens / log(2.0);
    result->perplexity = exp(result->loss);
    result->bits_per_byte = bytes > 0 ? bits / (double)bytes : (double)NAN;
    return CY_OK;
}

static cy_status evaluate_rank(const cy_rank *rank, void *context)
{
    const evaluate_run *run = context;
    cy_engine_options opening = cy_rank_engine_options(rank, &run->config);
    opening.train = false;
    opening.isa = cy_config_isa_name(run->options->isa);
    return cy_rank_with_engine(rank, &opening, evaluate_engine, context);
}

static cy_status evaluate(void *context, const char *path)
{
    evaluate_run *run = context;
    CY_TRY(cy_checkpoint_open_pinned(&run->checkpoint, path));
    cy_status status = make_config(run);
    if (status == CY_OK && run->options->accept_tokenizer) {
        run->config.checkpoint.accept = CY_CONFIG_ACCEPT_TOKENIZER;
    }
    if (status == CY_OK) status = cy_run_data_open(&run->data, &run->config, run->options->cores);
    if (status == CY_OK && run->data.tokenizer != NULL) {
        status = cy_identity_check_own_tokenizer(&run->checkpoint, run->data.tokenizer);
        if (status != CY_OK) cy_run_data_close(&run->data);
    }
    run->evaluation->unmarked = run->checkpoint.step > 0 && run->checkpoint.identity_json == NULL;
    if (status == CY_OK) {
        const cy_config_machine machine = {.cores = run->options->cores};
        status = cy_ranks_run(&run->config, &machine, evaluate_rank, run);
        cy_run_data_close(&run->data);
    }
    cy_checkpoint_close(&run->checkpoint);
    return status;
}

cy_status cy_evaluate(const cy_evaluate_options *options, cy_evaluation *evaluation)
{
    if (options->data_count > CY_CONFIG_SOURCES_MAX) {
        return CY_FAIL(CY_ERR_REQUEST, "%d sources of data, at most %d", options->data_count,
            CY_CONFIG_SOURCES_MAX);
    }
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(evaluate_run)));
    evaluate_run *run = block;
    run->options = options;
    run->evaluation = evaluation;
    *evaluation = (cy_evaluation){0};
    const cy_status status = cy_checkpoint_read_newest(options->checkpoint, evaluate, run);
    cy_memory_free(run);
    return status;
}
