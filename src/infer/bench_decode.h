// infer/bench_decode.h: measures how fast a saved model reads a prompt and generates tokens, on
// random tokens.
//
// The time to the first token grows with the prompt. The time of a later token hardly does: it
// reads all weights once, and the keys and values of the context. So a whole answer takes
//
//     first_token + (tokens - 1) / decode_tok_s.

#ifndef CY_INFER_BENCH_DECODE_H
#define CY_INFER_BENCH_DECODE_H

#include "base/status.h"

#include <cyclotron/dtype.h>

#include <stdint.h>

typedef struct cy_bench_decode_options {
    const char *path;  // borrowed: a checkpoint, a folder of them, or a Hugging Face folder
    const char *dtype; // borrowed; NULL: what the model was trained in
    const char *isa;   // borrowed: "auto", or a level as cy_kernels_open has them
    int threads;
    int64_t prompt;  // tokens; 0: 128, fewer where the model has few positions
    int64_t tokens;  // generated, at least 2; 0: 64, fewer where the model has few positions
    int64_t repeats; // runs; the results are medians over them
} cy_bench_decode_options;

typedef struct cy_bench_decode_result {
    double first_token_s; // from the prompt's ids to the choice of the first token
    double decode_tok_s;  // of the tokens after the first
    double decode_tok_s_min, decode_tok_s_max;
    double weight_bytes_s; // the rate at which weights are read, at that speed
    double weight_bytes;   // that each token reads
    double cache_bytes;
    double context_bytes; // of keys and values that a token reads, mean over the tokens
    double read_bytes_s;  // the memory's rate with the same threads: the best of before and after
    // The rate of reading only the weights with the same threads, measured after each run, and the
    // share of it that the run reached: a memory whose rate changes does not change the share.
    double beside_bytes_s, share_beside; // medians over the runs
    cy_dtype dtype;
    int64_t prompt, tokens; // that were read and generated
} cy_bench_decode_result;

// CY_ERR_REQUEST, with the numbers, when prompt and tokens do not fit into the model's positions.
CY_MUST_CHECK cy_status cy_bench_decode(
    const cy_bench_decode_options *options, cy_bench_decode_result *result);

#endif
