#include "checkpoint/rank_files.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/bytes.h"
#include "checkpoint/checksum.h"
#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/file_writer.h"
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// Blocks in flight of all ranks together: a disk likes several, more only take memory.
#define BLOCKS 8

typedef struct rank_writer {
    const cy_save *save;
    const char *folder;
    int rank;
    int blocks;          // of a writer
    cy_checkpoint table; // what this rank writes
    char *buffer;        // owned, CY_CHUNK_BYTES: for pieces that do not lie dense in memory
    int64_t bytes;
} rank_writer;

cy_status cy_rank_files_part_path(char **path, const char *folder, int rank)
{
    char name[40];
    snprintf(name, sizeof(name), "part-%05d.json", rank);
    return cy_folder_join(path, folder, name);
}

static bool is_whole(const cy_tensor_shard *piece, const cy_global_tensor *tensor)
{
    return piece->count == tensor->rows * tensor->cols;
}

// The tensor of a safetensors file that holds a piece.
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

// The next dense portion of a piece, of at most a chunk: *bytes is where it lies, or is copied to.
static cy_status take_chunk(const char **bytes, rank_writer *out, const cy_tensor_shard *piece,
    int64_t index, int64_t count)
{
    const size_t size = cy_dtype_size(piece->dtype);
    *bytes = out->buffer;
    if (out->save->source != NULL) {
        const cy_stored_shard *stored = &out->save->source->tensors[piece->tensor].pieces[0];
        struct iovec part = {.iov_base = out->buffer, .iov_len = (size_t)count * size};
        return cy_bytes_read(
            out->save->source, stored->file, stored->offset + (uint64_t)index * size, &part, 1);
    }
    if (cy_tensor_shard_dense(piece)) {
        *bytes = cy_tensor_shard_at(piece, index);
        return CY_OK;
    }
    const int64_t cols = piece->rectangle.cols;
    char *at = out->buffer;
    while (count > 0) {
        const int64_t to_row_end = cols - index % cols;
        const int64_t some = count < to_row_end ? count : to_row_end;
        memcpy(at, cy_tensor_shard_at(piece, index), (size_t)some * size);
        at += (size_t)some * size;
        index += some;
        count -= some;
    }
    return CY_OK;
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

// Writes the pieces [first, first + count) of the rank's table, all of one file, in order.
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

// Writes this rank's weights, or all but the weights, as one file; none when there is nothing.
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

// Room in a table for so many files, tensors and pieces.
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

// Adds a tensor with no pieces, under a name that the table owns.
static cy_status add_tensor(cy_checkpoint *table, const cy_global_tensor *tensor)
{
    char *name = NULL;
    CY_TRY(cy_memory_copy_text(&name, tensor->name));
    cy_stored_tensor *stored = &table->tensors[table->tensor_count++];
    stored->tensor = *tensor;
    stored->tensor.name = name;
    return CY_OK;
}

// Puts the pieces of each tensor beside each other, in place of the order of the files, and hangs
// them under the tensors, which stand in the order of the caller's list.
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

static cy_status write_part(rank_writer *out)
{
    char *path = NULL;
    cy_text json = {0};
    for (int i = 0; i < out->save->tensor_count; i++) {
        CY_TRY(add_tensor(&out->table, &out->save->tensors[i]));
    }
    CY_TRY(group_pieces(&out->table));
    CY_TRY(cy_rank_files_part_path(&path, out->folder, out->rank));
    cy_status status = cy_checkpoint_to_json(&json, &out->table);
    if (status == CY_OK) status = cy_file_write_unsynced(path, json.bytes, json.length);
    cy_text_free(&json);
    cy_memory_free(path);
    return status;
}

static int blocks_of(int ranks)
{
    const int blocks = BLOCKS / ranks;
    return blocks < 1 ? 1 : blocks < CY_FILE_WRITER_BLOCKS_MAX ? blocks : CY_FILE_WRITER_BLOCKS_MAX;
}

cy_status cy_rank_files_write(
    int64_t *bytes, const cy_save *save, const char *folder, int rank, int ranks)
{
    void *buffer = NULL, *sources = NULL;
    const size_t pieces = (size_t)save->piece_count;
    rank_writer out = {.save = save, .folder = folder, .rank = rank, .blocks = blocks_of(ranks)};
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

// ---- rank 0

static cy_status read_part(cy_checkpoint *part, const char *folder, int rank)
{
    char *path = NULL;
    cy_text json = {0};
    CY_TRY(cy_rank_files_part_path(&path, folder, rank));
    cy_status status = cy_file_read(&json, path, CY_MANIFEST_BYTES_MAX);
    if (status == CY_OK)
        status = cy_checkpoint_from_json(part, json.bytes, json.length, path, true);
    cy_text_free(&json);
    cy_memory_free(path);
    return status;
}

// Moves the files and pieces of a part into the table. Tensors are told by kind and name.
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

cy_status cy_rank_files_collect(
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
