// kernel/peak.h: measures the highest rates of this machine with the run's own kernels and
// threads.
//
// The matrix peak is the denominator of mfu and of rooflines; the bandwidths are the denominator of
// operators that are not products. Nothing is assumed from data sheets. A call borrows the queue's
// pool and kernels, maps memory of its own for its length, and takes about a second; it fails only
// where that memory is refused. Not for use inside a training step.

#ifndef CY_KERNEL_PEAK_H
#define CY_KERNEL_PEAK_H

#include "kernel/kernel.h"
#include "kernel/dispatch.h"

// One way to compute a product: by which function, in which dtype, with operands stored in which
// order.
typedef struct cy_peak_variant {
    cy_matmul_fn *multiply;
    cy_dtype dtype;
    cy_matmul_spec spec;
} cy_peak_variant;

#define CY_PEAK_VARIANTS (2 * 3 * CY_MATMUL_FUNCTIONS)

// All ways for products in `dtype`, at least one: forward and both gradients, by every function of
// the open table, whether or not the table would choose it. Where the level has no instructions
// that multiply `dtype`, the same in fp32 are among them: its operands are widened to that, so what
// fp32 reaches bounds it. Returns how many.
int cy_peak_variants(cy_peak_variant ways[CY_PEAK_VARIANTS], const cy_queue *queue, cy_dtype dtype);

// The best of several large square products by any of these ways, in floating-point operations a
// second: no product of a run is faster by its own doing, so mfu stays below 1.
CY_MUST_CHECK cy_status cy_peak_measure(double *flops_per_s, const cy_queue *queue, cy_dtype dtype);

// The best of such products forward by the table's own choice in `dtype` itself: what a run gets.
CY_MUST_CHECK cy_status cy_peak_measure_chosen(
    double *flops_per_s, const cy_queue *queue, cy_dtype dtype);

// Bytes a second over ranges of `bytes` bytes, best of several passes. A copy counts what it reads
// and what it writes.
typedef struct cy_bandwidth {
    double read;
    double copy;
} cy_bandwidth;

// A range beyond any cache: the bandwidth of memory.
#define CY_BANDWIDTH_BYTES ((size_t)256 << 20)

CY_MUST_CHECK cy_status cy_bandwidth_measure(
    cy_bandwidth *bandwidth, const cy_queue *queue, size_t bytes);

// The median of `passes` over `data`, at least 256 bytes, of which whole multiples of 256 are read,
// or of 1 MiB where there are as many: what reading just these bytes takes at this moment, in bytes
// a second.
CY_MUST_CHECK cy_status cy_read_bandwidth_measure(
    double *bytes_s, const cy_queue *queue, const void *data, size_t bytes, int passes);

#endif
