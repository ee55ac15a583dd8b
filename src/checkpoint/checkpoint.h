// checkpoint/checkpoint.h: reading a checkpoint, ours or a Hugging Face folder, on any mesh.
//
// A checkpoint is opened by its manifest alone (or, for a Hugging Face folder, by the headers of
// its files): a table of global tensors and of the file ranges that hold them. Loading reads, for
// each piece that a rank asks for, exactly the bytes that it shares with what is stored, and turns
// them into the dtype of the memory. Nobody needs to know which mesh wrote it. Checksums are
// compared on the way: a chunk that a rank wants and checks is read once.
//
// Every rank opens the folder for itself; one thread uses a cy_checkpoint at a time. The object
// owns all that it points to. Failures name the file and the tensor; nothing is ever written here.

#ifndef CY_CHECKPOINT_CHECKPOINT_H
#define CY_CHECKPOINT_CHECKPOINT_H

#include "base/text.h"
#include "base/thread_pool.h"
#include "checkpoint/tensor_shard.h"
#include "comm/group.h"
#include "model/shape.h"

#define CY_CHECKPOINT_FORMAT 1

typedef struct cy_checkpoint_file {
    char *name; // owned: relative to the folder
    uint64_t bytes;
    uint64_t head_bytes; // that belong to no tensor: a safetensors header, or all of another file
    uint64_t *checksums; // owned, one for each chunk of the head; NULL in a Hugging Face folder
    int fd;              // -1 until it is first read
} cy_checkpoint_file;

// A range of bytes of a file that holds a piece of a tensor.
typedef struct cy_stored_shard {
    cy_tensor_shard piece; // data is NULL; dense
    int file;
    uint64_t offset;
    uint64_t *checksums; // owned, one for each chunk; NULL in a Hugging Face folder
} cy_stored_shard;

typedef struct cy_stored_tensor {
    cy_global_tensor tensor; // its name is owned here
    cy_stored_shard *pieces; // borrowed from cy_checkpoint.pieces
    int64_t piece_count;
} cy_stored_tensor;

typedef struct cy_checkpoint {
    char *path;     // owned: the folder
    bool is_hf;     // a Hugging Face folder: weights only, no checksums
    int64_t step;   // 0 in a Hugging Face one
    int64_t tokens; // trained on so far
    cy_model_shape model;
    bool has_model;
    char *config_json; // owned: the resolved configuration of the run; NULL in a Hugging Face one
    char
        *state_json; // owned: what the trainer saved beside the tensors; NULL in a Hugging Face one
    char *identity_json;       // owned: what its data is known by (identity.h); NULL in one without
    cy_checkpoint_file *files; // owned, [file_count]
    int file_count;
    cy_stored_tensor *tensors; // owned, [tensor_count], sorted by kind and name
    int tensor_count;
    cy_stored_shard *pieces; // owned, [piece_count]
    int64_t piece_count;
    cy_thread_pool
        *pool;      // borrowed, set by whoever opened it: the threads that load; NULL: the caller
    bool read_once; // set by whoever opened it: what is loaded with its checksums bypasses the page
                    // cache, with threads besides `pool` where that has too few to keep a disk busy
} cy_checkpoint;

// Opens a folder: one with a manifest.json, or one with a config.json and safetensors files. Files
// that are missing or of another size are named. Reads no tensor.
CY_MUST_CHECK cy_status cy_checkpoint_open(cy_checkpoint *checkpoint, const char *path);
void cy_checkpoint_close(cy_checkpoint *checkpoint);

// Given a checkpoint or a folder of them, the path of the checkpoint: itself, or the newest one
// within. CY_ERR_REQUEST when there is none. *path is owned by the caller.
CY_MUST_CHECK cy_status cy_checkpoint_locate(char **path, const char *given);

// Opens all files of it, too, as far as descriptors last: what a run retires in the meantime can
// still be read.
CY_MUST_CHECK cy_status cy_checkpoint_open_pinned(cy_checkpoint *checkpoint, const char *path);

// Locates and opens what a user named, with its files.
CY_MUST_CHECK cy_status cy_checkpoint_open_located(cy_checkpoint *checkpoint, const char *given);

// Reads the checkpoint at `path` and leaves nothing behind where it fails.
typedef cy_status cy_checkpoint_reader(void *context, const char *path);

// Calls `reader` with what cy_checkpoint_locate finds. Where that fails and a run has meanwhile
// retired or replaced what it read, it is called again with what is the newest then.
CY_MUST_CHECK cy_status cy_checkpoint_read_newest(
    const char *given, cy_checkpoint_reader *reader, void *context);

// The stored tensor, or NULL.
const cy_stored_tensor *cy_checkpoint_find(
    const cy_checkpoint *checkpoint, cy_tensor_kind kind, const char *name);

// All differences between what is stored and what a model needs, in one failure (CY_ERR_CORRUPT: a
// folder does not hold what its own model has): tensors that are missing, of another shape, or, of
// the kinds that occur in `tensors`, of an unknown name.
CY_MUST_CHECK cy_status cy_checkpoint_check_tensors(
    const cy_checkpoint *checkpoint, const cy_global_tensor *tensors, int count);

// All differences of the model's shape in one failure (key, there, here); for resuming.
CY_MUST_CHECK cy_status cy_checkpoint_check_model(
    const cy_checkpoint *checkpoint, const cy_model_shape *model);

// What a rank has read so far. Zero it first; loading and verifying add to it.
typedef struct cy_checkpoint_traffic {
    int64_t read_bytes;   // that its pieces wanted
    int64_t verify_bytes; // that it compared with their checksums
    int64_t file_bytes;   // that it took out of files for both; past the page cache in whole blocks
} cy_checkpoint_traffic;

// Fills the pieces' memory without a look at checksums. `pieces[i].tensor` counts in `tensors`,
// whose kind and name are looked up and whose shape must be the stored one; the dtype in memory may
// differ between bf16, fp16, fp32 and fp64. Not collective. A failure leaves the memory in between.
CY_MUST_CHECK cy_status cy_checkpoint_load(cy_checkpoint *checkpoint,
    const cy_global_tensor *tensors, const cy_tensor_shard *pieces, int64_t piece_count,
    cy_checkpoint_traffic *traffic);

// Collective: fills the memory of every rank's pieces and compares all checksums of the kinds below
// `kinds` once: a chunk is checked by one of the ranks that want most of it, on its way to its
// place. The memory is good only when the call returns CY_OK. A chunk that is not what was written
// is named with file, tensor and bytes on the rank that found it; the others then fail with
// CY_ERR_PEER. A Hugging Face folder has no checksums and is only read.
// `kinds`: CY_TENSOR_KINDS for everything, CY_TENSOR_ADAM_M for the weights only.
CY_MUST_CHECK cy_status cy_checkpoint_load_checked(cy_checkpoint *checkpoint,
    const cy_global_tensor *tensors, const cy_tensor_shard *pieces, int64_t piece_count,
    cy_tensor_kind kinds, cy_group *ranks, cy_queue *queue, cy_checkpoint_traffic *traffic);

// Collective: the same without loading anything; each rank reads an even share.
CY_MUST_CHECK cy_status cy_checkpoint_verify(cy_checkpoint *checkpoint, cy_tensor_kind kinds,
    cy_group *ranks, cy_queue *queue, cy_checkpoint_traffic *traffic);

// Collective: all ranks learn whether all succeeded. Returns `mine` where that is a failure, with
// the text that its own rank has; CY_ERR_PEER, "another rank `did` `folder`", where only another
// one failed.
CY_MUST_CHECK cy_status cy_checkpoint_agree(
    cy_group *ranks, cy_queue *queue, cy_status mine, const char *did, const char *folder);

typedef struct cy_tensor_difference {
    double norm;     // 2-norm of one's tensor
    double distance; // 2-norm of the difference
    bool equal;      // every element has the same bits, once both are doubles
} cy_tensor_difference;

// |one - other| / |one|; 0 of equal ones, infinite where `one` is zero and the other is not.
double cy_tensor_difference_relative(const cy_tensor_difference *difference);

// Compares the tensor of that kind and name, which both must have in one shape, whichever mesh
// wrote them. Reads both in parts of some megabytes; looks at no checksums.
CY_MUST_CHECK cy_status cy_checkpoint_compare(cy_tensor_difference *difference, cy_checkpoint *one,
    cy_checkpoint *other, const cy_global_tensor *tensor);

#endif
