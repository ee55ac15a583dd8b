// Measures a step: sums and maxima over all ranks become the values of its metrics.
#include "train/measure.h"

#include "engine/engine_parts.h"
#include "observe/memory.h"
#include "observe/profile.h"
#include "train/replicas.h"

// The largest of all ranks' values.
static cy_status agree_max(cy_engine *engine, double *value)
{
    return cy_group_all_reduce(
        engine->options.groups.world, NULL, cy_view_of(value, CY_F64, 1, 1), CY_MAX);
}

// ---- traffic

_Static_assert(CY_METRIC_COMM_WORLD_BYTES ==
        CY_METRIC_COMM_TP_BYTES + CY_TRAFFIC_WORLD * CY_METRICS_OF_DIMENSION,
    "the table of metrics has the dimensions of ranks.h in their order");

// The metric of a dimension that corresponds to one of tp.
static cy_metric of_dimension(cy_metric of_tp, int dimension)
{
    return (cy_metric)((int)of_tp + dimension * CY_METRICS_OF_DIMENSION);
}

// Sets the traffic of the step: bytes and messages of all ranks, seconds of the slowest. A
// dimension without messages is left out.
static cy_status set_traffic(cy_metrics *metrics, const cy_rank_traffic *of_rank, cy_engine *engine)
{
    cy_group *world = engine->options.groups.world;
    double sums[CY_TRAFFIC_DIMENSIONS][3], most[CY_TRAFFIC_DIMENSIONS][2];
    for (int i = 0; i < CY_TRAFFIC_DIMENSIONS; i++) {
        const cy_traffic *sent = &of_rank->of[i];
        sums[i][0] = sent->bytes;
        sums[i][1] = (double)sent->messages;
        sums[i][2] = sent->bytes_between_nodes;
        most[i][0] = sent->seconds;
        most[i][1] = sent->exposed_s;
    }
    CY_TRY(cy_group_all_reduce(
        world, NULL, cy_view_of(sums, CY_F64, CY_TRAFFIC_DIMENSIONS, 3), CY_SUM));
    CY_TRY(cy_group_all_reduce(
        world, NULL, cy_view_of(most, CY_F64, CY_TRAFFIC_DIMENSIONS, 2), CY_MAX));
    cy_metrics_set_count(metrics, CY_METRIC_COMM, 0);
    for (int i = 0; i < CY_TRAFFIC_DIMENSIONS; i++) {
        const cy_metric between = of_dimension(CY_METRIC_COMM_TP_BYTES_BETWEEN_NODES, i);
        if (sums[i][1] == 0) continue;
        cy_metrics_set_count(
            metrics, of_dimension(CY_METRIC_COMM_TP_BYTES, i), (int64_t)sums[i][0]);
        cy_metrics_set_count(
            metrics, of_dimension(CY_METRIC_COMM_TP_MESSAGES, i), (int64_t)sums[i][1]);
        cy_metrics_set(metrics, of_dimension(CY_METRIC_COMM_TP_S, i), most[i][0]);
        cy_metrics_set(metrics, of_dimension(CY_METRIC_COMM_TP_EXPOSED_S, i), most[i][1]);
        if (sums[i][2] >= 1) cy_metrics_set_count(metrics, between, (int64_t)sums[i][2]);
    }
    return CY_OK;
}

// Sets what top-k compression sent of the gradients of all ranks.
static cy_status set_topk(cy_metrics *metrics, cy_engine *engine)
{
    if (engine->compressed == NULL) return CY_OK;
    const cy_topk_sent sent = cy_reducer_topk_sent(engine->compressed);
    if (sent.ratio == 0) return CY_OK; // on all ranks alike
    int64_t counts[] = {sent.sent, sent.elements};
    CY_TRY(cy_group_all_reduce(
        engine->options.groups.world, NULL, cy_view_of(counts, CY_I64, 1, 2), CY_SUM));
    cy_metrics_set(metrics, CY_METRIC_TOPK_RATIO, sent.ratio);
    cy_metrics_set_count(metrics, CY_METRIC_TOPK_SENT, counts[0]);
    cy_metrics_set_count(metrics, CY_METRIC_TOPK_ELEMENTS, counts[1]);
    return CY_OK;
}

// ---- data, memory, speed

// Sets how long the slowest rank waited for its microbatches, and the fraction of all ranks'
// microbatches that were ready.
static cy_status set_waiting(
    cy_metrics *metrics, const cy_loader_counters *asked, cy_engine *engine)
{
    double counts[] = {(double)asked->ready, (double)asked->batches};
    double data_s = (double)asked->wait_ns * 1e-9;
    CY_TRY(agree_max(engine, &data_s));
    CY_TRY(cy_group_all_reduce(
        engine->options.groups.world, NULL, cy_view_of(counts, CY_F64, 1, 2), CY_SUM));
    cy_metrics_set(metrics, CY_METRIC_DATA_S, data_s);
    cy_metrics_set(metrics, CY_METRIC_DATA_READY, counts[0] / counts[1]);
    return CY_OK;
}

static cy_status set_memory(cy_metrics *metrics, cy_engine *engine)
{
    cy_rss resident;
    CY_TRY(cy_rss_read(&resident));
    double memory = (double)resident.peak_bytes;
    CY_TRY(agree_max(engine, &memory));
    cy_metrics_set(metrics, CY_METRIC_MEM_GB, memory * 0x1p-30);
    return CY_OK;
}

// After the first step, which should not wait for it.
static cy_status measure_peak(cy_engine *engine, double *peak_flop_s)
{
    if (*peak_flop_s > 0 || !engine->options.config->logging.measure_peak) return CY_OK;
    CY_TRY(cy_engine_peak(engine, peak_flop_s));
    return cy_group_all_reduce(
        engine->options.groups.world, NULL, cy_view_of(peak_flop_s, CY_F64, 1, 1), CY_SUM);
}

static void set_speed(
    cy_metrics *metrics, const cy_config *config, double seconds, int ranks, double peak_flop_s)
{
    const double tok_s = (double)cy_config_batch_tokens(config) / seconds;
    const int64_t length = config->training.seq_length;
    const double flops = cy_flops_per_token(&config->shape, length);
    const double causal = cy_flops_per_token_causal(&config->shape, length);
    cy_metrics_set(metrics, CY_METRIC_STEP_S, seconds);
    cy_metrics_set(metrics, CY_METRIC_TOK_S, tok_s);
    cy_metrics_set(metrics, CY_METRIC_TOK_S_RANK, tok_s / ranks);
    cy_metrics_set(metrics, CY_METRIC_MFU, cy_flops_utilization(tok_s, flops, peak_flop_s));
    cy_metrics_set(metrics, CY_METRIC_MFU_CAUSAL, cy_flops_utilization(tok_s, causal, peak_flop_s));
}

// ---- a step

// Sets what all ranks know of a step.
static void set_step(cy_metrics *metrics, const cy_measured_step *step, const cy_config *config)
{
    const cy_step_result *result = &step->result;
    cy_metrics_set_count(metrics, CY_METRIC_STEP, step->position.step);
    cy_metrics_set_count(metrics, CY_METRIC_TOKENS, step->position.tokens);
    cy_metrics_set_count(metrics, CY_METRIC_BATCH_TOKENS, cy_config_batch_tokens(config));
    if (config->training.max_tokens > 0) {
        cy_metrics_set_count(metrics, CY_METRIC_MAX_TOKENS, config->training.max_tokens);
    }
    cy_metrics_set(metrics, CY_METRIC_LOSS, result->loss);
    cy_metrics_set(metrics, CY_METRIC_GRAD_NORM, result->grad_norm);
    cy_metrics_set(metrics, CY_METRIC_LR, step->learning_rate);
    cy_metrics_set_count(metrics, CY_METRIC_SKIPPED, result->skipped);
    if (result->repeats > 0) {
        cy_metrics_set_count(metrics, CY_METRIC_REPEATED, result->repeats);
    }
}

cy_status cy_measure_step(cy_metrics *metrics, const cy_measured_step *step, cy_engine *engine,
    const cy_rank *rank, double *peak_flop_s)
{
    const cy_config *config = engine->options.config;
    const int64_t every = config->logging.hash_frequency;
    *metrics = (cy_metrics){0};
    set_step(metrics, step, config);
    CY_TRY(set_memory(metrics, engine));
    CY_TRY(measure_peak(engine, peak_flop_s));
    set_speed(metrics, config, step->seconds, rank->mesh.world, *peak_flop_s);
    CY_TRY(set_traffic(metrics, &step->sent, engine));
    CY_TRY(set_topk(metrics, engine));
    CY_TRY(set_waiting(metrics, &step->read, engine));
    if (every > 0 && step->position.step % every == 0) {
        uint64_t hash = 0;
        CY_TRY(cy_replicas_check(engine, rank, step->position.step));
        CY_TRY(cy_engine_params_hash(engine, &hash));
        cy_metrics_set_count(metrics, CY_METRIC_PARAMS_HASH, (int64_t)hash);
    }
    return CY_OK;
}

// ---- an evaluation

void cy_measure_evaluation(
    cy_metrics *metrics, const cy_run_position *position, double loss, int64_t tokens)
{
    *metrics = (cy_metrics){0};
    cy_metrics_set_count(metrics, CY_METRIC_STEP, position->step);
    cy_metrics_set(metrics, CY_METRIC_VAL_LOSS, loss);
    cy_metrics_set_count(metrics, CY_METRIC_VAL_TOKENS, tokens);
}
