// Tests that traffic travels under work: between the start of a transfer and the wait for it lie
// enough operations. Tensor parallelism, ring attention, buckets and the gathering of weights hide
// at least 70 % of their traffic where it takes as long as the claim says; without overlap nothing
// is hidden.
//
// Time is simulated. A rank's clock counts the operations of its operators, in the order in which
// it called them, and a link takes bytes a second of that clock, one message after another. So the
// result is the same on any machine; bench/claims/overlap.c asks the clock on the wall.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

typedef struct hidden {
    double bytes;   // of the step's transfers
    double exposed; // share of their time for which the rank waited, in simulated time
    int transfers;
} hidden;

typedef enum event_kind { EVENT_WORK, EVENT_START, EVENT_WAIT } event_kind;

typedef struct event {
    int64_t at_ns; // orders the events, and is of no other use
    int64_t index; // in the trace, where two have the same time
    event_kind kind;
    double flops;
    int transfer;
} event;

static int compare_events(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->at_ns != y->at_ns) return x->at_ns < y->at_ns ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

// The events of a trace in the order of the rank's calls. A transfer writes two spans, COMM from
// its start and WAIT from when it was waited for, one behind the other.
static int64_t events_of(event *events, double *bytes, int *transfers, const cy_trace *trace)
{
    int64_t count = 0;
    *transfers = 0;
    for (int64_t i = 0; i < trace->count; i++) {
        const cy_span *span = &trace->spans[i];
        if (span->kind == CY_SPAN_COMPUTE) {
            events[count++] = (event){span->start_ns, i, EVENT_WORK, span->cost.flops, 0};
        } else if (span->kind == CY_SPAN_COMM) {
            bytes[*transfers] = span->cost.bytes;
            events[count++] = (event){span->start_ns, i, EVENT_START, 0, *transfers};
            events[count++] =
                (event){trace->spans[i + 1].start_ns, i + 1, EVENT_WAIT, 0, *transfers};
            ++*transfers;
        }
    }
    qsort(events, (size_t)count, sizeof(*events), compare_events);
    return count;
}

// Runs the events over a link on which all bytes take `share` of the time that all operations take.
static hidden simulate(const event *events, int64_t count, const double *bytes, double share)
{
    hidden of = {0};
    double flops = 0;
    for (int64_t i = 0; i < count; i++) {
        flops += events[i].flops;
        if (events[i].kind != EVENT_START) continue;
        of.bytes += bytes[events[i].transfer];
        of.transfers++;
    }
    double *done = calloc((size_t)of.transfers + 1, sizeof(*done));
    if (done == NULL) abort();
    const double byte_time = share * flops / of.bytes;
    double now = 0, link_free = 0, waited = 0;
    for (int64_t i = 0; i < count; i++) {
        const event *e = &events[i];
        if (e->kind == EVENT_WORK) now += e->flops;
        if (e->kind == EVENT_START) {
            link_free = (link_free > now ? link_free : now) + bytes[e->transfer] * byte_time;
            done[e->transfer] = link_free;
        }
        if (e->kind == EVENT_WAIT && done[e->transfer] > now) {
            waited += done[e->transfer] - now;
            now = done[e->transfer];
        }
    }
    free(done);
    of.exposed = waited / (share * flops);
    return of;
}

typedef struct question {
    double share;
    hidden answer; // of rank 0
} question;

static cy_status train_traced(cy_engine *engine, const cy_rank *rank, void *context)
{
    question *q = context;
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    CY_TRY(cy_engine_initialize(engine));
    for (int step = 1; step <= 2; step++) { // what the first step leaves in flight counts, too
        const cy_adamw_spec adamw = cy_test_adamw(1e-3, step);
        cy_step_result result;
        engine->trace.count = 0;
        CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
    }
    if (rank->rank != 0) return CY_OK;
    const cy_trace *trace = &engine->trace;
    if (trace->count == 0 || trace->count > trace->capacity) {
        return CY_FAIL(CY_ERR_CORRUPT, "%lld spans of a step", (long long)trace->count);
    }
    event *events = calloc(2 * (size_t)trace->count, sizeof(*events));
    double *bytes = calloc((size_t)trace->count, sizeof(*bytes));
    if (events == NULL || bytes == NULL) abort();
    int transfers = 0;
    const int64_t count = events_of(events, bytes, &transfers, trace);
    q->answer = simulate(events, count, bytes, q->share);
    free(bytes);
    free(events);
    return CY_OK;
}

static cy_status run_rank(const cy_rank *rank, void *context)
{
    const struct {
        const cy_config *config;
        question *q;
    } *with = context;
    cy_engine_options options = cy_rank_engine_options(rank, with->config);
    options.isa = "ref";
    options.threads = 1;
    options.trace = true;
    return cy_rank_with_engine(rank, &options, train_traced, with->q);
}

// What a step of rank 0 waits for, where its traffic takes `share` of its work.
static hidden ask(const char *what, const cy_config *config, double share)
{
    question q = {.share = share};
    struct {
        const cy_config *config;
        question *q;
    } with = {config, &q};
    const cy_config_machine machine = {.cores = 2};
    CY_CHECK_OK(cy_ranks_run(config, &machine, run_rank, &with));
    print_message("%s: %d transfers of %.0f bytes, %.1f %% exposed\n", what, q.answer.transfers,
        q.answer.bytes, 100.0 * q.answer.exposed);
    assert_true(q.answer.transfers > 0 && q.answer.bytes > 0);
    return q.answer;
}

// The feed-forward is four times as wide as the model, as in most models.
static cy_config tensor_config(bool sequence, bool overlap)
{
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.shape.layers = 4;
    config.shape.hidden = 64;
    config.shape.heads = 4;
    config.shape.kv_heads = 4;
    config.shape.head_dim = 16;
    config.shape.ffn = 256;
    config.shape.max_positions = 128;
    config.training.seq_length = 128;
    // Plain sums go in pieces where there are rows enough.
    config.training.micro_batch_size = sequence ? 2 : 8;
    config.training.gradient_accumulation_steps = 1;
    config.distributed.tp_size = 2;
    config.distributed.sequence_parallel = sequence;
    config.distributed.tp_overlap = overlap;
    return config;
}

static void tensor_parallel_traffic_travels_under_products(void **state)
{
    (void)state;
    for (int sequence = 0; sequence < 2; sequence++) {
        const cy_config on = tensor_config(sequence == 1, true);
        const cy_config off = tensor_config(sequence == 1, false);
        const char *what = sequence == 1 ? "sequence" : "tensor";
        assert_true(ask(what, &on, 0.5).exposed <= 0.3);
        print_message("overlap off, ");
        assert_true(ask(what, &off, 0.5).exposed >= 0.9);
    }
}

// Sequences so long that attention is most of the work, which is what the ring is for.
static void the_ring_travels_under_attention(void **state)
{
    (void)state;
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.shape.hidden = 32;
    config.shape.kv_heads = 2;
    config.shape.ffn = 32;
    config.shape.max_positions = 1024;
    config.training.seq_length = 1024;
    config.training.micro_batch_size = 1;
    config.training.gradient_accumulation_steps = 1;
    config.distributed.cp_size = 2;
    assert_true(ask("ring", &config, 0.5).exposed <= 0.3);
}

static cy_config data_config(bool naive, int zero)
{
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.shape.layers = 8;
    config.shape.tied = true;
    config.training.micro_batch_size = 4;
    config.training.gradient_accumulation_steps = 1;
    config.distributed.dp_size = 2;
    config.distributed.zero_stage = zero;
    config.distributed.dp_reduce = naive ? CY_CONFIG_DP_NAIVE : CY_CONFIG_DP_BUCKETED;
    config.distributed.bucket_mb = 0.02;
    return config;
}

// Traffic that takes half of the backward pass, which is two thirds of a step.
static void buckets_travel_under_the_backward_pass(void **state)
{
    (void)state;
    const cy_config bucketed = data_config(false, 0), naive = data_config(true, 0);
    assert_true(ask("buckets", &bucketed, 1.0 / 3).exposed <= 0.3);
    assert_true(ask("naive", &naive, 1.0 / 3).exposed >= 0.9);
}

// A link on which the traffic takes four times as long as the backward pass: with a first bucket of
// a quarter of the others it begins sooner, and the second one is full when the first has gone.
static void a_small_first_bucket_starts_the_traffic_sooner(void **state)
{
    (void)state;
    const double backward = 2.0 / 3, share = 4 * backward;
    cy_config config = data_config(false, 0);
    config.distributed.bucket_mb = config.distributed.first_bucket_mb = 0.1;
    const hidden alike = ask("buckets of one size", &config, share);
    config.distributed.first_bucket_mb = 0.025;
    const hidden small = ask("a small first bucket", &config, share);
    assert_int_equal(small.transfers, alike.transfers + 1);
    assert_true(small.bytes == alike.bytes);
    const double saved = (alike.exposed - small.exposed) * share / backward;
    print_message("%.2f of the backward pass saved\n", saved);
    assert_true(saved >= 0.2);
}

static void weights_are_gathered_ahead(void **state)
{
    (void)state;
    const cy_config config = data_config(false, 3);
    assert_true(ask("gathers", &config, 1.0 / 3).exposed <= 0.3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_parallel_traffic_travels_under_products),
        cmocka_unit_test(the_ring_travels_under_attention),
        cmocka_unit_test(buckets_travel_under_the_backward_pass),
        cmocka_unit_test(a_small_first_bucket_starts_the_traffic_sooner),
        cmocka_unit_test(weights_are_gathered_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
