// Which parameters a model has, and where a rank keeps them: by key, by unit and by group.

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
    return cy_storage_open(storage, &shape, &part, cy_precision_of(CY_BF16));
}

static void a_layer_has_its_parameters(void **state)
{
    (void)state;
    const cy_model_shape shape = shape_of(5);
    cy_manifest manifest;
    CY_CHECK_OK(cy_manifest_open(&manifest, &shape, cy_precision_of(CY_BF16)));
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

// Every key finds its entry, entries ascend, and no two have one name.
static void keys_identify_parameters(void **state)
{
    (void)state;
    const cy_model_shape shape = shape_of(3);
    cy_manifest manifest;
    CY_CHECK_OK(cy_manifest_open(&manifest, &shape, cy_precision_of(CY_BF16)));
    for (int i = 0; i < manifest.count; i++) {
        const cy_param *param = &manifest.params[i];
        assert_ptr_equal(cy_manifest_find(&manifest, param->key), param);
        cy_param_key expert = param->key;
        expert.expert = 0;
        assert_null(cy_manifest_find(&manifest, expert));
        assert_true(cy_param_key_compare(param->key, expert) < 0);
        assert_true(cy_param_key_compare(expert, param->key) > 0);
        for (int k = 0; k < i; k++) {
            assert_true(cy_param_key_compare(manifest.params[k].key, param->key) < 0);
            assert_string_not_equal(manifest.params[k].name, param->name);
        }
    }
    assert_null(cy_manifest_find(&manifest, (cy_param_key){CY_ROLE_OUT_BIAS, 1, CY_DENSE}));
    char name[96];
    cy_param_name(name, sizeof(name), (cy_param_key){CY_ROLE_Q_BIAS, 12, CY_DENSE});
    assert_string_equal(name, "model.layers.12.self_attn.q_proj.bias");
    cy_manifest_close(&manifest);
}

// ---- groups

static bool is_down(const cy_param *param)
{
    return param->key.role == CY_ROLE_DOWN;
}

static bool is_of_layer_1(const cy_param *param)
{
    return param->key.layer == 1;
}

// Each tensor lies in one group, of its dtype and its set, and a group's tensors fill a range of
// its own in their order.
static void check_groups(const cy_storage *storage)
{
    int tensors = 0;
    for (int g = 0; g < storage->group_count; g++) {
        const cy_param_group *group = &storage->groups[g];
        int64_t at = 0;
        int number = 0;
        assert_int_equal(group->tensor_first, tensors);
        for (int u = 0; u < storage->unit_count; u++) {
            const cy_unit_part *part = cy_storage_part(storage, u, g);
            assert_int_equal(part->first, at);
            assert_int_equal(part->tensor_first, tensors);
            assert_int_equal(part->number, part->tensor_count > 0 ? number++ : -1);
            int64_t offset = 0;
            for (int t = tensors; t < tensors + part->tensor_count; t++) {
                const cy_tensor *tensor = &storage->tensors[t];
                assert_int_equal(tensor->unit, u);
                assert_int_equal(tensor->group, g);
                assert_int_equal(tensor->param->dtype, group->weight_dtype);
                assert_true(tensor->offset >= offset);
                offset = tensor->offset + tensor->slice.rows * tensor->slice.cols;
                assert_ptr_equal(cy_storage_find(storage, tensor->param->key), tensor);
            }
            assert_true(part->count >= offset);
            at += part->count;
            tensors += part->tensor_count;
        }
        assert_int_equal(group->count, at);
        assert_int_equal(group->unit_count, number);
    }
    assert_int_equal(storage->tensor_count, tensors);
}

static void groups_are_of_sets_and_dtypes(void **state)
{
    (void)state;
    const cy_model_shape shape = shape_of(3);
    const cy_segment whole = {.layer_count = 3, .embedding = true, .head = true};
    cy_group *ranks, *three;
    CY_CHECK_OK(cy_group_open_dry(&ranks, 0, 2, "dp"));
    CY_CHECK_OK(cy_group_open_dry(&three, 0, 3, "dp"));
    const cy_param_set sets[] = {{.ranks = ranks}, {.holds = is_of_layer_1, .ranks = three},
        {.holds = is_down, .ranks = ranks}};
    const cy_model_shard part = {
        .segments = &whole, .segment_count = 1, .tp_size = 1, .sets = sets, .set_count = 3};
    const cy_dtype_rule rules[] = {
        {CY_ROLE_NORM1, 1, CY_F32}, {CY_ROLE_Q_NORM, CY_EVERY_LAYER, CY_F64}};
    const cy_precision precision = {.dtype = CY_BF16, .rules = rules, .rule_count = 2};
    cy_storage storage;
    CY_CHECK_OK(cy_storage_open(&storage, &shape, &part, precision));
    check_groups(&storage);
    // By set, then as the dtypes come: dense, layer 1 from its norm on, down.
    static const int expected_sets[] = {0, 0, 1, 1, 1, 2};
    static const cy_dtype dtypes[] = {CY_BF16, CY_F64, CY_F32, CY_BF16, CY_F64, CY_BF16};
    assert_int_equal(storage.group_count, 6);
    for (int g = 0; g < storage.group_count; g++) {
        assert_int_equal(storage.groups[g].set, expected_sets[g]);
        assert_int_equal(storage.groups[g].weight_dtype, dtypes[g]);
        assert_int_equal(storage.groups[g].grad_dtype, dtypes[g] == CY_F64 ? CY_F64 : CY_F32);
        for (int u = 0; u < storage.unit_count; u++) {
            const int64_t multiple = expected_sets[g] == 1 ? 3 * 64 : 2 * 64;
            assert_int_equal(cy_storage_part(&storage, u, g)->count % multiple, 0);
        }
    }
    // The last set that holds a parameter has it.
    const cy_tensor *down = cy_storage_tensor(&storage, cy_storage_unit(&storage, 1), CY_ROLE_DOWN);
    assert_int_equal(storage.groups[down->group].set, 2);
    cy_storage_close(&storage);
    cy_group_close(three);
    cy_group_close(ranks);
}

static void only_norms_have_other_dtypes(void **state)
{
    (void)state;
    const cy_model_shape shape = shape_of(2);
    cy_manifest manifest;
    cy_dtype_rule rule = {CY_ROLE_GATE, 1, CY_F32};
    const cy_precision precision = {.dtype = CY_BF16, .rules = &rule, .rule_count = 1};
    CY_CHECK_FAILS(cy_manifest_open(&manifest, &shape, precision), CY_ERR_UNSUPPORTED,
        "model.layers.1.mlp.gate_proj.weight in fp32: only norms may differ from bf16");
    rule = (cy_dtype_rule){CY_ROLE_NORM2, CY_EVERY_LAYER, CY_I32};
    CY_CHECK_FAILS(cy_manifest_open(&manifest, &shape, precision), CY_ERR_UNSUPPORTED,
        "model.layers.0.post_attention_layernorm.weight in int32: only norms may differ from bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_has_its_parameters),
        cmocka_unit_test(a_stage_has_the_units_of_its_layers),
        cmocka_unit_test(keys_identify_parameters),
        cmocka_unit_test(groups_are_of_sets_and_dtypes),
        cmocka_unit_test(only_norms_have_other_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
