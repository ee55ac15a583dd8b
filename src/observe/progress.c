// Prints numbers for people, and draws the progress of long work: a bar on a terminal, lines
// elsewhere.

#include "observe/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- numbers

// The sign of a NaN means nothing and differs between processors.
static cy_status add_not_finite(cy_text *text, double value)
{
    return cy_text_add(text, "%g", isnan(value) ? fabs(value) : value);
}

cy_status cy_number_fixed(cy_text *text, double value, int digits)
{
    if (!isfinite(value)) return add_not_finite(text, value);
    char printed[400];
    snprintf(printed, sizeof(printed), "%.*f", digits, value);
    cy_number_set_point(printed);
    return cy_text_add(text, "%s", printed);
}

// Prints a value that is at least 0.
static void print_short(char *out, size_t room, double value)
{
    static const char units[] = " KMBT";
    int unit = 0;
    // 999.5 has four digits once it is rounded to three.
    while (value >= 999.5 && unit < 4) {
        value /= 1000;
        unit++;
    }
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(out, room, "%.*f", digits, value);
    cy_number_set_point(out);
    const size_t length = strlen(out);
    if (unit > 0) snprintf(out + length, room - length, "%c", units[unit]);
}

cy_status cy_number_short(cy_text *text, double value)
{
    if (!isfinite(value)) return add_not_finite(text, value);
    char printed[400];
    print_short(printed, sizeof(printed), fabs(value));
    return cy_text_add(text, "%s%s", value < 0 ? "-" : "", printed);
}

// ---- the progress

#define BAR                 24
#define TERMINAL_INTERVAL_S 0.1
#define PLAIN_INTERVAL_S    10.0
#define RATE_INTERVAL_S     0.5
#define RATE_MEMORY_S       10.0

void cy_progress_open(cy_progress *progress, const cy_progress_writer *writer, const char *what,
    const char *unit, int64_t total, double now_s)
{
    *progress = (cy_progress){
        .writer = *writer,
        .what = what,
        .unit = unit,
        .total = total,
        .start_s = now_s,
        .shown_s = writer->terminal ? now_s - TERMINAL_INTERVAL_S : now_s,
        .mark_s = now_s,
    };
}

static void print_count(char *out, size_t room, int64_t count)
{
    if (count < 1000) {
        snprintf(out, room, "%" PRId64, count);
    } else {
        print_short(out, room, (double)count);
    }
}

static void print_time(char *out, size_t room, double seconds)
{
    const int64_t whole = (int64_t)ceil(seconds < 0 ? 0 : fmin(seconds, 1e9));
    if (whole < 3600) {
        snprintf(out, room, "%" PRId64 ":%02d", whole / 60, (int)(whole % 60));
    } else {
        snprintf(out, room, "%" PRId64 ":%02d:%02d", whole / 3600, (int)(whole / 60 % 60),
            (int)(whole % 60));
    }
}

typedef struct cy_line {
    char bytes[256];
    size_t length;
} cy_line;

static void add(cy_line *line, const char *text)
{
    const size_t room = sizeof(line->bytes) - 1 - line->length;
    const size_t count = strlen(text) < room ? strlen(text) : room;
    memcpy(line->bytes + line->length, text, count);
    line->length += count;
    line->bytes[line->length] = '\0';
}

static void add_bar(cy_line *line, double share)
{
    char bar[BAR + 4];
    const int full = (int)(share * BAR);
    bar[0] = '[';
    for (int i = 0; i < BAR; i++)
        bar[1 + i] = i < full ? '#' : '-';
    memcpy(bar + 1 + BAR, "] ", 3);
    add(line, bar);
}

static void write_line(cy_progress *progress, int64_t done, double rate, const char *ending)
{
    cy_line line = {.length = 0};
    char piece[64];
    if (progress->writer.terminal) add(&line, "\r");
    add(&line, progress->what);
    add(&line, " ");
    if (progress->total > 0) {
        const double share = fmin(1, (double)done / (double)progress->total);
        snprintf(piece, sizeof(piece), "%3d%% ", (int)(100 * share));
        add(&line, piece);
        if (progress->writer.terminal) add_bar(&line, share);
    }
    print_count(piece, sizeof(piece), done);
    add(&line, piece);
    if (progress->total > 0) {
        add(&line, "/");
        print_count(piece, sizeof(piece), progress->total);
        add(&line, piece);
    }
    add(&line, " ");
    add(&line, progress->unit);
    if (rate > 0) {
        add(&line, " | ");
        print_short(piece, sizeof(piece), rate);
        add(&line, piece);
        add(&line, "/s");
    }
    add(&line, ending);
    add(&line, progress->writer.terminal ? "\x1b[K" : "\n"); // erases what a longer line left
    progress->writer.write(progress->writer.context, line.bytes, line.length);
}

static void measure_rate(cy_progress *progress, int64_t done, double now_s)
{
    const double passed = now_s - progress->mark_s;
    if (passed < RATE_INTERVAL_S) return;
    const double rate = (double)(done - progress->mark_done) / passed;
    const double weight = progress->rate > 0 ? 1 - exp(-passed / RATE_MEMORY_S) : 1;
    progress->rate += weight * (rate - progress->rate);
    progress->mark_s = now_s;
    progress->mark_done = done;
}

void cy_progress_skip(cy_progress *progress, int64_t done)
{
    progress->first = done;
    progress->mark_done = done;
}

void cy_progress_update(cy_progress *progress, int64_t done, double now_s)
{
    measure_rate(progress, done, now_s);
    const double interval = progress->writer.terminal ? TERMINAL_INTERVAL_S : PLAIN_INTERVAL_S;
    if (now_s - progress->shown_s < interval) return;

    char ending[64] = "";
    if (progress->rate > 0 && progress->total > 0) {
        char left[32];
        print_time(left, sizeof(left), (double)(progress->total - done) / progress->rate);
        snprintf(ending, sizeof(ending), " | %s left", left);
    }
    write_line(progress, done, progress->rate, ending);
    progress->shown_s = now_s;
    progress->shown = true;
}

void cy_progress_close(cy_progress *progress, int64_t done, double now_s)
{
    const double passed = now_s - progress->start_s;
    char ending[64], took[32];
    print_time(took, sizeof(took), passed);
    snprintf(ending, sizeof(ending), " | took %s", took);
    write_line(progress, done, passed > 0 ? (double)(done - progress->first) / passed : 0, ending);
    if (progress->writer.terminal) progress->writer.write(progress->writer.context, "\n", 1);
    progress->shown = false;
}

void cy_progress_clear(cy_progress *progress)
{
    if (!progress->writer.terminal || !progress->shown) return;
    progress->writer.write(progress->writer.context, "\r\x1b[K", 4);
    progress->shown = false;
    progress->shown_s = progress->shown_s - TERMINAL_INTERVAL_S;
}
