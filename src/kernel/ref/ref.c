#include "kernel/ref/element.h"
#include "kernel/ref/ref.h"

typedef struct head {
    cy_queue *queue;
    cy_view out, target, logits, max, sum;
    const int32_t *targets;
    cy_vocab_range range;
    int64_t valid; // columns here that are not padding
    double scale;
} head;

static void row_max(void *context, int64_t t, int worker)
{
    (void)worker;
    const head *of = context;
    double max = (double)-INFINITY;
    for (int64_t i = 0; i < of->valid; i++) {
        const double logit = cy_ref_load(of->logits, t, i);
        if (logit > max) max = logit; // a NaN shows in the sum
    }
    cy_ref_store(of->queue, of->out, 0, t, max);
}

void cy_ref_softmax_max(cy_queue *queue, cy_view max, cy_view logits, cy_vocab_range range)
{
    head of = {
        .queue = queue,
        .out = max,
        .logits = logits,
        .valid = cy_vocab_columns(range, logits.cols),
    };
    cy_queue_run(queue, row_max, &of, logits.rows);
}

static void row_sum(void *context, int64_t t, int worker)
{
    (void)worker;
    const head *of = context;
    const double max = cy_ref_load(of->max, 0, t);
    double sum = 0.0;
    for (int64_t i = 0; i < of->valid; i++)
        sum += exp(cy_ref_load(of->logits, t, i) - max);
    cy_ref_store(of->queue, of->out, 0, t, sum);

    const int64_t column = of->targets[t] - of->range.first;
    const bool here = of->targets[t] >= 0 && column >= 0 && column < of->valid;
    cy_ref_store(of->queue, of->target, 0, t, here ? cy_ref_load(of->logits, t, column) : 0.0);
}

void cy_ref_softmax_sum(cy_queue *queue, cy_view sum, cy_view target, cy_view logits, cy_view max,
    const int32_t *targets, cy_vocab_range range)
{
    head of = {
        .queue = queue,
        .out = sum,
        .target = target,
        .logits = logits,
        .max = max,
        .targets = targets,
        .range = range,
        .valid = cy_vocab_columns(range, logits.cols),
    };
    cy_queue_run(queue, row_sum, &of, logits.rows);
}

void cy_ref_softmax_loss(
    cy_queue *queue, cy_view loss, cy_view max, cy_view sum, cy_view target, const int32_t *targets)
{
    if (queue->dry) return;
    for (int64_t t = 0; t < max.cols; t++) {
        if (targets[t] < 0) continue;
        const double of_token =
            cy_ref_load(max, 0, t) + log(cy_ref_load(sum, 0, t)) - cy_ref_load(target, 0, t);
        cy_ref_add(queue, loss, 0, 0, of_token);
    }
}

static void row_grad(void *context, int64_t t, int worker)
{
    (void)worker;
    const head *of = context;
    const double max = cy_ref_load(of->max, 0, t), sum = cy_ref_load(of->sum, 0, t);
    const bool counts = of->targets[t] >= 0;
    const int64_t column = of->targets[t] - of->range.first;
    for (int64_t i = 0; i < of->logits.cols; i++) {
        double gradient = 0.0;
        if (counts && i < of->valid) {
            gradient = exp(cy_ref_load(of->logits, t, i) - max) / sum;
            if (i == column) gradient -= 1.0;
        }
        cy_ref_store(of->queue, of->out, t, i, of->scale * gradient);
    }
}

void cy_ref_softmax_grad(cy_queue *queue, cy_view d_logits, cy_view logits, cy_view max,
    cy_view sum, const int32_t *targets, cy_vocab_range range, double scale)
{
    head of = {
        .queue = queue,
        .out = d_logits,
        .logits = logits,
        .max = max,
        .sum = sum,
        .targets = targets,
        .range = range,
        .valid = cy_vocab_columns(range, logits.cols),
        .scale = scale,
    };
    cy_queue_run(queue, row_grad, &of, logits.rows);
}
