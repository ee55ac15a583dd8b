#include "support/saves.h"

// Shards in memory of a device; without one they stay in the host's.
typedef struct placed {
    cy_device *device;
    cy_queue queue; // without a device, one of the host
    void *memory;
    size_t bytes;
} placed;

static void shift(cy_test_shard *shard, const void *from, void *to)
{
    for (int i = 0; i < shard->count; i++) {
        const ptrdiff_t at = (char *)shard->pieces[i].data - (const char *)from;
        shard->pieces[i].data = (char *)to + at;
    }
}

static cy_status place(placed *at, cy_test_shard *shard, const char *device, int rank)
{
    *at = (placed){.bytes = (size_t)(shard->elements + 1) * sizeof(float)};
    if (device == NULL) return CY_OK;
    CY_TRY(cy_device_open(&at->device, device, (uint64_t)rank));
    CY_TRY(cy_device_alloc(at->device, &at->memory, at->bytes));
    CY_TRY(cy_queue_open(&at->queue, at->device));
    cy_queue_upload(&at->queue, at->memory, shard->memory, at->bytes);
    shift(shard, shard->memory, at->memory);
    return CY_OK;
}

// Brings the shards back to the host.
static cy_status take_back(placed *at, cy_test_shard *shard)
{
    if (at->memory == NULL) return CY_OK;
    cy_queue_download(&at->queue, shard->memory, at->memory, at->bytes);
    const cy_status status = cy_queue_synchronize(&at->queue);
    shift(shard, at->memory, shard->memory);
    cy_queue_close(&at->queue);
    cy_device_free(at->device, at->memory, at->bytes);
    cy_device_close(at->device);
    return status;
}

static cy_status save_shard(
    cy_saver *saver, const cy_test_state *state, const cy_test_shard *shard, cy_save also)
{
    cy_global_tensor tensors[CY_TEST_TENSORS];
    cy_test_tensors(tensors, state->scale);
    also.step = state->step;
    also.tensors = tensors;
    also.tensor_count = CY_TEST_TENSORS;
    also.pieces = shard->pieces;
    also.piece_count = shard->count;
    return cy_saver_save(saver, &also, NULL);
}

static void open_shard(cy_test_shard *shard, const cy_test_state *state, int rank, bool fill)
{
    cy_global_tensor tensors[CY_TEST_TENSORS];
    cy_test_tensors(tensors, state->scale);
    cy_test_shard_open(shard, tensors, state->mesh, rank, state->gap, fill, fill ? state->run : 0);
}

cy_status cy_test_save_with(cy_saver *saver, const cy_test_state *state, int rank, cy_save also)
{
    cy_test_shard shard;
    open_shard(&shard, state, rank, true);
    const cy_status status = save_shard(saver, state, &shard, also);
    cy_test_shard_close(&shard);
    return status;
}

cy_status cy_test_save(const cy_test_state *state, cy_group *ranks, int keep_last, cy_save also)
{
    const int rank = cy_group_rank(ranks);
    cy_saver *saver = NULL;
    cy_test_shard shard;
    placed at;
    open_shard(&shard, state, rank, true);
    cy_status status = place(&at, &shard, state->device, rank);
    if (status == CY_OK) {
        status = cy_saver_open(&saver, state->folder, keep_last, ranks, &at.queue, NULL);
    }
    if (status == CY_OK) status = save_shard(saver, state, &shard, also);
    cy_saver_close(saver);
    const cy_status taken = take_back(&at, &shard);
    cy_test_shard_close(&shard);
    return status == CY_OK ? taken : status;
}

// Whether a load that said nothing was right.
static cy_status judge(const cy_test_shard *shard, const cy_global_tensor *tensors,
    const cy_test_state *state, int64_t read)
{
    const int64_t wrong = cy_test_shard_wrong(shard, tensors, state->gap, state->run);
    if (wrong > 0) return CY_FAIL(CY_ERR_CORRUPT, "%lld wrong elements", (long long)wrong);
    if (read == shard->bytes) return CY_OK;
    return CY_FAIL(CY_ERR_CORRUPT, "%lld bytes read for a share of %lld", (long long)read,
        (long long)shard->bytes);
}

cy_status cy_test_load(cy_checkpoint *checkpoint, const cy_test_state *state, cy_group *ranks,
    cy_checkpoint_traffic *traffic)
{
    const int rank = cy_group_rank(ranks);
    cy_global_tensor tensors[CY_TEST_TENSORS];
    cy_test_shard shard;
    placed at;
    const int64_t before = traffic->read_bytes;
    cy_test_tensors(tensors, state->scale);
    open_shard(&shard, state, rank, false);
    cy_status status = place(&at, &shard, state->device, rank);
    if (status == CY_OK) {
        status = cy_checkpoint_load_checked(checkpoint, tensors, shard.pieces, shard.count,
            CY_TENSOR_KINDS, ranks, &at.queue, traffic);
    }
    const cy_status taken = take_back(&at, &shard);
    if (status == CY_OK) status = taken;
    if (status == CY_OK) status = judge(&shard, tensors, state, traffic->read_bytes - before);
    cy_test_shard_close(&shard);
    return status;
}
