#include "train/data_iterator.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

// ---- the data of a run

// That of the configuration, or the one beside the first source; NULL where there is none.
static cy_status open_tokenizer(cy_tokenizer **tokenizer, const cy_config *config)
{
    if (config->dataset.tokenizer[0] != '\0') {
        return cy_tokenizer_open(tokenizer, config->dataset.tokenizer);
    }
    cy_text path = {0};
    cy_status status = cy_text_add(&path, "%s/tokenizer.json", config->dataset.sources[0].path);
    bool there = false;
    if (status == CY_OK) status = cy_path_find(&there, path.bytes);
    if (there) status = cy_tokenizer_open(tokenizer, path.bytes);
    cy_text_free(&path);
    return status;
}

static cy_status open_parts(cy_run_data *data, const cy_config *config, int threads)
{
    cy_dataset_entry entries[CY_CONFIG_SOURCES_MAX];
    for (int i = 0; i < config->dataset.source_count; i++) {
        entries[i] = (cy_dataset_entry){
            .path = config->dataset.sources[i].path,
            .weight = config->dataset.sources[i].weight,
        };
    }
    CY_TRY(open_tokenizer(&data->tokenizer, config));
    const cy_dataset_options options = {
        .entries = entries,
        .count = config->dataset.source_count,
        .tokenizer = data->tokenizer,
        .seq_length = config->training.seq_length,
        .validation_fraction = config->dataset.validation_fraction,
        .num_samples = config->training.num_samples,
        .seed = (uint64_t)config->training.seed,
        .threads = threads,
        .vocab_size = (int32_t)config->shape.vocab, // at most 2^28
        .any_tokenizer = config->checkpoint.accept == CY_CONFIG_ACCEPT_TOKENIZER ||
            config->checkpoint.accept == CY_CONFIG_ACCEPT_ALL,
    };
    CY_TRY(cy_dataset_open(&data->dataset, &options));
    const int64_t vocab = cy_dataset_vocab_size(data->dataset);
    if (vocab > config->shape.vocab) {
        return CY_FAIL(CY_ERR_REQUEST,
            "model.vocab_size = %lld: the data's tokenizer has %lld tokens; the model needs at "
            "least as many",
            (long long)config->shape.vocab, (long long)vocab);
    }
    return CY_OK;
}

cy_status cy_run_data_open(cy_run_data *data, const cy_config *config, int threads)
{
    *data = (cy_run_data){0};
    const cy_status status = open_parts(data, config, threads);
    if (status != CY_OK) cy_run_data_close(data);
    return status;
}

void cy_run_data_close(cy_run_data *data)
{
    cy_dataset_close(data->dataset);
    cy_tokenizer_close(data->tokenizer);
    *data = (cy_run_data){0};
}

cy_status cy_run_data_open_to_train(cy_run_data *data, const cy_config *config, int threads)
{
    CY_TRY(cy_run_data_open(data, config, threads));
    if (config->logging.eval_frequency == 0) return CY_OK;
    const cy_status status = cy_dataset_check(data->dataset, CY_DATASET_VALIDATION);
    if (status != CY_OK) cy_run_data_close(data);
    return status;
}

// ---- training

// ranges [CY_CONTEXT_RANGES] is filled and borrowed: the positions that the rank holds.
static cy_batch_shape shape_of(const cy_config *config, const cy_coordinates *at,
    cy_dataset_split split, cy_position_range *ranges)
{
    const cy_context_layout layout = cy_engine_layout(config);
    cy_context_range held[CY_CONTEXT_RANGES];
    const int count = cy_context_ranges(&layout, at->at[CY_AXIS_CP], held);
    for (int i = 0; i < count; i++)
        ranges[i] = (cy_position_range){.first = held[i].first, .count = held[i].count};
    return (cy_batch_shape){
        .split = split,
        .micro_batch_size = config->training.micro_batch_size,
        .accumulation = (int)config->training.gradient_accumulation_steps,
        .dp_rank = at->at[CY_AXIS_DP],
        .dp_size = config->distributed.dp_size,
        .ranges = ranges,
        .range_count = count,
    };
}

cy_status cy_data_iterator_open(cy_data_iterator *iterator, const cy_run_data *data,
    const cy_config *config, const cy_coordinates *at, int64_t first_step)
{
    cy_position_range ranges[CY_CONTEXT_RANGES];
    const cy_loader_options options = {
        .dataset = data->dataset,
        .shape = shape_of(config, at, CY_DATASET_TRAIN, ranges),
        .first_step = first_step,
    };
    *iterator = (cy_data_iterator){.tokens = config->training.micro_batch_size *
            cy_batch_columns(&options.shape, config->training.seq_length)};
    return cy_loader_open(&iterator->loader, &options);
}

void cy_data_iterator_close(cy_data_iterator *iterator)
{
    cy_loader_close(iterator->loader);
    *iterator = (cy_data_iterator){0};
}

static cy_status next_training_batch(
    void *context, int64_t microbatch, int32_t *inputs, int32_t *targets)
{
    (void)microbatch; // they come in order
    cy_data_iterator *iterator = context;
    cy_batch batch;
    CY_TRY(cy_loader_next(iterator->loader, &batch));
    memcpy(inputs, batch.inputs, (size_t)iterator->tokens * sizeof(int32_t));
    memcpy(targets, batch.targets, (size_t)iterator->tokens * sizeof(int32_t));
    return CY_OK;
}

cy_batch_source cy_data_iterator_source(cy_data_iterator *iterator)
{
    return (cy_batch_source){.context = iterator, .fill = next_training_batch};
}

cy_loader_counters cy_data_iterator_count(const cy_data_iterator *iterator)
{
    return cy_loader_count(iterator->loader);
}

// ---- evaluation

typedef struct evaluation {
    const cy_run_data *data;
    cy_batch_shape shape;
    int64_t samples; // that are to be evaluated, over all ranks
    int64_t seq_length;
    int64_t tokens;   // with a target, so far, on this rank
    cy_status status; // of reading: the other ranks are told at the end
    char error[512];  // its text
} evaluation;

static void clear_row(int32_t *in, int32_t *out, int64_t columns)
{
    memset(in, 0, (size_t)columns * sizeof(int32_t));
    for (int64_t i = 0; i < columns; i++)
        out[i] = -1;
}

static cy_status read_row(const evaluation *run, int32_t *in, int32_t *out, int64_t sample)
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

// Microbatch i takes the i-th round of samples; rows beyond the last sample have no targets, and
// none have when a read has failed: the ranks compute together to the end.
static cy_status fill_evaluation(
    void *context, int64_t microbatch, int32_t *inputs, int32_t *targets)
{
    evaluation *run = context;
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
    evaluation run = {
        .data = data,
        .shape = shape_of(config, at, split, ranges),
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
    // Every stage has counted the tokens, the last one has the losses.
    CY_TRY(cy_group_all_reduce(groups->pp, NULL, cy_view_of(sums, CY_F64, 1, 1), CY_SUM));
    *loss = sums[0] / sums[1];
    *tokens = (int64_t)sums[1];
    return CY_OK;
}
