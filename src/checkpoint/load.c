#include "base/assert.h"
#include "base/memory.h"
#include "checkpoint/bytes.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"
#include "checkpoint/table.h"

#include <inttypes.h>
#include <limits.h>

#define PARTS_MAX    1024              // a system call takes no more
#define STAGED_BYTES ((size_t)1 << 18) // for conversion

// Where a run of stored elements goes.
typedef struct target {
    void *data;
    int64_t count;
} target;

// Runs that follow each other in a file are read in one call, straight to where they belong, or,
// where the type changes, through the staging memory.
typedef struct loader {
    cy_checkpoint *checkpoint;
    cy_checkpoint_traffic *traffic;
    const cy_piece *wanted;
    const cy_stored_piece *stored;
    struct iovec parts[PARTS_MAX];
    target targets[PARTS_MAX];
    int count;
    uint64_t offset; // in the file, of the first run that waits
    uint64_t bytes;  // that wait
    char staged[STAGED_BYTES];
} loader;

static cy_status flush(loader *in)
{
    if (in->count == 0) return CY_OK;
    const cy_dtype from = in->stored->piece.dtype;
    const cy_dtype to = in->wanted->dtype;
    const bool converts = from != to;
    struct iovec whole = {.iov_base = in->staged, .iov_len = in->bytes};
    CY_TRY(cy_bytes_read(in->checkpoint, in->stored->file, in->offset,
        converts ? &whole : in->parts, converts ? 1 : in->count));
    in->traffic->read_bytes += (int64_t)in->bytes;
    in->traffic->reads++;
    if (converts) {
        const char *at = in->staged;
        for (int i = 0; i < in->count; i++) {
            cy_convert(in->targets[i].data, to, at, from, in->targets[i].count);
            at += in->targets[i].count * (int64_t)cy_dtype_size(from);
        }
    }
    in->count = 0;
    in->bytes = 0;
    return CY_OK;
}

// Adds elements that are dense in the file and in memory.
static cy_status add_dense(loader *in, void *data, uint64_t offset, int64_t count)
{
    const uint64_t size = cy_dtype_size(in->stored->piece.dtype);
    const bool converts = in->stored->piece.dtype != in->wanted->dtype;
    while (count > 0) {
        const bool follows = in->count > 0 && in->offset + in->bytes == offset;
        const bool full = in->count == PARTS_MAX || (converts && in->bytes == STAGED_BYTES);
        if (in->count > 0 && (!follows || full)) CY_TRY(flush(in));
        if (in->count == 0) in->offset = offset;
        int64_t some = count;
        if (converts) {
            const int64_t room = (int64_t)((STAGED_BYTES - in->bytes) / size);
            if (some > room) some = room;
        }
        in->parts[in->count] = (struct iovec){.iov_base = data, .iov_len = (size_t)some * size};
        in->targets[in->count] = (target){.data = data, .count = some};
        in->count++;
        in->bytes += (uint64_t)some * size;
        offset += (uint64_t)some * size;
        data = (char *)data + some * (int64_t)cy_dtype_size(in->wanted->dtype);
        count -= some;
    }
    return CY_OK;
}

// A run of elements that wanted and stored piece share; rows may lie apart in memory.
static cy_status add_run(void *context, int64_t wanted_index, int64_t stored_index, int64_t count)
{
    loader *in = context;
    const uint64_t size = cy_dtype_size(in->stored->piece.dtype);
    const int64_t cols = in->wanted->rectangle.cols;
    const bool dense = cy_piece_is_dense(in->wanted);
    while (count > 0) {
        const int64_t to_row_end = cols - wanted_index % cols;
        const int64_t some = dense || count < to_row_end ? count : to_row_end;
        const uint64_t offset =
            in->stored->offset + (uint64_t)(stored_index - in->stored->piece.first) * size;
        CY_TRY(add_dense(in, cy_piece_at(in->wanted, wanted_index), offset, some));
        wanted_index += some;
        stored_index += some;
        count -= some;
    }
    return CY_OK;
}

static cy_status check_wanted(const cy_checkpoint *checkpoint, const cy_stored_tensor *stored,
    const cy_global_tensor *tensor, const cy_piece *piece)
{
    char label[256];
    cy_tensor_label(label, sizeof(label), tensor);
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

cy_status cy_checkpoint_load(cy_checkpoint *checkpoint, const cy_global_tensor *tensors,
    const cy_piece *pieces, int64_t piece_count, cy_checkpoint_traffic *traffic)
{
    void *memory = NULL;
    CY_TRY(cy_memory_take(&memory, 1, sizeof(loader)));
    loader *in = memory;
    in->checkpoint = checkpoint;
    in->traffic = traffic;
    cy_status status = CY_OK;
    for (int64_t i = 0; status == CY_OK && i < piece_count; i++) {
        const cy_global_tensor *tensor = &tensors[pieces[i].tensor];
        const cy_stored_tensor *stored = cy_checkpoint_find(checkpoint, tensor->kind, tensor->name);
        status = check_wanted(checkpoint, stored, tensor, &pieces[i]);
        in->wanted = &pieces[i];
        for (int64_t j = 0; status == CY_OK && j < stored->piece_count; j++) {
            in->stored = &stored->pieces[j];
            status = cy_piece_runs(in->wanted, &in->stored->piece, add_run, in);
            if (status == CY_OK) status = flush(in);
        }
        if (status == CY_ERR_IO || status == CY_ERR_CORRUPT) {
            cy_error_prefix("tensor %s: ", tensor->name);
        }
    }
    cy_memory_free(memory);
    return status;
}
