// Groups that need no backend: one rank, and planning.

#include "support/support.h"

#include "comm/backend.h"
#include "comm/group.h"

static void one_rank_copies(void **state)
{
    (void)state;
    cy_group *self = cy_group_self();
    cy_queue queue = {0};
    float in[6] = {1, 2, 3, 4, 5, 6};
    float out[6] = {0};
    const cy_view in_view = cy_view_of(in, CY_F32, 3, 2);
    const cy_view out_view = cy_view_of(out, CY_F32, 3, 2);
    const int64_t rows[1] = {3};

    assert_int_equal(cy_group_size(self), 1);
    CY_CHECK_OK(cy_group_reduce_scatter(self, &queue, out_view, in_view, CY_AVG));
    assert_memory_equal(out, in, sizeof(in));
    out[0] = 9;
    CY_CHECK_OK(cy_group_all_gather(self, &queue, out_view, in_view));
    assert_memory_equal(out, in, sizeof(in));
    out[1] = 9;
    cy_request request = {0};
    CY_CHECK_OK(cy_group_start_all_to_allv(self, &queue, &request, out_view, rows, in_view, rows));
    CY_CHECK_OK(cy_group_wait(self, &queue, &request));
    assert_memory_equal(out, in, sizeof(in));
    CY_CHECK_OK(cy_group_all_reduce(self, &queue, in_view, CY_SUM));
    assert_memory_equal(out, in, sizeof(in));
    CY_CHECK_OK(cy_group_barrier(self));
    bool done = false;
    CY_CHECK_OK(cy_group_test(self, &request, &done));
    assert_true(done);
    assert_int_equal(cy_group_counters(self).messages, 0);
    cy_group_close(self);
}

static void a_dry_queue_counts(void **state)
{
    (void)state;
    cy_group *group = NULL;
    CY_CHECK_OK(cy_group_open_dry(&group, 1, 4, "dp"));
    cy_queue queue = {.dry = true};
    // Nobody may touch this memory.
    const cy_view data = cy_view_of((void *)64, CY_BF16, 100, 4);
    const cy_view part = cy_view_of((void *)64, CY_BF16, 25, 4);
    const cy_view other = cy_view_of((void *)4096, CY_BF16, 100, 4);
    const int64_t rows[4] = {10, 20, 30, 40};

    CY_CHECK_OK(cy_group_all_reduce(group, &queue, data, CY_SUM));
    assert_true(cy_group_counters(group).bytes == 1200.0); // 2 (4 - 1) / 4 800
    CY_CHECK_OK(cy_group_reduce_scatter(group, &queue, part, data, CY_SUM));
    assert_true(cy_group_counters(group).bytes == 1800.0);
    CY_CHECK_OK(cy_group_all_gather(group, &queue, data, part));
    assert_true(cy_group_counters(group).bytes == 2400.0);
    cy_request request = {0};
    CY_CHECK_OK(cy_group_start_all_to_allv(group, &queue, &request, data, rows, data, rows));
    CY_CHECK_OK(cy_group_wait(group, &queue, &request));
    assert_true(cy_group_counters(group).bytes == 3040.0); // 80 rows of 8 bytes go to others
    assert_int_equal(cy_group_counters(group).messages, 4);
    assert_string_equal(cy_group_dimension(group), "dp");
    CY_CHECK_OK(cy_group_broadcast(group, &queue, data, 0));
    assert_true(cy_group_counters(group).bytes == 3040.0); // rank 1 receives it
    CY_CHECK_OK(cy_group_broadcast(group, &queue, data, 1));
    assert_true(cy_group_counters(group).bytes == 3840.0);
    CY_CHECK_OK(cy_group_send(group, &queue, part, 3, 0));
    assert_true(cy_group_counters(group).bytes == 4040.0);
    CY_CHECK_OK(cy_group_recv(group, &queue, part, 3, 0));
    assert_true(cy_group_counters(group).bytes == 4040.0);
    CY_CHECK_OK(cy_group_start_all_to_all(group, &queue, &request, data, other));
    assert_true(cy_group_counters(group).bytes == 4640.0);
    assert_int_equal(cy_group_counters(group).messages, 8); // what is received counts at its sender

    queue.dry = false;
    CY_CHECK_FAILS(cy_group_all_reduce(group, &queue, data, CY_SUM), CY_ERR_UNSUPPORTED,
        "all_reduce: a dry group of 4 ranks moves no data");
    cy_group_close(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_copies),
        cmocka_unit_test(a_dry_queue_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
