// Chooses the exponents and block sizes of strict mode's fixed-point sums.

#include "model/strict_sums.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "kernel/strict/strict.h"

#include <math.h>

// Of the first step: what terms usually are, with room to spare. A term of 2^(exponent + 40) or
// more has the step done again.
#define FIRST_ACTIVATION      (-28)
#define FIRST_INPUT_GRADIENT  (-34)
#define FIRST_WEIGHT_GRADIENT (-28)

// Bits of head room that the largest term of a step leaves for the next step's.
#define ROOM 8

#define TERM_BITS 40 // CY_STRICT_TERM_LIMIT is 2^40

#define MOST_BLOCK 128

static int64_t power_of_two_in(int64_t n)
{
    return n & -n;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// The largest block at whose multiples an axis can be cut into as many parts as there are heads,
// which is the most that tensor parallelism may ask for; not below 32 where some cuts allow that.
static int64_t block_of(int64_t length, int64_t parts)
{
    const int64_t finest = power_of_two_in(length / divisor(length, parts));
    const int64_t whole = least(power_of_two_in(length), CY_STRICT_BLOCK_K);
    const int64_t block = least(finest > whole ? finest : whole, MOST_BLOCK);
    return block < 8 ? CY_STRICT_BLOCK_K : block; // such an axis cannot be cut anyway
}

cy_sum_blocks cy_sum_blocks_of(const cy_model_shape *shape, int64_t seq_length)
{
    // A sequence may be cut in sixteen: two chunks for each of eight context-parallel ranks.
    const int64_t tokens = power_of_two_in(seq_length) / 16;
    return (cy_sum_blocks){
        .heads = least(power_of_two_in(shape->head_dim), MOST_BLOCK),
        .ffn = block_of(shape->ffn, shape->heads),
        .vocab = cy_vocab_unit(shape->vocab),
        .tokens = least(tokens > CY_STRICT_BLOCK_K ? tokens : CY_STRICT_BLOCK_K, MOST_BLOCK),
    };
}

static cy_fixed first_of(int place, const cy_sum_blocks *blocks)
{
    switch (place) {
    case CY_SUM_OUT:
        return (cy_fixed){.exponent = FIRST_ACTIVATION, .block_k = blocks->heads};
    case CY_SUM_DOWN:
        return (cy_fixed){.exponent = FIRST_ACTIVATION, .block_k = blocks->ffn};
    case CY_SUM_D_NORM1:
        return (cy_fixed){.exponent = FIRST_INPUT_GRADIENT, .block_k = blocks->heads};
    case CY_SUM_D_NORM2:
        return (cy_fixed){.exponent = FIRST_INPUT_GRADIENT, .block_k = blocks->ffn};
    case CY_SUM_D_HEAD:
        return (cy_fixed){.exponent = FIRST_INPUT_GRADIENT, .block_k = blocks->vocab};
    case CY_SUM_D_KEYS:
        return (cy_fixed){.exponent = FIRST_INPUT_GRADIENT};
    default:
        return (cy_fixed){.exponent = FIRST_WEIGHT_GRADIENT, .block_k = blocks->tokens};
    }
}

cy_status cy_sums_open(cy_sums *sums, const cy_model_shape *shape, int64_t seq_length)
{
    const cy_sum_blocks blocks = cy_sum_blocks_of(shape, seq_length);
    const int64_t count = ((int64_t)shape->layers + 2) * (1 + shape->experts) * CY_SUM_SITES;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)count, sizeof(cy_fixed)));
    *sums = (cy_sums){
        .table = block,
        .count = count,
        .experts = shape->experts,
        .exponentials = {.exponent = 1 - TERM_BITS},
        .loss = {.exponent = -24},
        .square_exponent = -64,
    };
    for (int64_t i = 0; i < count; i++)
        sums->table[i] = first_of((int)(i % CY_SUM_SITES), &blocks);
    return CY_OK;
}

void cy_sums_close(cy_sums *sums)
{
    cy_memory_free(sums->table);
    *sums = (cy_sums){0};
}

static cy_fixed *sum_at(const cy_sums *sums, int layer, int expert, int place)
{
    const int64_t row = ((int64_t)layer + 1) * (1 + sums->experts) + expert - CY_DENSE;
    return &sums->table[row * CY_SUM_SITES + place];
}

cy_fixed *cy_sums_at(const cy_sums *sums, int layer, int place)
{
    return sums == NULL ? NULL : sum_at(sums, layer, CY_DENSE, place);
}

// The first entry of the fused matrix that a parameter lies in.
static cy_role first_of_fused(cy_role role)
{
    if (role == CY_ROLE_K || role == CY_ROLE_V) return CY_ROLE_Q;
    if (role == CY_ROLE_K_BIAS || role == CY_ROLE_V_BIAS) return CY_ROLE_Q_BIAS;
    return role == CY_ROLE_UP ? CY_ROLE_GATE : role;
}

cy_fixed *cy_sums_gradient(const cy_sums *sums, const cy_param *param)
{
    const cy_param_key key = param->key;
    return sums == NULL ? NULL : sum_at(sums, key.layer, key.expert, (int)first_of_fused(key.role));
}

void cy_sums_bind(cy_sums *sums, void *largest)
{
    _Atomic uint32_t *notes = largest;
    for (int64_t i = 0; i < sums->count; i++)
        sums->table[i].largest = notes + i;
}

static int within(int exponent)
{
    if (exponent < -CY_SUM_EXPONENT_MOST) return -CY_SUM_EXPONENT_MOST;
    return exponent > CY_SUM_EXPONENT_MOST ? CY_SUM_EXPONENT_MOST : exponent;
}

void cy_sums_raise(cy_sums *sums, int by)
{
    for (int64_t i = 0; i < sums->count; i++)
        sums->table[i].exponent += by;
    sums->loss.exponent += by;
    sums->square_exponent += 2 * by;
}

void cy_sums_update_exponents(cy_sums *sums, const uint32_t *largest, int raised)
{
    for (int64_t i = 0; i < sums->count; i++) {
        cy_fixed *at = &sums->table[i];
        const float term = cy_f32_from_bits(largest[i]);
        if (term > 0.0f) {
            at->exponent = within(at->exponent + ilogbf(term) + 1 + ROOM - TERM_BITS);
        } else {
            at->exponent -= raised;
        }
    }
    sums->loss.exponent -= raised;
    sums->square_exponent -= 2 * raised;
}

bool cy_sums_exceeded(uint32_t largest)
{
    return largest >= cy_f32_bits(CY_STRICT_TERM_LIMIT);
}
