// observe/progress.h: how far long work has come, its rate and the time left.
//
// On a terminal one line is drawn over and over, at most ten times a second; elsewhere plain lines
// come, at most one in ten seconds, and always one at the end. Whoever opens a progress says which,
// and supplies the writer and the clock's readings, so nothing here looks at the world. One thread
// uses a progress. It allocates nothing. Nothing here fails: what the writer cannot show is lost.

#ifndef CY_OBSERVE_PROGRESS_H
#define CY_OBSERVE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cy_progress_writer {
    void (*write)(void *context, const char *text, size_t length);
    void *context; // borrowed
    bool terminal; // lines may be drawn over
} cy_progress_writer;

typedef struct cy_progress {
    cy_progress_writer writer;
    const char *what; // borrowed: "tokenizer"
    const char *unit; // borrowed: "bytes", "steps"
    int64_t total;    // 0: unknown
    int64_t first;    // units that were done before it began
    double start_s;
    double shown_s; // when a line was last written
    double mark_s;  // where the current rate is measured from
    int64_t mark_done;
    double rate; // units a second, smoothed over some ten seconds; 0: not known yet
    bool shown;
} cy_progress;

void cy_progress_open(cy_progress *progress, const cy_progress_writer *writer, const char *what,
    const char *unit, int64_t total, double now_s);

// `done` units were done before the work began, by an earlier run: they count in no rate.
void cy_progress_skip(cy_progress *progress, int64_t done);

// `done` units of the whole are done at now_s (seconds, such as cy_clock_s()).
void cy_progress_update(cy_progress *progress, int64_t done, double now_s);

// The last line, with the rate over all of it. On a terminal the cursor is on a new line after it.
void cy_progress_close(cy_progress *progress, int64_t done, double now_s);

// Takes the drawn line away, so that something else can be written; the next update draws it anew.
// Does nothing where lines are plain.
void cy_progress_clear(cy_progress *progress);

#endif
