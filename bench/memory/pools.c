// How much room the ways to choose a free piece need, and what a piece costs, on sizes that no plan
// knows: rows of experts, which differ from microbatch to microbatch.
//
// Usage: pools [SKEW]
//
// A rank holds four of sixteen experts. Each layer of each microbatch in flight keeps three pieces
// an expert: one until its input gradients are made, two until its weight gradients are, a
// microbatch later, in the order of the first of four stages; it takes two more while it runs.
// Tokens go to experts by chance; SKEW (1) is how much likelier an expert may be than another, as
// exponents of e. Told for each way: the smallest range in which all steps run, as a share of the
// bytes in use at the worst moment, without and with compaction where nothing is large enough; and
// nanoseconds of a take and its give in a range of twice those bytes.

#include "base/clock.h"
#include "base/memory.h"
#include "base/memory_pool.h"
#include "base/numbers.h"
#include "base/random.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    STEPS = 20,
    MICROBATCHES = 16,
    IN_FLIGHT = 4,
    LAYERS = 16,
    EXPERTS = 16,
    HELD = 4, // experts of this rank
    KEPT = 3,
    TOKENS = 2048,
    CHOSEN = 2, // experts of a token
    ROUNDS = 5,
    MOST_PIECES = 4096,
};
static const size_t row_bytes[KEPT + 2] = {1024, 2048, 2048, 4096, 1024};

typedef struct job {
    cy_memory_pool *pool;
    double skew;
    bool compacts; // where there is no room
    int kept[IN_FLIGHT + 1][LAYERS][HELD][KEPT];
    int64_t pieces;
} job;

// Rows of each expert for a layer of a microbatch: exponentials of uniform numbers share the
// tokens.
static void share_rows(int *rows, const job *j, uint64_t key)
{
    double weight[EXPERTS], sum = 0;
    for (int e = 0; e < EXPERTS; e++)
        sum += weight[e] = exp(j->skew * cy_random_uniform(key, (uint64_t)e));
    for (int e = 0; e < EXPERTS; e++)
        rows[e] = (int)(weight[e] / sum * TOKENS * CHOSEN);
}

static bool take(job *j, int *piece, size_t bytes)
{
    j->pieces++;
    if (cy_memory_pool_take(j->pool, piece, bytes) == CY_OK) return true;
    if (!j->compacts) return false;
    cy_memory_pool_compact(j->pool);
    return cy_memory_pool_take(j->pool, piece, bytes) == CY_OK;
}

// What an expert keeps for its backward pass, and what it needs only now.
static bool forward_expert(job *j, int *kept, size_t rows)
{
    int passing[2];
    for (int i = 0; i < KEPT; i++) {
        if (!take(j, &kept[i], rows * row_bytes[i])) return false;
    }
    for (int i = 0; i < 2; i++) {
        if (!take(j, &passing[i], rows * row_bytes[KEPT + i])) return false;
    }
    for (int i = 0; i < 2; i++)
        cy_memory_pool_give(j->pool, passing[i]);
    return true;
}

static bool input_gradients(job *j, const int *kept, size_t rows)
{
    int passing;
    if (!take(j, &passing, rows * row_bytes[KEPT])) return false;
    cy_memory_pool_give(j->pool, kept[0]);
    cy_memory_pool_give(j->pool, passing);
    return true;
}

static void weight_gradients(const job *j, const int *kept)
{
    for (int i = 1; i < KEPT; i++)
        cy_memory_pool_give(j->pool, kept[i]);
}

typedef enum pass_kind { FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS } pass_kind;

static bool pass(job *j, int step, int microbatch, pass_kind kind)
{
    const uint64_t key =
        cy_random_key_at(cy_random_key((uint64_t)step, "rows of experts"), (uint64_t)microbatch);
    for (int i = 0; i < LAYERS; i++) {
        const int layer = kind == FORWARD ? i : LAYERS - 1 - i;
        int rows[EXPERTS];
        share_rows(rows, j, cy_random_key_at(key, (uint64_t)layer));
        for (int e = 0; e < HELD; e++) {
            int *kept = j->kept[microbatch % (IN_FLIGHT + 1)][layer][e];
            const size_t count = (size_t)rows[e];
            if (kind == FORWARD && !forward_expert(j, kept, count)) return false;
            if (kind == INPUT_GRADIENTS && !input_gradients(j, kept, count)) return false;
            if (kind == WEIGHT_GRADIENTS) weight_gradients(j, kept);
        }
    }
    return true;
}

// All steps; false where a piece found no room.
static bool run(job *j)
{
    for (int step = 0; step < STEPS; step++) {
        for (int m = 0; m <= MICROBATCHES + IN_FLIGHT; m++) {
            const int backward = m - IN_FLIGHT, weights = backward - 1;
            if (weights >= 0 && !pass(j, step, weights, WEIGHT_GRADIENTS)) return false;
            if (backward >= 0 && backward < MICROBATCHES &&
                !pass(j, step, backward, INPUT_GRADIENTS)) {
                return false;
            }
            if (m < MICROBATCHES && !pass(j, step, m, FORWARD)) return false;
        }
    }
    return true;
}

typedef struct attempt {
    double skew;
    cy_memory_policy policy;
    bool compacts;
    size_t bytes;
    // what came of it
    bool fits;
    cy_memory_pool_stats stats;
    double piece_s;
} attempt;

static cy_status try_range(attempt *a, job *j, void *base)
{
    *j = (job){.skew = a->skew, .compacts = a->compacts};
    CY_TRY(cy_memory_pool_open(&j->pool, base, a->bytes, MOST_PIECES, a->policy));
    const double start = cy_clock_s();
    a->fits = run(j);
    a->piece_s = (cy_clock_s() - start) / (double)j->pieces;
    a->stats = cy_memory_pool_look(j->pool);
    cy_memory_pool_close(j->pool);
    return CY_OK;
}

// The smallest range, to a thousandth of what is in use, in which all steps run.
static cy_status smallest(attempt *a, job *j, void *base, size_t in_use)
{
    size_t low = in_use, high = 2 * in_use;
    while (high - low > in_use / 1000) {
        a->bytes = low + (high - low) / 2;
        CY_TRY(try_range(a, j, base));
        if (a->fits) {
            high = a->bytes;
        } else {
            low = a->bytes;
        }
    }
    a->bytes = high;
    return CY_OK;
}

static cy_status measure(attempt *a, job *j, void *base, size_t in_use)
{
    static const char *const names[CY_MEMORY_POLICIES] = {"first fit", "best fit", "classes"};
    double seconds[ROUNDS];
    size_t needed[2];
    for (int i = 0; i < ROUNDS; i++) {
        *a = (attempt){.skew = a->skew, .policy = a->policy, .bytes = 2 * in_use};
        CY_TRY(try_range(a, j, base));
        seconds[i] = a->piece_s;
    }
    for (int i = 0; i < 2; i++) {
        a->compacts = i == 1;
        CY_TRY(smallest(a, j, base, in_use));
        needed[i] = a->bytes;
    }
    printf("%-9s  %6.3f  %6.3f  %5.0f\n", names[a->policy], (double)needed[0] / (double)in_use,
        (double)needed[1] / (double)in_use, cy_median(seconds, ROUNDS) * 1e9);
    return CY_OK;
}

static cy_status compare(double skew, job *j, void *base, size_t most)
{
    attempt a = {.skew = skew, .bytes = most};
    CY_TRY(try_range(&a, j, base));
    const size_t in_use = a.stats.peak;
    printf("%d steps of %lld pieces, at most %.1f MiB in use\n", STEPS,
        (long long)(j->pieces / STEPS), (double)in_use * 0x1p-20);
    printf("           range   compacted  ns\n");
    for (int policy = 0; policy < CY_MEMORY_POLICIES; policy++) {
        a.policy = (cy_memory_policy)policy;
        CY_TRY(measure(&a, j, base, in_use));
    }
    return CY_OK;
}

int main(int argc, char **argv)
{
    static job j;
    const size_t most = (size_t)4 << 30;
    const double skew = argc > 1 ? strtod(argv[1], NULL) : 1;
    void *base = NULL;
    cy_status status = cy_memory_map(&base, most); // compaction alone touches it
    if (status == CY_OK) status = compare(skew, &j, base, most);
    if (base != NULL) cy_memory_unmap(base, most);
    if (status != CY_OK) fprintf(stderr, "pools: error: %s\n", cy_error_text());
    return status == CY_OK ? 0 : 1;
}
