// Measured peaks are figures that a product really reaches, and repeat.

#include "support/support.h"

#include "base/memory.h"
#include "kernel/open.h"
#include "kernel/peak.h"

static void peaks_are_plausible(void **state)
{
    (void)state;
    cy_queue queue = {0};
    cy_kernels kernels;
    CY_CHECK_OK(cy_pool_open(&queue.pool, 1, -1, false));
    CY_CHECK_OK(cy_kernels_open(&queue, &kernels, "auto"));
    double fp32 = 0, bf16 = 0;
    CY_CHECK_OK(cy_peak_measure(&fp32, &queue, CY_F32));
    CY_CHECK_OK(cy_peak_measure(&bf16, &queue, CY_BF16));
    // From the slowest processor without vectors to a core of the next decade.
    assert_true(fp32 > 1e8 && fp32 < 1e14);
    assert_true(bf16 > 1e8 && bf16 < 1e14);
    cy_bandwidth bandwidth = {0};
    CY_CHECK_OK(cy_bandwidth_measure(&bandwidth, &queue, (size_t)32 << 20));
    assert_true(bandwidth.read > 1e8 && bandwidth.read < 1e13);
    assert_true(bandwidth.copy > 1e8 && bandwidth.copy < 1e13);
    // Of given bytes, less than one piece and some pieces with a rest.
    for (size_t bytes = 300 << 10; bytes <= (size_t)3 << 20; bytes *= 9) {
        void *data = NULL;
        double rate = 0;
        CY_CHECK_OK(cy_memory_take(&data, bytes + 100, 1));
        CY_CHECK_OK(cy_reading_measure(&rate, &queue, data, bytes + 100, 3));
        assert_true(rate > 1e8 && rate < 1e13);
        CY_CHECK_OK(cy_reading_measure(&rate, &queue, data, bytes + 100, 1)); // the first counts
        assert_true(rate > 1e8 && rate < 1e13);
        cy_memory_free(data);
    }
    cy_kernels_close(&queue);
    cy_pool_close(queue.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(peaks_are_plausible)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
