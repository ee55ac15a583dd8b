// checkpoint/save.h: saves a checkpoint, by all ranks in parallel, completely or not at all.
//
// A saver locks the folder for one run: while it is open, no other run can save there. A save is
// written under a name that starts with a dot, forced to disk and renamed, so a folder with a
// step's name is complete at every instant. Opening the saver removes what dead runs left. A failed
// save removes what it wrote and leaves the earlier checkpoints as they were; the run may go on.
// Checkpoints that a save replaced or retired have lost their names when it returns; a thread of
// rank 0 then removes their files. The next save, or closing the saver, waits for that thread.
//
// Collective: all ranks make the same calls, each from its own thread with its own saver. Bytes go
// to the file through blocks of 1 MiB: eight in the whole job, at least one a rank.

#ifndef CY_CHECKPOINT_SAVE_H
#define CY_CHECKPOINT_SAVE_H

#include "base/status.h"
#include "checkpoint/checkpoint.h"

typedef struct cy_saver cy_saver;

// Opens the folder, and makes it where it is missing. keep_last 0 keeps all checkpoints; otherwise
// a save of step n retires all but the newest keep_last of the steps up to n. `ranks` and `queue`
// are borrowed until the saver closes; the queue is of the device that holds the memory of the
// shards, NULL where that is the host's. *saver is owned by the caller. Fails where another run
// holds the folder.
CY_MUST_CHECK cy_status cy_saver_open(cy_saver **saver, const char *folder, int keep_last,
    cy_group *ranks, cy_queue *queue, const cy_log *log);
void cy_saver_close(cy_saver *saver);

// A file that is added to the checkpoint, such as tokenizer.json.
typedef struct cy_extra_file {
    const char *name;   // borrowed: in the checkpoint
    const char *source; // borrowed: the file that is copied; NULL: the bytes are these
    const char *bytes;  // borrowed, [byte_count]
    size_t byte_count;
} cy_extra_file;

typedef struct cy_save {
    int64_t step;
    int64_t tokens;
    const char *config_json;   // borrowed, an object: the resolved configuration
    const char *state_json;    // borrowed, an object: scaler, data position, random state; or NULL
    const char *identity_json; // borrowed, an object: identity of tokenizer and data; or NULL
    const cy_model_shape *model; // borrowed
    const cy_extra_file *files;  // borrowed, [file_count]
    int file_count;
    // The same list on all ranks.
    const cy_global_tensor *tensors; // borrowed, [tensor_count]
    int tensor_count;
    // The shards that this rank writes. The shards of all ranks must cover every tensor exactly
    // once, which is checked. The dtype in memory is the tensor's.
    const cy_tensor_shard *pieces; // borrowed, [piece_count]
    int64_t piece_count;
    // NULL, or the checkpoint that the tensors are copied from. Each shard is then a whole tensor,
    // the one of the same number in `source`, and has no memory.
    cy_checkpoint *source; // borrowed
} cy_save;

typedef struct cy_save_report {
    int64_t bytes;  // written by this rank
    double total_s; // from the call until all ranks know that the checkpoint has its name
} cy_save_report;

// Writes FOLDER/step-00000100, and makes FOLDER again where it was deleted. A step that is there
// already is replaced in one instant. `report` may be NULL. The rank where something fails returns
// the reason; the others fail with CY_ERR_PEER.
CY_MUST_CHECK cy_status cy_saver_save(cy_saver *saver, const cy_save *save, cy_save_report *report);

// ---- used inside src/checkpoint only
//
// A rank writes its weights to weights-00000.safetensors and the rest to
// optimizer-00000.safetensors, with its number in the names. What lies where in them it writes to
// part-00000.json, which rank 0 reads and removes before the checkpoint gets its name.

// Writes this rank's files into `folder` and forces them to disk, past the page cache, as one of
// `ranks` ranks that write at the same time. *bytes is what was written. `queue` as of a saver.
CY_MUST_CHECK cy_status cy_rank_files_write(
    int64_t *bytes, const cy_save *save, cy_queue *queue, const char *folder, int rank, int ranks);

// Writes part-00000.json of a rank's table: its files, tensors and shards.
CY_MUST_CHECK cy_status cy_rank_files_write_part(
    const cy_checkpoint *table, const char *folder, int rank);

// Rank 0, when all ranks have written: adds the copied files and the manifest, removes the parts,
// forces the folder to disk. `pending` is the folder under its temporary name.
CY_MUST_CHECK cy_status cy_commit_manifest(const cy_save *save, const char *pending, int ranks);

#endif
