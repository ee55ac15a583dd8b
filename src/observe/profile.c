// Counts the floating-point operations of a token, and adds up a trace: as a table, as JSON, as a
// timeline in Chrome's trace format.

#include "observe/profile.h"

#include "base/json.h"
#include "base/memory.h"
#include "observe/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- operations a token

// Parameters of one layer, with `experts` of its experts.
static int64_t layer_params(const cy_model_shape *shape, int64_t experts)
{
    const int64_t h = shape->hidden;
    const int64_t q = shape->heads * shape->head_dim;
    const int64_t kv = shape->kv_heads * shape->head_dim;
    int64_t count = h * (q + 2 * kv) + q * h; // q, k, v and out
    if (shape->qkv_bias) count += q + 2 * kv;
    if (shape->out_bias) count += h;
    if (shape->qk_norm) count += 2 * shape->head_dim;
    count += 2 * h; // norms
    if (shape->experts > 0) return count + shape->experts * h + experts * 3 * h * shape->expert_ffn;
    return count + 3 * h * shape->ffn;
}

static int64_t params(const cy_model_shape *shape, int64_t experts)
{
    const int64_t table = shape->vocab * shape->hidden;
    return shape->layers * layer_params(shape, experts) + (shape->tied ? 1 : 2) * table +
        shape->hidden; // the final norm
}

int64_t cy_params_all(const cy_model_shape *shape)
{
    return params(shape, shape->experts);
}

int64_t cy_params_active(const cy_model_shape *shape)
{
    return params(shape, shape->experts_per_token);
}

double cy_flops_per_token(const cy_model_shape *shape, int64_t sequence)
{
    const double attention = 12.0 * shape->layers * (double)shape->hidden * (double)sequence;
    return 6.0 * (double)cy_params_active(shape) + attention;
}

double cy_flops_per_token_causal(const cy_model_shape *shape, int64_t sequence)
{
    const double attention = 6.0 * shape->layers * (double)shape->hidden * (double)sequence;
    const int64_t look_up = shape->tied ? 0 : shape->vocab * shape->hidden;
    return 6.0 * (double)(cy_params_active(shape) - look_up) + attention;
}

double cy_flops_utilization(double tok_s, double flops_per_token, double peak_flop_s)
{
    return peak_flop_s > 0 ? tok_s * flops_per_token / peak_flop_s : (double)NAN;
}

// ---- profiles

static const char *const kind_names[] = {
    [CY_SPAN_COMPUTE] = "operators",
    [CY_SPAN_COMM] = "transfers",
    [CY_SPAN_WAIT] = "waits",
    [CY_SPAN_STAGE] = "schedule",
};

static int64_t first_kept(const cy_trace *trace)
{
    return trace->count > trace->capacity ? trace->count - trace->capacity : 0;
}

static const cy_span *span_at(const cy_trace *trace, int64_t i)
{
    return &trace->spans[i & (trace->capacity - 1)];
}

// ---- adding up

static cy_status row_of(
    cy_profile_row **row, cy_profile *profile, size_t *room, const cy_span *span)
{
    for (int i = 0; i < profile->count; i++) {
        cy_profile_row *known = &profile->rows[i];
        // Equal names may have different addresses.
        if (known->kind == span->kind && strcmp(known->name, span->name) == 0) {
            *row = known;
            return CY_OK;
        }
    }
    void *block = profile->rows;
    CY_TRY(cy_memory_grow(&block, room, (size_t)profile->count + 1, sizeof(cy_profile_row)));
    profile->rows = block;
    *row = &profile->rows[profile->count++];
    **row = (cy_profile_row){.name = span->name, .kind = span->kind};
    return CY_OK;
}

static int by_kind_and_time(const void *a, const void *b)
{
    const cy_profile_row *left = a, *right = b;
    if (left->kind != right->kind) return left->kind < right->kind ? -1 : 1;
    if (left->time_ns != right->time_ns) return left->time_ns > right->time_ns ? -1 : 1;
    return strcmp(left->name, right->name);
}

cy_status cy_profile_open(cy_profile *profile, const cy_trace *trace)
{
    cy_profile made = {.dropped = first_kept(trace)};
    size_t room = 0;
    int64_t earliest = INT64_MAX, latest = INT64_MIN;
    for (int64_t i = first_kept(trace); i < trace->count; i++) {
        const cy_span *span = span_at(trace, i);
        cy_profile_row *row = NULL;
        const cy_status status = row_of(&row, &made, &room, span);
        if (status != CY_OK) {
            cy_memory_free(made.rows);
            return status;
        }
        row->calls++;
        row->time_ns += span->end_ns - span->start_ns;
        row->cost.flops += span->cost.flops;
        row->cost.bytes += span->cost.bytes;
        if (span->start_ns < earliest) earliest = span->start_ns;
        if (span->end_ns > latest) latest = span->end_ns;
    }
    if (made.count > 0) {
        made.wall_ns = latest - earliest;
        qsort(made.rows, (size_t)made.count, sizeof(*made.rows), by_kind_and_time);
    }
    *profile = made;
    return CY_OK;
}

void cy_profile_close(cy_profile *profile)
{
    cy_memory_free(profile->rows);
    *profile = (cy_profile){0};
}

double cy_profile_share(const cy_profile_row *row, cy_peaks peaks, bool *memory_bound)
{
    const double compute_s = peaks.flop_s > 0 ? row->cost.flops / peaks.flop_s : 0;
    const double memory_s = peaks.bytes_s > 0 ? row->cost.bytes / peaks.bytes_s : 0;
    if (memory_bound != NULL) *memory_bound = memory_s > compute_s;
    const double least_s = fmax(compute_s, memory_s);
    // The bytes of a transfer go over a link, which the peak of the memory does not bound.
    if (row->kind != CY_SPAN_COMPUTE || least_s <= 0 || row->time_ns <= 0) return (double)NAN;
    return least_s / ((double)row->time_ns * 1e-9);
}

// ---- the table

static cy_status add_cell(cy_text *out, double value, int digits, const char *unit)
{
    cy_text cell = {0};
    cy_status status;
    if (isfinite(value)) {
        status = cy_number_fixed(&cell, value, digits);
        if (status == CY_OK) status = cy_text_add(&cell, "%s", unit);
    } else {
        status = cy_text_add(&cell, "-");
    }
    if (status == CY_OK) status = cy_text_add(out, " %10s", cell.bytes);
    cy_text_free(&cell);
    return status;
}

// An amount per second, in units of 10^9; NaN where it is not known.
static double giga_per_s(double amount, int64_t time_ns)
{
    return amount > 0 && time_ns > 0 ? amount / (double)time_ns : (double)NAN;
}

static double wall_share(const cy_profile *profile, const cy_profile_row *row)
{
    return profile->wall_ns > 0 ? (double)row->time_ns / (double)profile->wall_ns : (double)NAN;
}

static cy_status add_table_row(
    cy_text *out, const cy_profile *profile, const cy_profile_row *row, cy_peaks peaks)
{
    bool memory_bound = false;
    const double share = cy_profile_share(row, peaks, &memory_bound);
    CY_TRY(cy_text_add(out, "%-22s %8" PRId64, row->name, row->calls));
    CY_TRY(add_cell(out, (double)row->time_ns * 1e-6, 3, ""));
    CY_TRY(add_cell(out, 100 * wall_share(profile, row), 1, "%"));
    CY_TRY(add_cell(out, giga_per_s(row->cost.flops, row->time_ns), 1, ""));
    CY_TRY(add_cell(out, giga_per_s(row->cost.bytes, row->time_ns), 1, ""));
    CY_TRY(add_cell(out, 100 * share, 1, "%"));
    const char *bound = !isfinite(share) ? "" : memory_bound ? " memory" : " compute";
    return cy_text_add(out, "%s\n", bound);
}

cy_status cy_profile_add_table(cy_text *out, const cy_profile *profile, cy_peaks peaks)
{
    CY_TRY(cy_text_add(out, "wall time %.3f ms", (double)profile->wall_ns * 1e-6));
    if (profile->dropped > 0) {
        CY_TRY(cy_text_add(out, "; %" PRId64 " earlier spans were overwritten", profile->dropped));
    }
    CY_TRY(cy_text_add(out, "\n"));
    for (int i = 0; i < profile->count; i++) {
        const cy_profile_row *row = &profile->rows[i];
        if (i == 0 || row->kind != profile->rows[i - 1].kind) {
            CY_TRY(cy_text_add(out, "\n%-22s %8s %10s %10s %10s %10s %10s\n", kind_names[row->kind],
                "calls", "ms", "of wall", "GFLOP/s", "GB/s", "of peak"));
        }
        CY_TRY(add_table_row(out, profile, row, peaks));
    }
    return CY_OK;
}

// ---- JSON

cy_status cy_profile_add_json(cy_text *out, const cy_profile *profile, cy_peaks peaks)
{
    json_t *rows = json_array();
    for (int i = 0; i < profile->count; i++) {
        const cy_profile_row *row = &profile->rows[i];
        cy_json_append(&rows,
            json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "kind", kind_names[row->kind],
                "name", row->name, "calls", (json_int_t)row->calls, "s",
                cy_json_real((double)row->time_ns * 1e-9), "share",
                cy_json_real(wall_share(profile, row)), "gflop_s",
                cy_json_real(giga_per_s(row->cost.flops, row->time_ns)), "gb_s",
                cy_json_real(giga_per_s(row->cost.bytes, row->time_ns)), "share_of_peak",
                cy_json_real(cy_profile_share(row, peaks, NULL))));
    }
    json_t *object = json_pack("{s:I, s:o, s:o}", "dropped", (json_int_t)profile->dropped, "wall_s",
        cy_json_real((double)profile->wall_ns * 1e-9), "rows", rows);
    return cy_json_add(out, object, JSON_COMPACT);
}

// ---- the timeline

static int64_t earliest_of(const cy_trace *const *traces, int count)
{
    int64_t earliest = INT64_MAX;
    for (int rank = 0; rank < count; rank++) {
        for (int64_t i = first_kept(traces[rank]); i < traces[rank]->count; i++) {
            const int64_t start = span_at(traces[rank], i)->start_ns;
            if (start < earliest) earliest = start;
        }
    }
    return earliest;
}

// Events are printed one by one, on lines of their own: a timeline may have millions. Times are in
// microseconds; 15 digits keep the nanoseconds and print no rounding of the binary fraction.
static cy_status add_event(cy_text *out, const char *before, json_t *event)
{
    CY_TRY(cy_text_add(out, "%s\n", before));
    return cy_json_add(out, event, JSON_COMPACT | JSON_REAL_PRECISION(15));
}

static cy_status add_span(cy_text *out, const cy_span *span, int rank, int64_t origin_ns)
{
    json_t *event = json_pack("{s:s, s:s, s:s, s:i, s:i, s:o, s:o, s:{s:i, s:o, s:o}}", "ph", "X",
        "name", span->name, "cat", kind_names[span->kind], "pid", rank, "tid", (int)span->kind,
        "ts", cy_json_real((double)(span->start_ns - origin_ns) * 1e-3), "dur",
        cy_json_real((double)(span->end_ns - span->start_ns) * 1e-3), "args", "tag", span->tag,
        "flops", cy_json_real(span->cost.flops), "bytes", cy_json_real(span->cost.bytes));
    return add_event(out, ",", event);
}

static cy_status add_rank(cy_text *out, const cy_trace *trace, int rank, int64_t origin_ns)
{
    CY_TRY(add_event(out, rank > 0 ? "," : "",
        json_pack("{s:s, s:s, s:i, s:{s:o}}", "ph", "M", "name", "process_name", "pid", rank,
            "args", "name", json_sprintf("rank %d", rank))));
    for (int kind = CY_SPAN_COMPUTE; kind <= CY_SPAN_STAGE; kind++) {
        CY_TRY(add_event(out, ",",
            json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", "thread_name", "pid",
                rank, "tid", kind, "args", "name", kind_names[kind])));
    }
    for (int64_t i = first_kept(trace); i < trace->count; i++)
        CY_TRY(add_span(out, span_at(trace, i), rank, origin_ns));
    return CY_OK;
}

#define TIMELINE_BEGINS "{\"otherData\":{\"program\":\"cyclotron\"}"

const cy_output_kind cy_timeline_kind = {
    .name = "a timeline",
    .marks = {{.begins = TIMELINE_BEGINS, .ends = "\n]}\n"}},
};

cy_status cy_profile_add_timeline(cy_text *out, const cy_trace *const *traces, int count)
{
    const int64_t origin_ns = earliest_of(traces, count);
    CY_TRY(cy_text_add(out, TIMELINE_BEGINS ",\"displayTimeUnit\":\"ms\",\"traceEvents\":["));
    for (int rank = 0; rank < count; rank++) {
        CY_TRY(add_rank(out, traces[rank], rank, origin_ns));
    }
    return cy_text_add(out, "\n]}\n");
}
