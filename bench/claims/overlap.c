// Measures how much of a step's traffic the step waits for, on links that take time and no core and
// are so slow that the traffic takes as long as the bound of each claim says.
//
// tests/dist/test_hidden_traffic.c asks the same of the order in which a step works; here it is
// asked of the clock.

#include "figures.h"

#include "support/engines.h"
#include "support/meshes.h"

#include "base/clock.h"

#include <string.h>

#define STEPS 5

typedef struct step_time {
    double step_s, exposed_s; // medians over steps, of rank 0
    double bytes;             // that rank 0 sends in a step
} step_time;

// The group of the one dimension that the configuration splits.
static cy_group *group_of(const cy_config *config, const cy_rank *rank)
{
    if (config->distributed.tp_size > 1) return rank->groups.tp;
    if (config->distributed.cp_size > 1) return rank->groups.cp;
    return rank->groups.gradient;
}

static cy_status time_steps(cy_engine *engine, const cy_rank *rank, void *context)
{
    step_time *of = context;
    double seconds[STEPS], exposed[STEPS];
    cy_group *group = group_of(engine->options.config, rank);
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    CY_TRY(cy_engine_initialize(engine));
    for (int step = -1; step < STEPS; step++) {
        const cy_adamw_spec adamw = cy_test_adamw(1e-3, step + 2);
        const cy_traffic before = cy_group_counters(group);
        const double start = cy_clock_s();
        cy_step_result result;
        CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
        if (step < 0) continue;
        const cy_traffic after = cy_group_counters(group);
        seconds[step] = cy_clock_s() - start;
        exposed[step] = after.exposed_s - before.exposed_s;
        if (rank->rank == 0) of->bytes = after.bytes - before.bytes;
    }
    if (rank->rank != 0) return CY_OK;
    of->step_s = cy_median(seconds, STEPS);
    of->exposed_s = cy_median(exposed, STEPS);
    return CY_OK;
}

// A step over links of 20 us and this bandwidth; 0: without limit.
static step_time measure(const cy_config *config, double bytes_per_s)
{
    step_time of = {0};
    const cy_world_delay delay = {
        .between = {.latency_s = 20e-6, .bytes_per_s = bytes_per_s}, .node_ranks = 1};
    figure_need(cy_test_on_mesh(config, "auto", &delay, time_steps, &of));
    return of;
}

// The feed-forward is four times as wide as the model, as in most models.
static cy_config tensor_config(bool sequence, bool overlap)
{
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.shape.layers = 8;
    config.shape.hidden = 256;
    config.shape.heads = 4;
    config.shape.kv_heads = 4;
    config.shape.head_dim = 64;
    config.shape.ffn = 1024;
    config.shape.max_positions = 1024;
    config.training.seq_length = 1024;
    config.training.micro_batch_size = 2;
    config.training.gradient_accumulation_steps = 1;
    config.distributed.tp_size = 2;
    config.distributed.sequence_parallel = sequence;
    config.distributed.tp_overlap = overlap;
    return config;
}

// Sequences so long that attention is most of the work, which is what the ring is for.
static cy_config ring_config(void)
{
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.shape.layers = 2;
    config.shape.hidden = 64;
    config.shape.heads = 4;
    config.shape.kv_heads = 2;
    config.shape.head_dim = 32;
    config.shape.ffn = 64;
    config.shape.max_positions = 8192;
    config.training.seq_length = 8192;
    config.training.micro_batch_size = 1;
    config.training.gradient_accumulation_steps = 1;
    config.distributed.cp_size = 2;
    return config;
}

static cy_config data_config(bool naive, int zero)
{
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.shape.layers = 8;
    config.shape.hidden = 128;
    config.shape.heads = 4;
    config.shape.kv_heads = 4;
    config.shape.head_dim = 32;
    config.shape.ffn = 256;
    config.shape.tied = true;
    config.shape.max_positions = 256;
    config.training.seq_length = 256;
    config.training.micro_batch_size = 4;
    config.training.gradient_accumulation_steps = 1;
    config.distributed.dp_size = 2;
    config.distributed.zero_stage = zero;
    config.distributed.dp_reduce = naive ? CY_CONFIG_DP_NAIVE : CY_CONFIG_DP_BUCKETED;
    config.distributed.bucket_mb = 0.5;
    return config;
}

typedef struct claim {
    const char *name; // of the figures
    cy_config on;
    const cy_config *off; // the same without overlap; NULL: not compared
    double share;         // of a step's time that its traffic takes
} claim;

// Prints the exposed share of the traffic with overlap and, where there is a step without overlap,
// its exposed share and its time over the other's.
static void tell(const claim *of)
{
    double on[FIGURE_ROUNDS], off[FIGURE_ROUNDS], longer[FIGURE_ROUNDS];
    char name[96];
    for (int i = 0; i < FIGURE_ROUNDS; i++) {
        const step_time fast = measure(&of->on, 0);
        const double traffic_s = fast.step_s * of->share;
        const step_time slow = measure(&of->on, fast.bytes / traffic_s);
        on[i] = slow.exposed_s / traffic_s;
        fprintf(stderr,
            "%s: traffic %.1f ms, step %.1f ms without it (%.1f exposed), %.1f with "
            "(%.1f exposed)",
            of->name, traffic_s * 1e3, fast.step_s * 1e3, fast.exposed_s * 1e3, slow.step_s * 1e3,
            slow.exposed_s * 1e3);
        if (of->off != NULL) {
            const step_time without = measure(of->off, fast.bytes / traffic_s);
            off[i] = without.exposed_s / traffic_s;
            longer[i] = without.step_s / slow.step_s;
            fprintf(stderr, ", %.1f without overlap (%.1f exposed)", without.step_s * 1e3,
                without.exposed_s * 1e3);
        }
        fprintf(stderr, "\n");
    }
    snprintf(name, sizeof(name), "overlap.%s_exposed", of->name);
    figure_median(name, on, FIGURE_ROUNDS, "of-traffic");
    if (of->off == NULL) return;
    snprintf(name, sizeof(name), "overlap.%s_off_exposed", of->name);
    figure_median(name, off, FIGURE_ROUNDS, "of-traffic");
    snprintf(name, sizeof(name), "overlap.%s_off_over_on", of->name);
    figure_median(name, longer, FIGURE_ROUNDS, "of-step");
}

int main(void)
{
    const cy_config tensor_off = tensor_config(false, false);
    const cy_config sequence_off = tensor_config(true, false);
    const cy_config naive = data_config(true, 0);
    const claim claims[] = {
        {"tensor", tensor_config(false, true), &tensor_off, 0.5},
        {"sequence", tensor_config(true, true), &sequence_off, 0.5},
        {"ring", ring_config(), NULL, 0.5},
        {"buckets", data_config(false, 0), &naive, 1.0 / 3}, // half of the backward pass
        {"gathers", data_config(false, 3), NULL, 1.0 / 3},
    };
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++)
        tell(&claims[i]);
    return 0;
}
