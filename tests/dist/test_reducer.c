// What data parallelism costs: messages and bytes of a step, and memory by kind, against formulas.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include "parallel/data/reducer_parts.h"

#include <math.h>
#include <stdio.h>

static cy_config config_of(int dp, int zero, int64_t accumulation, cy_dtype dtype)
{
    cy_config config;
    cy_test_config(&config, dtype);
    config.distributed.dp_size = dp;
    config.distributed.zero_stage = zero;
    config.distributed.bucket_mb = 0.02;
    config.training.gradient_accumulation_steps = accumulation;
    return config;
}

// ---- the layout of buckets

// Elements of a bucket of so many bytes, of three ranks and fp32: whole cache lines of each rank.
static int64_t whole_elements(size_t bytes)
{
    const int64_t lines = (int64_t)(bytes / 4) / 192;
    return 192 * (lines > 1 ? lines : 1);
}

static void expect_buckets(cy_group *group, size_t first_bytes, size_t bytes)
{
    const cy_flat_range units[] = {{0, 192}, {192, 5760}, {5952, 5760}, {11712, 30720}};
    const int64_t full = whole_elements(bytes);
    const int64_t first = first_bytes > 0 ? whole_elements(first_bytes) : full;
    const cy_reducer_spec spec = {.group = group,
        .bucket_bytes = bytes,
        .first_bucket_bytes = first_bytes,
        .grad_dtype = CY_F32,
        .zero_stage = 1};
    cy_bucket_list list = {0};
    CY_CHECK_OK(cy_bucket_list_make(&list, &spec, units, 4));
    int64_t at = 0;
    for (int i = 0; i < list.count; i++) {
        const int64_t wanted = i == 0 ? first : full, left = 42432 - at;
        assert_int_equal(list.buckets[i].first, at);
        assert_int_equal(list.buckets[i].count, left < wanted ? left : wanted);
        at += list.buckets[i].count;
    }
    assert_int_equal(at, 42432);
    cy_bucket_list_free(&list);
}

static void buckets_cover_the_range_and_divide_evenly(void **state)
{
    (void)state;
    cy_group *group;
    CY_CHECK_OK(cy_group_open_dry(&group, 1, 3, "dp"));
    for (size_t bytes = 1; bytes < (1 << 20); bytes *= 3) {
        expect_buckets(group, 0, bytes);
        for (size_t first = 1; first <= bytes; first *= 5)
            expect_buckets(group, first, bytes);
    }
    cy_group_close(group);
}

// ---- messages and bytes

// Elements of all units, padding included, and what a step of stage 3 gathers.
typedef struct sizes {
    int64_t elements, gathered;
    int units, parameters, gathers;
} sizes;

static sizes sizes_of(const cy_config *config)
{
    cy_storage storage;
    const cy_segment whole = {.layer_count = config->shape.layers, .embedding = true, .head = true};
    cy_group *ranks;
    CY_CHECK_OK(cy_group_open_dry(&ranks, 0, config->distributed.dp_size, "dp"));
    const cy_param_set dense = {.ranks = ranks};
    const cy_model_shard part = {
        .segments = &whole, .segment_count = 1, .tp_size = 1, .sets = &dense, .set_count = 1};
    CY_CHECK_OK(cy_storage_open(&storage, &config->shape, &part, cy_precision_of(CY_F64)));
    sizes s = {.elements = storage.groups[0].count,
        .units = storage.unit_count,
        .parameters = storage.tensor_count};
    // Every unit forward, every layer once more backward.
    s.gathers = s.units + config->shape.layers;
    s.gathered = s.elements;
    for (int i = 0; i < storage.unit_count; i++) {
        const int layer = storage.units[i].layer;
        if (layer >= 0 && layer < config->shape.layers)
            s.gathered += cy_storage_part(&storage, i, 0)->count;
    }
    cy_storage_close(&storage);
    cy_group_close(ranks);
    return s;
}

// One 8-byte sum of the loss is in every step.
static void expect_traffic(const cy_config *config, double messages, double elements)
{
    cy_test_training training;
    cy_test_train(&training, config, 2, "ref");
    const double others = 1.0 - 1.0 / config->distributed.dp_size;
    const double bytes = others * 8.0 * (elements + 2.0);
    const cy_traffic sent = training.gradient;
    if ((double)sent.messages != messages + 1 || fabs(sent.bytes - bytes) > 1e-6 * bytes) {
        fail_msg("zero %d, %lld microbatches: %lld messages, %.0f bytes; expected %.0f, %.0f",
            config->distributed.zero_stage, (long long)config->training.gradient_accumulation_steps,
            (long long)sent.messages, sent.bytes, messages + 1, bytes);
    }
    cy_test_training_close(&training);
}

static void traffic_of_a_step_is_what_the_formulas_say(void **state)
{
    (void)state;
    for (int64_t rounds = 1; rounds <= 4; rounds += 3) {
        cy_config config = config_of(2, 0, rounds, CY_F64);
        const sizes s = sizes_of(&config);
        const double n = (double)s.elements;
        const double bucket = floor(config.distributed.bucket_mb * 0x1p20 / 8 / 128) * 128;
        const double buckets = ceil(n / bucket);
        expect_traffic(&config, buckets, 2 * n); // one all-reduce a bucket, whatever the rounds
        config.distributed.zero_stage = 1;
        expect_traffic(&config, 2 * buckets, 2 * n); // reduce-scatter, all-gather
        config.distributed.zero_stage = 2;
        const double k = (double)rounds;
        expect_traffic(&config, (k + 1) * s.units, (k + 1) * n);
        config.distributed.zero_stage = 3;
        expect_traffic(&config, k * (s.units + s.gathers), k * (n + (double)s.gathered));
    }
}

// One message more than the rest of the gradients has buckets, and one bucket where all of them fit
// into the first.
static void a_small_first_bucket_is_one_message_more(void **state)
{
    (void)state;
    cy_config config = config_of(2, 0, 2, CY_F64);
    const sizes s = sizes_of(&config);
    const double n = (double)s.elements;
    const double bucket = floor(config.distributed.bucket_mb * 0x1p20 / 8 / 128) * 128;
    config.distributed.first_bucket_mb = 0.005;
    const double first = floor(config.distributed.first_bucket_mb * 0x1p20 / 8 / 128) * 128;
    assert_true(0 < first && first < bucket && bucket < n);
    const double buckets = 1 + ceil((n - first) / bucket);
    assert_true(buckets > ceil(n / bucket));
    expect_traffic(&config, buckets, 2 * n);
    config.distributed.zero_stage = 1;
    expect_traffic(&config, 2 * buckets, 2 * n);
    config.distributed.zero_stage = 0;
    config.distributed.first_bucket_mb = 0; // absent: 1 MiB, less than all gradients
    config.distributed.bucket_mb = 25;
    config.shape.vocab = 4096;
    const double more = (double)sizes_of(&config).elements;
    assert_true(more * 8 > 0x1p20 && more * 8 < 25 * 0x1p20);
    expect_traffic(&config, 2, 2 * more);
}

// The size of buckets changes when a rank waits. It changes no sum.
static void buckets_of_any_size_have_the_bits_of_naive(void **state)
{
    (void)state;
    static const struct {
        double first, bucket;
    } cuts[] = {{0, 25}, {0, 0.02}, {0.005, 0.02}, {0.001, 25}, {0.001, 0.001}};
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16};
    for (int d = 0; d < 2; d++) {
        cy_config config = config_of(3, 0, 2, dtypes[d]);
        cy_test_training naive, bucketed;
        config.distributed.dp_reduce = CY_CONFIG_DP_NAIVE;
        cy_test_train(&naive, &config, 4, "ref");
        config.distributed.dp_reduce = CY_CONFIG_DP_BUCKETED;
        for (size_t i = 0; i < CY_TEST_COUNT(cuts); i++) {
            config.distributed.first_bucket_mb = cuts[i].first;
            config.distributed.bucket_mb = cuts[i].bucket;
            cy_test_train(&bucketed, &config, 4, "ref");
            assert_int_equal(bucketed.copies_differ, 0);
            assert_true(bucketed.hash == naive.hash);
            cy_test_training_close(&bucketed);
        }
        assert_int_equal(naive.copies_differ, 0);
        cy_test_training_close(&naive);
    }
}

static void naive_sends_a_message_a_parameter(void **state)
{
    (void)state;
    cy_config config = config_of(2, 0, 2, CY_F64);
    config.distributed.dp_reduce = CY_CONFIG_DP_NAIVE;
    const sizes s = sizes_of(&config);
    cy_manifest manifest;
    CY_CHECK_OK(cy_manifest_open(&manifest, &config.shape, cy_precision_of(config.model.dtype)));
    assert_int_equal(s.parameters, manifest.count);
    expect_traffic(&config, manifest.count, 2.0 * (double)cy_manifest_elements(&manifest));
    cy_manifest_close(&manifest);
}

// ---- memory

// SmolLM-like proportions: Ψ far above the padding, many layers.
static cy_config large_config(int zero, cy_dtype dtype)
{
    cy_config config = config_of(8, zero, 2, dtype);
    config.shape.layers = 24;
    config.shape.hidden = 256;
    config.shape.heads = 8;
    config.shape.kv_heads = 4;
    config.shape.head_dim = 32;
    config.shape.ffn = 768;
    config.shape.vocab = 4096;
    config.distributed.bucket_mb = 4;
    return config;
}

static cy_engine_memory plan_of(const cy_config *config)
{
    static cy_engine engine;
    cy_engine_options options = cy_test_engine_options(config, "auto");
    cy_group *group;
    CY_CHECK_OK(cy_group_open_dry(&group, 3, config->distributed.dp_size, "dp"));
    options.groups.gradient = options.groups.norm = options.groups.world = group;
    options.plan_only = true;
    CY_CHECK_OK(cy_engine_open(&engine, &options));
    const cy_engine_memory memory = engine.memory;
    const cy_traffic once = cy_group_counters(group);
    // A step that is rehearsed again counts as much again.
    const cy_adamw_spec adamw = {.step = 1};
    cy_step_result result;
    engine.queue.dry = true;
    CY_CHECK_OK(cy_engine_train_step(&engine, NULL, &adamw, &result));
    const cy_traffic twice = cy_group_counters(group);
    assert_int_equal(twice.messages, 2 * once.messages);
    assert_true(twice.bytes == 2.0 * once.bytes);
    cy_engine_close(&engine);
    cy_group_close(group);
    return memory;
}

// Bytes a parameter: whole + shared / N.
static void expect_bytes(int zero, cy_dtype dtype, double whole, double shared)
{
    const cy_config config = large_config(zero, dtype);
    const cy_engine_memory memory = plan_of(&config);
    cy_manifest manifest;
    CY_CHECK_OK(cy_manifest_open(&manifest, &config.shape, cy_precision_of(config.model.dtype)));
    const double psi = (double)cy_manifest_elements(&manifest);
    cy_manifest_close(&manifest);
    const double wanted = psi * (whole + shared / config.distributed.dp_size);
    const double found = (double)(memory.weights + memory.gradients + memory.optimizer);
    if (!(fabs(found / wanted - 1.0) <= 0.03)) {
        fail_msg("zero %d %s: %.0f bytes, formula %.0f", zero, cy_dtype_name(dtype), found, wanted);
    }
    // Whole units: the embedding and the head share a room, two layers have theirs, the final norm
    // has one; gradients and weights alike.
    const cy_model_shape *shape = &config.shape;
    const double table = (double)(shape->vocab * shape->hidden);
    const double layer = (psi - 2 * table) / shape->layers;
    const double rooms = table + 2.0 * layer;
    const double grad = zero >= 2 ? 4.0 : 0.0, weight = dtype == CY_F32 ? 4.0 : 2.0;
    const double most = rooms * (grad + (zero == 3 ? weight : 0.0));
    if ((double)memory.units > 1.03 * most + 1) {
        fail_msg("zero %d: %zu bytes of whole units, expected %.0f", zero, memory.units, most);
    }
}

static void memory_is_within_3_percent_of_the_formulas(void **state)
{
    (void)state;
    expect_bytes(0, CY_BF16, 18, 0);
    expect_bytes(1, CY_BF16, 6, 12);
    expect_bytes(2, CY_BF16, 2, 16);
    expect_bytes(3, CY_BF16, 0, 18);
    expect_bytes(0, CY_F32, 16, 0);
    expect_bytes(1, CY_F32, 8, 8);
    expect_bytes(2, CY_F32, 4, 12);
    expect_bytes(3, CY_F32, 0, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_cover_the_range_and_divide_evenly),
        cmocka_unit_test(traffic_of_a_step_is_what_the_formulas_say),
        cmocka_unit_test(a_small_first_bucket_is_one_message_more),
        cmocka_unit_test(buckets_of_any_size_have_the_bits_of_naive),
        cmocka_unit_test(naive_sends_a_message_a_parameter),
        cmocka_unit_test(memory_is_within_3_percent_of_the_formulas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
