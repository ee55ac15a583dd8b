// What top-k compression keeps back is saved by every rank and comes back on the same mesh, element
// by element; any other mesh leaves it out and says so.

#include "support/engines.h"
#include "support/meshes.h"
#include "support/support.h"

#include "train/state.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct job {
    const char *folder;
    int64_t save_step, load_step; // 0: does not
    atomic_int elements;          // of what all ranks keep back
    atomic_int equal;             // of these, as they were saved
    atomic_int residual_dropped;  // ranks that say so
} job;

// Of element i of a rank's vector; no two ranks have the same.
static float value_of(int rank, int64_t i)
{
    return (float)(rank + 1) * 1000.0f + (float)(i % 997);
}

static cy_view residual_of(const cy_engine *engine)
{
    return engine->compressed != NULL ? cy_reducer_residual(engine->compressed) : cy_view_none();
}

static cy_status save(cy_engine *engine, const cy_rank *rank, const job *j)
{
    CY_TRY(cy_engine_initialize(engine));
    const cy_view residual = residual_of(engine);
    for (int64_t i = 0; i < residual.cols; i++)
        ((float *)residual.data)[i] = value_of(rank->rank, i);
    const cy_run_position position = {.step = j->save_step, .tokens = 1};
    return cy_test_save_engine(engine, rank, j->folder, position);
}

static cy_status use(cy_engine *engine, const cy_rank *rank, void *context)
{
    job *j = context;
    if (j->save_step > 0) return save(engine, rank, j);
    char path[400];
    cy_run_position position = {0};
    cy_checkpoint_traffic traffic = {0};
    snprintf(path, sizeof(path), "%s/step-%08lld", j->folder, (long long)j->load_step);
    CY_TRY(cy_state_load(engine, rank, path, false, &position, &traffic));
    atomic_fetch_add(&j->residual_dropped, position.residual_dropped);
    const cy_view residual = residual_of(engine);
    atomic_fetch_add(&j->elements, (int)residual.cols);
    for (int64_t i = 0; i < residual.cols; i++) {
        const float found = ((const float *)residual.data)[i];
        atomic_fetch_add(&j->equal, found == value_of(rank->rank, i));
        if (found != value_of(rank->rank, i) && found != 0.0f) {
            return CY_FAIL(CY_ERR_CORRUPT, "rank %d: element %lld is %g", rank->rank, (long long)i,
                (double)found);
        }
    }
    return CY_OK;
}

// Whether one vector of all is missing, or of another length, every rank sees it.
static cy_status look_for_each(cy_engine *engine, const cy_rank *rank, void *context)
{
    const job *j = context;
    char path[400];
    snprintf(path, sizeof(path), "%s/step-%08lld", j->folder, (long long)j->load_step);
    cy_residual_state list = {0};
    CY_TRY(cy_residual_state_list(&list, engine, rank));
    cy_checkpoint checkpoint;
    CY_TRY(cy_checkpoint_open(&checkpoint, path));
    bool residual_dropped = true;
    bool right =
        cy_residual_state_is_complete(&list, &checkpoint, &residual_dropped) && !residual_dropped;
    for (int i = 0; i < list.count; i++) {
        list.names[i][0] ^= 1;
        right = right && !cy_residual_state_is_complete(&list, &checkpoint, &residual_dropped) &&
            residual_dropped;
        list.names[i][0] ^= 1;
        list.tensors[i].cols++;
        right = right && !cy_residual_state_is_complete(&list, &checkpoint, &residual_dropped) &&
            residual_dropped;
        list.tensors[i].cols--;
    }
    right = right && list.count == 2 &&
        cy_residual_state_is_complete(&list, &checkpoint, &residual_dropped);
    cy_checkpoint_close(&checkpoint);
    cy_residual_state_close(&list);
    return right ? CY_OK : CY_FAIL(CY_ERR_CORRUPT, "rank %d sees other vectors", rank->rank);
}

static cy_config configured(int tp, int pp, int dp, cy_compression compression)
{
    cy_config config;
    cy_test_config(&config, CY_F32);
    config.shape.rope.factor = 0; // without scaling, as a resolved configuration has it
    config.distributed.tp_size = tp;
    config.distributed.pp_size = pp;
    config.distributed.dp_size = dp;
    config.distributed.compression = compression;
    config.distributed.topk_ratio = 0.1;
    return config;
}

static job run(const char *folder, const cy_config *config, int64_t load_step, int64_t save_step)
{
    job j = {.folder = folder, .load_step = load_step, .save_step = save_step};
    CY_CHECK_OK(cy_test_on_mesh(config, "auto", NULL, use, &j));
    return j;
}

static void the_same_mesh_has_it_again(void **state)
{
    (void)state;
    static const int meshes[][3] = {{1, 1, 2}, {2, 1, 2}, {1, 2, 2}, {1, 1, 3}};
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    for (int i = 0; i < 4; i++) {
        const int *m = meshes[i];
        const cy_config config = configured(m[0], m[1], m[2], CY_COMPRESSION_TOPK);
        (void)run(folder, &config, 0, i + 1);
        const job j = run(folder, &config, i + 1, 0);
        assert_true(atomic_load(&j.elements) > 1000);
        assert_int_equal(atomic_load(&j.equal), atomic_load(&j.elements));
        assert_int_equal(atomic_load(&j.residual_dropped), 0);
    }
}

static void other_meshes_leave_it_out(void **state)
{
    (void)state;
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    const cy_config two = configured(1, 1, 2, CY_COMPRESSION_TOPK);
    (void)run(folder, &two, 0, 1);
    const cy_config others[] = {
        configured(1, 1, 3, CY_COMPRESSION_TOPK),
        configured(2, 1, 2, CY_COMPRESSION_TOPK),
        configured(1, 1, 2, CY_COMPRESSION_NONE),
        configured(1, 1, 1, CY_COMPRESSION_NONE),
    };
    static const int ranks[] = {3, 4, 2, 1};
    for (int i = 0; i < 4; i++) {
        const job j = run(folder, &others[i], 1, 0);
        assert_int_equal(atomic_load(&j.equal), 0);
        assert_int_equal(atomic_load(&j.elements) > 0, i < 2);
        assert_int_equal(atomic_load(&j.residual_dropped), ranks[i]); // every one of them says so
    }
}

static void nothing_is_dropped_where_nothing_was_kept(void **state)
{
    (void)state;
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    const cy_config plain = configured(1, 1, 2, CY_COMPRESSION_NONE);
    const cy_config topk = configured(1, 1, 2, CY_COMPRESSION_TOPK);
    (void)run(folder, &plain, 0, 1);
    const job j = run(folder, &topk, 1, 0);
    assert_true(atomic_load(&j.elements) > 1000);
    assert_int_equal(atomic_load(&j.equal), 0);
    assert_int_equal(atomic_load(&j.residual_dropped), 0);
}

static void all_ranks_have_theirs_or_none(void **state)
{
    (void)state;
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    const cy_config two = configured(1, 1, 2, CY_COMPRESSION_TOPK);
    (void)run(folder, &two, 0, 1);
    job j = {.folder = folder, .load_step = 1};
    CY_CHECK_OK(cy_test_on_mesh(&two, "auto", NULL, look_for_each, &j));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_mesh_has_it_again),
        cmocka_unit_test(other_meshes_leave_it_out),
        cmocka_unit_test(nothing_is_dropped_where_nothing_was_kept),
        cmocka_unit_test(all_ranks_have_theirs_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
