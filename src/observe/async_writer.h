// observe/async_writer.h: writes lines to files and to the console on a thread of its own.
//
// A caller passes whole records, which are copied into a bounded backlog: it never waits for a
// disk, a terminal or a pipe, and never sees their failures. The writer's thread writes the records
// of all targets in the order of the calls. Where a write fails, as on a full disk, the records
// stay, the write is tried again twice a second, and the failure and its end are each reported
// once. A deleted file or folder is made again;
// a keeper restores what else belongs into the folder. Records that do not fit into a full backlog
// are dropped and counted.
//
// A writer owns its thread, its backlogs and the files that it opened. Any thread may call
// cy_async_write, cy_async_flush and the queries below; one thread opens, finishes and closes.

#ifndef CY_OBSERVE_ASYNC_WRITER_H
#define CY_OBSERVE_ASYNC_WRITER_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

#define CY_ASYNC_TARGETS_MAX 4

typedef struct cy_async_writer cy_async_writer;

typedef struct cy_async_target {
    const char *name;   // in messages; copied
    const char *path;   // a file to append to; copied. NULL: `fd` is written to
    int fd;             // where path is NULL: a stream that is open and stays open, such as 1
    const void *header; // the first bytes of a new file, copied; NULL: none
    size_t header_bytes;
    size_t backlog_bytes; // room for waiting records
} cy_async_target;

// Keeps the folder of a writer's files.
typedef struct cy_async_keeper {
    void *context; // owned by the writer from cy_async_writer_keep on
    // Called by the writer's thread before it writes a record to a file. A failure is one of the
    // write: its text is reported, and both are tried again.
    cy_status (*keep)(void *context);
    void (*close)(void *context); // called when the thread has ended
} cy_async_keeper;

CY_MUST_CHECK cy_status cy_async_writer_open(cy_async_writer **writer);

// Gives the writer a keeper: once, before the first record.
void cy_async_writer_keep(cy_async_writer *writer, const cy_async_keeper *keeper);

// Adds a target and opens its file, which must succeed now: only later failures are retried.
// *number identifies the target in the calls below.
CY_MUST_CHECK cy_status cy_async_writer_add(
    cy_async_writer *writer, int *number, const cy_async_target *target);

// Copies a record of `count` bytes into the target's backlog.
void cy_async_write(cy_async_writer *writer, int number, const void *bytes, size_t count);

// Waits at most `seconds` until all records are written, except those of targets that cannot be
// written at present. True where none is left.
bool cy_async_flush(cy_async_writer *writer, double seconds);

// Writes the next report into `line`, which must be zeroed: a target cannot be written, or can be
// again, or records were dropped. False where there is nothing new.
bool cy_async_take_report(cy_async_writer *writer, cy_text *line);

// Whether the target has lost its reader: a closed pipe or terminal. Its records are dropped.
bool cy_async_is_broken(const cy_async_writer *writer, int number);

// Whether a write to the target ever failed, except after its reader had gone.
bool cy_async_has_failed(cy_async_writer *writer, int number);

// Records of the target that were dropped so far.
int64_t cy_async_dropped(cy_async_writer *writer, int number);

// Writes the remaining records, within `seconds`, forces the files to the disk and ends the thread.
// Records that could not be written by then count as dropped. False: the thread is still inside a
// write and stays until the process ends.
bool cy_async_writer_finish(cy_async_writer *writer, double seconds);

// After cy_async_writer_finish. NULL is allowed.
void cy_async_writer_close(cy_async_writer *writer);

#endif
