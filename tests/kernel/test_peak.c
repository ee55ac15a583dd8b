// Tests that the measured peaks of products and memory are figures: finite and above zero. How
// large they are is the machine's.

#include "support/support.h"

#include "base/memory.h"
#include "kernel/dispatch.h"
#include "kernel/peak.h"

#include <math.h>

static void expect_figure(double rate)
{
    assert_true(isfinite(rate) && rate > 0.0);
}

static void peaks_are_figures(void **state)
{
    (void)state;
    cy_queue queue = {0};
    cy_kernels kernels;
    CY_CHECK_OK(cy_thread_pool_open(&queue.pool, 1, -1, false));
    CY_CHECK_OK(cy_kernels_open(&queue, &kernels, "auto"));
    double fp32 = 0, bf16 = 0;
    CY_CHECK_OK(cy_peak_measure(&fp32, &queue, CY_F32));
    CY_CHECK_OK(cy_peak_measure(&bf16, &queue, CY_BF16));
    expect_figure(fp32);
    expect_figure(bf16);
    cy_bandwidth bandwidth = {0};
    CY_CHECK_OK(cy_bandwidth_measure(&bandwidth, &queue, (size_t)32 << 20));
    expect_figure(bandwidth.read);
    expect_figure(bandwidth.copy);
    // Of given bytes, less than one chunk and some chunks with a rest.
    for (size_t bytes = 300 << 10; bytes <= (size_t)3 << 20; bytes *= 9) {
        void *data = NULL;
        double rate = 0;
        CY_CHECK_OK(cy_memory_alloc(&data, bytes + 100, 1));
        CY_CHECK_OK(cy_read_bandwidth_measure(&rate, &queue, data, bytes + 100, 3));
        expect_figure(rate);
        CY_CHECK_OK(
            cy_read_bandwidth_measure(&rate, &queue, data, bytes + 100, 1)); // the first counts
        expect_figure(rate);
        cy_memory_free(data);
    }
    cy_kernels_close(&queue);
    cy_thread_pool_close(queue.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(peaks_are_figures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
