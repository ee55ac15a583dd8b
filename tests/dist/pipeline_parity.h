// dist/pipeline_parity.h: a pipeline trains what one rank trains.
//
// The small model in fp64 on any mesh against one rank with the same global batch: losses,
// gradients, norms and weights. What comes from the order of sums is all that may differ.

#ifndef CY_TESTS_PIPELINE_PARITY_H
#define CY_TESTS_PIPELINE_PARITY_H

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PARITY_LAYERS 9

typedef struct parity_case {
    cy_pipeline_engine engine;
    int stages, chunks;
    int microbatches; // of the global batch, over all replicas
    bool tied;
    int dp, tp, cp, zero_stage;
    const char *csv; // path
    int steps;
} parity_case;

static void parity_config(cy_config *config, const parity_case *c)
{
    cy_test_config(config, CY_F64);
    config->shape.layers = PARITY_LAYERS;
    config->shape.tied = c->tied;
    config->training.micro_batch_size = 1;
    cy_config_distributed *d = &config->distributed;
    d->pp_engine = c->engine;
    d->pp_size = c->stages;
    d->pp_chunks = c->chunks;
    d->dp_size = c->dp > 0 ? c->dp : 1;
    d->tp_size = c->tp > 0 ? c->tp : 1;
    d->cp_size = c->cp > 0 ? c->cp : 1;
    d->sequence_parallel = c->tp > 1;
    d->zero_stage = c->zero_stage;
    d->bucket_mb = 0.01;
    if (c->csv != NULL) snprintf(d->pp_schedule, sizeof(d->pp_schedule), "%s", c->csv);
    assert_int_equal(c->microbatches % d->dp_size, 0);
    config->training.gradient_accumulation_steps = c->microbatches / d->dp_size;
}

// The one rank that all are held against; trained again only where the case wants another.
typedef struct parity_reference {
    cy_test_training training;
    int microbatches, steps;
    bool tied;
} parity_reference;

static const cy_test_training *parity_one_rank(parity_reference *reference, const parity_case *c)
{
    if (reference->training.steps > 0 && reference->microbatches == c->microbatches &&
        reference->steps == c->steps && reference->tied == c->tied) {
        return &reference->training;
    }
    cy_test_training_close(&reference->training);
    cy_config config;
    const parity_case one = {.engine = CY_PIPELINE_1F1B,
        .stages = 1,
        .chunks = 1,
        .microbatches = c->microbatches,
        .tied = c->tied};
    parity_config(&config, &one);
    cy_test_train(&reference->training, &config, c->steps, "ref");
    reference->microbatches = c->microbatches;
    reference->steps = c->steps;
    reference->tied = c->tied;
    return &reference->training;
}

static void parity_check(parity_reference *reference, const parity_case *c)
{
    const cy_test_training *one = parity_one_rank(reference, c);
    cy_config config;
    parity_config(&config, c);
    cy_test_training split;
    cy_test_train(&split, &config, c->steps, "ref");
    const double loss = cy_test_loss_difference(&split, one);
    const double gradient = cy_test_gradient_difference(&split, one, &config);
    const double weight = cy_test_weight_difference(&split, one, &config);
    const double norm = cy_test_norm_difference(&split, one);
    if (!(loss < 1e-9 && gradient < 1e-8 && norm < 1e-9 && weight < 1e-9) ||
        split.copies_differ != 0) {
        print_error("engine %d, %d stages, %d chunks, %d microbatches, %s, dp %d, tp %d, cp %d, "
                    "zero %d: loss %g, gradients %g, norms %g, weights %g, %lld copies differ\n",
            (int)c->engine, c->stages, c->chunks, c->microbatches, c->tied ? "tied" : "untied",
            config.distributed.dp_size, config.distributed.tp_size, config.distributed.cp_size,
            c->zero_stage, loss, gradient, norm, weight, (long long)split.copies_differ);
        fail();
    }
    cy_test_training_close(&split);
}

// Every engine that takes this many stages, as the body of a loop over `e`.
typedef struct parity_engine {
    cy_pipeline_engine engine;
    int chunks;
} parity_engine;

static const parity_engine parity_engines[] = {
    {CY_PIPELINE_AFAB, 1},
    {CY_PIPELINE_1F1B, 1},
    {CY_PIPELINE_INTERLEAVED, 2},
    {CY_PIPELINE_ZERO_BUBBLE, 1},
    {CY_PIPELINE_ZERO_BUBBLE, 2},
};
#define PARITY_ENGINES ((int)(sizeof(parity_engines) / sizeof(parity_engines[0])))

#endif
