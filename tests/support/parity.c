#include "support/parity.h"

#include "support/engines.h"
#include "support/support.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "engine/engine_parts.h"
#include "infer/decoder.h"
#include "infer/sampler.h"
#include "model/shape.h"
#include "train/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROWS_A_STEP 4
#define PENALTY     1.3

typedef struct figure_file {
    cy_safetensors header;
    cy_text bytes;
    const char *path;
} figure_file;

typedef struct parity_run {
    cy_parity *out;
    const char *folder;
    figure_file figures;
    cy_model_shape shape;
    cy_config config;
    const int32_t *tokens; // [rows, columns + 1] of the batch or of the step that runs
    const float *logits;   // expected
    bool gradients;        // of this batch too
} parity_run;

static cy_status open_figures(figure_file *in, const char *path)
{
    in->path = path;
    CY_TRY(cy_safetensors_open(&in->header, path));
    return cy_file_read(&in->bytes, path, (size_t)1 << 30);
}

static const void *find(const figure_file *in, const cy_safetensors_entry **entry, const char *name)
{
    *entry = cy_safetensors_find(&in->header, name);
    return *entry == NULL ? NULL : in->bytes.bytes + (*entry)->offset;
}

static cy_status need(const figure_file *in, const void **data, const cy_safetensors_entry **entry,
    const char *name, cy_dtype dtype)
{
    *data = find(in, entry, name);
    if (*data == NULL || (*entry)->dtype != dtype) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: %s is missing or of another dtype", in->path, name);
    }
    return CY_OK;
}

static cy_status fill(void *context, int64_t microbatch, int32_t *inputs, int32_t *targets)
{
    const parity_run *run = context;
    const int64_t rows = run->config.training.micro_batch_size;
    const int64_t columns = run->config.training.seq_length;
    for (int64_t row = 0; row < rows; row++) {
        const int32_t *from = run->tokens + (microbatch * rows + row) * (columns + 1);
        memcpy(inputs + row * columns, from, (size_t)columns * sizeof(int32_t));
        memcpy(targets + row * columns, from + 1, (size_t)columns * sizeof(int32_t));
    }
    return CY_OK;
}

// ---- logits and gradients

static cy_status compare_logits(parity_run *run, cy_engine *engine)
{
    const int64_t count = engine->tokens * run->shape.vocab;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)count, sizeof(float)));
    float *got = block;
    const cy_status status =
        cy_test_logits(engine, cy_view_of(got, CY_F32, engine->tokens, run->shape.vocab), 0);
    for (int64_t i = 0; status == CY_OK && i < count; i++)
        cy_test_worse(&run->out->logits, fabs((double)got[i] - (double)run->logits[i]));
    cy_memory_free(block);
    return status;
}

static cy_status compare_gradient(parity_run *run, const cy_engine *engine, const cy_tensor *tensor)
{
    char name[128];
    const void *data = NULL;
    const cy_safetensors_entry *entry;
    const int64_t count = tensor->slice.rows * tensor->slice.cols;
    snprintf(name, sizeof(name), "grad.%s", tensor->param->name);
    CY_TRY(need(&run->figures, &data, &entry, name, CY_F32));
    if (entry->bytes != (uint64_t)count * sizeof(float)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s: %s has another size", run->figures.path, name);
    }
    const float *expected = data;
    const float *got = cy_tensor_grad(&engine->storage, tensor, 0).data;
    double largest = 0, most = 0;
    for (int64_t i = 0; i < count; i++) {
        const double mean = (double)got[i] / (double)engine->tokens;
        largest = fmax(largest, fabs((double)expected[i]));
        cy_test_worse(&most, fabs(mean - (double)expected[i]));
    }
    const double before = run->out->gradient;
    cy_test_worse(&run->out->gradient, most / largest);
    if (run->out->gradient != before && !isnan(before)) {
        snprintf(run->out->tensor, sizeof(run->out->tensor), "%s", tensor->param->name);
    }
    run->out->gradients++;
    return CY_OK;
}

static cy_status compare_batch(cy_engine *engine, parity_run *run)
{
    const cy_batch_source source = {.context = run, .fill = fill};
    cy_reducer_zero(engine->storage.groups[0].reducer);
    CY_TRY(source.fill(source.context, 0, engine->inputs, engine->targets));
    CY_TRY(compare_logits(run, engine));
    if (!run->gradients) return CY_OK;
    const cy_microbatch batch = cy_engine_microbatch(engine, 0);
    const cy_stage_pass pass = {.batch = &batch};
    const cy_stage_loss loss = {.sum = engine->loss, .train = true, .scale = 1.0};
    CY_TRY(cy_stage_forward(&engine->stages[0], &pass, cy_view_none(), &loss));
    CY_TRY(
        cy_stage_backward(&engine->stages[0], &pass, engine->slots.d_out[0], CY_BACKWARD_TOGETHER));
    for (int i = 0; i < engine->storage.tensor_count; i++)
        CY_TRY(compare_gradient(run, engine, &engine->storage.tensors[i]));
    return CY_OK;
}

// ---- training

static cy_status compare_training(cy_engine *engine, parity_run *run, bool tells)
{
    const cy_safetensors_entry *entry;
    const void *tokens = NULL, *losses = NULL;
    CY_TRY(need(&run->figures, &tokens, &entry, "train.tokens", CY_I32));
    CY_TRY(need(&run->figures, &losses, &entry, "train.losses", CY_F64));
    const cy_config_training *training = &run->config.training;
    for (int64_t step = 0; step < entry->dims[0]; step++) {
        parity_run now = *run;
        now.tokens = (const int32_t *)tokens + step * ROWS_A_STEP * (training->seq_length + 1);
        const cy_batch_source source = {.context = &now, .fill = fill};
        const cy_adamw_spec adamw = {.learning_rate = training->learning_rate,
            .beta1 = training->adam_beta1,
            .beta2 = training->adam_beta2,
            .eps = training->adam_eps,
            .weight_decay = training->weight_decay,
            .step = step + 1};
        cy_step_result result;
        CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
        double expected;
        memcpy(&expected, (const char *)losses + (size_t)step * sizeof(double), sizeof(expected));
        if (!tells) continue;
        cy_test_worse(&run->out->loss, fabs(result.loss - expected));
        run->out->steps++;
    }
    return CY_OK;
}

static cy_status load_and_compare(cy_engine *engine, const cy_rank *rank, void *context)
{
    parity_run *run = context;
    cy_run_position position;
    cy_checkpoint_traffic traffic = {0};
    CY_TRY(cy_state_load(engine, rank, run->folder, true, &position, &traffic));
    return run->logits != NULL ? compare_batch(engine, run)
                               : compare_training(engine, run, rank->rank == 0);
}

static cy_status run_rank(const cy_rank *rank, void *context)
{
    const parity_run *run = context;
    const cy_engine_options options = cy_rank_engine_options(rank, &run->config);
    return cy_rank_with_engine(rank, &options, load_and_compare, context);
}

static cy_status compute(parity_run *run, int64_t rows, int64_t columns, int tp)
{
    cy_test_config(&run->config, CY_F32);
    run->config.shape = run->shape;
    run->config.distributed.tp_size = tp;
    run->config.training.micro_batch_size = rows;
    run->config.training.seq_length = columns;
    run->config.training.gradient_accumulation_steps = run->logits != NULL ? 1 : ROWS_A_STEP / rows;
    run->config.training.learning_rate = 1e-3;
    run->config.training.weight_decay = 0.1;
    const cy_config_machine machine = {.cores = 2};
    return cy_ranks_run(&run->config, &machine, run_rank, run);
}

static cy_status compare_batches(parity_run *run)
{
    const cy_safetensors_entry *entry;
    const void *tokens = NULL, *logits = NULL;
    char name[32];
    for (int k = 0;; k++) {
        snprintf(name, sizeof(name), "tokens.%d", k);
        if (find(&run->figures, &entry, name) == NULL) break;
        CY_TRY(need(&run->figures, &tokens, &entry, name, CY_I32));
        const int64_t rows = entry->dims[0], columns = entry->dims[1] - 1;
        snprintf(name, sizeof(name), "logits.%d", k);
        CY_TRY(need(&run->figures, &logits, &entry, name, CY_F32));
        run->tokens = tokens;
        run->logits = logits;
        run->gradients = k == 0;
        CY_TRY(compute(run, rows, columns, 1));
        run->out->shapes++;
    }
    return CY_OK;
}

// ---- generation

static cy_status generate(
    parity_run *run, cy_decoder *decoder, float *logits, const char *name, int64_t *same)
{
    const cy_safetensors_entry *prompt_entry, *entry;
    const void *prompt = NULL, *wanted = NULL;
    CY_TRY(need(&run->figures, &prompt, &prompt_entry, "greedy.prompt", CY_I32));
    CY_TRY(need(&run->figures, &wanted, &entry, name, CY_I32));
    const int64_t before = prompt_entry->dims[0], count = entry->dims[0];
    cy_sampling_params spec = cy_sampling_defaults();
    if (strcmp(name, "penalty.tokens") == 0) spec.repetition_penalty = PENALTY;
    cy_sampler sampler;
    void *block = NULL;
    CY_TRY(cy_sampler_open(&sampler, run->shape.vocab));
    cy_status status = cy_memory_alloc(&block, (size_t)(before + count), sizeof(int32_t));
    int32_t *tokens = block;
    if (status == CY_OK) {
        memcpy(tokens, prompt, (size_t)before * sizeof(int32_t));
        cy_decoder_rewind(decoder, 0);
        status = cy_decoder_read(decoder, logits, tokens, before);
    }
    for (int64_t i = before; status == CY_OK && i < before + count; i++) {
        status = cy_sample_token(&tokens[i], &sampler, logits, &spec, i, tokens, i);
        if (status == CY_OK) status = cy_decoder_read(decoder, logits, &tokens[i], 1);
    }
    run->out->tokens = count;
    for (int64_t i = 0; status == CY_OK && i < count; i++)
        *same += tokens[before + i] == ((const int32_t *)wanted)[i];
    cy_memory_free(block);
    cy_sampler_close(&sampler);
    return status;
}

static cy_status compare_generation(parity_run *run)
{
    cy_decoder decoder;
    cy_checkpoint checkpoint;
    void *block = NULL;
    const cy_decoder_options options = {
        .shape = run->shape,
        .dtype = CY_F32,
        .capacity = 256,
        .threads = 1,
        .first_core = -1,
        .isa = "auto",
    };
    CY_TRY(cy_decoder_open(&decoder, &options));
    cy_status status = cy_checkpoint_open(&checkpoint, run->folder);
    if (status == CY_OK) {
        status = cy_model_load(&decoder, &checkpoint);
        cy_checkpoint_close(&checkpoint);
    }
    if (status == CY_OK) {
        status = cy_memory_alloc(&block, (size_t)run->shape.vocab, sizeof(float));
    }
    if (status == CY_OK) {
        status = generate(run, &decoder, block, "greedy.tokens", &run->out->greedy);
    }
    if (status == CY_OK) {
        status = generate(run, &decoder, block, "penalty.tokens", &run->out->penalised);
    }
    cy_memory_free(block);
    cy_decoder_close(&decoder);
    return status;
}

cy_status cy_parity_measure(cy_parity *parity, const char *folder, const char *figures, int tp)
{
    *parity = (cy_parity){0};
    parity_run run = {.out = parity, .folder = folder};
    cy_status status = open_figures(&run.figures, figures);
    cy_checkpoint checkpoint;
    if (status == CY_OK) {
        status = cy_checkpoint_open(&checkpoint, folder);
        if (status == CY_OK) {
            run.shape = checkpoint.model;
            cy_checkpoint_close(&checkpoint);
        }
    }
    if (status == CY_OK) status = compare_batches(&run);
    const cy_safetensors_entry *entry;
    const void *tokens = NULL;
    if (status == CY_OK) status = need(&run.figures, &tokens, &entry, "train.tokens", CY_I32);
    run.logits = NULL;
    if (status == CY_OK)
        status = compute(&run, ROWS_A_STEP / 2, entry->dims[1] / ROWS_A_STEP - 1, tp);
    if (status == CY_OK) status = compare_generation(&run);
    cy_safetensors_close(&run.figures.header);
    cy_text_free(&run.figures.bytes);
    return status;
}
