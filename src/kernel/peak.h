// kernel/peak.h: what this machine reaches at best, measured with the run's own kernels and
// threads.
//
// The matrix peak is the denominator of mfu and of rooflines, the bandwidths that of everything
// that is not a product. Nothing is assumed from data sheets. A call borrows the queue's pool and
// kernels, maps memory of its own for its length, and takes about a second; it fails only where
// that memory is refused. Not for use inside a training step.

#ifndef CY_KERNEL_PEAK_H
#define CY_KERNEL_PEAK_H

#include "kernel/kernel.h"

// The best of several large square products in `dtype`, in floating-point operations a second.
CY_MUST_CHECK cy_status cy_peak_measure(double *flops_per_s, const cy_queue *queue, cy_dtype dtype);

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
CY_MUST_CHECK cy_status cy_reading_measure(
    double *bytes_s, const cy_queue *queue, const void *data, size_t bytes, int passes);

#endif
