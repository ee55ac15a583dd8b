// observe/profile.h: the work of training a token, and where the time of a rank went.
//
// The floating-point operations a token follow from the shape of the model. N is all parameters, L
// layers, h hidden, s the sequence:
//
//   full     6 N + 12 L h s: attention over the whole s x s square, as PaLM (Chowdhery et al.,
//            2022), nanotron and picotron count. `mfu` divides it by the peak.
//   causal   6 (N - embedding) + 6 L h s: half the attention, which is what a causal mask leaves,
//            and no product for the embedding look-up (a tied table is also the head's
//            matrix, so it stays). `mfu_causal` divides it.
//
// With experts, N counts those that a token goes through: the others do no work for it.
//
// A profile adds up the spans of a trace by kind and name: calls, time, operations, bytes, and how
// near each operator came to what the machine allows (Williams et al., "Roofline", 2009). It owns
// its rows and borrows the names, which are static. Nobody may write the trace meanwhile. Building
// fails only for memory; the other functions are pure and safe from any thread.

#ifndef CY_OBSERVE_PROFILE_H
#define CY_OBSERVE_PROFILE_H

#include "base/output.h"
#include "base/text.h"
#include "base/trace.h"
#include "model/shape.h"

#include <stdbool.h>

// ---- operations a token

// All parameters of a model, all experts included.
int64_t cy_params_all(const cy_model_shape *shape);

// The parameters that one token goes through: all of a dense model.
int64_t cy_params_active(const cy_model_shape *shape);

double cy_flops_per_token(const cy_model_shape *shape, int64_t sequence);
double cy_flops_per_token_causal(const cy_model_shape *shape, int64_t sequence);

// The share of the peak that `tok_s` tokens a second reach; rate and peak are of the same cores.
// NaN where the peak is not known (0).
double cy_flops_utilization(double tok_s, double flops_per_token, double peak_flop_s);

// ---- profiles of traces

// Measured peaks of the machine; 0 where not measured.
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
    int64_t dropped; // spans that newer ones had overwritten
} cy_profile;

CY_MUST_CHECK cy_status cy_profile_open(cy_profile *profile, const cy_trace *trace);
void cy_profile_close(cy_profile *profile);

// The share of the peak that bounds a row: the least time that its operations and bytes allow,
// divided by its time. NaN where no peak is known or the row has no cost or no time. *memory_bound,
// unless NULL, tells whether bytes bound it.
double cy_profile_share(const cy_profile_row *row, cy_peaks peaks, bool *memory_bound);

// Appends a table for people: name, calls, ms, share of wall time, GFLOP/s, GB/s, share of the peak
// and which peak; unknown figures are `-`. Sections: operators, transfers, waits, schedule.
CY_MUST_CHECK cy_status cy_profile_add_table(
    cy_text *out, const cy_profile *profile, cy_peaks peaks);

// Appends the same figures as a JSON object.
CY_MUST_CHECK cy_status cy_profile_add_json(
    cy_text *out, const cy_profile *profile, cy_peaks peaks);

// Appends the timelines of ranks 0..count-1 in Chrome's trace format, which Perfetto and
// chrome://tracing read: a process for each rank, a row for each kind of span, times from the
// earliest span on.
CY_MUST_CHECK cy_status cy_profile_add_timeline(
    cy_text *out, const cy_trace *const *traces, int count);

// Recognises a file with such timelines.
extern const cy_output_kind cy_timeline_kind;

#endif
