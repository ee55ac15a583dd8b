// parallel/pipeline/draw.h: a timeline as text and as a picture.
//
// Takes any timeline: a simulated one, or one with measured times. The text is a table of ticks for
// the terminal; the picture is an SVG that needs nothing else, readable on a light and on a dark
// page. Both are appended to a text that the caller owns.

#ifndef CY_PARALLEL_PIPELINE_DRAW_H
#define CY_PARALLEL_PIPELINE_DRAW_H

#include "parallel/pipeline/simulate.h"

// One line a rank, one column a tick of `tick` seconds: what the rank does then. An action that
// goes on in the next tick is followed by '-', an idle tick is '.'.
CY_MUST_CHECK cy_status cy_timeline_draw_text(
    cy_text *text, const cy_timeline *timeline, double tick);

// unit names what the axis counts, such as "ticks"; scale is how many of them a second is.
typedef struct cy_drawing {
    const char *title; // borrowed
    const char *unit;  // borrowed
    double scale;
} cy_drawing;

CY_MUST_CHECK cy_status cy_timeline_draw_svg(
    cy_text *text, const cy_timeline *timeline, const cy_drawing *drawing);

#endif
