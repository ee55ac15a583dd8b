#include "parallel/pipeline/draw.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
