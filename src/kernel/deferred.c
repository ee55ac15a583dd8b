// The operators of a device that works later: each packs its arguments by value into a record that
// runs the CPU's operator in the order of the queue. On a dry queue the CPU's operator runs at
// once, so that its scratch memory is counted.

#include "kernel/dispatch.h"

#include "device/device.h"
#include "kernel/arguments.h"

// ---- arguments as the record has them: addresses are those that the launched function reaches

static cy_view view_at(const cy_queue *queue, cy_view view)
{
    view.data = cy_queue_launch_address(queue, view.data);
    view.largest = cy_queue_launch_address(queue, view.largest);
    return view;
}

static cy_attention_spec attention_at(const cy_queue *queue, const cy_attention_spec *given)
{
    cy_attention_spec spec = *given;
    spec.q_positions = cy_queue_launch_address(queue, given->q_positions);
    spec.k_positions = cy_queue_launch_address(queue, given->k_positions);
    return spec; // its spans travel beside it
}

static cy_kv_pages pages_at(const cy_queue *queue, const cy_kv_pages *given)
{
    cy_kv_pages pages = *given;
    pages.keys = view_at(queue, given->keys);
    pages.values = view_at(queue, given->values);
    pages.page_table = cy_queue_launch_address(queue, given->page_table);
    return pages;
}

// The hint is an address that nobody has checked.
static cy_matmul_spec product_at(cy_matmul_spec spec)
{
    spec.next = NULL;
    return spec;
}

static const cy_attention_spec *with_spans(cy_attention_spec *spec, const void *more)
{
    spec->spans = more;
    return spec;
}

// ---- what becomes of each kind of argument

#define FIELD_V(name)       cy_view name;
#define FIELD_P(type, name) const type *name;
#define FIELD_N(type, name) type name;
#define FIELD_M(name)       cy_matmul_spec name;
#define FIELD_A(name)       cy_attention_spec name;
#define FIELD_K(name)       cy_kv_pages name;

#define PACK_V(name)       .name = view_at(queue, name),
#define PACK_P(type, name) .name = cy_queue_launch_address(queue, name),
#define PACK_N(type, name) .name = name,
#define PACK_S(type, name) .name = *name,
#define PACK_M(name)       .name = product_at(name),
#define PACK_A(name)       .name = attention_at(queue, name),
#define PACK_K(name)       .name = pages_at(queue, name),

#define PASS_V(name)       , at.name
#define PASS_N(type, name) , at.name
#define PASS_S(type, name) , &at.name
#define PASS_A(name)       , with_spans(&at.name, more)
#define PASS_K(name)       , &at.name

#define NOTHING_1(name)
#define NOTHING_2(type, name)
#define SPANS_A(name)                                                                              \
    spans = name->spans;                                                                           \
    span_count = name->span_count;

#define FIELDS(list) list(FIELD_V, FIELD_P, FIELD_N, FIELD_N, FIELD_M, FIELD_A, FIELD_K)
#define PACKED(list) list(PACK_V, PACK_P, PACK_N, PACK_S, PACK_M, PACK_A, PACK_K)
#define PASSED(list) list(PASS_V, PASS_N, PASS_N, PASS_S, PASS_V, PASS_A, PASS_K)
#define SPANS(list)  list(NOTHING_1, NOTHING_2, NOTHING_2, NOTHING_2, NOTHING_1, SPANS_A, NOTHING_1)

#define DEFINE_OPERATOR(op)                                                                        \
    typedef struct op##_record {                                                                   \
        FIELDS(CY_ARGUMENTS_##op)                                                                  \
    } op##_record;                                                                                 \
                                                                                                   \
    static void run_##op(cy_queue *inner, const void *arguments, const void *more)                 \
    {                                                                                              \
        op##_record at = *(const op##_record *)arguments;                                          \
        (void)more;                                                                                \
        inner->kernels->op(inner PASSED(CY_ARGUMENTS_##op));                                       \
    }                                                                                              \
                                                                                                   \
    static void later_##op(cy_queue *queue CY_PARAMETERS(CY_ARGUMENTS_##op))                       \
    {                                                                                              \
        if (queue->dry) {                                                                          \
            queue->direct->op(queue CY_NAMES(CY_ARGUMENTS_##op));                                  \
            return;                                                                                \
        }                                                                                          \
        const cy_attention_span *spans = NULL;                                                     \
        int span_count = 0;                                                                        \
        SPANS(CY_ARGUMENTS_##op)                                                                   \
        const op##_record made = {PACKED(CY_ARGUMENTS_##op)};                                      \
        cy_queue_launch(                                                                           \
            queue, run_##op, &made, sizeof(made), spans, (size_t)span_count * sizeof(*spans));     \
    }

CY_OPERATORS(DEFINE_OPERATOR)

#define OPERATOR_SLOT(op) .op = later_##op,

static const cy_kernels deferred = {
    .name = "deferred",
    CY_OPERATORS(OPERATOR_SLOT).adamw_unfused = later_adamw,
};

void cy_kernels_defer(cy_queue *queue)
{
    if (!cy_queue_defers(queue)) return;
    CY_ASSERT(queue->kernels != NULL && queue->direct == NULL);
    queue->direct = queue->kernels;
    queue->kernels = &deferred;
}
