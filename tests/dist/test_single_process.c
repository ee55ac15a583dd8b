// Data parallelism by hand, in one process: the batch is scattered, the model is replicated, every
// rank applies it to its part, and the outputs are gathered, in the order of the batch.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include "train/replicas.h"

#include <string.h>

#define ROWS   4
#define LENGTH 16
#define VOCAB  61
#define TOKENS (ROWS * LENGTH)

typedef struct outputs {
    float logits[TOKENS][VOCAB];
} outputs;

static cy_status scatter_tokens(cy_engine *engine, cy_group *group)
{
    const int rank = cy_group_rank(group);
    const int size = cy_group_size(group);
    const cy_view mine = cy_view_of(engine->inputs, CY_I32, 1, engine->tokens);
    if (rank > 0) return cy_group_recv(group, &engine->queue, mine, 0, 1);
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (i * 17 + 5) % VOCAB;
    for (int r = 1; r < size; r++) {
        CY_TRY(cy_group_send(group, &engine->queue,
            cy_view_of(tokens + r * engine->tokens, CY_I32, 1, engine->tokens), r, 1));
    }
    memcpy(engine->inputs, tokens, (size_t)engine->tokens * sizeof(int32_t));
    return CY_OK;
}

// Only rank 0 has drawn weights; the others begin with something else.
static cy_status replicate(cy_engine *engine, const cy_rank *at, cy_group *group)
{
    const int rank = cy_group_rank(group);
    if (rank == 0) CY_TRY(cy_engine_initialize(engine));
    for (int u = 0; u < engine->storage.unit_count; u++) {
        const cy_unit_part *unit = cy_storage_part(&engine->storage, u, 0);
        float *weights = unit->weights;
        for (int64_t i = 0; rank > 0 && i < unit->count; i++)
            weights[i] = (float)rank;
        const cy_view all = cy_view_of(weights, CY_F32, 1, unit->count);
        CY_TRY(cy_group_broadcast(group, &engine->queue, all, 0));
    }
    return cy_replicas_check(engine, at, 0);
}

static cy_status apply(cy_engine *engine, const cy_rank *rank, void *context)
{
    outputs *to = context;
    cy_group *group = rank->groups.gradient;
    const int size = cy_group_size(group);
    CY_TRY(replicate(engine, rank, group));
    CY_TRY(scatter_tokens(engine, group));
    static _Thread_local float mine[TOKENS * VOCAB], gathered[TOKENS * VOCAB];
    CY_TRY(cy_test_logits(engine, cy_view_of(mine, CY_F32, engine->tokens, VOCAB), 0));
    CY_TRY(cy_group_all_gather(group, &engine->queue,
        cy_view_of(gathered, CY_F32, size, engine->tokens * VOCAB),
        cy_view_of(mine, CY_F32, 1, engine->tokens * VOCAB)));
    if (rank->rank == 0) memcpy(to->logits, gathered, sizeof(to->logits));
    return CY_OK;
}

static void run(outputs *to, int ranks)
{
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.distributed.dp_size = ranks;
    config.training.micro_batch_size = ROWS / ranks;
    config.training.gradient_accumulation_steps = 1;
    CY_CHECK_OK(cy_test_on_mesh(&config, "ref", NULL, apply, to));
}

static void gathered_outputs_are_those_of_one_rank(void **state)
{
    (void)state;
    static outputs one, many;
    run(&one, 1);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        memset(&many, 0, sizeof(many));
        run(&many, ranks);
        for (int t = 0; t < TOKENS; t++) {
            if (memcmp(one.logits[t], many.logits[t], sizeof(one.logits[t])) == 0) continue;
            fail_msg("%d ranks, token %d: logits differ", ranks, t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathered_outputs_are_those_of_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
