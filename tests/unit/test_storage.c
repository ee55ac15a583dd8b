// Where a rank keeps its parameters: each layer's own.

#include "support/support.h"

#include "model/storage.h"

static cy_model_shape shape_of(int layers)
{
    return (cy_model_shape){.layers = layers,
        .hidden = 16,
        .ffn = 32,
        .heads = 2,
        .kv_heads = 1,
        .head_dim = 8,
        .vocab = 64,
        .norm_eps = 1e-5,
        .init_std = 0.02,
        .rope = {.theta = 1e4},
        .max_positions = 64,
        .architecture = "qwen3",
        .qkv_bias = true,
        .qk_norm = true};
}

static cy_status open_segment(cy_storage *storage, int layers, cy_segment segment)
{
    const cy_model_shape shape = shape_of(layers);
    const cy_model_shard part = {.segments = &segment, .segment_count = 1, .tp_size = 1};
    return cy_storage_open(storage, &shape, &part, CY_BF16, CY_F32);
}

static void a_layer_has_its_parameters(void **state)
{
    (void)state;
    const cy_model_shape shape = shape_of(5);
    cy_manifest manifest;
    CY_CHECK_OK(cy_manifest_open(&manifest, &shape));
    int seen = 0;
    for (int layer = -1; layer <= 5; layer++) {
        int count = 0;
        const cy_param *params = cy_manifest_layer(&manifest, layer, &count);
        assert_ptr_equal(params, manifest.params + seen);
        assert_int_equal(count, layer == -1 ? 1 : layer == 5 ? 2 : 14);
        for (int i = 0; i < count; i++)
            assert_int_equal(params[i].key.layer, layer);
        seen += count;
    }
    assert_int_equal(seen, manifest.count);
    cy_manifest_close(&manifest);
}

static void a_stage_has_the_units_of_its_layers(void **state)
{
    (void)state;
    cy_storage storage;
    CY_CHECK_OK(open_segment(&storage, 6, (cy_segment){.layer_first = 2, .layer_count = 3}));
    assert_int_equal(storage.unit_count, 3);
    for (int layer = -1; layer <= 6; layer++) {
        const int unit = cy_storage_unit(&storage, layer);
        assert_int_equal(unit, 2 <= layer && layer <= 4 ? 4 - layer : -1);
        if (unit < 0) continue;
        assert_int_equal(storage.units[unit].layer, layer);
        const cy_tensor *down = cy_storage_tensor(&storage, unit, CY_ROLE_DOWN);
        assert_non_null(down);
        assert_int_equal(down->param->key.layer, layer);
    }
    cy_storage_close(&storage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_has_its_parameters),
        cmocka_unit_test(a_stage_has_the_units_of_its_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
