// observe/profile.h: where the time of a rank went, from its trace.
//
// A profile adds up the spans that a trace still holds by kind and name: calls, time, operations,
// bytes, and how near each operator came to what the machine allows (Williams et al., "Roofline",
// 2009). It owns its rows and borrows the names, which are static. The trace must not be written
// meanwhile. Building fails only for memory.

#ifndef CY_OBSERVE_PROFILE_H
#define CY_OBSERVE_PROFILE_H

#include "base/output.h"
#include "base/text.h"
#include "base/trace.h"

#include <stdbool.h>

// What the machine can do, measured; 0 where it was not.
typedef struct cy_peaks {
    double flop_s;
    double bytes_s;
} cy_peaks;

typedef struct cy_profile_row {
    const char *name; // borrowed, static
    cy_span_kind kind;
    int64_t calls;
    int64_t time_ns;
    cy_cost cost; // of all calls together
} cy_profile_row;

typedef struct cy_profile {
    cy_profile_row *rows; // owned, [count], the most time first
    int count;
    int64_t wall_ns; // from the first start to the last end
    int64_t dropped; // spans that the ring had overwritten
} cy_profile;

CY_MUST_CHECK cy_status cy_profile_open(cy_profile *profile, const cy_trace *trace);
void cy_profile_close(cy_profile *profile);

// The share of the bounding peak: the least time that operations and bytes allow, over the time
// taken. NaN where no peak is known, the row has no cost or took no time. *memory_bound, unless
// NULL, says which of the two bounds it.
double cy_profile_share(const cy_profile_row *row, cy_peaks peaks, bool *memory_bound);

// A table for people: name, calls, ms, share of wall time, GFLOP/s, GB/s, share of the peak and
// which; unknown figures are `-`. Sections: operators, transfers, waits, schedule.
CY_MUST_CHECK cy_status cy_profile_add_table(
    cy_text *out, const cy_profile *profile, cy_peaks peaks);

// The same as a JSON object.
CY_MUST_CHECK cy_status cy_profile_add_json(
    cy_text *out, const cy_profile *profile, cy_peaks peaks);

// The timelines of ranks 0..count-1 in Chrome's trace format (Perfetto and chrome://tracing read
// it): one process a rank, one row a kind of span, times from the earliest span.
CY_MUST_CHECK cy_status cy_profile_add_timeline(
    cy_text *out, const cy_trace *const *traces, int count);

// How a file with such timelines is recognised.
extern const cy_output_kind cy_timeline_kind;

#endif
