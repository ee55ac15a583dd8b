// disk/case.h: what a case of the file faults does, and what has to hold afterwards.
//
// A scenario prepares a folder, once for each variant. A case puts that folder on the disk of
// disk/disk.h, does the scenario's work while a fault happens, and then checks what is there: on
// the running machine, and after a loss of power.

#ifndef CY_TESTS_DISK_CASE_H
#define CY_TESTS_DISK_CASE_H

#include "base/status.h"
#include "disk/disk.h"

#include <pthread.h>

// A checkpoint that a case tried to save. The run tells its values from those of others.
typedef struct disk_saved {
    int64_t step;
    int run;
    bool reported; // the save returned CY_OK before power was lost
} disk_saved;

typedef struct disk_case {
    int variant;
    int round;        // how often the work was done before, on the same folder
    bool failed;      // the work returned a failure
    bool torn;        // power was lost since the work began
    char notes[8192]; // what the work said: texts of failures and warnings, a line each
    char wrong[1024]; // what does not hold; "": all does
    pthread_mutex_t lock;
    disk_saved saved[16];
    int saved_count;
    const disk_image *wanted; // what the variant's work makes when nothing happens to it
    cy_log log;               // adds to the notes
} disk_case;

typedef struct disk_scenario {
    const char *name;
    int share; // of the cases
    int variants;
    bool writes;          // otherwise it only reads
    const char *names[4]; // that stand for files which have a temporary name
    void (*prepare)(int variant);
    void (*work)(disk_case *c);
    void (*check)(disk_case *c);
} disk_scenario;

// Records a failure of the work, with its text.
void disk_note(disk_case *c, cy_status status);
void disk_note_line(disk_case *c, const char *line);
void disk_wrong(disk_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

// A path in the disk's folder, in one of eight buffers of the thread.
const char *disk_path(const char *below);

// Aborts with the words of the failure: for what prepares.
void disk_must(cy_status status, const char *what);
void disk_put_text(const char *below, const char *bytes, size_t count);

// What stands at `name` (a folder, or one file) is whole as it is wanted, or, unless the work
// reported success, as it was: not there, or `old` where that is not NULL.
void disk_check_output(disk_case *c, const char *name, bool reported, const disk_image *old);

extern const disk_scenario disk_save, disk_load;         // scenarios_checkpoint.c
extern const disk_scenario disk_export, disk_import;     // scenarios_folder.c
extern const disk_scenario disk_prepare, disk_read;      // scenarios_folder.c
extern const disk_scenario disk_output, disk_run_folder; // scenarios_output.c

#endif
