// Writes the spans of a rank into a ring.

#include "base/trace.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

cy_status cy_trace_open(cy_trace *trace, int64_t capacity)
{
    CY_ASSERT(capacity > 0 && (capacity & (capacity - 1)) == 0);
    cy_span *spans = NULL;
    CY_TRY(CY_ALLOC(&spans, (size_t)capacity));
    *trace = (cy_trace){.spans = spans, .capacity = capacity};
    return CY_OK;
}

void cy_trace_close(cy_trace *trace)
{
    cy_memory_free(trace->spans);
    *trace = (cy_trace){0};
}

int64_t cy_trace_start(const cy_trace *trace)
{
    return trace != NULL ? cy_clock_ns() : 0;
}

void cy_trace_add(
    cy_trace *trace, const char *name, cy_span_kind kind, int64_t start_ns, cy_cost cost, int tag)
{
    if (trace == NULL) return;
    trace->spans[trace->count & (trace->capacity - 1)] = (cy_span){
        .name = name,
        .start_ns = start_ns,
        .end_ns = cy_clock_ns(),
        .cost = cost,
        .kind = kind,
        .tag = tag,
    };
    trace->count++;
}
