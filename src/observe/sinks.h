// observe/sinks.h: the sinks of a run: where its metrics go.
//
// Rank zero writes each record, of a step or of an evaluation, to every sink of its list. A sink
// takes from the record what the table of metrics (metrics.h) declares for it. An exporter is one
// more sink: a table of functions, a struct that begins with a cy_sink, and a call of cy_sinks_add.
//
// Logging never ends a run and never delays a step. A sink whose output is a file or a stream
// passes bytes to an asynchronous writer (async_writer.h), which keeps a bounded backlog, retries,
// and reports failures of the output. A sink that cannot make a record's bytes, for lack of memory,
// loses the record; the list reports that once, and once more when records arrive again.
//
// A list owns its sinks. One thread uses it.

#ifndef CY_OBSERVE_SINKS_H
#define CY_OBSERVE_SINKS_H

#include "observe/async_writer.h"
#include "observe/metrics.h"

typedef struct cy_sink cy_sink;

typedef struct cy_sink_ops {
    // Never blocks.
    cy_status (*write)(cy_sink *sink, const cy_metrics *metrics);
    void (*close)(cy_sink *sink); // frees the sink
} cy_sink_ops;

struct cy_sink { // first member of every sink's own struct
    const cy_sink_ops *ops;
    const char *name; // static, in messages
};

// ---- the list

#define CY_SINKS_MAX 8

// Start from a zeroed struct, a list of no sinks.
typedef struct cy_sinks {
    struct {
        cy_sink *sink;   // owned
        int64_t lost;    // records, since the sink last wrote one
        bool failed;     // the last record was lost
        bool told;       // that is reported
        char error[256]; // why
    } list[CY_SINKS_MAX];
    int count;
} cy_sinks;

// Takes over the sink.
void cy_sinks_add(cy_sinks *sinks, cy_sink *sink);

void cy_sinks_write(cy_sinks *sinks, const cy_metrics *metrics);

// Writes the next report into `line`, which must be zeroed: a sink loses records, or writes again.
// False where there is nothing new.
bool cy_sinks_take_report(cy_sinks *sinks, cy_text *line);

void cy_sinks_close(cy_sinks *sinks);

// ---- the console

typedef struct cy_console_sink_options {
    void (*write)(void *context, const char *line); // gets the line without its end; never blocks
    void *context;                                  // borrowed
    int64_t every;                                  // the steps that are shown are multiples of it
    int64_t last_step;                              // is shown too
} cy_console_sink_options;

// A line for each step that is shown. Evaluations have no line.
CY_MUST_CHECK cy_status cy_console_sink_open(
    cy_sink **sink, const cy_console_sink_options *options);

// ---- metrics.jsonl

// Opens a file for appending through `writer`, which outlives the sink; makes it where there is
// none. Lines of steps after `last_step` are removed from it (0: all lines), and so are lines that
// are no whole JSON object with a step, such as the torn last line of a run that died.
// *unreadable, unless NULL, counts those. The shorter file replaces the old one in one rename. On
// failure the old file stays as it was. Lines may be unwritten until cy_async_writer_finish.
CY_MUST_CHECK cy_status cy_jsonl_sink_open(cy_sink **sink, cy_async_writer *writer,
    const char *path, int64_t last_step, int64_t *unreadable);

// Keeps a file that the run does not continue, because the run begins (`last_step` 0) or because no
// line of the file has a step: renames it to the first free name of PATH.1, PATH.2 and so on.
// *number is that number; 0 where there is no such file, or nothing in it. The caller makes sure
// that no other run uses such names at the same time.
CY_MUST_CHECK cy_status cy_jsonl_rotate(int *number, const char *path, int64_t last_step);

// ---- TensorBoard

// Opens a new event file in `folder` (tensorboard.h) through `writer`, which outlives the sink.
CY_MUST_CHECK cy_status cy_tensorboard_sink_open(
    cy_sink **sink, cy_async_writer *writer, const char *folder);

#endif
