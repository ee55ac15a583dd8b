#include "parallel/pipeline/draw.h"

#include "base/output.h"

#include <math.h>
#include <string.h>

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
    case CY_ACTION_GATHER:
    case CY_ACTION_REDUCE:
    case CY_ACTION_RECOMPUTE:
    case CY_ACTION_OFFLOAD:
    case CY_ACTION_FETCH:
    case CY_ACTION_OPTIMIZER:
    case CY_ACTION_KINDS:
        break;
    }
    return "o";
}

// Titles are texts of the caller's: what XML means something by is spelled out.
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

// So that the shortest action has room for its number, within limits.
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
