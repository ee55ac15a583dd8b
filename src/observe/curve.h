// observe/curve.h: draws curves over steps, such as the loss, as a picture or as text.
//
// The picture is a self-contained SVG that is legible on light and dark backgrounds; the text is a
// plot of characters for a terminal. Points that are not finite are left out. Arrays are borrowed
// for the call. Fails for memory, and for data without two finite points.

#ifndef CY_OBSERVE_CURVE_H
#define CY_OBSERVE_CURVE_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct cy_curve {
    const char *name; // borrowed, in the legend: "training", "validation"
    const double *x;  // borrowed, [count], ascending
    const double *y;  // borrowed, [count]
    int64_t count;
    bool marks; // each point gets a dot, for curves of few points, such as evaluations
} cy_curve;

typedef struct cy_curve_labels {
    const char *title;   // borrowed
    const char *x_label; // borrowed
    const char *y_label; // borrowed
} cy_curve_labels;

#define CY_CURVES_MAX 6

// A curve of more than 800 points is drawn as the means of 800 equal parts of it. The y axis ends
// where 98 % of the points end, when the points above would squeeze the rest.
CY_MUST_CHECK cy_status cy_curve_svg(
    cy_text *out, const cy_curve_labels *page, const cy_curve *curves, int curve_count);

// The plot area has `width` by `height` characters; axes and legend are added around it. Curves are
// drawn with `*`, `o`, `+`, `x`, `#`, `@` in order, later ones over earlier ones.
CY_MUST_CHECK cy_status cy_curve_plot(cy_text *out, const cy_curve_labels *page,
    const cy_curve *curves, int curve_count, int width, int height);

#endif
