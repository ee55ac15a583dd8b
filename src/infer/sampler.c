// Chooses the next token: applies penalty, temperature, top-k and top-p to the logits, and draws.

#include "infer/sampler.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/random.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

cy_sampling_params cy_sampling_defaults(void)
{
    return (cy_sampling_params){.top_p = 1, .repetition_penalty = 1};
}

cy_status cy_sampling_check(const cy_sampling_params *spec)
{
    if (!isfinite(spec->temperature) || spec->temperature < 0) {
        return CY_FAIL(
            CY_ERR_REQUEST, "temperature is %g, must be 0 (greedy) or more", spec->temperature);
    }
    if (spec->top_k < 0) {
        return CY_FAIL(
            CY_ERR_REQUEST, "top-k is %" PRId64 ", must be 0 (all) or more", spec->top_k);
    }
    if (!(spec->top_p > 0 && spec->top_p <= 1)) {
        return CY_FAIL(CY_ERR_REQUEST, "top-p is %g, must be above 0 and at most 1", spec->top_p);
    }
    if (!isfinite(spec->repetition_penalty) || spec->repetition_penalty <= 0) {
        return CY_FAIL(CY_ERR_REQUEST, "repetition penalty is %g, must be above 0 (1 is none)",
            spec->repetition_penalty);
    }
    return CY_OK;
}

cy_status cy_sampler_open(cy_sampler *sampler, int64_t vocab)
{
    CY_ASSERT(0 < vocab && vocab <= INT32_MAX);
    cy_sampler made = {.vocab = vocab};
    CY_TRY(CY_ALLOC(&made.scores, (size_t)vocab));
    const cy_status status = CY_ALLOC(&made.order, (size_t)vocab);
    if (status != CY_OK) {
        cy_memory_free(made.scores);
        return status;
    }
    *sampler = made;
    return CY_OK;
}

void cy_sampler_close(cy_sampler *sampler)
{
    cy_memory_free(sampler->scores);
    cy_memory_free(sampler->order);
    *sampler = (cy_sampler){0};
}

// Sets scores to the logits with the penalty. A token is penalised once, however often it occurred:
// its score is computed from the logit each time.
static void penalise(cy_sampler *sampler, const float *logits, double penalty,
    const int32_t *history, int64_t history_count)
{
    for (int64_t i = 0; i < sampler->vocab; i++)
        sampler->scores[i] = (double)logits[i];
    if (penalty == 1) return; // also avoids 0 * inf
    for (int64_t i = 0; i < history_count; i++) {
        const int32_t id = history[i];
        if (id < 0 || id >= sampler->vocab) continue; // an id that the model lacks
        const double logit = (double)logits[id];
        sampler->scores[id] = logit > 0 ? logit / penalty : logit * penalty;
    }
}

// Finds the best token: the largest score, the lowest id among equals.
static cy_status find_best(int32_t *best, const cy_sampler *sampler, const float *logits)
{
    int64_t found = 0;
    for (int64_t i = 0; i < sampler->vocab; i++) {
        if (isnan(logits[i]) || (isinf(logits[i]) && logits[i] > 0)) {
            return CY_FAIL(CY_ERR_NOT_FINITE, "logit %" PRId64 " of %" PRId64 " is %g", i,
                sampler->vocab, (double)logits[i]);
        }
        if (sampler->scores[i] > sampler->scores[found]) found = i;
    }
    if (isinf(sampler->scores[found])) {
        return CY_FAIL(CY_ERR_NOT_FINITE, "all %" PRId64 " logits are -inf", sampler->vocab);
    }
    *best = (int32_t)found;
    return CY_OK;
}

#define BLOCK 256 // logits in which the largest value is found first, and its place afterwards

// Maps a float to an integer of the same order; -0 becomes 0. NaN and infinities are at the ends.
static inline int32_t rank_of(float logit)
{
    const int32_t bits = (int32_t)cy_f32_bits(logit + 0.0f);
    return bits ^ (bits < 0 ? INT32_MAX : 0);
}

// Does what find_best does for scores equal to the logits, without writing scores: greedy decoding
// calls it while all other threads wait. False where a value is not finite and find_best must
// report it.
static bool find_best_logit(int32_t *best, const float *logits, int64_t vocab)
{
    int32_t largest = INT32_MIN, least = INT32_MAX;
    int64_t from = 0; // the block of the largest so far
    for (int64_t i = 0; i < vocab; i += BLOCK) {
        const int64_t end = vocab - i < BLOCK ? vocab : i + BLOCK;
        int32_t most = INT32_MIN;
        for (int64_t j = i; j < end; j++) {
            const int32_t rank = rank_of(logits[j]);
            most = rank > most ? rank : most;
            least = rank < least ? rank : least;
        }
        if (most > largest) from = i;
        largest = most > largest ? most : largest;
    }
    if (least < rank_of(-INFINITY) || largest >= rank_of(INFINITY) || largest == rank_of(-INFINITY))
        return false;
    while (rank_of(logits[from]) != largest)
        from++;
    *best = (int32_t)from;
    return true;
}

// ---- a heap of tokens, which sorts only the tokens that are kept

static bool ranks_before(const double *scores, int32_t a, int32_t b)
{
    const double first = scores[a], second = scores[b];
    return first > second || (first == second && a < b);
}

static void sift(const double *scores, int32_t *heap, int64_t count, int64_t at)
{
    const int32_t moved = heap[at];
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= count) break;
        if (child + 1 < count && ranks_before(scores, heap[child + 1], heap[child])) child++;
        if (!ranks_before(scores, heap[child], moved)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

// Moves the best `limit` tokens from the heap to the back of `order`, the best last, or fewer once
// their probability reaches `enough`; returns how many.
static int64_t take_best(cy_sampler *sampler, int64_t limit, double enough, double *mass)
{
    int64_t left = sampler->vocab;
    double sum = 0;
    while (sampler->vocab - left < limit && sum < enough) {
        const int32_t best = sampler->order[0];
        sampler->order[0] = sampler->order[--left];
        sift(sampler->scores, sampler->order, left, 0);
        sampler->order[left] = best;
        sum += sampler->scores[best];
    }
    *mass = sum;
    return sampler->vocab - left;
}

// Returns how many of the `count` best tokens together reach top_p of their probability.
static int64_t keep_top_p(const cy_sampler *sampler, int64_t count, double top_p, double *mass)
{
    const double enough = top_p * *mass;
    double sum = 0;
    int64_t kept = 0;
    while (kept < count && sum < enough) {
        sum += sampler->scores[sampler->order[sampler->vocab - 1 - kept]];
        kept++;
    }
    *mass = sum;
    return kept;
}

// Returns the token at which the running sum passes `target`: always one of positive probability,
// also where rounding keeps the sum below it.
static int32_t walk(const cy_sampler *sampler, int64_t count, double target)
{
    double sum = 0;
    int32_t last = -1;
    for (int64_t i = 0; i < count; i++) {
        const int32_t id = sampler->order[sampler->vocab - 1 - i];
        if (sampler->scores[id] <= 0) continue;
        last = id;
        sum += sampler->scores[id];
        if (target < sum) break;
    }
    CY_ASSERT(last >= 0); // the best token has probability 1 before normalisation
    return last;
}

cy_status cy_sample_token(int32_t *token, cy_sampler *sampler, const float *logits,
    const cy_sampling_params *spec, int64_t position, const int32_t *history, int64_t history_count)
{
    CY_ASSERT(position >= 0 && history_count >= 0);
    const int64_t vocab = sampler->vocab;
    const bool greedy = spec->temperature == 0 || spec->top_k == 1;
    int32_t best = 0;
    if (greedy && spec->repetition_penalty == 1 && find_best_logit(token, logits, vocab)) {
        return CY_OK;
    }
    penalise(sampler, logits, spec->repetition_penalty, history, history_count);
    CY_TRY(find_best(&best, sampler, logits));
    if (greedy) {
        *token = best;
        return CY_OK;
    }

    const double top = sampler->scores[best];
    double mass = 0;
    for (int64_t i = 0; i < vocab; i++) {
        sampler->scores[i] = exp((sampler->scores[i] - top) / spec->temperature);
        mass += sampler->scores[i];
        sampler->order[i] = (int32_t)i;
    }
    const bool cut_k = 0 < spec->top_k && spec->top_k < vocab;
    int64_t kept = vocab; // without a cut any order gives the same distribution
    if (cut_k || spec->top_p < 1) {
        for (int64_t i = vocab / 2 - 1; i >= 0; i--)
            sift(sampler->scores, sampler->order, vocab, i);
        const double enough = cut_k ? (double)INFINITY : spec->top_p * mass;
        kept = take_best(sampler, cut_k ? spec->top_k : vocab, enough, &mass);
        if (cut_k && spec->top_p < 1) kept = keep_top_p(sampler, kept, spec->top_p, &mass);
    }
    const uint64_t key = cy_random_key(spec->seed, "sample");
    *token = walk(sampler, kept, mass * cy_random_uniform(key, (uint64_t)position));
    return CY_OK;
}
