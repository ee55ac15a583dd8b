// checkpoint/checkpoint.h: opens, loads, verifies and compares checkpoints.
//
// Opening a checkpoint reads its manifest (or, in a Hugging Face folder, the headers of its files):
// a table of global tensors and of the file ranges that hold them. Loading takes a list of tensor
// shards in memory, reads exactly the bytes that belong to them and converts them to the dtype of
// the memory. The mesh that loads need not be the mesh that saved. Checksums are compared on the
// way: a chunk that a rank wants and checks is read once.
//
// Every rank opens the folder for itself; one thread uses a cy_checkpoint at a time. The object
// owns all that it points to. Failures name the file and the tensor. Nothing here writes a file.
// Collective calls take the group of all ranks that make them; a rank alone passes cy_group_self().
// A queue is of the device that holds the memory of shards; NULL: that is the host's memory.

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
    uint64_t head_bytes; // of no tensor: a safetensors header, or all of a file of another kind
    uint64_t *checksums; // owned, one for each chunk of the head; NULL in a Hugging Face folder
    int fd;              // -1 until the file is first read
} cy_checkpoint_file;

// A tensor shard and the range of bytes of a file that holds it.
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
    int64_t step;   // updates done; 0 in a Hugging Face folder
    int64_t tokens; // trained on so far
    cy_model_shape model;
    bool has_model;
    char *config_json;   // owned: the run's resolved configuration; NULL in a Hugging Face folder
    char *state_json;    // owned: the trainer's own state; NULL in a Hugging Face folder
    char *identity_json; // owned: identity of tokenizer and data (identity.h); may be NULL
    cy_checkpoint_file *files; // owned, [file_count]
    int file_count;
    cy_stored_tensor *tensors; // owned, [tensor_count], sorted by kind and name
    int tensor_count;
    cy_stored_shard *pieces; // owned, [piece_count]
    int64_t piece_count;
    // Set by the caller of cy_checkpoint_open.
    cy_thread_pool *pool; // borrowed: the threads that load; NULL: the calling thread
    bool read_once; // checked loads bypass the page cache, with threads besides `pool` where it has
                    // too few to keep a disk busy
} cy_checkpoint;

// Opens a folder with a manifest.json, or with a config.json and safetensors files. The failure
// names all files that are missing or of another size. Reads no tensor. On failure nothing is
// owned.
CY_MUST_CHECK cy_status cy_checkpoint_open(cy_checkpoint *checkpoint, const char *path);
void cy_checkpoint_close(cy_checkpoint *checkpoint);

// The path of a checkpoint, given itself or a folder of checkpoints, of which the newest is taken.
// CY_ERR_REQUEST when there is none. *path is owned by the caller.
CY_MUST_CHECK cy_status cy_checkpoint_locate(char **path, const char *given);

// As cy_checkpoint_open, and opens all files, as long as descriptors last: they can still be read
// after a run has retired the checkpoint.
CY_MUST_CHECK cy_status cy_checkpoint_open_pinned(cy_checkpoint *checkpoint, const char *path);

// cy_checkpoint_locate and cy_checkpoint_open_pinned, through cy_checkpoint_read_newest.
CY_MUST_CHECK cy_status cy_checkpoint_open_located(cy_checkpoint *checkpoint, const char *given);

// Reads the checkpoint at `path` and leaves nothing behind where it fails.
typedef cy_status cy_checkpoint_reader(void *context, const char *path);

// Calls `reader` with the path that cy_checkpoint_locate finds. Where the reader fails and a run
// has meanwhile retired or replaced that checkpoint, locates and calls again, at most 16 times in
// all.
CY_MUST_CHECK cy_status cy_checkpoint_read_newest(
    const char *given, cy_checkpoint_reader *reader, void *context);

// The stored tensor, or NULL.
const cy_stored_tensor *cy_checkpoint_find(
    const cy_checkpoint *checkpoint, cy_tensor_kind kind, const char *name);

// Fails with CY_ERR_CORRUPT unless the checkpoint stores exactly the tensors [count] that its model
// needs. The failure lists all differences: tensors that are missing or of another shape, and, of
// the kinds that occur in `tensors`, tensors of an unknown name.
CY_MUST_CHECK cy_status cy_checkpoint_check_tensors(
    const cy_checkpoint *checkpoint, const cy_global_tensor *tensors, int count);

// Fails with CY_ERR_REQUEST where the checkpoint is of another model, and lists the keys of the
// shape that differ with both values.
CY_MUST_CHECK cy_status cy_checkpoint_check_model(
    const cy_checkpoint *checkpoint, const cy_model_shape *model);

// The bytes that a rank has read. Zero it first; loading and verifying add to it.
typedef struct cy_checkpoint_traffic {
    int64_t read_bytes;   // that its shards wanted
    int64_t verify_bytes; // that it compared with their checksums
    int64_t file_bytes;   // read from files for both; past the page cache in whole blocks
} cy_checkpoint_traffic;

// Fills the memory of the shards [piece_count] without comparing checksums. `pieces[i].tensor` is
// an index into `tensors`, whose kind and name are looked up and whose shape must be the stored
// one. bf16, fp16, fp32 and fp64 are converted to the dtype in memory. Not collective. After a
// failure some of the memory is filled.
CY_MUST_CHECK cy_status cy_checkpoint_load(cy_checkpoint *checkpoint,
    const cy_global_tensor *tensors, const cy_tensor_shard *pieces, int64_t piece_count,
    cy_checkpoint_traffic *traffic);

// Collective: fills the memory of every rank's shards and compares each checksum of the kinds below
// `kinds` once in the job: one of the ranks that want most of a chunk checks it while it reads it.
// The memory is good only when the call returns CY_OK. The rank that finds a damaged chunk fails
// with its file, tensor and bytes; the others fail with CY_ERR_PEER. A Hugging Face folder has no
// checksums and is only read.
// `kinds`: CY_TENSOR_KINDS checks everything, CY_TENSOR_ADAM_M only the weights.
CY_MUST_CHECK cy_status cy_checkpoint_load_checked(cy_checkpoint *checkpoint,
    const cy_global_tensor *tensors, const cy_tensor_shard *pieces, int64_t piece_count,
    cy_tensor_kind kinds, cy_group *ranks, cy_queue *queue, cy_checkpoint_traffic *traffic);

// Collective: compares the checksums without loading anything; each rank reads an even share.
CY_MUST_CHECK cy_status cy_checkpoint_verify(cy_checkpoint *checkpoint, cy_tensor_kind kinds,
    cy_group *ranks, cy_checkpoint_traffic *traffic);

// Collective: tells all ranks whether all succeeded. Returns `mine` where that is a failure;
// CY_ERR_PEER, "another rank `did` `folder`", where only another rank failed; CY_OK otherwise.
CY_MUST_CHECK cy_status cy_checkpoint_agree(
    cy_group *ranks, cy_status mine, const char *did, const char *folder);

typedef struct cy_tensor_difference {
    double norm;     // 2-norm of the tensor of `one`
    double distance; // 2-norm of the difference
    bool equal;      // every element has the same bits, once both are doubles
} cy_tensor_difference;

// |one - other| / |one|; 0 of equal ones, infinite where `one` is zero and the other is not.
double cy_tensor_difference_relative(const cy_tensor_difference *difference);

// Compares a tensor of two checkpoints, found by its kind and name. Both must have it in the same
// shape; their meshes may differ. Reads both in parts of some megabytes and compares no checksums.
CY_MUST_CHECK cy_status cy_checkpoint_compare(cy_tensor_difference *difference, cy_checkpoint *one,
    cy_checkpoint *other, const cy_global_tensor *tensor);

#endif
