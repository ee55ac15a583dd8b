// Draws curves over steps: as SVG, and as a plot of characters.

#include "observe/curve.h"

#include "base/memory.h"
#include "base/output.h"
#include "base/status.h"
#include "observe/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- axes, for both kinds of picture

typedef struct cy_range {
    double low, high;
    double step; // between ticks: 1, 2 or 5 times a power of ten
} cy_range;

typedef struct cy_axes {
    cy_range x, y;
} cy_axes;

static bool is_point(const cy_curve *curve, int64_t i)
{
    return isfinite(curve->x[i]) && isfinite(curve->y[i]);
}

// Widens a range to whole ticks, of which there are about `count`.
static cy_range round_range(double low, double high, int count)
{
    if (high - low < 1e-12 * (1 + fabs(low))) {
        low -= 0.5;
        high += 0.5;
    }
    const double rough = (high - low) / count;
    const double power = pow(10, floor(log10(rough)));
    const double lead = rough / power;
    const double step = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
    return (cy_range){floor(low / step) * step, ceil(high / step) * step, step};
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

// Returns the upper end of the y axis. A few points far above the rest (the first steps of a loss)
// are left out when they would take more than half of the picture.
static double y_top(double *sorted, int64_t count)
{
    qsort(sorted, (size_t)count, sizeof(*sorted), compare);
    const double low = sorted[0], high = sorted[count - 1];
    const double most = sorted[(count - 1) - (count - 1) / 50];
    return most - low < 0.5 * (high - low) ? most : high;
}

static cy_status measure(cy_axes *axes, const cy_curve *curves, int curve_count, int ticks)
{
    int64_t room = 0, count = 0;
    for (int c = 0; c < curve_count; c++)
        room += curves[c].count;
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)room, sizeof(double)));
    double *ys = block;
    double left = (double)INFINITY, right = -(double)INFINITY;
    for (int c = 0; c < curve_count; c++) {
        for (int64_t i = 0; i < curves[c].count; i++) {
            if (!is_point(&curves[c], i)) continue;
            ys[count++] = curves[c].y[i];
            left = fmin(left, curves[c].x[i]);
            right = fmax(right, curves[c].x[i]);
        }
    }
    if (count >= 2) {
        const double top = y_top(ys, count);
        *axes = (cy_axes){
            .x = round_range(left, right, ticks),
            .y = round_range(ys[0], top, ticks),
        };
        axes->x.low = left; // the curve fills the width; ticks stay on round numbers
        axes->x.high = right > left ? right : left + 1;
    }
    cy_memory_free(block);
    if (count < 2) {
        return CY_FAIL(CY_ERR_REQUEST, "a curve needs 2 finite points, there are %lld of %lld",
            (long long)count, (long long)room);
    }
    return CY_OK;
}

static double share_of(cy_range range, double value)
{
    return (value - range.low) / (range.high - range.low);
}

// Ticks are multiples of the step: numbers first..last of them lie in the range.
static int first_tick(cy_range range)
{
    return (int)ceil(range.low / range.step - 1e-6);
}

static int last_tick(cy_range range)
{
    return (int)floor(range.high / range.step + 1e-6);
}

// Prints as many digits as the step between ticks needs; numbers in thousands get their unit.
static cy_status add_tick(cy_text *out, cy_range range, double value)
{
    if (range.step >= 1 && fabs(range.high) >= 10000) return cy_number_short(out, value);
    const int digits = range.step >= 1 ? 0 : (int)ceil(-log10(range.step) - 1e-9);
    return cy_number_fixed(out, fabs(value) < range.step * 1e-6 ? 0 : value, digits);
}

// ---- the picture

#define PAGE_WIDTH  760
#define PAGE_HEIGHT 420
#define PLOT_LEFT   64.0
#define PLOT_TOP    44.0
#define PLOT_WIDTH  676.0
#define PLOT_HEIGHT 320.0
#define POINTS_MAX  800

static cy_status add_escaped(cy_text *out, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        switch (*c) {
        case '&':
            CY_TRY(cy_text_add(out, "&amp;"));
            break;
        case '<':
            CY_TRY(cy_text_add(out, "&lt;"));
            break;
        case '>':
            CY_TRY(cy_text_add(out, "&gt;"));
            break;
        case '"':
            CY_TRY(cy_text_add(out, "&quot;"));
            break;
        default:
            CY_TRY(cy_text_add_bytes(out, (unsigned char)*c < 32 ? " " : c, 1));
        }
    }
    return CY_OK;
}

static cy_status add_pair(cy_text *out, double x, const char *between, double y)
{
    CY_TRY(cy_number_fixed(out, x, 1));
    CY_TRY(cy_text_add(out, "%s", between));
    return cy_number_fixed(out, y, 1);
}

static double x_of(const cy_axes *axes, double x)
{
    return PLOT_LEFT + PLOT_WIDTH * share_of(axes->x, x);
}

static double y_of(const cy_axes *axes, double y)
{
    return PLOT_TOP + PLOT_HEIGHT * (1 - share_of(axes->y, y));
}

static cy_status add_label(cy_text *out, double x, double y, const char *anchor, const char *text)
{
    CY_TRY(cy_text_add(out, "<text x=\""));
    CY_TRY(add_pair(out, x, "\" y=\"", y));
    CY_TRY(cy_text_add(out, "\" text-anchor=\"%s\">", anchor));
    CY_TRY(add_escaped(out, text));
    return cy_text_add(out, "</text>\n");
}

static cy_status add_head(cy_text *out, const cy_curve_labels *page)
{
    CY_TRY(cy_text_add(out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
        "role=\"img\">\n" CY_OUTPUT_SVG_COMMENT "\n<title>",
        PAGE_WIDTH, PAGE_HEIGHT));
    CY_TRY(add_escaped(out, page->title));
    return cy_text_add(out,
        "</title>\n<style>\n"
        "svg { font: 13px sans-serif } .paper { fill: #fff } text { fill: #222 } "
        ".grid { stroke: #ddd }\n"
        ".c0 { color: #1b6fb5 } .c1 { color: #d1570c } .c2 { color: #2f8f46 } "
        ".c3 { color: #8a4bb0 } .c4 { color: #a83232 } .c5 { color: #6b6b6b }\n"
        "@media (prefers-color-scheme: dark) { .paper { fill: #16181c } text { fill: #ddd } "
        ".grid { stroke: #3a3a3a } .c0 { color: #6db3f2 } .c1 { color: #ff9f5a } "
        ".c2 { color: #7ed493 } .c3 { color: #c99be8 } .c4 { color: #f08a8a } "
        ".c5 { color: #b0b0b0 } }\n"
        "path { fill: none; stroke: currentColor; stroke-width: 1.6; stroke-linejoin: round } "
        ".fill { fill: currentColor }\n</style>\n"
        "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n",
        PAGE_WIDTH, PAGE_HEIGHT);
}

static cy_status add_line(cy_text *out, double x1, double y1, double x2, double y2)
{
    CY_TRY(cy_text_add(out, "<line class=\"grid\" x1=\""));
    CY_TRY(add_pair(out, x1, "\" y1=\"", y1));
    CY_TRY(cy_text_add(out, "\" x2=\""));
    CY_TRY(add_pair(out, x2, "\" y2=\"", y2));
    return cy_text_add(out, "\"/>\n");
}

static cy_status add_grid(cy_text *out, const cy_curve_labels *page, const cy_axes *axes)
{
    cy_text tick = {0};
    cy_status status = CY_OK;
    for (int i = first_tick(axes->y); i <= last_tick(axes->y) && !status; i++) {
        const double y = i * axes->y.step, at = y_of(axes, y);
        tick.length = 0;
        status = add_tick(&tick, axes->y, y);
        if (!status) status = add_line(out, PLOT_LEFT, at, PLOT_LEFT + PLOT_WIDTH, at);
        if (!status) status = add_label(out, PLOT_LEFT - 8, at + 4, "end", tick.bytes);
    }
    for (int i = first_tick(axes->x); i <= last_tick(axes->x) && !status; i++) {
        const double x = i * axes->x.step, at = x_of(axes, x);
        tick.length = 0;
        status = add_tick(&tick, axes->x, x);
        if (!status) status = add_line(out, at, PLOT_TOP, at, PLOT_TOP + PLOT_HEIGHT);
        if (!status) status = add_label(out, at, PLOT_TOP + PLOT_HEIGHT + 18, "middle", tick.bytes);
    }
    cy_text_free(&tick);
    CY_TRY(status);
    CY_TRY(add_label(out, PLOT_LEFT, 24, "start", page->title));
    CY_TRY(add_label(
        out, PLOT_LEFT + PLOT_WIDTH / 2, PLOT_TOP + PLOT_HEIGHT + 42, "middle", page->x_label));
    CY_TRY(cy_text_add(out,
        "<text transform=\"translate(16 204) rotate(-90)\" "
        "text-anchor=\"middle\">"));
    CY_TRY(add_escaped(out, page->y_label));
    return cy_text_add(out, "</text>\n");
}

// Computes the mean of points [first, last); false when none of them is finite.
static bool mean_point(const cy_curve *curve, int64_t first, int64_t last, double *x, double *y)
{
    int64_t count = 0;
    *x = *y = 0;
    for (int64_t i = first; i < last; i++) {
        if (!is_point(curve, i)) continue;
        *x += curve->x[i];
        *y += curve->y[i];
        count++;
    }
    if (count == 0) return false;
    *x /= (double)count;
    *y /= (double)count;
    return true;
}

static cy_status add_curve(cy_text *out, const cy_axes *axes, const cy_curve *curve, int color)
{
    const int64_t points = curve->count < POINTS_MAX ? curve->count : POINTS_MAX;
    CY_TRY(cy_text_add(out, "<path clip-path=\"url(#plot)\" class=\"c%d\" d=\"", color));
    bool pen_down = false;
    double x, y;
    for (int64_t p = 0; p < points; p++) {
        const int64_t first = p * curve->count / points, last = (p + 1) * curve->count / points;
        if (!mean_point(curve, first, last, &x, &y)) {
            pen_down = false; // a gap shows missing points
            continue;
        }
        CY_TRY(cy_text_add(out, "%s", pen_down ? "L" : "M"));
        CY_TRY(add_pair(out, x_of(axes, x), " ", y_of(axes, y)));
        pen_down = true;
    }
    CY_TRY(cy_text_add(out, "\"/>\n"));
    for (int64_t p = 0; curve->marks && p < points; p++) {
        const int64_t first = p * curve->count / points, last = (p + 1) * curve->count / points;
        if (!mean_point(curve, first, last, &x, &y)) continue;
        CY_TRY(cy_text_add(out, "<circle clip-path=\"url(#plot)\" r=\"3\" cx=\""));
        CY_TRY(add_pair(out, x_of(axes, x), "\" cy=\"", y_of(axes, y)));
        CY_TRY(cy_text_add(out, "\" class=\"fill c%d\"/>\n", color));
    }
    return CY_OK;
}

static cy_status add_legend(cy_text *out, const cy_curve *curves, int curve_count)
{
    for (int c = 0; c < curve_count; c++) {
        const double y = PLOT_TOP + 18 + 18 * c;
        CY_TRY(cy_text_add(out, "<rect width=\"14\" height=\"3\" class=\"fill c%d\" x=\"", c));
        CY_TRY(add_pair(out, PLOT_LEFT + PLOT_WIDTH - 24, "\" y=\"", y - 5));
        CY_TRY(cy_text_add(out, "\"/>\n"));
        CY_TRY(add_label(out, PLOT_LEFT + PLOT_WIDTH - 30, y, "end", curves[c].name));
    }
    return CY_OK;
}

cy_status cy_curve_svg(
    cy_text *out, const cy_curve_labels *page, const cy_curve *curves, int curve_count)
{
    CY_ASSERT(0 < curve_count && curve_count <= CY_CURVES_MAX);
    cy_axes axes = {.x = {0, 1, 1}, .y = {0, 1, 1}};
    CY_TRY(measure(&axes, curves, curve_count, 7));
    CY_TRY(add_head(out, page));
    CY_TRY(cy_text_add(out,
        "<clipPath id=\"plot\"><rect x=\"%d\" y=\"%d\" width=\"%d\" "
        "height=\"%d\"/></clipPath>\n",
        (int)PLOT_LEFT - 4, (int)PLOT_TOP - 4, (int)PLOT_WIDTH + 8, (int)PLOT_HEIGHT + 8));
    CY_TRY(add_grid(out, page, &axes));
    for (int c = 0; c < curve_count; c++)
        CY_TRY(add_curve(out, &axes, &curves[c], c));
    CY_TRY(add_legend(out, curves, curve_count));
    return cy_text_add(out, "</svg>\n");
}

// ---- the plot of characters

static const char marks[CY_CURVES_MAX + 1] = "*o+x#@";

// Returns the cell of a share of `cells`, or -1 outside of 0 to 1.
static int cell_of(double share, int cells)
{
    const int cell = (int)floor(share * cells);
    if (share < 0 || share > 1) return -1;
    return cell < cells ? cell : cells - 1;
}

static void draw(
    char *cells, const cy_axes *axes, const cy_curve *curve, char mark, int width, int height)
{
    // Each column gets one mark, at the mean of its points.
    int64_t i = 0;
    for (int column = 0; column < width; column++) {
        double sum = 0;
        int count = 0;
        for (; i < curve->count; i++) {
            if (!is_point(curve, i)) continue;
            if (cell_of(share_of(axes->x, curve->x[i]), width) > column) break;
            sum += curve->y[i];
            count++;
        }
        if (count == 0) continue;
        const int row = cell_of(share_of(axes->y, sum / count), height);
        if (row >= 0) cells[(height - 1 - row) * (int64_t)width + column] = mark;
    }
}

static cy_status add_rows(
    cy_text *out, const char *cells, const cy_axes *axes, int width, int height)
{
    for (int row = 0; row < height; row++) {
        const bool labelled = row % 4 == 0 || row == height - 1;
        const double share = 1 - (row + 0.5) / height;
        cy_text label = {0};
        cy_status status = CY_OK;
        if (labelled) {
            const double value = axes->y.low + share * (axes->y.high - axes->y.low);
            status = cy_number_fixed(&label, value, axes->y.step < 0.1 ? 3 : 2);
        }
        if (status == CY_OK) {
            status = cy_text_add(out, "%9s |%.*s\n", labelled ? label.bytes : "", width,
                cells + row * (int64_t)width);
        }
        cy_text_free(&label);
        CY_TRY(status);
    }
    return CY_OK;
}

static cy_status add_foot(cy_text *out, const cy_curve_labels *page, const cy_axes *axes,
    const cy_curve *curves, int curve_count, int width)
{
    cy_text left = {0}, right = {0};
    CY_TRY(cy_text_add(out, "%9s +", ""));
    for (int i = 0; i < width; i++)
        CY_TRY(cy_text_add(out, "-"));
    cy_status status = add_tick(&left, axes->x, axes->x.low);
    if (status == CY_OK) status = add_tick(&right, axes->x, axes->x.high);
    if (status == CY_OK) {
        status = cy_text_add(out, "\n%9s  %-*s%s\n%9s  %s", "", width - (int)right.length,
            left.bytes, right.bytes, "", page->x_label);
    }
    cy_text_free(&left);
    cy_text_free(&right);
    CY_TRY(status);
    for (int c = 0; c < curve_count; c++) {
        CY_TRY(cy_text_add(out, "   %c %s", marks[c], curves[c].name));
    }
    return cy_text_add(out, "\n");
}

cy_status cy_curve_plot(cy_text *out, const cy_curve_labels *page, const cy_curve *curves,
    int curve_count, int width, int height)
{
    CY_ASSERT(0 < curve_count && curve_count <= CY_CURVES_MAX);
    CY_ASSERT(width >= 10 && height >= 2);
    cy_axes axes = {.x = {0, 1, 1}, .y = {0, 1, 1}};
    CY_TRY(measure(&axes, curves, curve_count, 7));
    void *cells = NULL;
    CY_TRY(cy_memory_alloc(&cells, (size_t)width, (size_t)height));
    memset(cells, ' ', (size_t)width * (size_t)height);
    for (int c = 0; c < curve_count; c++)
        draw(cells, &axes, &curves[c], marks[c], width, height);
    cy_status status = cy_text_add(out, "%9s  %s, %s\n", "", page->title, page->y_label);
    if (status == CY_OK) status = add_rows(out, cells, &axes, width, height);
    if (status == CY_OK) status = add_foot(out, page, &axes, curves, curve_count, width);
    cy_memory_free(cells);
    return status;
}
