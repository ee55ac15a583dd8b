// What strict mode asks of a configuration: that every cut lies at a multiple of the blocks whose
// chains are the terms of its sums, and that the number of terms is bounded. docs/equivalence.md.

#include "kernel/strict/strict.h"
#include "model/strict_sums.h"
#include "config/check.h"

static void check_dtype(const cy_config *config, cy_config_errors *errors)
{
    const cy_dtype dtype = config->model.dtype;
    if (dtype == CY_F32 || dtype == CY_BF16) return;
    cy_config_add_error(errors, "training.strict = true: model.dtype \"%s\" has no strict mode",
        cy_dtype_name(dtype));
    cy_config_add_hint(errors, "model.dtype fp32 or bf16");
}

static void check_limits(const cy_config *config, cy_config_errors *errors)
{
    const int64_t tokens = cy_config_batch_tokens(config), most = CY_STRICT_TERMS_MAX;
    if (tokens > most) {
        cy_config_add_error(errors,
            "training.strict = true: %lld tokens in a global batch, at most %lld",
            (long long)tokens, (long long)most);
    }
    if (config->shape.vocab > most) {
        cy_config_add_error(errors, "training.strict = true: model.vocab_size %lld, at most %lld",
            (long long)config->shape.vocab, (long long)most);
    }
}

static void check_sequence(
    const cy_config *config, const cy_sum_blocks *blocks, cy_config_errors *errors)
{
    const cy_config_distributed *d = &config->distributed;
    const long long length = config->training.seq_length, block = blocks->tokens;
    const bool zigzag = d->cp_size > 1 && d->cp_style != CY_CONFIG_CP_ULYSSES &&
        d->cp_layout == CY_CONFIG_CP_ZIGZAG;
    const long long pieces = zigzag ? 2LL * d->cp_size : d->cp_size;
    if (length % (pieces * block) == 0) return;
    cy_config_add_error(errors,
        "training.strict = true: training.seq_length %lld is no multiple of %lld: blocks of %lld "
        "tokens, %lld pieces of a sequence",
        length, pieces * block, block, pieces);
    if (zigzag && length % (d->cp_size * block) == 0) {
        cy_config_add_hint(errors, "cp_layout contiguous would do");
    } else {
        const long long below = length / (pieces * block) * pieces * block;
        cy_config_add_hint(errors, "seq_length %lld would do", below > 0 ? below : pieces * block);
    }
}

// The vocabulary is cut at multiples of its blocks wherever it has a block for each rank.
static void check_vocabulary(
    const cy_config *config, const cy_sum_blocks *blocks, cy_config_errors *errors)
{
    const long long vocab = config->shape.vocab, block = blocks->vocab;
    const int tp = config->distributed.tp_size;
    if (tp == 1 || (vocab + block - 1) / block >= tp) return;
    cy_config_add_error(errors,
        "training.strict = true: model.vocab_size %lld has %lld blocks of %lld, tp_size is %d",
        vocab, (vocab + block - 1) / block, block, tp);
}

static void check_cut(const cy_config *config, const char *what, int64_t length, int64_t block,
    cy_config_errors *errors)
{
    const int tp = config->distributed.tp_size;
    for (int rank = 1; rank < tp; rank++) {
        const int64_t cut = length * rank / tp;
        if (cut % block == 0) continue;
        cy_config_add_error(errors,
            "training.strict = true: %s %lld is cut at %lld by tp_size %d, and its blocks are %lld",
            what, (long long)length, (long long)cut, tp, (long long)block);
        int below = tp - 1;
        while (below > 1 && (length % below != 0 || length / below % block != 0))
            below--;
        cy_config_add_hint(errors, "tp_size %d would do for this", below);
        return;
    }
}

void cy_config_check_strict(const cy_config *config, cy_config_errors *errors)
{
    if (!config->training.strict) return;
    const cy_sum_blocks blocks = cy_sum_blocks_of(&config->shape, config->training.seq_length);
    check_dtype(config, errors);
    check_limits(config, errors);
    check_sequence(config, &blocks, errors);
    check_cut(config, "model.intermediate_size", config->shape.ffn, blocks.ffn, errors);
    check_vocabulary(config, &blocks, errors);
}
