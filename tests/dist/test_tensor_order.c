// What travels under what in a step of tensor parallelism: the order in which a rank starts sums,
// makes products and waits, from its own timeline. No time is asserted.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include "parallel/tensor/overlap.h"

#include <string.h>

// Plain tensor parallelism with sums of `pieces` pieces.
static cy_config config_of(int pieces, bool overlap)
{
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.shape.layers = 3;
    config.training.seq_length = 64;
    config.training.micro_batch_size = pieces * CY_TENSOR_CHUNK_ROWS / 64;
    config.training.gradient_accumulation_steps = 1;
    config.shape.max_positions = 64;
    config.distributed.tp_size = 2;
    config.distributed.tp_overlap = overlap;
    return config;
}

// What rank 0 did in a step with sums of at least `least` bytes.
typedef struct order {
    double least;
    int sums;     // that were started
    int covered;  // of them, with at least one product between start and wait
    int products; // between start and wait, of all sums
    double bytes;
} order;

static bool is_product(const cy_span *span)
{
    return span->kind == CY_SPAN_COMPUTE && strcmp(span->name, "matmul") == 0;
}

// Products that began after this sum was started and ended before the rank waited for it.
static int products_under(const cy_trace *trace, int64_t sum)
{
    const cy_span *transfer = &trace->spans[sum], *wait = &trace->spans[sum + 1];
    CY_ASSERT(wait->kind == CY_SPAN_WAIT); // a wait is noted behind its transfer
    int count = 0;
    for (int64_t i = 0; i < sum; i++) {
        const cy_span *span = &trace->spans[i];
        if (is_product(span) && span->start_ns >= transfer->start_ns &&
            span->end_ns <= wait->start_ns) {
            count++;
        }
    }
    return count;
}

static cy_status look(cy_engine *engine, const cy_rank *rank, void *context)
{
    order *of = context;
    cy_test_batch batch = cy_test_batch_of(engine, rank);
    const cy_batch_source source = cy_test_batch_source(&batch);
    const cy_adamw_spec adamw = cy_test_adamw(1e-3, 1);
    cy_step_result result;
    CY_TRY(cy_engine_initialize(engine));
    engine->trace.count = 0;
    CY_TRY(cy_engine_train_step(engine, &source, &adamw, &result));
    const cy_trace *trace = &engine->trace;
    if (trace->count > trace->capacity) return CY_FAIL(CY_ERR_CORRUPT, "the trace is too short");
    for (int64_t i = 0; rank->rank == 0 && i < trace->count; i++) {
        const cy_span *span = &trace->spans[i];
        if (span->kind != CY_SPAN_COMM || strcmp(span->name, "all_reduce") != 0) continue;
        if (span->cost.bytes < of->least) continue;
        const int products = products_under(trace, i);
        of->sums++;
        of->covered += products > 0;
        of->products += products;
        of->bytes += span->cost.bytes;
    }
    return CY_OK;
}

static cy_status look_on_rank(const cy_rank *rank, void *context)
{
    void **both = context;
    cy_engine_options options = cy_rank_engine_options(rank, both[0]);
    options.isa = "ref";
    options.threads = 1;
    options.trace = true;
    return cy_rank_with_engine(rank, &options, look, both[1]);
}

// A step over links of 200 us.
static order order_of(cy_config *config, int pieces)
{
    const cy_world_delay delay = {.between = {.latency_s = 200e-6}, .node_ranks = 1};
    const cy_config_machine machine = {.cores = 2};
    const int64_t rows = config->training.micro_batch_size * config->training.seq_length;
    // Two ranks send each other as many bytes as a piece has.
    order of = {.least = (double)(rows / pieces * config->shape.hidden) * sizeof(float)};
    void *both[] = {config, &of};
    CY_CHECK_OK(cy_ranks_run_delayed(config, &machine, &delay, look_on_rank, both));
    return of;
}

// Four sums a layer, that of the embedding and that of the head.
static int sums_of(const cy_config *config)
{
    return 4 * config->shape.layers + 2;
}

// Every piece of every sum has a product under it, but for three: the first piece of the
// embedding's sum, and the last ones of the last layer's output and of the head's gradient, after
// which there is nothing to do without them.
static void every_piece_travels_under_a_product(void **state)
{
    (void)state;
    for (int pieces = 2; pieces <= CY_TENSOR_CHUNKS; pieces++) {
        cy_config config = config_of(pieces, true);
        const order of = order_of(&config, pieces);
        assert_int_equal(of.sums, pieces * sums_of(&config));
        assert_int_equal(of.covered, of.sums - 3);
        assert_true(of.bytes == of.least * of.sums);
    }
}

// With one piece the sums of forward are waited for; those of backward have weight gradients.
static void few_rows_hide_backward_sums_alone(void **state)
{
    (void)state;
    cy_config config = config_of(1, true);
    const order of = order_of(&config, 1);
    assert_int_equal(of.sums, sums_of(&config));
    assert_int_equal(of.covered, 2 * config.shape.layers);
    // Weights of down; of out, gate and up, q k v.
    assert_int_equal(of.products, (1 + 3) * config.shape.layers);
}

static void without_overlap_nothing_is_under_way(void **state)
{
    (void)state;
    cy_config config = config_of(2, false);
    const order of = order_of(&config, 1);
    assert_int_equal(of.sums, sums_of(&config));
    assert_int_equal(of.products, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_travels_under_a_product),
        cmocka_unit_test(few_rows_hide_backward_sums_alone),
        cmocka_unit_test(without_overlap_nothing_is_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
