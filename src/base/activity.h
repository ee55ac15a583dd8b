// base/activity.h: what a thread does that may last long without a word to anybody: calls on files.
//
// An activity is a place that others read: in the memory of the process, or in memory that the
// processes of a machine share. A rank's thread is given one and shows there every call on a file
// that it makes (base/io.h). One thread writes an activity, everybody reads it.

#ifndef CY_BASE_ACTIVITY_H
#define CY_BASE_ACTIVITY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CY_ACTIVITY_NAME_WORDS 8

typedef enum cy_activity_kind {
    CY_ACTIVITY_NONE,
    CY_ACTIVITY_OPEN,
    CY_ACTIVITY_READ,
    CY_ACTIVITY_WRITE,
    CY_ACTIVITY_SYNC,
    CY_ACTIVITY_CLOSE,
    CY_ACTIVITY_RENAME,
    CY_ACTIVITY_REMOVE,
    CY_ACTIVITY_MKDIR,
    CY_ACTIVITY_STAT, // at a file's size, a folder's names
    CY_ACTIVITY_WAIT, // for another thread of the process, which does any of these
} cy_activity_kind;

// All zeros: nothing is done.
typedef struct cy_activity {
    _Atomic uint64_t count;   // of begins and ends: it changes as long as calls come back
    _Atomic int64_t since_ns; // of cy_clock_ns, at the last begin
    _Atomic int kind;
    _Atomic int descriptor;                        // that the call is on; -1: the name says it
    _Atomic uint64_t name[CY_ACTIVITY_NAME_WORDS]; // the last bytes of a path, padded with zeros
} cy_activity;

// This thread shows what it does on `activity` (borrowed; NULL: nowhere) from now on. Returns where
// it did before.
cy_activity *cy_activity_attach(cy_activity *activity);

// Around what the thread does with a file, which is named by `path` or, where that is NULL, by its
// descriptor. One inside of another is not shown, but counts. They keep errno.
void cy_activity_begin(cy_activity_kind kind, const char *path, int descriptor);
void cy_activity_end(void);

// Whether something is being done.
static inline bool cy_activity_in_progress(const cy_activity *activity)
{
    return atomic_load(&activity->kind) != CY_ACTIVITY_NONE;
}

// "syncing weights-00001.safetensors for 1800 s" into a buffer; "" where nothing is being done.
// `process` is whose descriptors these are.
void cy_activity_describe(const cy_activity *activity, int process, char *text, size_t bytes);

#endif
