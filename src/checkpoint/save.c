// Saves a checkpoint: every rank writes its files, rank 0 writes the manifest and renames the
// folder.

#define _GNU_SOURCE
#include "checkpoint/save.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "checkpoint/file_io.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the files of a rank

// Blocks in flight of all ranks together: a disk is fastest with several; more only take memory.
#define BLOCKS 8

typedef struct rank_writer {
    const cy_save *save;
    cy_queue *queue; // borrowed: of the device that holds the shards; NULL: of the host
    const char *folder;
    int rank;
    int blocks;          // of a writer
    cy_checkpoint table; // what this rank writes
    char *buffer;        // owned, CY_CHUNK_BYTES: for what cannot be written from its place
    int64_t bytes;
} rank_writer;

// FOLDER/part-00000.json, owned by the caller.
static cy_status part_path(char **path, const char *folder, int rank)
{
    char name[40];
    snprintf(name, sizeof(name), "part-%05d.json", rank);
    return cy_folder_join(path, folder, name);
}

static bool is_whole(const cy_tensor_shard *piece, const cy_global_tensor *tensor)
{
    return piece->count == tensor->rows * tensor->cols;
}

// The entry of a safetensors header for a shard. The caller frees its name.
static cy_status make_entry(
    cy_safetensors_entry *entry, const cy_tensor_shard *piece, const cy_global_tensor *tensor)
{
    const cy_rectangle *r = &piece->rectangle;
    const bool weight = tensor->kind == CY_TENSOR_WEIGHT;
    const bool rectangle = piece->count == r->rows * r->cols && tensor->dimensions == 2;
    cy_text name = {0};
    CY_TRY(cy_text_add(&name, "%s%s%s", weight ? "" : cy_tensor_kind_name(tensor->kind),
        weight ? "" : ".", tensor->name));
    cy_status status = CY_OK;
    if (!is_whole(piece, tensor)) {
        status = cy_text_add(&name,
            "[%" PRId64 "+%" PRId64 ",%" PRId64 "+%" PRId64 "][%" PRId64 "+%" PRId64 "]",
            r->row_first, r->rows, r->col_first, r->cols, piece->first, piece->count);
    }
    if (status != CY_OK) {
        cy_text_free(&name);
        return status;
    }
    *entry = (cy_safetensors_entry){
        .name = name.bytes,
        .dtype = tensor->dtype,
        .dimensions = rectangle ? 2 : 1,
        .dims = {rectangle ? r->rows : piece->count, r->cols},
    };
    return CY_OK;
}

// Elements [index, index + count) of a shard, at most a chunk: *bytes is where they lie dense on
// the host.
static cy_status take_chunk(const char **bytes, rank_writer *out, const cy_tensor_shard *piece,
    int64_t index, int64_t count)
{
    const cy_checkpoint *source = out->save->source;
    if (source == NULL) {
        return cy_tensor_shard_read(bytes, out->buffer, out->queue, piece, index, count);
    }
    const size_t size = cy_dtype_size(piece->dtype);
    const cy_stored_shard *stored = &source->tensors[piece->tensor].pieces[0];
    struct iovec part = {.iov_base = out->buffer, .iov_len = (size_t)count * size};
    *bytes = out->buffer;
    return cy_bytes_read(
        out->save->source, stored->file, stored->offset + (uint64_t)index * size, &part, 1);
}

static cy_status write_piece(
    rank_writer *out, cy_file_writer *writer, cy_stored_shard *stored, const cy_tensor_shard *piece)
{
    const size_t size = cy_dtype_size(piece->dtype);
    const int64_t chunk = (int64_t)(CY_CHUNK_BYTES / size);
    void *checksums = NULL;
    CY_TRY(cy_memory_alloc(
        &checksums, (size_t)cy_chunk_count((uint64_t)piece->count * size), sizeof(uint64_t)));
    stored->checksums = checksums;
    for (int64_t done = 0, i = 0; done < piece->count; done += chunk, i++) {
        const int64_t left = piece->count - done;
        const int64_t some = left < chunk ? left : chunk;
        const char *bytes = NULL;
        CY_TRY(take_chunk(&bytes, out, piece, piece->first + done, some));
        // The bytes are in the processor's cache when they are copied.
        stored->checksums[i] = cy_checksum(bytes, (size_t)some * size);
        CY_TRY(cy_file_writer_add(writer, bytes, (size_t)some * size));
    }
    return CY_OK;
}

// Writes the shards [first, first + count) of the rank's table, in order, as the file `path`.
static cy_status write_body(rank_writer *out, cy_safetensors_entry *entries,
    const cy_tensor_shard **sources, int64_t first, int count, const char *path)
{
    cy_checkpoint_file *file = &out->table.files[out->table.file_count - 1];
    cy_text header = {0};
    cy_file_writer *writer = NULL;
    cy_status status = cy_safetensors_header(&header, entries, count, "{\"format\":\"pt\"}");
    if (status != CY_OK) goto free_header;
    const cy_safetensors_entry *last = &entries[count - 1];
    file->bytes = last->offset + last->bytes;
    status = cy_checkpoint_file_head(file, header.bytes, header.length);
    if (status != CY_OK) goto free_header;
    status = cy_file_writer_open(&writer, path, file->bytes, out->blocks);
    if (status == CY_OK) status = cy_file_writer_add(writer, header.bytes, header.length);
    for (int i = 0; status == CY_OK && i < count; i++) {
        cy_stored_shard *stored = &out->table.pieces[first + i];
        stored->offset = entries[i].offset;
        status = write_piece(out, writer, stored, sources[first + i]);
    }
    const cy_status closed = cy_file_writer_close(writer, status == CY_OK);
    if (status == CY_OK) status = closed;
    out->bytes += (int64_t)file->bytes;
free_header:
    cy_text_free(&header);
    return status;
}

static bool belongs(const cy_save *save, const cy_tensor_shard *piece, bool weights)
{
    if (piece->count == 0) return false;
    return (save->tensors[piece->tensor].kind == CY_TENSOR_WEIGHT) == weights;
}

// Writes this rank's weights, or all but the weights, as one file; no file where it has none.
static cy_status write_file(rank_writer *out, const cy_tensor_shard **sources, bool weights)
{
    const cy_save *save = out->save;
    const int64_t first = out->table.piece_count;
    int count = 0;
    void *entries = NULL;
    char *path = NULL;
    char name[60];
    for (int64_t i = 0; i < save->piece_count; i++)
        count += belongs(save, &save->pieces[i], weights);
    if (count == 0) return CY_OK;
    CY_TRY(cy_memory_alloc(&entries, (size_t)count, sizeof(cy_safetensors_entry)));
    snprintf(
        name, sizeof(name), "%s-%05d.safetensors", weights ? "weights" : "optimizer", out->rank);
    cy_safetensors_entry *list = entries;
    cy_checkpoint_file *file = &out->table.files[out->table.file_count++];
    file->fd = -1;
    cy_status status = cy_memory_copy_text(&file->name, name);
    int made = 0;
    for (int64_t i = 0; status == CY_OK && i < save->piece_count; i++) {
        const cy_tensor_shard *piece = &save->pieces[i];
        if (!belongs(save, piece, weights)) continue;
        cy_stored_shard *stored = &out->table.pieces[out->table.piece_count];
        sources[out->table.piece_count++] = piece;
        stored->piece = *piece;
        stored->piece.data = NULL;
        stored->file = out->table.file_count - 1;
        status = make_entry(&list[made++], piece, &save->tensors[piece->tensor]);
    }
    if (status == CY_OK) status = cy_folder_join(&path, out->folder, name);
    if (status == CY_OK) status = write_body(out, list, sources, first, count, path);
    for (int i = 0; i < made; i++)
        cy_memory_free(list[i].name);
    cy_memory_free(entries);
    cy_memory_free(path);
    return status;
}

// Allocates the arrays of a table for so many files, tensors and shards.
static cy_status take_table(cy_checkpoint *table, size_t files, size_t tensors, size_t pieces)
{
    void *memory = NULL;
    CY_TRY(cy_memory_alloc(&memory, files, sizeof(cy_checkpoint_file)));
    table->files = memory;
    CY_TRY(cy_memory_alloc(&memory, tensors, sizeof(cy_stored_tensor)));
    table->tensors = memory;
    CY_TRY(cy_memory_alloc(&memory, pieces, sizeof(cy_stored_shard)));
    table->pieces = memory;
    return CY_OK;
}

// Adds a tensor without shards; the table owns a copy of its name.
static cy_status add_tensor(cy_checkpoint *table, const cy_global_tensor *tensor)
{
    char *name = NULL;
    CY_TRY(cy_memory_copy_text(&name, tensor->name));
    cy_stored_tensor *stored = &table->tensors[table->tensor_count++];
    stored->tensor = *tensor;
    stored->tensor.name = name;
    return CY_OK;
}

// Sorts the shards by tensor, which were in the order of the files, and sets `pieces` and
// `piece_count` of each tensor. `piece.tensor` is an index into the table's tensors.
static cy_status group_pieces(cy_checkpoint *table)
{
    void *memory = NULL;
    CY_TRY(cy_memory_alloc(&memory, (size_t)table->piece_count, sizeof(cy_stored_shard)));
    cy_stored_shard *grouped = memory;
    for (int64_t i = 0; i < table->piece_count; i++) {
        table->tensors[table->pieces[i].piece.tensor].piece_count++;
    }
    cy_stored_shard *next = grouped;
    for (int i = 0; i < table->tensor_count; i++) {
        table->tensors[i].pieces = next;
        next += table->tensors[i].piece_count;
        table->tensors[i].piece_count = 0;
    }
    for (int64_t i = 0; i < table->piece_count; i++) {
        cy_stored_tensor *stored = &table->tensors[table->pieces[i].piece.tensor];
        stored->pieces[stored->piece_count++] = table->pieces[i];
    }
    cy_memory_free(table->pieces);
    table->pieces = grouped;
    return CY_OK;
}

cy_status cy_rank_files_write_part(const cy_checkpoint *table, const char *folder, int rank)
{
    char *path = NULL;
    cy_text json = {0};
    CY_TRY(part_path(&path, folder, rank));
    cy_status status = cy_checkpoint_to_json(&json, table);
    if (status == CY_OK) status = cy_file_write_unsynced(path, json.bytes, json.length);
    cy_text_free(&json);
    cy_memory_free(path);
    return status;
}

static cy_status write_part(rank_writer *out)
{
    for (int i = 0; i < out->save->tensor_count; i++) {
        CY_TRY(add_tensor(&out->table, &out->save->tensors[i]));
    }
    CY_TRY(group_pieces(&out->table));
    return cy_rank_files_write_part(&out->table, out->folder, out->rank);
}

static int blocks_of(int ranks)
{
    const int blocks = BLOCKS / ranks;
    return blocks < 1 ? 1 : blocks < CY_FILE_WRITER_BLOCKS_MAX ? blocks : CY_FILE_WRITER_BLOCKS_MAX;
}

cy_status cy_rank_files_write(
    int64_t *bytes, const cy_save *save, cy_queue *queue, const char *folder, int rank, int ranks)
{
    void *buffer = NULL, *sources = NULL;
    const size_t pieces = (size_t)save->piece_count;
    rank_writer out = {
        .save = save,
        .queue = queue,
        .folder = folder,
        .rank = rank,
        .blocks = blocks_of(ranks),
    };
    for (size_t i = 0; i < pieces; i++) {
        CY_ASSERT(save->pieces[i].tensor >= 0 && save->pieces[i].tensor < save->tensor_count);
        CY_ASSERT(save->pieces[i].dtype == save->tensors[save->pieces[i].tensor].dtype);
    }
    cy_status status = take_table(&out.table, 2, (size_t)save->tensor_count, pieces);
    if (status == CY_OK) status = cy_memory_alloc(&buffer, CY_CHUNK_BYTES, 1);
    if (status == CY_OK) status = cy_memory_alloc(&sources, pieces, sizeof(cy_tensor_shard *));
    out.buffer = buffer;
    if (status == CY_OK) status = write_file(&out, sources, true);
    if (status == CY_OK) status = write_file(&out, sources, false);
    if (status == CY_OK) status = write_part(&out);
    cy_memory_free(buffer);
    cy_memory_free(sources);
    cy_checkpoint_close(&out.table);
    if (status == CY_OK) *bytes = out.bytes;
    return status;
}

// ---- rank 0: the parts of all ranks

static cy_status read_part(cy_checkpoint *part, const char *folder, int rank)
{
    char *path = NULL;
    cy_text json = {0};
    CY_TRY(part_path(&path, folder, rank));
    cy_status status = cy_file_read(&json, path, CY_MANIFEST_BYTES_MAX);
    if (status == CY_OK)
        status = cy_checkpoint_from_json(part, json.bytes, json.length, path, true);
    cy_text_free(&json);
    cy_memory_free(path);
    return status;
}

// Moves the files and shards of a part into the table. Tensors are found by kind and name.
static void move_part(cy_checkpoint *table, cy_checkpoint *part)
{
    const int file_first = table->file_count;
    for (int i = 0; i < part->file_count; i++) {
        table->files[table->file_count++] = part->files[i];
        part->files[i] = (cy_checkpoint_file){.fd = -1};
    }
    for (int i = 0; i < part->tensor_count; i++) {
        cy_stored_tensor *stored = &part->tensors[i];
        const cy_stored_tensor *known =
            cy_checkpoint_find(table, stored->tensor.kind, stored->tensor.name);
        if (known == NULL) continue; // the cover check will name what is missing
        for (int64_t j = 0; j < stored->piece_count; j++) {
            cy_stored_shard *piece = &table->pieces[table->piece_count++];
            *piece = stored->pieces[j];
            piece->file += file_first;
            piece->piece.tensor = (int)(known - table->tensors);
            stored->pieces[j].checksums = NULL;
        }
    }
}

static cy_status merge_parts(
    cy_checkpoint *table, cy_checkpoint *parts, const cy_save *save, int ranks)
{
    size_t files = (size_t)save->file_count, pieces = 0;
    for (int i = 0; i < ranks; i++) {
        files += (size_t)parts[i].file_count;
        pieces += (size_t)parts[i].piece_count;
    }
    CY_TRY(take_table(table, files, (size_t)save->tensor_count, pieces));
    for (int i = 0; i < save->tensor_count; i++)
        CY_TRY(add_tensor(table, &save->tensors[i]));
    CY_TRY(cy_checkpoint_finalize(table, "the model", true)); // sorts them
    for (int i = 0; i < ranks; i++)
        move_part(table, &parts[i]);
    CY_TRY(group_pieces(table));
    return cy_checkpoint_finalize(table, "the ranks' pieces", false);
}

static cy_status collect_parts(
    cy_checkpoint *checkpoint, const cy_save *save, const char *folder, int ranks)
{
    void *memory = NULL;
    CY_TRY(cy_memory_alloc(&memory, (size_t)ranks, sizeof(cy_checkpoint)));
    cy_checkpoint *parts = memory;
    cy_status status = CY_OK;
    for (int i = 0; status == CY_OK && i < ranks; i++)
        status = read_part(&parts[i], folder, i);
    if (status == CY_OK) status = merge_parts(checkpoint, parts, save, ranks);
    for (int i = 0; i < ranks; i++)
        cy_checkpoint_close(&parts[i]);
    cy_memory_free(memory);
    return status;
}

// ---- rank 0: the manifest and the names

#define COPIED_BYTES_MAX ((size_t)1 << 30)

static cy_status check_object(const char *json, const char *what)
{
    json_error_t error;
    if (json == NULL) return CY_OK;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &error);
    const bool object = json_is_object(root);
    const char *text = root == NULL ? error.text : "something else";
    json_decref(root);
    if (object) return CY_OK;
    return CY_FAIL(CY_ERR_REQUEST, "the %s of a checkpoint is not a JSON object: %s", what, text);
}

static cy_status begin(const cy_save *save, const char *folder, const char *pending)
{
    CY_TRY(check_object(save->config_json, "configuration"));
    CY_TRY(check_object(save->state_json, "state"));
    CY_TRY(check_object(save->identity_json, "identity"));
    CY_TRY(
        cy_folder_remove_renamed(folder, pending)); // of a save that failed and could not clean up
    if (cy_io_make_folder(pending) != 0) return CY_FAIL_ERRNO(CY_ERR_IO, "make folder %s", pending);
    return CY_OK;
}

// Writes a file into the folder of the checkpoint and adds it to the table.
static cy_status add_file(cy_checkpoint *table, const cy_extra_file *saved, const char *folder)
{
    cy_text text = {0};
    char *path = NULL;
    if (saved->source != NULL) CY_TRY(cy_file_read(&text, saved->source, COPIED_BYTES_MAX));
    const char *bytes = saved->source != NULL ? text.bytes : saved->bytes;
    const size_t count = saved->source != NULL ? text.length : saved->byte_count;
    cy_status status = cy_folder_join(&path, folder, saved->name);
    if (status == CY_OK) status = cy_file_write_unsynced(path, bytes, count);
    if (status == CY_OK) {
        cy_checkpoint_file *file = &table->files[table->file_count++];
        *file = (cy_checkpoint_file){.bytes = count, .fd = -1};
        status = cy_checkpoint_file_head(file, bytes, count);
        if (status == CY_OK) status = cy_memory_copy_text(&file->name, saved->name);
    }
    cy_text_free(&text);
    cy_memory_free(path);
    return status;
}

cy_status cy_commit_manifest(const cy_save *save, const char *pending, int ranks)
{
    cy_checkpoint table = {0};
    cy_text json = {0};
    char *path = NULL;
    cy_status status = collect_parts(&table, save, pending, ranks);
    for (int i = 0; status == CY_OK && i < save->file_count; i++) {
        status = add_file(&table, &save->files[i], pending);
    }
    if (status == CY_OK && save->config_json != NULL) {
        status = cy_memory_copy_text(&table.config_json, save->config_json);
    }
    if (status == CY_OK && save->state_json != NULL) {
        status = cy_memory_copy_text(&table.state_json, save->state_json);
    }
    if (status == CY_OK && save->identity_json != NULL) {
        status = cy_memory_copy_text(&table.identity_json, save->identity_json);
    }
    table.step = save->step;
    table.tokens = save->tokens;
    if (save->model != NULL) {
        table.model = *save->model;
        table.has_model = true;
    }
    if (status == CY_OK) status = cy_checkpoint_to_json(&json, &table);
    if (status == CY_OK) status = cy_folder_join(&path, pending, CY_MANIFEST_NAME);
    if (status == CY_OK) status = cy_file_write_unsynced(path, json.bytes, json.length);
    cy_memory_free(path);
    cy_text_free(&json);
    cy_checkpoint_close(&table);
    for (int i = 0; status == CY_OK && i < ranks; i++) {
        char *part = NULL;
        status = part_path(&part, pending, i);
        if (status == CY_OK && cy_io_unlink(part) != 0) {
            status = CY_FAIL_ERRNO(CY_ERR_IO, "remove %s", part);
        }
        cy_memory_free(part);
    }
    if (status == CY_OK) status = cy_folder_sync(pending);
    return status;
}

// Forces the names to the disk. Where that fails, gives both folders the names that they had
// before; `swapped`: the two were exchanged.
static cy_status sync_names(
    const char *folder, const char *pending, const char *target, bool swapped)
{
    const cy_status status = cy_folder_sync(folder);
    if (status == CY_OK) return CY_OK;
    // Both folders are complete, so either may have the name.
    const int undone = swapped ? cy_io_exchange(pending, target) : cy_io_rename(target, pending);
    if (undone != 0) cy_error_prefix("%s is there, on the disk perhaps not: ", target);
    return status;
}

// Replaces `target` on a file system that cannot exchange names.
static cy_status rename_twice(
    const char *folder, const char *pending, const char *target, const char *old)
{
    CY_TRY(cy_folder_remove_renamed(folder, old));
    if (cy_io_rename(target, old) != 0) {
        return CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", target, old);
    }
    if (cy_io_rename(pending, target) != 0) {
        const cy_status status = CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", pending, target);
        if (cy_io_rename(old, target) != 0) cy_error_prefix("%s has lost its name: ", target);
        return status;
    }
    return cy_folder_sync(folder);
}

static cy_status rename_pending(
    const char *folder, const char *pending, const char *target, const char *old)
{
    bool there = false;
    CY_TRY(cy_path_find(&there, target));
    if (!there) {
        if (cy_io_rename(pending, target) == 0) return sync_names(folder, pending, target, false);
        return CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", pending, target);
    }
    if (cy_io_exchange(pending, target) == 0) return sync_names(folder, pending, target, true);
    if (errno == EINVAL || errno == ENOSYS) return rename_twice(folder, pending, target, old);
    return CY_FAIL_ERRNO(CY_ERR_IO, "exchange %s and %s", pending, target);
}

struct cy_saver {
    char *folder; // owned
    int keep_last;
    cy_group *ranks;   // borrowed
    cy_queue *queue;   // borrowed: of the device that holds the shards; NULL: of the host
    const cy_log *log; // borrowed, may be NULL
    int lock;          // rank 0: holds the folder; otherwise -1

    // Rank 0: a thread that removes replaced and retired checkpoints while the run goes on.
    pthread_t sweeper;
    bool sweeping;
    cy_status swept; // written by the sweeper, with the text of a failure
    char swept_text[1024];
};

// ---- removing what was replaced

static void *sweep(void *context)
{
    cy_saver *saver = context;
    int count = 0;
    saver->swept = cy_folder_sweep(&count, saver->folder);
    if (saver->swept != CY_OK) {
        snprintf(saver->swept_text, sizeof(saver->swept_text), "%s", cy_error_text());
    }
    return NULL;
}

// Only a warning: the new checkpoint is complete although an old one could not be removed.
static void log_sweep(const cy_saver *saver)
{
    if (saver->swept == CY_OK) return;
    cy_log_add(saver->log, CY_LOG_WARNING, "old checkpoints stay: %s", saver->swept_text);
}

// Call it before anything is given a name that a sweep removes.
static void await_sweeper(cy_saver *saver)
{
    if (!saver->sweeping) return;
    cy_activity_begin(CY_ACTIVITY_WAIT, "the thread that removes old checkpoints", -1);
    pthread_join(saver->sweeper, NULL);
    cy_activity_end();
    saver->sweeping = false;
    log_sweep(saver);
}

// In a thread, because removing a file can take as long as a good part of writing it.
static void start_sweeper(cy_saver *saver)
{
    saver->sweeping = cy_thread_start(&saver->sweeper, sweep, saver) == 0;
    if (saver->sweeping) return;
    sweep(saver);
    log_sweep(saver);
}

// ---- opening and closing

static cy_status agree(const cy_saver *saver, cy_status mine, const char *did)
{
    return cy_checkpoint_agree(saver->ranks, mine, did, saver->folder);
}

static cy_status open_folder(cy_saver *saver)
{
    int swept = 0;
    CY_TRY(cy_folder_make(saver->folder));
    CY_TRY(cy_folder_lock(&saver->lock, saver->folder));
    const cy_status status = cy_folder_sweep(&swept, saver->folder);
    if (status != CY_OK && status != CY_ERR_IO) return status;
    if (status != CY_OK) {
        // It stops nobody: a file that somebody reads over NFS stays until it is closed.
        cy_log_add(saver->log, CY_LOG_WARNING, "what a dead run left stays: %s", cy_error_text());
    }
    if (swept > 0) {
        cy_log_add(saver->log, CY_LOG_INFO, "%s: removed %d unfinished checkpoint%s of a dead run",
            saver->folder, swept, swept == 1 ? "" : "s");
    }
    return CY_OK;
}

cy_status cy_saver_open(cy_saver **saver_out, const char *folder, int keep_last, cy_group *ranks,
    cy_queue *queue, const cy_log *log)
{
    void *memory = NULL;
    CY_ASSERT(keep_last >= 0);
    CY_TRY(cy_memory_alloc(&memory, 1, sizeof(cy_saver)));
    cy_saver *saver = memory;
    *saver =
        (cy_saver){.keep_last = keep_last, .ranks = ranks, .queue = queue, .log = log, .lock = -1};
    cy_status status = cy_memory_copy_text(&saver->folder, folder);
    if (status == CY_OK && cy_group_rank(ranks) == 0) status = open_folder(saver);
    status = agree(saver, status, "failed while opening the checkpoints in");
    if (status != CY_OK) {
        cy_saver_close(saver);
        return status;
    }
    *saver_out = saver;
    return CY_OK;
}

void cy_saver_close(cy_saver *saver)
{
    if (saver == NULL) return;
    await_sweeper(saver);
    if (saver->lock >= 0) cy_io_close(saver->lock);
    cy_memory_free(saver->folder);
    cy_memory_free(saver);
}

// Whether the folder is still the one that rank 0 has locked.
static cy_status check_lock(bool *held, const cy_saver *saver)
{
    char *path = NULL;
    CY_TRY(cy_folder_join(&path, saver->folder, CY_FOLDER_LOCK_NAME));
    const cy_status status = cy_folder_lock_is_held(held, saver->lock, path);
    cy_memory_free(path);
    return status;
}

// Makes and locks the folder again where it was deleted or moved away. Where another run has made
// it since, this save fails, and the training goes on.
static cy_status reacquire_folder(cy_saver *saver)
{
    int lock = -1;
    bool held;
    CY_TRY(check_lock(&held, saver));
    if (held) return CY_OK;
    await_sweeper(saver);
    CY_TRY(cy_folder_make(saver->folder));
    const cy_status status = cy_folder_lock(&lock, saver->folder);
    if (status != CY_OK) return CY_FAIL(CY_ERR_IO, "%s", cy_error_text());
    cy_io_close(saver->lock);
    saver->lock = lock;
    cy_log_add(saver->log, CY_LOG_WARNING,
        "%s was deleted or moved away, with the checkpoints in it: it is made again",
        saver->folder);
    return CY_OK;
}

// ---- rank 0: names

static cy_status commit(const cy_saver *saver, int64_t step, const char *pending, const char *place)
{
    char *old = NULL;
    CY_TRY(cy_folder_step_path(&old, saver->folder, ".", step, ".old"));
    const cy_status status = rename_pending(saver->folder, pending, place, old);
    cy_memory_free(old);
    return status;
}

// Takes the name from a checkpoint. The sweeper removes its files later.
static cy_status retire(const cy_saver *saver, int64_t step)
{
    char *place = NULL, *old = NULL;
    CY_TRY(cy_folder_step_path(&place, saver->folder, "", step, ""));
    cy_status status = cy_folder_step_path(&old, saver->folder, ".", step, ".old");
    if (status == CY_OK) status = cy_folder_remove_renamed(saver->folder, old);
    if (status == CY_OK && cy_io_rename(place, old) != 0) {
        status = CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", place, old);
    }
    cy_memory_free(place);
    cy_memory_free(old);
    return status;
}

// Retires all but the newest keep_last steps up to `step`. Later steps belong to a training that
// this run went back behind: they are neither counted nor touched.
static cy_status retire_old(const cy_saver *saver, int64_t step)
{
    int64_t *steps = NULL;
    int count = 0;
    if (saver->keep_last == 0) return CY_OK;
    CY_TRY(cy_folder_steps(&steps, &count, saver->folder));
    cy_status status = CY_OK;
    while (count > 0 && steps[count - 1] > step)
        count--;
    for (int i = 0; status == CY_OK && i < count - saver->keep_last; i++) {
        status = retire(saver, steps[i]);
    }
    cy_memory_free(steps);
    return status;
}

// ---- all ranks

static cy_status save_steps(cy_saver *saver, const cy_save *save, const char *pending,
    const char *place, cy_save_report *report)
{
    const int rank = cy_group_rank(saver->ranks), ranks = cy_group_size(saver->ranks);
    const bool first = rank == 0;
    const double start = cy_clock_s();
    await_sweeper(saver);
    cy_status status = first ? reacquire_folder(saver) : CY_OK;
    if (first && status == CY_OK) status = begin(save, saver->folder, pending);
    CY_TRY(agree(saver, status, "failed while beginning a checkpoint in"));
    status = cy_rank_files_write(&report->bytes, save, saver->queue, pending, rank, ranks);
    CY_TRY(agree(saver, status, "failed while writing a checkpoint in"));
    if (first) status = cy_commit_manifest(save, pending, ranks);
    if (first && status == CY_OK) status = commit(saver, save->step, pending, place);
    if (first && status == CY_OK && retire_old(saver, save->step) != CY_OK) {
        cy_log_add(saver->log, CY_LOG_WARNING, "old checkpoints stay: %s", cy_error_text());
    }
    if (first && status == CY_OK) start_sweeper(saver);
    CY_TRY(agree(saver, status, "failed while completing a checkpoint in"));
    report->total_s = cy_clock_s() - start;
    return CY_OK;
}

// Removes what a failed save left, and keeps the text of its error.
static void clean_up(cy_saver *saver, const char *pending, cy_status status)
{
    char text[1024];
    snprintf(text, sizeof(text), "%s", cy_error_text());
    await_sweeper(saver);
    if (cy_folder_remove_renamed(saver->folder, pending) != CY_OK) {
        cy_log_add(saver->log, CY_LOG_WARNING, "%s", cy_error_text());
    }
    const cy_status same = CY_FAIL(status, "%s", text);
    (void)same;
}

cy_status cy_saver_save(cy_saver *saver, const cy_save *save, cy_save_report *report)
{
    char *pending = NULL, *place = NULL;
    cy_save_report own = {0};
    cy_status status = cy_folder_step_path(&pending, saver->folder, ".", save->step, ".tmp");
    if (status == CY_OK) status = cy_folder_step_path(&place, saver->folder, "", save->step, "");
    status = agree(saver, status, "failed while beginning a checkpoint in");
    if (status == CY_OK) status = save_steps(saver, save, pending, place, &own);
    if (status != CY_OK && pending != NULL && cy_group_rank(saver->ranks) == 0) {
        clean_up(saver, pending, status);
    }
    cy_memory_free(pending);
    cy_memory_free(place);
    if (status == CY_OK && report != NULL) *report = own;
    return status;
}
