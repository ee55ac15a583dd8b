// cyclotron bench kernel: times each operator on the shapes of a model, against the machine's
// roofline.

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/report.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/platform.h"
#include "kernel/dispatch.h"
#include "kernel/peak.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SCRATCH_BYTES ((size_t)2 << 30)
#define RUNS_MAX      64

typedef struct values {
    int64_t tokens, seq, hidden, ffn, heads, kv_heads, head_dim, vocab, flat;
    int64_t threads;
    const char *isa;
    const char *dtype;
    const char *op;
    bool json;
} values;

static const cy_option options[] = {
    {"tokens", CY_OPTION_COUNT, offsetof(values, tokens), .initial = "2048", .low = 1, .high = 1e6,
        .doc = "rows of the activations"},
    {"seq", CY_OPTION_COUNT, offsetof(values, seq), .initial = "1024", .low = 1, .high = 1e6,
        .doc = "tokens of a sequence, for attention"},
    {"hidden", CY_OPTION_COUNT, offsetof(values, hidden), .initial = "576", .low = 1, .high = 65536,
        .doc = "hidden_size"},
    {"ffn", CY_OPTION_COUNT, offsetof(values, ffn), .initial = "1536", .low = 1, .high = 262144,
        .doc = "intermediate_size"},
    {"heads", CY_OPTION_COUNT, offsetof(values, heads), .initial = "9", .low = 1, .high = 1024,
        .doc = "num_attention_heads"},
    {"kv-heads", CY_OPTION_COUNT, offsetof(values, kv_heads), .initial = "3", .low = 1,
        .high = 1024, .doc = "num_key_value_heads"},
    {"head-dim", CY_OPTION_COUNT, offsetof(values, head_dim), .initial = "64", .low = 2,
        .high = CY_HEAD_DIM_MAX, .doc = "head_dim"},
    {"vocab", CY_OPTION_COUNT, offsetof(values, vocab), .initial = "49152", .low = 1, .high = 1e6,
        .doc = "vocab_size"},
    {"flat", CY_OPTION_COUNT, offsetof(values, flat), .initial = "16M", .low = 1, .high = 2e8,
        .doc = "parameters of the optimizer's range"},
    {"threads", CY_OPTION_COUNT, offsetof(values, threads), .initial = "0", .high = 1024,
        .doc = "0: all cores"},
    {"isa", CY_OPTION_TEXT, offsetof(values, isa), .initial = "auto", .word = "LEVEL",
        .doc = "highest level of instructions: ref, avx2, avx512, avx512_bf16, amx, neon"},
    {"dtype", CY_OPTION_CHOICE, offsetof(values, dtype), .initial = "both",
        .values = "both|fp32|bf16", .doc = "of the activations"},
    {"op", CY_OPTION_TEXT, offsetof(values, op), .word = "NAME",
        .doc = "only operators whose name begins so"},
    {"json", CY_OPTION_FLAG, offsetof(values, json), .doc = "print JSON only"},
};

static const cy_usage usage = {
    .name = "bench kernel",
    .doc = "measure each operator against this machine's peaks",
    .more = "The share is that of the bound which holds for the operator: the time that its\n"
            "operations need at the measured peak of products, or its bytes at the measured rate\n"
            "of copying, whichever is longer, over the time it took. It is above 1 where a cache\n"
            "serves what memory is reckoned for. The default shapes are those of SmolLM-135M.",
    .options = options,
    .option_count = CY_COUNT(options),
};

// All arrays that an operator may take, in the dtype of this round.
typedef struct workload {
    const values *v;
    cy_queue queue;
    cy_kernels table;
    cy_arena memory, scratch;
    void *memory_base, *scratch_base; // owned
    cy_dtype dtype;
    double flop_s, bytes_s;                     // peaks
    int64_t tile;                               // rows of logits
    cy_view x, y, branch, dx, dy;               // [tokens, hidden]
    cy_view inv_rms, norm_weight, dweight;      // [1, tokens], [1, hidden] twice
    cy_view gate_up, d_gate_up, inner, d_inner; // [tokens, 2 ffn] twice, [tokens, ffn] twice
    cy_view w_gate_up, dw_gate_up;              // [2 ffn, hidden]
    cy_view q, k, v_heads, o, d_o, dq, dk, dv;  // [tokens, heads * head_dim] or kv_heads
    cy_view lse, delta, rope_table;             // [heads, tokens] twice, [seq, head_dim]
    cy_view embedding, d_embedding;             // [vocab, hidden]
    cy_view logits, d_logits, max, sum, target; // [tile, vocab] twice, [1, tile]
    cy_view weight, master, m, v_moment, grad, scale, squares; // [1, flat], scalars
    int32_t *positions, *tokens;                               // [tokens]
    cy_attention_span *spans;
    cy_attention_spec attention;
} workload;

// ---- what is measured

static void run_linear(workload *w)
{
    cy_matmul(&w->queue, w->gate_up, w->x, w->w_gate_up, (cy_matmul_spec){.transpose_b = true});
}

static void run_linear_input(workload *w)
{
    cy_matmul(&w->queue, w->dx, w->gate_up, w->w_gate_up, (cy_matmul_spec){0});
}

static void run_linear_weight(workload *w)
{
    cy_matmul(&w->queue, w->dw_gate_up, w->gate_up, w->x,
        (cy_matmul_spec){.transpose_a = true, .accumulate = true});
}

static void run_norm_forward(workload *w)
{
    cy_norm_forward(&w->queue, w->y, w->inv_rms, w->x, cy_view_none(), w->norm_weight, 1e-5);
}

static void run_norm_branch(workload *w)
{
    cy_norm_forward(&w->queue, w->y, w->inv_rms, w->dx, w->branch, w->norm_weight, 1e-5);
}

static void run_norm_apply(workload *w)
{
    cy_norm_apply(&w->queue, w->y, w->x, w->inv_rms, w->norm_weight);
}

static void run_norm_backward(workload *w)
{
    cy_norm_backward(&w->queue, w->dx, w->dweight, w->dy, w->x, w->inv_rms, w->norm_weight);
}

static void run_rope(workload *w)
{
    cy_rope(&w->queue, w->q, w->rope_table, w->positions, (int)w->v->heads, false);
}

static void run_attention_forward(workload *w)
{
    cy_attention_forward(&w->queue, w->o, w->lse, w->q, w->k, w->v_heads, &w->attention);
}

static void run_attention_delta(workload *w)
{
    cy_attention_delta(&w->queue, w->delta, w->d_o, w->o, (int)w->v->heads);
}

static void run_attention_backward(workload *w)
{
    cy_attention_backward(&w->queue, w->dq, w->dk, w->dv, w->d_o, w->lse, w->delta, w->q, w->k,
        w->v_heads, &w->attention);
}

static void run_swiglu_forward(workload *w)
{
    cy_swiglu_forward(&w->queue, w->inner, w->gate_up);
}

static void run_swiglu_backward(workload *w)
{
    cy_swiglu_backward(&w->queue, w->d_gate_up, w->inner, w->d_inner, w->gate_up);
}

static void run_embedding_forward(workload *w)
{
    cy_embedding_forward(&w->queue, w->y, w->embedding, w->tokens, 0);
}

static void run_embedding_backward(workload *w)
{
    cy_embedding_backward(&w->queue, w->d_embedding, w->dy, w->tokens, 0);
}

static cy_vocab_range whole_vocabulary(const workload *w)
{
    return (cy_vocab_range){.first = 0, .valid = w->v->vocab};
}

static void run_softmax_max(workload *w)
{
    cy_softmax_max(&w->queue, w->max, w->logits, whole_vocabulary(w));
}

static void run_softmax_sum(workload *w)
{
    cy_softmax_sum(&w->queue, w->sum, w->target, w->logits, w->max, w->tokens, whole_vocabulary(w));
}

static void run_softmax_grad(workload *w)
{
    cy_softmax_grad(
        &w->queue, w->d_logits, w->logits, w->max, w->sum, w->tokens, whole_vocabulary(w), 1.0);
}

static void run_copy(workload *w)
{
    cy_copy(&w->queue, w->m, w->grad);
}

static void run_narrow(workload *w)
{
    cy_copy(&w->queue, w->weight, w->master);
}

static void run_add(workload *w)
{
    cy_add(&w->queue, w->y, w->x, w->branch);
}

static void run_sum_rows(workload *w)
{
    cy_sum_rows(&w->queue, w->dweight, w->dy);
}

static void run_sum_squares(workload *w)
{
    cy_sum_squares(&w->queue, w->squares, w->grad);
}

static void run_adamw(workload *w)
{
    const cy_adamw_spec spec = {1e-3, 0.9, 0.95, 1e-8, 0.1, 100, {0}};
    cy_adamw(&w->queue, w->weight, w->master, w->m, w->v_moment, w->grad, w->scale, &spec);
}

static void run_random_fill(workload *w)
{
    cy_random_fill(&w->queue, w->v_moment, 1, 0, w->v_moment.cols, 1e-3);
}

static const struct {
    const char *op;
    void (*run)(workload *);
    const char *shape; // in the letters of shape_text
} items[] = {
    {"matmul", run_linear, "t x 2f x h"},
    {"matmul_input", run_linear_input, "t x h x 2f"},
    {"matmul_weight", run_linear_weight, "2f x h x t"},
    {"attention_forward", run_attention_forward, "t x n x d"},
    {"attention_delta", run_attention_delta, "t x n x d"},
    {"attention_backward", run_attention_backward, "t x n x d"},
    {"norm_forward", run_norm_forward, "t x h"},
    {"norm_forward_branch", run_norm_branch, "t x h"},
    {"norm_apply", run_norm_apply, "t x h"},
    {"norm_backward", run_norm_backward, "t x h"},
    {"rope", run_rope, "t x n x d"},
    {"swiglu_forward", run_swiglu_forward, "t x f"},
    {"swiglu_backward", run_swiglu_backward, "t x f"},
    {"embedding_forward", run_embedding_forward, "t x h"},
    {"embedding_backward", run_embedding_backward, "t x h"},
    {"softmax_max", run_softmax_max, "l x v"},
    {"softmax_sum", run_softmax_sum, "l x v"},
    {"softmax_grad", run_softmax_grad, "l x v"},
    {"add", run_add, "t x h"},
    {"sum_rows", run_sum_rows, "t x h"},
    {"copy", run_copy, "p"},
    {"copy_narrow", run_narrow, "p"},
    {"sum_squares", run_sum_squares, "p"},
    {"adamw", run_adamw, "p"},
    {"random_fill", run_random_fill, "p"},
};

// Replaces the letters of a shape with this run's sizes.
static void shape_text(char *out, size_t bytes, const workload *w, const char *shape)
{
    size_t at = 0;
    out[0] = '\0';
    for (const char *c = shape; *c != '\0' && at + 1 < bytes; c++) {
        const int64_t size = *c == 't' ? w->v->tokens
            : *c == 'h'                ? w->v->hidden
            : *c == 'f'                ? w->v->ffn * (c > shape && c[-1] == '2' ? 2 : 1)
            : *c == 'n'                ? w->v->heads
            : *c == 'd'                ? w->v->head_dim
            : *c == 'l'                ? w->tile
            : *c == 'v'                ? w->v->vocab
            : *c == 'p'                ? w->v->flat
                                       : 0;
        if (*c == ' ' || *c == '2') continue; // the factor went into f
        const int length = size > 0 ? snprintf(out + at, bytes - at, "%" PRId64, size)
                                    : snprintf(out + at, bytes - at, "%c", *c);
        if (length > 0) at += (size_t)length;
    }
}

// ---- the matrices

static cy_view random_view(workload *w, cy_dtype dtype, int64_t rows, int64_t cols, double std)
{
    const cy_view view = cy_view_alloc(&w->memory, dtype, rows, cols);
    if (!w->memory.measuring) cy_random_fill(&w->queue, view, 7, 0, cols, std);
    return view;
}

static void lay_out_model(workload *w)
{
    const values *v = w->v;
    const cy_dtype d = w->dtype;
    const int64_t t = v->tokens, h = v->hidden, f = v->ffn;
    const int64_t q = v->heads * v->head_dim, kv = v->kv_heads * v->head_dim;
    w->x = random_view(w, d, t, h, 1.0);
    w->y = random_view(w, d, t, h, 1.0);
    w->branch = random_view(w, d, t, h, 1e-3); // added in place again and again
    w->dx = random_view(w, d, t, h, 1.0);
    w->dy = random_view(w, d, t, h, 1.0);
    w->inv_rms = random_view(w, CY_F32, 1, t, 1.0);
    w->norm_weight = random_view(w, d, 1, h, 1.0);
    w->dweight = random_view(w, CY_F32, 1, h, 1.0);
    w->gate_up = random_view(w, d, t, 2 * f, 1.0);
    w->d_gate_up = random_view(w, d, t, 2 * f, 1.0);
    w->inner = random_view(w, d, t, f, 1.0);
    w->d_inner = random_view(w, d, t, f, 1.0);
    w->w_gate_up = random_view(w, d, 2 * f, h, 0.02);
    w->dw_gate_up = random_view(w, CY_F32, 2 * f, h, 0.0);
    w->q = random_view(w, d, t, q, 1.0);
    w->o = random_view(w, d, t, q, 1.0);
    w->d_o = random_view(w, d, t, q, 1.0);
    w->dq = random_view(w, d, t, q, 1.0);
    w->k = random_view(w, d, t, kv, 1.0);
    w->v_heads = random_view(w, d, t, kv, 1.0);
    w->dk = random_view(w, d, t, kv, 1.0);
    w->dv = random_view(w, d, t, kv, 1.0);
    w->lse = random_view(w, CY_F32, v->heads, t, 1.0);
    w->delta = random_view(w, CY_F32, v->heads, t, 1.0);
    w->rope_table = random_view(w, CY_F32, v->seq, v->head_dim, 1.0);
    w->embedding = random_view(w, d, v->vocab, h, 0.02);
    w->d_embedding = random_view(w, CY_F32, v->vocab, h, 0.0);
    w->logits = random_view(w, CY_F32, w->tile, v->vocab, 1.0);
    w->d_logits = random_view(w, d, w->tile, v->vocab, 1.0);
    w->max = random_view(w, CY_F32, 1, w->tile, 1.0);
    w->sum = random_view(w, CY_F32, 1, w->tile, 1.0);
    w->target = random_view(w, CY_F32, 1, w->tile, 1.0);
}

static void lay_out(workload *w)
{
    const values *v = w->v;
    const int64_t spans = (v->tokens + v->seq - 1) / v->seq;
    lay_out_model(w);
    w->weight = random_view(w, CY_BF16, 1, v->flat, 0.02);
    w->master = random_view(w, CY_F32, 1, v->flat, 0.02);
    w->m = random_view(w, CY_F32, 1, v->flat, 1e-3);
    w->v_moment = random_view(w, CY_F32, 1, v->flat, 0.0);
    w->grad = random_view(w, CY_F32, 1, v->flat, 1e-3);
    w->scale = random_view(w, CY_F64, 1, 1, 0.0);
    w->squares = random_view(w, CY_F64, 1, 1, 0.0);
    w->positions = cy_arena_alloc(&w->memory, (size_t)v->tokens * sizeof(int32_t));
    w->tokens = cy_arena_alloc(&w->memory, (size_t)v->tokens * sizeof(int32_t));
    w->spans = cy_arena_alloc(&w->memory, (size_t)spans * sizeof(*w->spans));
    w->attention = (cy_attention_spec){
        .heads = (int)v->heads,
        .kv_heads = (int)v->kv_heads,
        .head_dim = v->head_dim,
        .scale = 1.0 / sqrt((double)v->head_dim),
        .spans = w->spans,
        .span_count = (int)spans,
        .q_positions = w->positions,
        .k_positions = w->positions,
    };
    if (w->memory.measuring) return;
    for (int64_t t = 0; t < v->tokens; t++) {
        w->positions[t] = (int32_t)(t % v->seq);
        w->tokens[t] = (int32_t)((uint64_t)t * 2654435761u % (uint64_t)v->vocab);
    }
    for (int64_t i = 0; i < spans; i++) {
        const int64_t first = i * v->seq;
        const int64_t left = v->tokens - first;
        const int64_t count = left < v->seq ? left : v->seq;
        w->spans[i] = (cy_attention_span){first, count, first, count};
    }
}

// ---- measuring

// The median time of at least 5 runs and at least a tenth of a second.
static double seconds_of(workload *w, void (*run)(workload *))
{
    double times[RUNS_MAX], total = 0.0;
    int count = 0;
    run(w); // warms caches and makes primitives
    while (count < RUNS_MAX && (count < 5 || total < 0.1)) {
        const int64_t start_ns = cy_clock_ns();
        run(w);
        times[count] = (double)(cy_clock_ns() - start_ns) * 1e-9;
        total += times[count++];
    }
    return cy_median(times, count);
}

static cy_cost cost_of(workload *w, void (*run)(workload *))
{
    w->queue.dry = true;
    w->queue.planned = (cy_cost){0};
    run(w);
    w->queue.dry = false;
    return w->queue.planned;
}

// Whether an operator's name begins with the wanted text, or any operator is wanted.
static bool is_wanted(const char *op, const char *begin)
{
    return begin == NULL || strncmp(op, begin, strlen(begin)) == 0;
}

static bool is_known(const char *begin)
{
    for (int i = 0; i < CY_COUNT(items); i++) {
        if (is_wanted(items[i].op, begin)) return true;
    }
    return false;
}

static void measure_items(workload *w, int *printed)
{
    for (int i = 0; i < CY_COUNT(items); i++) {
        if (!is_wanted(items[i].op, w->v->op)) continue;
        const cy_cost cost = cost_of(w, items[i].run);
        const double seconds = seconds_of(w, items[i].run);
        const double by_flops = cost.flops / w->flop_s, by_bytes = cost.bytes / w->bytes_s;
        const double share = fmax(by_flops, by_bytes) / seconds;
        char shape[64];
        shape_text(shape, sizeof(shape), w, items[i].shape);
        const char *dtype = cy_dtype_name(w->dtype);
        if (w->v->json) {
            printf("%s\n  {\"op\": \"%s\", \"dtype\": \"%s\", \"shape\": \"%s\", \"isa\": \"%s\", "
                   "\"gflop_s\": %s, \"gb_s\": %s, \"share_of_peak\": %s}",
                *printed > 0 ? "," : "", items[i].op, dtype, shape, w->queue.kernels->name,
                cy_json_number(cost.flops / seconds * 1e-9, 6).bytes,
                cy_json_number(cost.bytes / seconds * 0x1p-30, 6).bytes,
                cy_json_number(share, 4).bytes);
        } else {
            printf("%-20s %-5s %-16s %10.1f %9.1f %9.2f  %3.0f %% of %s\n", items[i].op, dtype,
                shape, seconds * 1e6, cost.flops / seconds * 1e-9, cost.bytes / seconds * 0x1p-30,
                100.0 * share, by_flops > by_bytes ? "products" : "copying");
        }
        fflush(stdout);
        (*printed)++;
    }
}

static cy_status measure_dtype(workload *w, cy_dtype dtype, int *printed)
{
    w->dtype = dtype;
    cy_bandwidth bandwidth;
    CY_TRY(cy_peak_measure(&w->flop_s, &w->queue, dtype));
    CY_TRY(cy_bandwidth_measure(&bandwidth, &w->queue, CY_BANDWIDTH_BYTES));
    w->bytes_s = bandwidth.copy;
    if (!w->v->json) {
        printf("%s %s, %d threads: products %.1f GFLOP/s, copying %.2f GB/s\n"
               "%-20s %-5s %-16s %10s %9s %9s\n",
            w->queue.kernels->name, cy_dtype_name(dtype), cy_queue_workers(&w->queue),
            w->flop_s * 1e-9, w->bytes_s * 0x1p-30, "", "", "", "us", "GFLOP/s", "GB/s");
    }
    cy_arena_measure(&w->memory, "bench");
    lay_out(w);
    const size_t bytes = w->memory.peak;
    CY_TRY(cy_memory_map(&w->memory_base, bytes));
    cy_arena_init(&w->memory, "bench", w->memory_base, bytes);
    lay_out(w);
    measure_items(w, printed);
    cy_memory_unmap(w->memory_base, bytes);
    w->memory_base = NULL;
    return CY_OK;
}

static cy_status measure_all(workload *w)
{
    int printed = 0;
    const char *dtype = w->v->dtype;
    if (w->v->json) printf("[");
    if (strcmp(dtype, "bf16") != 0) CY_TRY(measure_dtype(w, CY_F32, &printed));
    if (strcmp(dtype, "fp32") != 0) CY_TRY(measure_dtype(w, CY_BF16, &printed));
    if (w->v->json) printf("\n]\n");
    return CY_OK;
}

static cy_status bench(const values *v)
{
    workload w = {.v = v, .tile = v->tokens < 256 ? v->tokens : 256};
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    const int threads = v->threads > 0 ? (int)v->threads : cpu.cores;
    CY_TRY(cy_memory_map(&w.scratch_base, SCRATCH_BYTES));
    cy_arena_init(&w.scratch, "scratch", w.scratch_base, SCRATCH_BYTES);
    w.queue.scratch = &w.scratch;
    cy_status status = cy_thread_pool_open(&w.queue.pool, threads, -1, true);
    if (status == CY_OK) status = cy_kernels_open(&w.queue, &w.table, v->isa);
    if (status == CY_OK) status = measure_all(&w);
    cy_kernels_close(&w.queue);
    cy_thread_pool_close(w.queue.pool);
    cy_memory_unmap(w.scratch_base, SCRATCH_BYTES);
    return status;
}

int cy_command_bench_kernel(int argc, char **argv)
{
    values v;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &v, &usage, argc, argv);
    if (status == CY_RUN_COMMAND && v.heads % v.kv_heads != 0) {
        status = cy_usage_error(&usage,
            "--heads=%" PRId64 " is not a multiple of --kv-heads=%" PRId64, v.heads, v.kv_heads);
    } else if (status == CY_RUN_COMMAND && v.head_dim % 2 != 0) {
        status = cy_usage_error(&usage, "--head-dim=%" PRId64 " is odd", v.head_dim);
    } else if (status == CY_RUN_COMMAND && !is_known(v.op)) {
        status = cy_usage_error(&usage, "--op=%s: no operator's name begins so", v.op);
    } else if (status == CY_RUN_COMMAND) {
        status = cy_report_output(cy_report_status(bench(&v)));
    }
    cy_arguments_free(&arguments);
    return status;
}
