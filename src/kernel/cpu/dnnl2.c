#include "kernel/cpu/dnnl_product.h"

#if DNNL_VERSION_MAJOR == 2

#include <string.h>

static dnnl_data_type_t data_type(int32_t dtype)
{
    return dtype == CY_BF16 ? dnnl_bf16 : dtype == CY_F16 ? dnnl_f16 : dnnl_f32;
}

// The setting can be made once and before its first use, and the question for what is in effect is
// a use: whichever thread of the process comes first decides, and all see the same answer. The
// values are sets of bits, each set with those of the instructions that it builds on.
bool cy_dnnl_hold(cy_dnnl_limit limit)
{
    static const dnnl_cpu_isa_t most[] = {
        [CY_DNNL_AVX512] = dnnl_cpu_isa_avx512_core,
        [CY_DNNL_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
        [CY_DNNL_AMX] = dnnl_cpu_isa_avx512_core_amx,
    };
    if (limit == CY_DNNL_ANY) return true;
    dnnl_set_max_cpu_isa(most[limit]); // its answer is what follows
    const unsigned used = (unsigned)dnnl_get_effective_cpu_isa();
    return used != (unsigned)dnnl_cpu_isa_all && (used & ~(unsigned)most[limit]) == 0;
}

const char *cy_dnnl_isa(void)
{
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } known[] = {
        {dnnl_cpu_isa_all, "all"},
        {dnnl_cpu_isa_sse41, "sse41"},
        {dnnl_cpu_isa_avx, "avx"},
        {dnnl_cpu_isa_avx2, "avx2"},
        {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
        {dnnl_cpu_isa_avx512_core, "avx512_core"},
        {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
        {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
        {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
    };
    const dnnl_cpu_isa_t used = dnnl_get_effective_cpu_isa();
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (known[i].isa == used) return known[i].name;
    }
    return "another set of instructions";
}

// Whether this version of the library found the call well formed and had memory for it.
static cy_status check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success) return CY_OK;
    return CY_FAIL(status == dnnl_out_of_memory ? CY_ERR_MEMORY : CY_ERR_UNSUPPORTED,
        "oneDNN refused to make %s: status %d", what, (int)status);
}

static cy_status make_attributes(dnnl_primitive_attr_t *attributes, bool accumulate)
{
    CY_TRY(check(dnnl_primitive_attr_create(attributes), "attributes"));
    cy_status status =
        check(dnnl_primitive_attr_set_scratchpad_mode(*attributes, dnnl_scratchpad_mode_user),
            "attributes");
    if (status == CY_OK && accumulate) {
        dnnl_post_ops_t sum = NULL;
        status = check(dnnl_post_ops_create(&sum), "a post operation");
        if (status == CY_OK) status = check(dnnl_post_ops_append_sum(sum, 1.0f), "a sum");
        if (status == CY_OK)
            status = check(dnnl_primitive_attr_set_post_ops(*attributes, sum), "a sum");
        if (sum != NULL) dnnl_post_ops_destroy(sum);
    }
    if (status != CY_OK) dnnl_primitive_attr_destroy(*attributes);
    return status;
}

static cy_status make_descriptor(dnnl_primitive_desc_t *descriptor, dnnl_memory_desc_t operands[3],
    dnnl_engine_t engine, const cy_dnnl_key *key)
{
    const dnnl_dims_t dims[3] = {
        {key->rows, key->depth}, {key->depth, key->cols}, {key->rows, key->cols}};
    const dnnl_dims_t strides[3] = {
        {key->a_row, key->a_col}, {key->b_row, key->b_col}, {key->c_row, 1}};
    for (int i = 0; i < 3; i++) {
        const dnnl_data_type_t type = data_type(i == CY_DNNL_C ? key->c_dtype : key->dtype);
        CY_TRY(check(dnnl_memory_desc_init_by_strides(&operands[i], 2, dims[i], type, strides[i]),
            "an operand"));
    }
    dnnl_matmul_desc_t product;
    CY_TRY(check(dnnl_matmul_desc_init(&product, &operands[CY_DNNL_A], &operands[CY_DNNL_B], NULL,
                     &operands[CY_DNNL_C]),
        "a product"));
    dnnl_primitive_attr_t attributes = NULL;
    CY_TRY(make_attributes(&attributes, key->accumulate != 0));
    const cy_status status = check(
        dnnl_primitive_desc_create(descriptor, &product, attributes, engine, NULL), "a product");
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

static cy_status make_memories(
    dnnl_memory_t *memories, const dnnl_memory_desc_t *operands, dnnl_engine_t engine, int count)
{
    for (int i = 0; i < count; i++) {
        const cy_status status =
            check(dnnl_memory_create(
                      &memories[i], &operands[i % CY_DNNL_OPERANDS], engine, DNNL_MEMORY_NONE),
                "a handle");
        if (status != CY_OK) {
            while (i-- > 0)
                dnnl_memory_destroy(memories[i]);
            return status;
        }
    }
    return CY_OK;
}

// The library's own reference computes element by element: our kernels are faster.
static cy_status refuse_reference(const_dnnl_primitive_desc_t descriptor)
{
    const char *name = "";
    CY_TRY(check(dnnl_primitive_desc_query(descriptor, dnnl_query_impl_info_str, 0, &name),
        "the name of an implementation"));
    if (strstr(name, "ref") == NULL) return CY_OK;
    return CY_FAIL(CY_ERR_UNSUPPORTED, "oneDNN has only \"%s\" for a product", name);
}

cy_status cy_dnnl_make(dnnl_primitive_t *primitive, dnnl_memory_t *memories, size_t *scratch_bytes,
    dnnl_engine_t engine, const cy_dnnl_key *key, int workers)
{
    dnnl_memory_desc_t operands[CY_DNNL_OPERANDS];
    dnnl_primitive_desc_t descriptor = NULL;
    CY_TRY(make_descriptor(&descriptor, operands, engine, key));
    operands[CY_DNNL_SCRATCH] =
        *dnnl_primitive_desc_query_md(descriptor, dnnl_query_scratchpad_md, 0);
    const size_t bytes = dnnl_memory_desc_get_size(&operands[CY_DNNL_SCRATCH]);

    dnnl_primitive_t made = NULL;
    cy_status status = refuse_reference(descriptor);
    if (status == CY_OK) status = check(dnnl_primitive_create(&made, descriptor), "a primitive");
    dnnl_primitive_desc_destroy(descriptor);
    CY_TRY(status);
    status = make_memories(memories, operands, engine, workers * CY_DNNL_OPERANDS);
    if (status != CY_OK) {
        dnnl_primitive_destroy(made);
        return status;
    }
    *primitive = made;
    *scratch_bytes = bytes;
    return CY_OK;
}

#endif
