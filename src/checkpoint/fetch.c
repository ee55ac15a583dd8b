// Divides the files of a checkpoint into chunks, and reads chunks into the shards that want them.

#include "checkpoint/fetch.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/convert.h"
#include "checkpoint/file_io.h"
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// ---- chunks

static int by_place(const void *left, const void *right)
{
    const cy_chunk_range *a = left;
    const cy_chunk_range *b = right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

// Adds the stored shards of one tensor.
static void add_pieces(cy_chunks *chunks, const cy_checkpoint *checkpoint, int tensor)
{
    const cy_stored_tensor *stored = &checkpoint->tensors[tensor];
    for (int64_t j = 0; j < stored->piece_count; j++) {
        const cy_stored_shard *piece = &stored->pieces[j];
        chunks->ranges[chunks->range_count++] = (cy_chunk_range){
            .file = piece->file,
            .offset = piece->offset,
            .bytes = cy_stored_shard_bytes(piece),
            .checksums = piece->checksums,
            .tensor = tensor,
            .piece = piece,
        };
    }
}

static void number_chunks(cy_chunks *chunks)
{
    qsort(chunks->ranges, (size_t)chunks->range_count, sizeof(cy_chunk_range), by_place);
    for (int64_t i = 0; i < chunks->range_count; i++) {
        chunks->ranges[i].first = chunks->count;
        chunks->count += cy_chunk_count(chunks->ranges[i].bytes);
    }
}

cy_status cy_chunks_open(cy_chunks *chunks, const cy_checkpoint *checkpoint)
{
    void *memory = NULL;
    const size_t most = (size_t)(checkpoint->file_count + checkpoint->piece_count);
    CY_TRY(cy_memory_alloc(&memory, most, sizeof(cy_chunk_range)));
    *chunks = (cy_chunks){.ranges = memory};
    for (int i = 0; i < checkpoint->file_count; i++) {
        const cy_checkpoint_file *file = &checkpoint->files[i];
        chunks->ranges[chunks->range_count++] = (cy_chunk_range){
            .file = i, .bytes = file->head_bytes, .checksums = file->checksums, .tensor = -1};
    }
    for (int i = 0; i < checkpoint->tensor_count; i++)
        add_pieces(chunks, checkpoint, i);
    number_chunks(chunks);
    return CY_OK;
}

cy_status cy_chunks_open_tensors(
    cy_chunks *chunks, const cy_checkpoint *checkpoint, const int *tensors, int64_t count)
{
    void *memory = NULL;
    size_t most = 1;
    for (int64_t i = 0; i < count; i++)
        most += (size_t)checkpoint->tensors[tensors[i]].piece_count;
    CY_TRY(cy_memory_alloc(&memory, most, sizeof(cy_chunk_range)));
    *chunks = (cy_chunks){.ranges = memory};
    for (int64_t i = 0; i < count; i++)
        add_pieces(chunks, checkpoint, tensors[i]);
    number_chunks(chunks);
    return CY_OK;
}

void cy_chunks_close(cy_chunks *chunks)
{
    cy_memory_free(chunks->ranges);
    *chunks = (cy_chunks){0};
}

// The range that holds a chunk: the last one whose first chunk is not after it. Earlier ranges with
// the same first chunk are empty.
static const cy_chunk_range *range_of(const cy_chunks *chunks, int64_t number)
{
    int64_t low = 0, high = chunks->range_count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (chunks->ranges[middle].first <= number) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &chunks->ranges[low];
}

cy_chunk cy_chunks_at(const cy_chunks *chunks, int64_t number)
{
    CY_ASSERT(number >= 0 && number < chunks->count);
    const cy_chunk_range *range = range_of(chunks, number);
    const uint64_t from = (uint64_t)(number - range->first) * CY_CHUNK_BYTES;
    const uint64_t left = range->bytes - from;
    cy_chunk chunk = {
        .range = range,
        .number = number,
        .offset = range->offset + from,
        .bytes = left < CY_CHUNK_BYTES ? left : CY_CHUNK_BYTES,
    };
    if (range->piece != NULL) {
        // A chunk holds whole elements: their sizes are powers of two.
        const uint64_t size = cy_dtype_size(range->piece->piece.dtype);
        chunk.piece = range->piece->piece;
        chunk.piece.first += (int64_t)(from / size);
        chunk.piece.count = (int64_t)(chunk.bytes / size);
    }
    return chunk;
}

void cy_chunk_label(
    char *text, size_t bytes, const cy_checkpoint *checkpoint, const cy_chunk *chunk)
{
    char label[256];
    if (chunk->range->tensor < 0) {
        snprintf(text, bytes, "no tensor: its header or text");
        return;
    }
    cy_tensor_full_name(label, sizeof(label), &checkpoint->tensors[chunk->range->tensor].tensor);
    snprintf(text, bytes, "tensor %s", label);
}

cy_status cy_chunk_check(const cy_checkpoint *checkpoint, const cy_chunk *chunk, const void *data)
{
    char label[300];
    const uint64_t found = cy_checksum(data, chunk->bytes);
    const uint64_t told = chunk->range->checksums[chunk->number - chunk->range->first];
    if (found == told) return CY_OK;
    cy_chunk_label(label, sizeof(label), checkpoint, chunk);
    return CY_FAIL(CY_ERR_CORRUPT,
        "%s/%s: bytes %" PRIu64 " to %" PRIu64 ", of %s, changed since they were written: "
        "checksum %016" PRIx64 ", wanted %016" PRIx64,
        checkpoint->path, checkpoint->files[chunk->range->file].name, chunk->offset,
        chunk->offset + chunk->bytes, label, found, told);
}

#define IOV_MAX_PARTS 1024 // a system call takes no more

// ---- plan

static cy_status check_item(const cy_checkpoint *checkpoint, const cy_stored_tensor *stored,
    const cy_global_tensor *tensor, const cy_tensor_shard *piece)
{
    char label[256];
    cy_tensor_full_name(label, sizeof(label), tensor);
    if (stored == NULL) {
        return CY_FAIL(CY_ERR_REQUEST, "%s: tensor %s is not there", checkpoint->path, label);
    }
    const cy_global_tensor *there = &stored->tensor;
    if (there->rows != tensor->rows || there->cols != tensor->cols) {
        return CY_FAIL(CY_ERR_REQUEST,
            "%s: tensor %s is %" PRId64 " x %" PRId64 " there, %" PRId64 " x %" PRId64 " here",
            checkpoint->path, label, there->rows, there->cols, tensor->rows, tensor->cols);
    }
    if (!cy_convert_is_known(piece->dtype, there->dtype)) {
        return CY_FAIL(CY_ERR_REQUEST, "%s: tensor %s is %s there and cannot become %s",
            checkpoint->path, label, cy_dtype_name(there->dtype), cy_dtype_name(piece->dtype));
    }
    const cy_rectangle *r = &piece->rectangle;
    CY_ASSERT(r->row_first >= 0 && r->row_first + r->rows <= tensor->rows);
    CY_ASSERT(r->col_first >= 0 && r->col_first + r->cols <= tensor->cols);
    CY_ASSERT(piece->first >= 0 && piece->first + piece->count <= r->rows * r->cols);
    return CY_OK;
}

static int by_tensor(const void *left, const void *right)
{
    const cy_read_item *a = left;
    const cy_read_item *b = right;
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

cy_status cy_load_plan_open(cy_load_plan *plan, const cy_checkpoint *checkpoint,
    const cy_global_tensor *tensors, const cy_tensor_shard *pieces, int64_t piece_count)
{
    void *memory = NULL;
    *plan = (cy_load_plan){0};
    if (piece_count == 0) return CY_OK;
    CY_TRY(cy_memory_alloc(&memory, (size_t)piece_count, sizeof(cy_read_item)));
    cy_read_item *list = memory;
    for (int64_t i = 0; i < piece_count; i++) {
        const cy_global_tensor *tensor = &tensors[pieces[i].tensor];
        const cy_stored_tensor *stored = cy_checkpoint_find(checkpoint, tensor->kind, tensor->name);
        const cy_status status = check_item(checkpoint, stored, tensor, &pieces[i]);
        if (status != CY_OK) {
            cy_memory_free(memory);
            return status;
        }
        list[i] =
            (cy_read_item){.tensor = (int)(stored - checkpoint->tensors), .piece = &pieces[i]};
    }
    qsort(list, (size_t)piece_count, sizeof(*list), by_tensor);
    *plan = (cy_load_plan){.list = list, .count = piece_count};
    return CY_OK;
}

void cy_load_plan_close(cy_load_plan *plan)
{
    cy_memory_free(plan->list);
    *plan = (cy_load_plan){0};
}

// The read items of a tensor are neighbours in the list. Returns the first, or NULL.
static const cy_read_item *first_item(const cy_load_plan *plan, int tensor)
{
    int64_t low = 0, high = plan->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (plan->list[middle].tensor < tensor) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const bool found = low < plan->count && plan->list[low].tensor == tensor;
    return found ? &plan->list[low] : NULL;
}

static const cy_read_item *next_item(const cy_load_plan *plan, const cy_read_item *item)
{
    const cy_read_item *next = item + 1;
    return next < plan->list + plan->count && next->tensor == item->tensor ? next : NULL;
}

// The runs of elements of a chunk that are wanted.
typedef struct overlap {
    int64_t elements;
    int64_t runs;
    const cy_tensor_shard *piece; // of the last run
    int64_t index;                // where the last run begins, in the piece's rectangle
} overlap;

static cy_status count_run(void *context, int64_t wanted_index, int64_t stored_index, int64_t count)
{
    (void)stored_index;
    overlap *found = context;
    found->elements += count;
    found->runs++;
    found->index = wanted_index;
    return CY_OK;
}

static overlap runs_of(const cy_load_plan *plan, const cy_chunk *chunk)
{
    overlap found = {0};
    const cy_read_item *item = first_item(plan, chunk->range->tensor);
    for (; item != NULL; item = next_item(plan, item)) {
        const int64_t before = found.runs;
        const cy_status status =
            cy_tensor_shard_overlap(item->piece, &chunk->piece, count_run, &found);
        CY_ASSERT(status == CY_OK);
        if (found.runs > before) found.piece = item->piece;
    }
    return found;
}

uint64_t cy_load_plan_bytes(const cy_load_plan *plan, const cy_chunk *chunk)
{
    if (chunk->range->piece == NULL) return 0;
    return (uint64_t)runs_of(plan, chunk).elements * cy_dtype_size(chunk->piece.dtype);
}

// ---- one chunk

// The place in memory of elements that follow each other in the file.
typedef struct target {
    void *data;
    int64_t count;
} target;

struct cy_fetcher {
    cy_checkpoint *checkpoint; // borrowed
    const cy_load_plan *plan;  // borrowed
    cy_checkpoint_traffic traffic;
    const cy_chunk *chunk; // of the call
    const cy_tensor_shard *wanted;
    struct iovec parts[IOV_MAX_PARTS]; // what waits to be read, one after the other in the file
    target targets[IOV_MAX_PARTS];
    int count;
    uint64_t offset;   // in the file, of the first that waits
    uint64_t bytes;    // that wait
    const char *data;  // all of the chunk; NULL while it is not read
    int buffered_file; // of whose bytes the buffer holds [buffered, buffered_end); -1: of none
    uint64_t buffered, buffered_end;
    char *buffer; // borrowed, [CY_FETCH_BYTES]

    // Where the host has no access to the memory of the shards.
    cy_device *device; // borrowed; NULL: the host writes to the shards itself
    cy_queue queue;    // of the device
    char *staging;     // owned, pinned, [CY_CHUNK_BYTES]: elements on their way to the device
    size_t staged;     // bytes of it that belong to the queue
};

static cy_status open_staging(cy_fetcher *in, cy_device *device)
{
    void *memory = NULL;
    CY_TRY(cy_queue_open(&in->queue, device));
    const cy_status status = cy_device_alloc_host(device, &memory, CY_CHUNK_BYTES);
    if (status != CY_OK) {
        cy_queue_close(&in->queue);
        return status;
    }
    in->device = device;
    in->staging = memory;
    return CY_OK;
}

cy_status cy_fetcher_open(cy_fetcher **fetcher, cy_checkpoint *checkpoint, const cy_load_plan *plan,
    char *buffer, cy_device *device)
{
    cy_fetcher *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    made->checkpoint = checkpoint;
    made->plan = plan;
    made->buffer = buffer;
    made->buffered_file = -1;
    if (!device->properties.host_access) {
        const cy_status status = open_staging(made, device);
        if (status != CY_OK) {
            cy_memory_free(made);
            return status;
        }
    }
    *fetcher = made;
    return CY_OK;
}

void cy_fetcher_close(cy_fetcher *fetcher, cy_checkpoint_traffic *traffic)
{
    if (fetcher == NULL) return;
    traffic->read_bytes += fetcher->traffic.read_bytes;
    traffic->verify_bytes += fetcher->traffic.verify_bytes;
    traffic->file_bytes += fetcher->traffic.file_bytes;
    if (fetcher->device != NULL) {
        cy_queue_close(&fetcher->queue);
        cy_device_free_host(fetcher->device, fetcher->staging, CY_CHUNK_BYTES);
    }
    cy_memory_free(fetcher);
}

void cy_fetcher_read_block(
    cy_fetcher *in, const cy_direct_file *file, int number, uint64_t offset, uint64_t bytes)
{
    const uint64_t hull = cy_direct_block_bytes(offset, bytes);
    CY_ASSERT(hull <= CY_FETCH_BYTES);
    in->buffered_file = -1;
    if (!cy_direct_read(file, in->buffer, offset, bytes)) return;
    in->traffic.file_bytes += (int64_t)hull;
    in->buffered_file = number;
    in->buffered = cy_direct_block_offset(offset);
    in->buffered_end = offset + bytes;
}

// The chunk's bytes in the buffer, or NULL where it does not hold all of them.
static const char *buffered_chunk(const cy_fetcher *in)
{
    const cy_chunk *chunk = in->chunk;
    const bool buffered = chunk->range->file == in->buffered_file &&
        chunk->offset >= in->buffered && chunk->offset + chunk->bytes <= in->buffered_end;
    return buffered ? in->buffer + (chunk->offset - in->buffered) : NULL;
}

static cy_status read_bytes(cy_fetcher *in, uint64_t offset, struct iovec *parts, int count)
{
    for (int i = 0; i < count; i++)
        in->traffic.file_bytes += (int64_t)parts[i].iov_len;
    return cy_bytes_read(in->checkpoint, in->chunk->range->file, offset, parts, count);
}

// Waits until all that was staged is in the shards.
static cy_status finish_staged(cy_fetcher *in)
{
    if (in->staged == 0) return CY_OK;
    in->staged = 0;
    return cy_queue_synchronize(&in->queue);
}

// Writes dense elements of the chunk to a place in the wanted shard, in its type. All that passes
// through a buffer goes this way.
static cy_status write_elements(cy_fetcher *in, void *to, const char *from, int64_t count)
{
    const cy_dtype from_type = in->chunk->piece.dtype, to_type = in->wanted->dtype;
    const size_t size = cy_dtype_size(to_type);
    char *out = to;
    if (in->device == NULL) {
        cy_convert(out, to_type, from, from_type, count);
        return CY_OK;
    }
    while (count > 0) {
        const int64_t room = (int64_t)((CY_CHUNK_BYTES - in->staged) / size);
        const int64_t some = count < room ? count : room;
        if (room == 0) {
            CY_TRY(finish_staged(in));
            continue;
        }
        char *staged = in->staging + in->staged;
        cy_convert(staged, to_type, from, from_type, some);
        cy_queue_upload(&in->queue, out, staged, (size_t)some * size);
        in->staged += (size_t)some * size;
        out += (size_t)some * size;
        from += (size_t)some * cy_dtype_size(from_type);
        count -= some;
    }
    return CY_OK;
}

// Reads the waiting runs straight to their places, or through the buffer where the type changes or
// the host has no access to the places.
static cy_status flush(cy_fetcher *in)
{
    if (in->count == 0) return CY_OK;
    const bool direct = in->chunk->piece.dtype == in->wanted->dtype && in->device == NULL;
    if (!direct) in->buffered_file = -1;
    struct iovec whole = {.iov_base = in->buffer, .iov_len = in->bytes};
    CY_TRY(read_bytes(in, in->offset, direct ? in->parts : &whole, direct ? in->count : 1));
    const char *at = in->buffer;
    for (int i = 0; i < in->count && !direct; i++) {
        CY_TRY(write_elements(in, in->targets[i].data, at, in->targets[i].count));
        at += in->targets[i].count * (int64_t)cy_dtype_size(in->chunk->piece.dtype);
    }
    in->count = 0;
    in->bytes = 0;
    return CY_OK;
}

// Fills elements that are dense in the file and in memory: from the chunk's bytes where they were
// read, otherwise by adding a run to those that wait.
static cy_status scatter_dense(cy_fetcher *in, void *data, uint64_t offset, int64_t count)
{
    const cy_dtype from = in->chunk->piece.dtype;
    const uint64_t bytes = (uint64_t)count * cy_dtype_size(from);
    in->traffic.read_bytes += (int64_t)bytes;
    if (in->data != NULL) {
        return write_elements(in, data, in->data + (offset - in->chunk->offset), count);
    }
    const bool follows = in->count > 0 && in->offset + in->bytes == offset;
    if (!follows || in->count == IOV_MAX_PARTS) CY_TRY(flush(in));
    if (in->count == 0) in->offset = offset;
    in->parts[in->count] = (struct iovec){.iov_base = data, .iov_len = (size_t)bytes};
    in->targets[in->count] = (target){.data = data, .count = count};
    in->count++;
    in->bytes += bytes;
    return CY_OK;
}

// Fills a run of elements that the wanted shard and the chunk share; its rows may lie apart in
// memory.
static cy_status scatter_run(
    void *context, int64_t wanted_index, int64_t stored_index, int64_t count)
{
    cy_fetcher *in = context;
    const uint64_t size = cy_dtype_size(in->chunk->piece.dtype);
    const int64_t cols = in->wanted->rectangle.cols;
    const bool dense = cy_tensor_shard_dense(in->wanted);
    while (count > 0) {
        const int64_t to_row_end = cols - wanted_index % cols;
        const int64_t some = dense || count < to_row_end ? count : to_row_end;
        const uint64_t offset =
            in->chunk->offset + (uint64_t)(stored_index - in->chunk->piece.first) * size;
        CY_TRY(scatter_dense(in, cy_tensor_shard_at(in->wanted, wanted_index), offset, some));
        wanted_index += some;
        stored_index += some;
        count -= some;
    }
    return CY_OK;
}

static cy_status scatter_wanted(cy_fetcher *in)
{
    const cy_read_item *item = first_item(in->plan, in->chunk->range->tensor);
    for (; item != NULL; item = next_item(in->plan, item)) {
        in->wanted = item->piece;
        CY_TRY(cy_tensor_shard_overlap(in->wanted, &in->chunk->piece, scatter_run, in));
        CY_TRY(flush(in));
    }
    return CY_OK;
}

// The place of the whole chunk, where one shard wants all of it, dense and in the stored type, and
// the host has access to it; or NULL.
static void *whole_destination(const cy_fetcher *in)
{
    const cy_tensor_shard *chunk = &in->chunk->piece;
    if (in->chunk->range->piece == NULL || in->device != NULL) return NULL;
    const overlap found = runs_of(in->plan, in->chunk);
    if (found.runs != 1 || found.elements != chunk->count) return NULL;
    if (found.piece->dtype != chunk->dtype) return NULL;
    return cy_tensor_shard_dense(found.piece) ? cy_tensor_shard_at(found.piece, found.index) : NULL;
}

// Reads all of a chunk to its place, which *place then is, or to the buffer; *place is then NULL.
static cy_status read_chunk(cy_fetcher *in, void **place)
{
    *place = whole_destination(in);
    struct iovec whole = {
        .iov_base = *place != NULL ? *place : in->buffer, .iov_len = in->chunk->bytes};
    in->buffered_file = -1;
    in->data = whole.iov_base;
    return read_bytes(in, in->chunk->offset, &whole, 1);
}

static cy_status fetch_checked(cy_fetcher *in)
{
    void *place = NULL;
    in->data = buffered_chunk(in);
    if (in->data == NULL) CY_TRY(read_chunk(in, &place));
    in->traffic.verify_bytes += (int64_t)in->chunk->bytes;
    CY_TRY(cy_chunk_check(in->checkpoint, in->chunk, in->data));
    if (place == NULL) return scatter_wanted(in);
    in->traffic.read_bytes += (int64_t)in->chunk->bytes;
    return CY_OK;
}

cy_status cy_fetch(cy_fetcher *in, const cy_chunk *chunk, bool checked)
{
    in->chunk = chunk;
    in->data = NULL;
    in->count = 0;
    in->bytes = 0;
    cy_status status = checked ? fetch_checked(in) : scatter_wanted(in);
    const cy_status finished = finish_staged(in);
    if (status == CY_OK) status = finished;
    const bool unnamed = status == CY_ERR_IO || (status == CY_ERR_CORRUPT && !checked);
    if (unnamed && chunk->range->tensor >= 0) {
        char label[300];
        cy_chunk_label(label, sizeof(label), in->checkpoint, chunk);
        cy_error_prefix("%s: ", label);
    }
    return status;
}
