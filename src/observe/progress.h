// observe/progress.h: numbers as people read them, and the progress of long work.
//
// The decimal mark of a number is a point, whatever the locale of the process. Numbers fail only
// for memory and are safe from any thread.
//
// A progress says how far long work has come, its rate and the time left. On a terminal it draws
// one line over and over, at most ten times a second; elsewhere it writes plain lines, at most one
// in ten seconds, and always one at the end. The caller says which, and supplies the writer and the
// clock's readings. One thread uses a progress. It allocates nothing and cannot fail: what the
// writer cannot show is lost.

#ifndef CY_OBSERVE_PROGRESS_H
#define CY_OBSERVE_PROGRESS_H

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- numbers

// Prints three significant digits and K, M, B or T for 10^3, 10^6, 10^9, 10^12: 512, 8.19K,
// 98.3K, 1.00M. Rounding may carry into the next unit: 999,950 is 1.00M.
CY_MUST_CHECK cy_status cy_number_short(cy_text *text, double value);

// Prints `digits` digits after the point, as printf's %.*f; `nan`, `inf` and `-inf` for what is not
// finite.
CY_MUST_CHECK cy_status cy_number_fixed(cy_text *text, double value, int digits);

// ---- progress

typedef struct cy_progress_writer {
    void (*write)(void *context, const char *text, size_t length);
    void *context; // borrowed
    bool terminal; // a line may be overwritten
} cy_progress_writer;

typedef struct cy_progress {
    cy_progress_writer writer;
    const char *what; // borrowed: "tokenizer"
    const char *unit; // borrowed: "bytes", "steps"
    int64_t total;    // 0: unknown
    int64_t first;    // units that an earlier run did
    double start_s;
    double shown_s; // when a line was last written
    double mark_s;  // where the current rate is measured from
    int64_t mark_done;
    double rate; // units a second, smoothed over some ten seconds; 0: not known yet
    bool shown;
} cy_progress;

void cy_progress_open(cy_progress *progress, const cy_progress_writer *writer, const char *what,
    const char *unit, int64_t total, double now_s);

// `done` units were done by an earlier run: they count in no rate.
void cy_progress_skip(cy_progress *progress, int64_t done);

// Tells that `done` units of the whole are done at now_s (seconds, such as cy_clock_s()).
void cy_progress_update(cy_progress *progress, int64_t done, double now_s);

// Writes the last line, with the rate over all of the work. On a terminal the cursor is on a new
// line after it.
void cy_progress_close(cy_progress *progress, int64_t done, double now_s);

// Erases the drawn line, so that something else can be written; the next update draws it again.
// Does nothing where lines are plain.
void cy_progress_clear(cy_progress *progress);

#endif
