// base/trace.h: the timed operations of a rank.
//
// A trace is a ring of spans with times, floating-point operations and bytes. The profile, the
// timeline and the roofline read it. Only the rank's own thread writes a trace. With a NULL trace
// every call does nothing.

#ifndef CY_BASE_TRACE_H
#define CY_BASE_TRACE_H

#include "base/status.h"

#include <stdint.h>

// The work that the mathematics of an operation requires, whichever kernel computes it.
typedef struct cy_cost {
    double flops;
    double bytes; // of memory for an operator, of payload for a transfer
} cy_cost;

typedef enum cy_span_kind {
    CY_SPAN_COMPUTE,
    CY_SPAN_COMM,  // from start to completion of a transfer
    CY_SPAN_WAIT,  // the part of a transfer during which the rank did nothing else
    CY_SPAN_STAGE, // an action of the pipeline schedule, which contains spans of the other kinds
} cy_span_kind;

typedef struct cy_span {
    const char *name; // static storage
    int64_t start_ns;
    int64_t end_ns;
    cy_cost cost;
    cy_span_kind kind;
    int tag; // chosen by the writer: a microbatch, a layer
} cy_span;

typedef struct cy_trace {
    cy_span *spans;   // owned, a ring of `capacity`
    int64_t capacity; // a power of two
    int64_t count;    // spans written so far; the last `capacity` are kept
} cy_trace;

CY_MUST_CHECK cy_status cy_trace_open(cy_trace *trace, int64_t capacity);
void cy_trace_close(cy_trace *trace);

// The start time for cy_trace_add; 0 without a trace.
int64_t cy_trace_start(const cy_trace *trace);

// Adds a span that ends now.
void cy_trace_add(
    cy_trace *trace, const char *name, cy_span_kind kind, int64_t start_ns, cy_cost cost, int tag);

#endif
