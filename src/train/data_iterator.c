// Opens the data of a run, and reads microbatches of training for one rank.
#include "train/data_iterator.h"

#include "base/file.h"

#include <string.h>

// ---- the data of a run

// Opens the tokenizer of the configuration, or the one beside the first source. NULL: there is
// none.
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

cy_batch_shape cy_data_iterator_shape(const cy_config *config, const cy_coordinates *at,
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
        .shape = cy_data_iterator_shape(config, at, CY_DATASET_TRAIN, ranges),
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
