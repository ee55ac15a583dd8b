// Simulates a schedule in time, and draws a timeline as a table of ticks or as an SVG picture.

#include "parallel/pipeline/timeline.h"

#include "base/memory.h"
#include "base/output.h"
#include "base/status.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

// ---- simulation

#define NOTHING SIZE_MAX

typedef struct state {
    const cy_schedule *schedule;   // borrowed
    const cy_durations *durations; // borrowed
    cy_timeline *timeline;         // borrowed
    // When the activation of a microbatch enters a segment, and its gradient; NAN before that.
    double *activation; // owned, [segments, microbatches]
    double *gradient;   // owned, [segments, microbatches]
    // The item that brought each, for the critical path.
    size_t *activation_by; // owned, [segments, microbatches]
    size_t *gradient_by;   // owned, [segments, microbatches]
    double *link;          // owned, [segments, 2]: when a boundary's link is free, by direction
    double *clock;         // owned, [stages]
    size_t *next;          // owned, [stages]
    size_t *first;         // owned, [stages]: of a rank's items
    size_t *before;        // owned, [count]: the item that an item waited for, or NOTHING
} state;

static int64_t cell(const state *s, int segment, int microbatch)
{
    return (int64_t)segment * s->schedule->microbatches + microbatch;
}

static double duration(const state *s, int segment, cy_action_kind kind)
{
    const cy_durations *d = s->durations;
    const double scale = d->scale != NULL ? d->scale[segment] : 1.0;
    switch (kind) {
    case CY_ACTION_FORWARD:
        return d->forward * scale;
    case CY_ACTION_BACKWARD:
        return (d->backward_input + d->backward_weight) * scale;
    case CY_ACTION_BACKWARD_INPUT:
        return d->backward_input * scale;
    case CY_ACTION_BACKWARD_WEIGHT:
        return d->backward_weight * scale;
    case CY_ACTION_SEND_ACTIVATION:
    case CY_ACTION_RECV_ACTIVATION:
    case CY_ACTION_SEND_GRADIENT:
    case CY_ACTION_RECV_GRADIENT:
    case CY_ACTION_KINDS:
        break;
    }
    return 0.0;
}

static void deliver(state *s, int segment, int microbatch, bool gradient, double when, size_t by)
{
    const int64_t at = cell(s, segment, microbatch);
    (gradient ? s->gradient : s->activation)[at] = when;
    (gradient ? s->gradient_by : s->activation_by)[at] = by;
}

// Delivers the result of an action to the neighbour segment: at once on the same rank, otherwise
// when it is sent. The item that made it is the compute action before the send.
static void hand_on(state *s, int rank, cy_action action, size_t item)
{
    const bool send = cy_action_is_transfer(action.kind);
    const bool gradient =
        action.kind != CY_ACTION_FORWARD && action.kind != CY_ACTION_SEND_ACTIVATION;
    const int segment = cy_schedule_segment(s->schedule, rank, action.chunk);
    const int to = gradient ? segment - 1 : segment + 1;
    if (to < 0 || to == cy_schedule_segments(s->schedule)) return;
    const bool same_rank = cy_schedule_segment_rank(s->schedule, to) == rank;
    if (same_rank == send) return;
    double when = s->clock[rank];
    if (send) {
        double *link = &s->link[2 * (gradient ? to : segment) + (gradient ? 1 : 0)];
        *link = (*link > when ? *link : when) + s->durations->message;
        when = *link + s->durations->latency;
        while (
            item > s->first[rank] && !cy_action_is_compute(s->timeline->items[item].action.kind)) {
            item--;
        }
    }
    deliver(s, to, action.microbatch, gradient, when, item);
}

// When the data that a compute action needs are there, and which item brought them.
static double needed_at(const state *s, int rank, cy_action action, size_t *by)
{
    const int segment = cy_schedule_segment(s->schedule, rank, action.chunk);
    const int64_t at = cell(s, segment, action.microbatch);
    *by = NOTHING;
    if (action.kind == CY_ACTION_FORWARD && segment > 0) {
        *by = s->activation_by[at];
        return s->activation[at];
    }
    const bool last = segment == cy_schedule_segments(s->schedule) - 1;
    const bool backward =
        action.kind == CY_ACTION_BACKWARD || action.kind == CY_ACTION_BACKWARD_INPUT;
    if (backward && !last) {
        *by = s->gradient_by[at];
        return s->gradient[at];
    }
    return 0.0;
}

static bool advance(state *s, int rank)
{
    const cy_action_list *list = &s->schedule->ranks[rank];
    const size_t start = s->next[rank];
    for (; s->next[rank] < list->count; s->next[rank]++) {
        const cy_action action = list->actions[s->next[rank]];
        const size_t item = s->first[rank] + s->next[rank];
        cy_timed_action *timed = &s->timeline->items[item];
        *timed = (cy_timed_action){.action = action, .rank = rank, .start = s->clock[rank]};
        s->before[item] = s->next[rank] > 0 ? item - 1 : NOTHING;
        if (cy_action_is_compute(action.kind)) {
            size_t by;
            const double ready = needed_at(s, rank, action, &by);
            if (isnan(ready)) break;
            if (ready > timed->start) {
                timed->start = ready;
                s->before[item] = by;
            }
            const int segment = cy_schedule_segment(s->schedule, rank, action.chunk);
            s->clock[rank] = timed->start + duration(s, segment, action.kind);
        }
        timed->end = s->clock[rank];
        const bool makes = action.kind == CY_ACTION_FORWARD || action.kind == CY_ACTION_BACKWARD ||
            action.kind == CY_ACTION_BACKWARD_INPUT || action.kind == CY_ACTION_SEND_ACTIVATION ||
            action.kind == CY_ACTION_SEND_GRADIENT;
        if (makes) hand_on(s, rank, action, item);
    }
    return s->next[rank] > start;
}

static void mark_critical_path(state *s)
{
    size_t at = NOTHING;
    for (size_t i = 0; i < s->timeline->count; i++) {
        if (at == NOTHING || s->timeline->items[i].end > s->timeline->items[at].end) at = i;
    }
    for (; at != NOTHING; at = s->before[at])
        s->timeline->items[at].critical = true;
}

static void run(state *s)
{
    const int64_t cells = (int64_t)cy_schedule_segments(s->schedule) * s->schedule->microbatches;
    for (int64_t i = 0; i < cells; i++)
        s->activation[i] = s->gradient[i] = (double)NAN;
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < s->schedule->stages; rank++)
            moved = advance(s, rank) || moved;
    }
    for (int rank = 0; rank < s->schedule->stages; rank++) {
        CY_ASSERT(s->next[rank] == s->schedule->ranks[rank].count);
    }
    mark_critical_path(s);
}

void cy_timeline_add_up(cy_timeline *timeline)
{
    timeline->end = timeline->span = timeline->busy = 0.0;
    double first = 0.0; // of this rank
    int rank = -1;
    for (size_t i = 0; i < timeline->count; i++) {
        const cy_timed_action *item = &timeline->items[i];
        if (!cy_action_is_compute(item->action.kind)) continue;
        if (item->rank != rank) first = item->start;
        rank = item->rank;
        timeline->busy += item->end - item->start;
        if (item->end - first > timeline->span) timeline->span = item->end - first;
        if (item->end > timeline->end) timeline->end = item->end;
    }
    const double busy = timeline->busy / timeline->stages;
    timeline->bubble = timeline->span > 0.0 ? (timeline->span - busy) / timeline->span : 0.0;
    timeline->bubble_alone = timeline->end > 0.0 ? (timeline->end - busy) / timeline->end : 0.0;
}

cy_status cy_schedule_simulate(
    cy_timeline *timeline, const cy_schedule *schedule, const cy_durations *durations)
{
    const size_t stages = (size_t)schedule->stages;
    const size_t segments = (size_t)cy_schedule_segments(schedule);
    const size_t cells = segments * (size_t)schedule->microbatches;
    size_t count = 0;
    for (size_t rank = 0; rank < stages; rank++)
        count += schedule->ranks[rank].count;
    enum {
        ITEMS,
        ACTIVATION,
        GRADIENT,
        ACTIVATION_BY,
        GRADIENT_BY,
        LINK,
        CLOCK,
        NEXT,
        FIRST,
        BEFORE,
        BLOCKS
    };
    const size_t counts[BLOCKS] = {
        count, cells, cells, cells, cells, 2 * segments, stages, stages, stages, count};
    void *blocks[BLOCKS] = {0};
    cy_status status = CY_OK;
    for (int i = 0; i < BLOCKS && status == CY_OK; i++) {
        status = cy_memory_alloc(
            &blocks[i], counts[i], i == ITEMS ? sizeof(cy_timed_action) : sizeof(double));
    }
    if (status == CY_OK) {
        cy_timeline made = {
            .items = blocks[ITEMS],
            .count = count,
            .stages = schedule->stages,
            .microbatches = schedule->microbatches,
            .chunks = schedule->chunks,
        };
        state s = {
            .schedule = schedule,
            .durations = durations,
            .timeline = &made,
            .activation = blocks[ACTIVATION],
            .gradient = blocks[GRADIENT],
            .activation_by = blocks[ACTIVATION_BY],
            .gradient_by = blocks[GRADIENT_BY],
            .link = blocks[LINK],
            .clock = blocks[CLOCK],
            .next = blocks[NEXT],
            .first = blocks[FIRST],
            .before = blocks[BEFORE],
        };
        for (size_t rank = 1; rank < stages; rank++) {
            s.first[rank] = s.first[rank - 1] + schedule->ranks[rank - 1].count;
        }
        run(&s);
        cy_timeline_add_up(&made);
        *timeline = made;
    }
    for (int i = status == CY_OK ? ACTIVATION : ITEMS; i < BLOCKS; i++)
        cy_memory_free(blocks[i]);
    return status;
}

void cy_timeline_close(cy_timeline *timeline)
{
    cy_memory_free(timeline->items);
    *timeline = (cy_timeline){0};
}

// ---- the table of ticks

#define CELL_BYTES 16

static void cell_text(char *out, const cy_timeline *timeline, cy_action action)
{
    const char *code = cy_action_code(action.kind);
    if (timeline->chunks > 1) {
        snprintf(out, CELL_BYTES, "%s%d.%d", code, action.microbatch, action.chunk);
    } else {
        snprintf(out, CELL_BYTES, "%s%d", code, action.microbatch);
    }
}

static cy_status draw_rank(
    cy_text *text, const cy_timeline *timeline, int rank, size_t ticks, double seconds, int width)
{
    CY_TRY(cy_text_add(text, "rank %-3d", rank));
    size_t next = 0; // items of a rank stand in the order of time
    for (size_t tick = 0; tick < ticks; tick++) {
        const double middle = ((double)tick + 0.5) * seconds;
        while (next < timeline->count &&
            (timeline->items[next].rank != rank || timeline->items[next].end <= middle ||
                !cy_action_is_compute(timeline->items[next].action.kind))) {
            next++;
        }
        char cell[CELL_BYTES] = ".";
        if (next < timeline->count && timeline->items[next].start <= middle) {
            const bool started = timeline->items[next].start > middle - seconds;
            if (started) {
                cell_text(cell, timeline, timeline->items[next].action);
            } else {
                memcpy(cell, "-", 2);
            }
        }
        CY_TRY(cy_text_add(text, " %-*s", width, cell));
    }
    while (text->bytes[text->length - 1] == ' ')
        text->bytes[--text->length] = '\0';
    return cy_text_add(text, "\n");
}

cy_status cy_timeline_draw_text(cy_text *text, const cy_timeline *timeline, double tick)
{
    const size_t ticks = (size_t)ceil(timeline->end / tick - 1e-6);
    int width = 1;
    for (size_t i = 0; i < timeline->count; i++) {
        if (!cy_action_is_compute(timeline->items[i].action.kind)) continue;
        char cell[CELL_BYTES];
        cell_text(cell, timeline, timeline->items[i].action);
        if ((int)strlen(cell) > width) width = (int)strlen(cell);
    }
    for (int rank = 0; rank < timeline->stages; rank++) {
        CY_TRY(draw_rank(text, timeline, rank, ticks, tick, width));
    }
    return CY_OK;
}

// ---- the picture

// In pixels.
#define LEFT       64.0 // of the rows, for the names of the ranks
#define RIGHT      16.0
#define TOP        64.0 // for the title and the legend
#define ROW        28.0
#define GAP        4.0
#define AXIS       34.0
#define WIDTH_MIN  480.0
#define WIDTH_MAX  6000.0
#define LEGEND_BOX 12.0

static const char *const style =
    "<style>\n"
    "text{font:11px system-ui,sans-serif;fill:#222}\n"
    ".title{font-size:13px;font-weight:600}\n"
    ".page{fill:#fff}.row{fill:#eceff1}.line{stroke:#b0b8bd;stroke-width:1}\n"
    ".label{fill:#fff;text-anchor:middle;font-size:10px}\n"
    ".end{text-anchor:middle}\n"
    ".critical{stroke:#c2185b;stroke-width:2}\n"
    ".f{fill:#2b6cb0}.b{fill:#2f7d4f}.i{fill:#14808a}.w{fill:#b35c00}.o{fill:#6b5b95}\n"
    ".odd{fill-opacity:.72}\n"
    "@media(prefers-color-scheme:dark){text{fill:#e6e6e6}.label{fill:#fff}.page{fill:#16191c}"
    ".row{fill:#262b30}.line{stroke:#566068}.critical{stroke:#ff80ab}}\n"
    "</style>\n";

static const char *class_of(cy_action_kind kind)
{
    switch (kind) {
    case CY_ACTION_FORWARD:
        return "f";
    case CY_ACTION_BACKWARD:
        return "b";
    case CY_ACTION_BACKWARD_INPUT:
        return "i";
    case CY_ACTION_BACKWARD_WEIGHT:
        return "w";
    case CY_ACTION_SEND_ACTIVATION:
    case CY_ACTION_RECV_ACTIVATION:
    case CY_ACTION_SEND_GRADIENT:
    case CY_ACTION_RECV_GRADIENT:
    case CY_ACTION_KINDS:
        break;
    }
    return "o";
}

// Titles are the caller's texts: characters with a meaning in XML are escaped.
static cy_status add_escaped(cy_text *text, const char *words)
{
    for (; *words != '\0'; words++) {
        if (*words == '<') {
            CY_TRY(cy_text_add(text, "&lt;"));
        } else if (*words == '&') {
            CY_TRY(cy_text_add(text, "&amp;"));
        } else {
            CY_TRY(cy_text_add_bytes(text, words, 1));
        }
    }
    return CY_OK;
}

// Chosen so that the number of the shortest action fits, within limits.
static double pixels_a_second(const cy_timeline *timeline)
{
    double shortest = timeline->end;
    for (size_t i = 0; i < timeline->count; i++) {
        const cy_timed_action *item = &timeline->items[i];
        const double seconds = item->end - item->start;
        if (cy_action_is_compute(item->action.kind) && seconds > 0.0 && seconds < shortest) {
            shortest = seconds;
        }
    }
    double width = timeline->end / shortest * 20.0;
    if (width < WIDTH_MIN) width = WIDTH_MIN;
    if (width > WIDTH_MAX) width = WIDTH_MAX;
    return width / timeline->end;
}

static cy_status draw_legend(cy_text *text, const cy_timeline *timeline)
{
    static const struct {
        cy_action_kind kind;
        const char *words;
    } entries[] = {
        {CY_ACTION_FORWARD, "forward"},
        {CY_ACTION_BACKWARD, "backward"},
        {CY_ACTION_BACKWARD_INPUT, "input gradient"},
        {CY_ACTION_BACKWARD_WEIGHT, "weight gradient"},
    };
    double x = LEFT;
    for (size_t e = 0; e < sizeof(entries) / sizeof(entries[0]); e++) {
        bool used = false;
        for (size_t i = 0; i < timeline->count && !used; i++) {
            used = timeline->items[i].action.kind == entries[e].kind;
        }
        if (!used) continue;
        CY_TRY(cy_text_add(text,
            "<rect x=\"%.1f\" y=\"34\" width=\"%.0f\" height=\"%.0f\" rx=\"2\" class=\"%s\"/>"
            "<text x=\"%.1f\" y=\"44\">%s</text>\n",
            x, LEGEND_BOX, LEGEND_BOX, class_of(entries[e].kind), x + LEGEND_BOX + 5.0,
            entries[e].words));
        x += LEGEND_BOX + 22.0 + 6.0 * (double)strlen(entries[e].words);
    }
    bool critical = false;
    for (size_t i = 0; i < timeline->count; i++)
        critical = critical || timeline->items[i].critical;
    return cy_text_add(text, "<text x=\"%.1f\" y=\"44\">%s%s</text>\n", x,
        timeline->chunks > 1 ? "odd chunks paler; " : "",
        critical ? "underlined: what sets the end" : "");
}

static cy_status draw_item(cy_text *text, const cy_timeline *timeline, const cy_timed_action *item,
    const cy_drawing *drawing, double scale)
{
    const double x = LEFT + item->start * scale;
    const double width = (item->end - item->start) * scale;
    const double y = TOP + item->rank * (ROW + GAP);
    const cy_action action = item->action;
    const char *odd = timeline->chunks > 1 && action.chunk % 2 == 1 ? " odd" : "";
    CY_TRY(cy_text_add(text,
        "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" rx=\"2\" class=\"%s%s\">"
        "<title>rank %d: %s%d",
        x + 0.5, y, width > 1.0 ? width - 1.0 : width, ROW, class_of(action.kind), odd, item->rank,
        cy_action_code(action.kind), action.microbatch));
    if (timeline->chunks > 1) CY_TRY(cy_text_add(text, ".%d", action.chunk));
    CY_TRY(
        cy_text_add(text, ", %g to %g ", item->start * drawing->scale, item->end * drawing->scale));
    CY_TRY(add_escaped(text, drawing->unit));
    CY_TRY(cy_text_add(text, "</title></rect>"));
    if (item->critical) {
        CY_TRY(cy_text_add(text,
            "<line x1=\"%.2f\" y1=\"%.1f\" x2=\"%.2f\" y2=\"%.1f\" class=\"critical\"/>", x + 1.0,
            y + ROW + 2.0, x + width - 1.0, y + ROW + 2.0));
    }
    const int digits = action.microbatch > 99 ? 3 : action.microbatch > 9 ? 2 : 1;
    if (width >= 5.0 + 6.0 * digits) {
        CY_TRY(cy_text_add(text, "<text x=\"%.2f\" y=\"%.1f\" class=\"label\">%d</text>",
            x + width / 2, y + ROW / 2 + 4.0, action.microbatch));
    }
    return cy_text_add(text, "\n");
}

// A step of 1, 2 or 5 times a power of ten that puts marks at least 60 pixels apart.
static double axis_step(double pixels_a_unit)
{
    double step = pow(10.0, floor(log10(60.0 / pixels_a_unit)));
    while (step * pixels_a_unit < 60.0) {
        const double lead = step / pow(10.0, floor(log10(step) + 1e-9));
        step *= lead > 1.5 && lead < 3.0 ? 2.5 : 2.0;
    }
    return step;
}

static cy_status draw_axis(
    cy_text *text, const cy_timeline *timeline, const cy_drawing *drawing, double scale, double y)
{
    const double pixels = scale / drawing->scale;
    const double units = timeline->end * drawing->scale;
    const double step = axis_step(pixels);
    CY_TRY(cy_text_add(text,
        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"line\"/>\n", LEFT, y,
        LEFT + units * pixels, y));
    for (int i = 0; (double)i * step <= units * (1.0 + 1e-9); i++) {
        const double x = LEFT + (double)i * step * pixels;
        CY_TRY(cy_text_add(text,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"line\"/>"
            "<text x=\"%.1f\" y=\"%.1f\" class=\"end\">%g</text>\n",
            x, y, x, y + 4.0, x, y + 17.0, (double)i * step));
    }
    CY_TRY(cy_text_add(text, "<text x=\"8\" y=\"%.1f\">", y + 17.0));
    CY_TRY(add_escaped(text, drawing->unit));
    return cy_text_add(text, "</text>\n");
}

cy_status cy_timeline_draw_svg(
    cy_text *text, const cy_timeline *timeline, const cy_drawing *drawing)
{
    if (!(timeline->end > 0.0)) {
        return CY_FAIL(CY_ERR_REQUEST, "a timeline that takes no time cannot be drawn");
    }
    const double scale = pixels_a_second(timeline);
    const double rows = (double)timeline->stages * (ROW + GAP);
    const double width = LEFT + timeline->end * scale + RIGHT;
    const double height = TOP + rows + AXIS;
    CY_TRY(cy_text_add(text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
        "viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n" CY_OUTPUT_SVG_COMMENT
        "\n%s<rect class=\"page\" width=\"100%%\" "
        "height=\"100%%\"/>\n<text x=\"8\" y=\"20\" class=\"title\">",
        width, height, width, height, style));
    CY_TRY(add_escaped(text, drawing->title));
    CY_TRY(cy_text_add(text, "</text>\n"));
    CY_TRY(draw_legend(text, timeline));
    for (int rank = 0; rank < timeline->stages; rank++) {
        const double y = TOP + rank * (ROW + GAP);
        CY_TRY(cy_text_add(text,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"row\"/>"
            "<text x=\"8\" y=\"%.1f\">rank %d</text>\n",
            LEFT, y, timeline->end * scale, ROW, y + ROW / 2 + 4.0, rank));
    }
    for (size_t i = 0; i < timeline->count; i++) {
        if (!cy_action_is_compute(timeline->items[i].action.kind)) continue;
        CY_TRY(draw_item(text, timeline, &timeline->items[i], drawing, scale));
    }
    CY_TRY(draw_axis(text, timeline, drawing, scale, TOP + rows + 4.0));
    return cy_text_add(text, "</svg>\n");
}
