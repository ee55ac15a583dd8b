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

// A variant of a product: its function, its dtype, and the order in which operands are stored.
typedef struct cy_peak_variant {
    cy_matmul_fn *multiply;
    cy_dtype dtype;
    cy_matmul_spec spec;
} cy_peak_variant;

#define CY_PEAK_VARIANTS (2 * 3 * CY_MATMUL_FUNCTIONS)

// All variants of products in `dtype`, at least one: forward and both gradients, by every function
// of the open table, whether or not the table would choose it. Where the level has no instructions
// that multiply `dtype`, the variants in fp32 are included: operands are widened to fp32, so the
// rate of fp32 is an upper bound. Returns their number.
int cy_peak_variants(cy_peak_variant ways[CY_PEAK_VARIANTS], const cy_queue *queue, cy_dtype dtype);

// The best rate of several large square products over all variants, in floating-point operations a
// second. No product of a run is faster, so mfu stays below 1.
CY_MUST_CHECK cy_status cy_peak_measure(double *flops_per_s, const cy_queue *queue, cy_dtype dtype);

// The same for forward products in `dtype` by the function that the table chooses: what a run gets.
CY_MUST_CHECK cy_status cy_peak_measure_chosen(
    double *flops_per_s, const cy_queue *queue, cy_dtype dtype);

// Bytes a second over ranges of `bytes` bytes, best of several passes. A copy counts what it reads
// and what it writes.
typedef struct cy_bandwidth {
    double read;
    double copy;
} cy_bandwidth;

// A range larger than any cache, for the bandwidth of memory.
#define CY_BANDWIDTH_BYTES ((size_t)256 << 20)

CY_MUST_CHECK cy_status cy_bandwidth_measure(
    cy_bandwidth *bandwidth, const cy_queue *queue, size_t bytes);

// The current rate of reading `data`, in bytes a second: the median of `passes` passes over it. At
// least 256 bytes; reads whole multiples of 256 bytes, or of 1 MiB where there are as many.
CY_MUST_CHECK cy_status cy_read_bandwidth_measure(
    double *bytes_s, const cy_queue *queue, const void *data, size_t bytes, int passes);

#endif
