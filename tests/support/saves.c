#include "support/saves.h"

cy_status cy_test_save_with(cy_saver *saver, const cy_test_state *state, int rank, cy_save also)
{
    cy_global_tensor tensors[CY_TEST_TENSORS];
    cy_test_shard shard;
    cy_test_tensors(tensors, state->scale);
    cy_test_shard_open(&shard, tensors, state->mesh, rank, state->gap, true, state->run);
    also.step = state->step;
    also.tensors = tensors;
    also.tensor_count = CY_TEST_TENSORS;
    also.pieces = shard.pieces;
    also.piece_count = shard.count;
    const cy_status status = cy_saver_save(saver, &also, NULL);
    cy_test_shard_close(&shard);
    return status;
}

cy_status cy_test_save(const cy_test_state *state, cy_group *ranks, int keep_last, cy_save also)
{
    cy_saver *saver = NULL;
    CY_TRY(cy_saver_open(&saver, state->folder, keep_last, ranks, NULL, NULL));
    const cy_status status = cy_test_save_with(saver, state, cy_group_rank(ranks), also);
    cy_saver_close(saver);
    return status;
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
    cy_global_tensor tensors[CY_TEST_TENSORS];
    cy_test_shard shard;
    const int64_t before = traffic->read_bytes;
    cy_test_tensors(tensors, state->scale);
    cy_test_shard_open(&shard, tensors, state->mesh, cy_group_rank(ranks), state->gap, false, 0);
    cy_status status = cy_checkpoint_load_checked(
        checkpoint, tensors, shard.pieces, shard.count, CY_TENSOR_KINDS, ranks, NULL, traffic);
    if (status == CY_OK) status = judge(&shard, tensors, state, traffic->read_bytes - before);
    cy_test_shard_close(&shard);
    return status;
}
