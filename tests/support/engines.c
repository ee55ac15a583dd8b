#include "support/engines.h"
#include "support/support.h"

#include "base/random.h"
#include "base/memory.h"
#include "engine/engine_parts.h"

void cy_test_config(cy_config *config, cy_dtype dtype)
{
    *config = (cy_config){
        .distributed = {.tp_size = 1,
            .cp_size = 1,
            .pp_size = 1,
            .dp_size = 1,
            .ep_size = 1,
            .etp_size = 1,
            .pp_chunks = 1,
            .bucket_mb = 25,
            .tp_overlap = true,
            .rank_order = "tp,cp,pp,dp",
            .algorithm = "auto",
            .timeout_s = 60},
        .checkpoint = {.timeout_s = 1800},
        .model = {.dtype = dtype, .use_flash_attention = true, .use_fused_adam = true},
        .training = {.seed = 42,
            .learning_rate = 1e-2,
            .adam_beta1 = 0.9,
            .adam_beta2 = 0.999,
            .adam_eps = 1e-8,
            .weight_decay = 0.01,
            .grad_clip = 1.0,
            .seq_length = 16,
            .micro_batch_size = 2,
            .gradient_accumulation_steps = 2},
        .shape = {.architecture = "llama",
            .layers = 2,
            .hidden = 32,
            .ffn = 48,
            .heads = 4,
            .kv_heads = 2,
            .head_dim = 8,
            .vocab = 61,
            .max_positions = 16,
            .norm_eps = 1e-5,
            .rope = {.theta = 10000.0, .factor = 1.0},
            .init_std = 0.2,
            .bos = -1,
            .eos = -1},
    };
}

cy_engine_options cy_test_engine_options(const cy_config *config, const char *isa)
{
    return (cy_engine_options){
        .config = config,
        .groups = cy_engine_groups_self(),
        .threads = 1,
        .first_core = -1,
        .isa = cy_test_isa(isa),
        .train = true,
    };
}

static cy_status fill(void *context, int64_t microbatch, int32_t *inputs, int32_t *targets)
{
    const cy_engine *engine = context;
    const uint64_t vocab = (uint64_t)engine->options.config->shape.vocab;
    const uint64_t key = cy_random_key_at(cy_random_key(7, "tokens"), (uint64_t)microbatch);
    for (int64_t i = 0; i < engine->tokens; i++) {
        inputs[i] = (int32_t)(cy_random_bits(key, (uint64_t)i) % vocab);
        targets[i] = (int32_t)(cy_random_bits(key, (uint64_t)i + 1) % vocab);
    }
    return CY_OK;
}

cy_batch_source cy_test_tokens(const cy_engine *engine)
{
    return (cy_batch_source){.context = cy_memory_writable(engine), .fill = fill};
}

cy_status cy_test_logits(cy_engine *engine, cy_view logits, int64_t first)
{
    const cy_dtype dtype = engine->context.dtype;
    const int64_t hidden = engine->context.shape.hidden;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)(engine->tokens * hidden), cy_dtype_size(dtype)));
    // All of the model but its head makes what the head reads.
    cy_segment body = engine->stages[0].segment;
    body.head = false;
    const cy_stage stage = cy_stage_of(&engine->slots, &engine->storage, &body);
    const cy_microbatch batch = cy_engine_microbatch(engine, 0);
    const cy_stage_pass pass = {.batch = &batch};
    const cy_view out = cy_view_of(block, dtype, engine->tokens, hidden);
    cy_status status = cy_stage_forward(&stage, &pass, out, NULL);
    if (status == CY_OK) {
        status =
            cy_head_logits(&engine->stages[0].head, logits, cy_view_rows(out, first, logits.rows));
    }
    cy_memory_free(block);
    return status;
}

cy_status cy_test_save_engine(
    cy_engine *engine, const cy_rank *rank, const char *folder, cy_run_position position)
{
    cy_saver *saver = NULL;
    CY_TRY(cy_saver_open(&saver, folder, 0, engine->options.groups.world, &engine->queue, NULL));
    const cy_status status = cy_state_save(engine, rank, saver, position, NULL, NULL);
    cy_saver_close(saver);
    return status;
}
