// Generation against the training forward pass: the same logits, token by token the same text, and
// a cache of exactly the bytes that keys and values need.

#include "infer/decoder.h"
#include "kernel/ref/ref.h"
#include "support/engines.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH 300

static cy_engine engine;
static cy_decoder decoder;

// An engine over one sequence of LENGTH tokens and a decoder with the same weights.
static void open_both(cy_dtype dtype, int64_t chunk)
{
    static cy_config config;
    cy_test_config(&config, dtype);
    config.training.seq_length = LENGTH;
    config.training.micro_batch_size = 1;
    const cy_engine_options options = cy_test_engine_options(&config, "auto");
    CY_CHECK_OK(cy_engine_open(&engine, &options));
    CY_CHECK_OK(cy_engine_initialize(&engine));
    const cy_decoder_options decoding = {
        .shape = config.shape,
        .dtype = dtype,
        .capacity = LENGTH,
        .chunk = chunk,
        .threads = 1,
        .first_core = -1,
        .isa = "auto",
    };
    CY_CHECK_OK(cy_decoder_open(&decoder, &decoding));
    for (int t = 0; t < engine.storage.tensor_count; t++) {
        const cy_tensor *from = &engine.storage.tensors[t];
        const cy_view weight = cy_tensor_weight(&engine.storage, from, 0);
        const cy_view to = cy_tensor_weight(
            &decoder.storage, cy_storage_find(&decoder.storage, from->param->key), 0);
        memcpy(to.data, weight.data, cy_view_bytes(weight));
    }
}

static void close_both(void)
{
    cy_decoder_close(&decoder);
    cy_engine_close(&engine);
}

// logits [vocab] of the training forward at a position.
static void logits_without_cache(float *logits, const int32_t *tokens, int64_t position)
{
    const int64_t vocab = engine.options.config->shape.vocab;
    memcpy(engine.inputs, tokens, LENGTH * sizeof(int32_t));
    CY_CHECK_OK(cy_test_logits(&engine, cy_view_of(logits, CY_F32, 1, vocab), position));
}

static int32_t largest(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < 61; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static double worst_difference(const float *a, const float *b)
{
    double worst = 0;
    for (int i = 0; i < 61; i++) {
        const double difference = fabs((double)a[i] - (double)b[i]) / fmax(1.0, fabs((double)a[i]));
        cy_test_worse(&worst, difference);
    }
    return worst;
}

static void prefill_and_decode_give_the_training_logits(void **state)
{
    (void)state;
    static const int64_t chunks[] = {LENGTH, 64, 7, 1};
    for (int c = 0; c < 4; c++) {
        open_both(CY_F32, chunks[c]);
        int32_t tokens[LENGTH];
        for (int i = 0; i < LENGTH; i++)
            tokens[i] = (i * 7919 + 13) % 61;
        float expected[61], got[61];
        CY_CHECK_OK(cy_decoder_read(&decoder, got, tokens, LENGTH - 40));
        logits_without_cache(expected, tokens, LENGTH - 41);
        assert_true(worst_difference(expected, got) < 1e-5);
        for (int i = LENGTH - 40; i < LENGTH; i++) {
            CY_CHECK_OK(cy_decoder_read(&decoder, got, tokens + i, 1));
        }
        logits_without_cache(expected, tokens, LENGTH - 1);
        assert_true(worst_difference(expected, got) < 1e-5);
        close_both();
    }
}

// A decoder with made-up weights, on a device.
static void open_on(cy_dtype dtype, const char *device)
{
    const cy_decoder_options options = {
        .shape = {.layers = 2,
            .hidden = 32,
            .ffn = 48,
            .heads = 2,
            .kv_heads = 1,
            .head_dim = 16,
            .vocab = 61,
            .max_positions = 128,
            .norm_eps = 1e-5,
            .rope = {.theta = 1e4},
            .qkv_bias = true,
            .tied = true},
        .dtype = dtype,
        .capacity = 100,
        .chunk = 16,
        .threads = 2,
        .first_core = -1,
        .isa = "auto",
        .device = device,
    };
    CY_CHECK_OK(cy_decoder_open(&decoder, &options));
    const size_t bytes = cy_view_bytes(decoder.weights);
    void *weights = malloc(bytes);
    cy_view host = cy_view_of(weights, dtype, 1, decoder.weights.cols);
    cy_queue queue = {0};
    for (int64_t i = 0; i < host.cols; i++)
        cy_ref_store(&queue, host, 0, i, (double)((i * 7919 + 13) % 101 - 50) / 50);
    cy_queue_upload(&decoder.queue, decoder.weights.data, weights, bytes);
    CY_CHECK_OK(cy_queue_synchronize(&decoder.queue));
    free(weights);
}

// The rows of a prompt's chunks are written while the device still works, and a single token goes
// operator by operator there.
static void a_device_that_works_later_gives_the_same_logits(void **state)
{
    (void)state;
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16, CY_F64};
    static const char *const devices[] = {NULL, "test"};
    int32_t tokens[90];
    float logits[2][12][61];
    for (int i = 0; i < 90; i++)
        tokens[i] = (i * 31 + 7) % 61;
    for (int d = 0; d < 3; d++) {
        for (int place = 0; place < 2; place++) {
            open_on(dtypes[d], devices[place]);
            for (int i = 0; i < 12; i++) {
                float now[61]; // what is there when the call returns
                const int32_t *next = i == 0 ? tokens : tokens + 78 + i;
                CY_CHECK_OK(cy_decoder_read(&decoder, now, next, i == 0 ? 79 : 1));
                memcpy(logits[place][i], now, sizeof(now));
            }
            cy_decoder_close(&decoder);
        }
        assert_true(logits[0][11][0] != logits[0][11][1]);
        assert_memory_equal(logits[0], logits[1], sizeof(logits[0]));
    }
}

// A layer of the widths of SmolLM-135M: with three workers products of fewer rows than the longest
// piece has are cut into tiles that take more scratch.
static void prompts_of_every_length_have_room(void **state)
{
    (void)state;
    static const int64_t lengths[] = {512, 511, 500, 491, 431, 127, 100, 83, 64, 5, 2, 1, 511};
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16, CY_F16};
    static int32_t tokens[512];
    float logits[61];
    for (int d = 0; d < 3; d++) {
        const cy_decoder_options options = {
            .shape = {.layers = 1,
                .hidden = 576,
                .ffn = 1536,
                .heads = 9,
                .kv_heads = 3,
                .head_dim = 64,
                .vocab = 61,
                .max_positions = 512,
                .norm_eps = 1e-5,
                .rope = {.theta = 1e4},
                .tied = true},
            .dtype = dtypes[d],
            .capacity = 512,
            .threads = 3,
            .first_core = -1,
            .isa = "auto",
        };
        CY_CHECK_OK(cy_decoder_open(&decoder, &options));
        memset(decoder.weights.data, 0, cy_view_bytes(decoder.weights));
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            CY_CHECK_OK(cy_decoder_read(&decoder, logits, tokens, lengths[i]));
            assert_true(logits[0] == 0 && logits[60] == 0);
            cy_decoder_rewind(&decoder, 0);
        }
        cy_decoder_close(&decoder);
    }
}

// logits [61] behind 40 tokens of a model whose positions are scaled beyond 32 of them. more < 0:
// the decoder is not told how far the text goes.
static void scaled_logits(float *logits, int64_t capacity, int64_t more)
{
    static const int32_t tokens[40] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};
    const cy_decoder_options options = {
        .shape = {.layers = 1,
            .hidden = 32,
            .ffn = 48,
            .heads = 2,
            .kv_heads = 1,
            .head_dim = 16,
            .vocab = 61,
            .max_positions = 32,
            .norm_eps = 1e-5,
            .rope = {.theta = 1e4, .scaling = CY_ROPE_DYNAMIC, .factor = 2, .original_length = 32},
            .tied = true},
        .dtype = CY_F32,
        .capacity = capacity,
        .threads = 1,
        .first_core = -1,
        .isa = "auto",
    };
    CY_CHECK_OK(cy_decoder_open(&decoder, &options));
    float *weights = decoder.weights.data;
    for (int64_t i = 0; i < decoder.weights.cols; i++)
        weights[i] = (float)((i * 7919 + 13) % 101 - 50) / 50;
    if (more >= 0) CY_CHECK_OK(cy_decoder_set_reach(&decoder, 40, more));
    CY_CHECK_OK(cy_decoder_read(&decoder, logits, tokens, 40));
    cy_decoder_close(&decoder);
}

// Room that a text does not take changes nothing.
static void dynamic_positions_follow_the_text(void **state)
{
    (void)state;
    float exact[61], roomy[61], other[61];
    scaled_logits(exact, 45, -1);
    scaled_logits(roomy, 300, 5);
    scaled_logits(other, 300, -1);
    assert_memory_equal(exact, roomy, sizeof(exact));
    assert_true(worst_difference(exact, other) > 1e-3);
    scaled_logits(roomy, 300, INT64_MAX);
    assert_memory_equal(other, roomy, sizeof(other));
}

// The model of the configuration in four variants.
static void vary(cy_model_shape *shape, int family)
{
    shape->qkv_bias = family == 1;
    shape->qk_norm = family == 2;
    shape->window = family == 2 ? 5 : 0;
    shape->tied = family != 3;
}

static void compare_passes(const char *name, int family, cy_dtype dtype, int threads)
{
    static cy_config config;
    static cy_decoder alone, pieces;
    cy_test_config(&config, dtype);
    vary(&config.shape, family);
    const cy_decoder_options options = {
        .shape = config.shape,
        .dtype = dtype,
        .capacity = 300,
        .threads = threads,
        .first_core = -1,
        .isa = "auto",
    };
    CY_CHECK_OK(cy_decoder_open(&alone, &options));
    CY_CHECK_OK(cy_decoder_open(&pieces, &options));
    cy_random_fill(&alone.queue, alone.weights, 7, 0, alone.weights.cols, 0.2);
    memcpy(pieces.weights.data, alone.weights.data, cy_view_bytes(alone.weights));
    pieces.one_by_one = true;
    for (int32_t i = 0; i < 300; i++) {
        float got[61], expected[61];
        int32_t token[50];
        for (int32_t j = 0; j < 50; j++)
            token[j] = ((i + j) * 7919 + 13) % 61;
        // Alone across pages and the parts of attention, which change at 128 and 256.
        const bool crossing = i < 70 || (i >= 120 && i < 135) || (i >= 250 && i < 262);
        const int64_t count = crossing ? 1 : i < 120 ? 50 : i < 250 ? 23 : 38;
        CY_CHECK_OK(cy_decoder_read(&alone, got, token, count));
        CY_CHECK_OK(cy_decoder_read(&pieces, expected, token, count));
        i += (int32_t)count - 1;
        if (memcmp(got, expected, sizeof(got)) != 0) {
            fail_msg(
                "%s, %s, %d threads: token %d differs", name, cy_dtype_name(dtype), threads, i);
        }
    }
    cy_decoder_close(&alone);
    cy_decoder_close(&pieces);
}

// A token alone goes through a pass of its own, on one thread or several, with fewer kv heads than
// threads too: the same bits as operator by operator, which is how a piece of a prompt goes.
static void a_token_alone_gives_the_bits_of_the_operators(void **state)
{
    (void)state;
    static const char *const families[] = {"plain", "qkv bias", "qk norm, window", "untied"};
    static const cy_dtype dtypes[] = {CY_F32, CY_BF16, CY_F64};
    const int step = CY_TEST_SANITIZED ? 2 : 1;
    for (int family = 0; family < 4; family++) {
        for (int d = 0; d < 3; d++) {
            for (int threads = 1; threads <= 4; threads += step)
                compare_passes(families[family], family, dtypes[d], threads);
        }
    }
}

static void greedy_text_is_the_same_with_and_without_cache(void **state)
{
    (void)state;
    open_both(CY_F32, 0);
    int32_t tokens[LENGTH] = {5, 17, 3, 44};
    int32_t cached[LENGTH] = {5, 17, 3, 44};
    float logits[61];
    CY_CHECK_OK(cy_decoder_read(&decoder, logits, cached, 4));
    for (int i = 4; i < 260; i++) {
        cached[i] = largest(logits);
        CY_CHECK_OK(cy_decoder_read(&decoder, logits, cached + i, 1));
    }
    for (int i = 4; i < 260; i++) {
        logits_without_cache(logits, tokens, i - 1);
        tokens[i] = largest(logits);
        assert_int_equal(tokens[i], cached[i]);
    }
    close_both();
}

static void the_cache_holds_keys_and_values_only(void **state)
{
    (void)state;
    open_both(CY_BF16, 0);
    const size_t positions = ((size_t)LENGTH + 63) / 64 * 64;
    assert_int_equal(cy_decoder_cache_bytes(&decoder), positions * 2 * 2 * 16 * 2);
    int32_t tokens[LENGTH] = {0};
    float logits[61];
    CY_CHECK_OK(cy_decoder_read(&decoder, logits, tokens, LENGTH));
    CY_CHECK_FAILS(cy_decoder_read(&decoder, logits, tokens, 1), CY_ERR_REQUEST,
        "context of 300 has room for 0");
    cy_decoder_rewind(&decoder, 10);
    CY_CHECK_OK(cy_decoder_read(&decoder, logits, tokens, 1));
    close_both();
}

// A decoder of its own with the weights of `like`, or with random ones.
static void open_alone(cy_decoder *opened, int64_t capacity, const cy_decoder *like)
{
    static cy_config config;
    cy_test_config(&config, CY_BF16);
    const cy_decoder_options options = {
        .shape = config.shape,
        .dtype = CY_BF16,
        .capacity = capacity,
        .threads = 1,
        .first_core = -1,
        .isa = "auto",
    };
    CY_CHECK_OK(cy_decoder_open(opened, &options));
    if (like == NULL) {
        cy_random_fill(&opened->queue, opened->weights, 7, 0, opened->weights.cols, 0.2);
    } else {
        memcpy(opened->weights.data, like->weights.data, cy_view_bytes(like->weights));
    }
}

// Around the ends of pages: as many tokens as asked for and not one more, with the bits of a cache
// that has room to spare.
static void every_capacity_is_held(void **state)
{
    (void)state;
    static const int64_t capacities[] = {1, 2, 63, 64, 65, 127, 128, 129, 192, 193};
    static cy_decoder large, exact;
    static int32_t tokens[LENGTH];
    open_alone(&large, LENGTH, NULL);
    for (int32_t i = 0; i < LENGTH; i++)
        tokens[i] = (i * 7919 + 13) % 61;
    for (size_t c = 0; c < sizeof(capacities) / sizeof(*capacities); c++) {
        const int64_t capacity = capacities[c];
        float wanted[61], got[61];
        open_alone(&exact, capacity, &large);
        const size_t positions = ((size_t)capacity + 63) / 64 * 64;
        assert_int_equal(cy_decoder_cache_bytes(&exact), positions * 2 * 2 * 16 * 2);
        cy_decoder_rewind(&large, 0);
        // Alone at the start and at the end, a piece between them.
        for (int64_t i = 0, count; i < capacity; i += count) {
            count = i == 0 || capacity - i < 4 ? 1 : capacity - i - 3;
            CY_CHECK_OK(cy_decoder_read(&large, wanted, tokens + i, count));
            CY_CHECK_OK(cy_decoder_read(&exact, got, tokens + i, count));
            assert_memory_equal(got, wanted, sizeof(got));
        }
        CY_CHECK_FAILS(cy_decoder_read(&exact, got, tokens, 1), CY_ERR_REQUEST, "has room for 0");
        cy_decoder_close(&exact);
    }
    cy_decoder_close(&large);
}

static void dtypes_that_a_model_may_have(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        cy_dtype dtype;
    } taken[] = {{"bf16", CY_BF16}, {"bfloat16", CY_BF16}, {"fp16", CY_F16}, {"half", CY_F16},
        {"fp32", CY_F32}, {"float32", CY_F32}, {"fp64", CY_F64}, {"double", CY_F64}};
    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++) {
        cy_dtype dtype = CY_U8;
        CY_CHECK_OK(cy_model_dtype(&dtype, taken[i].name));
        assert_int_equal(dtype, taken[i].dtype);
    }
    static const char *const refused[] = {"int32", "int64", "uint8", "fixed64", "fp8", ""};
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        cy_dtype dtype = CY_F64;
        char wanted[100];
        snprintf(
            wanted, sizeof(wanted), "dtype %s: bf16, fp16, fp32 and fp64 are known", refused[i]);
        assert_int_equal(cy_model_dtype(&dtype, refused[i]), CY_ERR_REQUEST);
        assert_string_equal(cy_error_text(), wanted);
        assert_int_equal(dtype, CY_F64);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_and_decode_give_the_training_logits),
        cmocka_unit_test(dynamic_positions_follow_the_text),
        cmocka_unit_test(a_device_that_works_later_gives_the_same_logits),
        cmocka_unit_test(prompts_of_every_length_have_room),
        cmocka_unit_test(a_token_alone_gives_the_bits_of_the_operators),
        cmocka_unit_test(greedy_text_is_the_same_with_and_without_cache),
        cmocka_unit_test(the_cache_holds_keys_and_values_only),
        cmocka_unit_test(every_capacity_is_held),
        cmocka_unit_test(dtypes_that_a_model_may_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
