// comm/mpi/native.h: MPI's own blocking collectives, for benchmarks that compare ours with them.
// Only in builds with MPI, only inside a world of MPI.
//
// `count` floats are the whole data: of a reduce_scatter and an all_to_all what every rank brings,
// of an all_gather what every rank gets, a multiple of the ranks. `in` and `out` have space for
// them. Each is done `repeats` times; sums add up. They fail when MPI says so.

#ifndef CY_COMM_MPI_NATIVE_H
#define CY_COMM_MPI_NATIVE_H

#include "base/status.h"

#include <stdint.h>

typedef cy_status (*cy_mpi_native)(float *out, float *in, int64_t count, int repeats);

CY_MUST_CHECK cy_status cy_mpi_native_all_reduce(float *out, float *in, int64_t count, int repeats);
CY_MUST_CHECK cy_status cy_mpi_native_reduce_scatter(
    float *out, float *in, int64_t count, int repeats);
CY_MUST_CHECK cy_status cy_mpi_native_all_gather(float *out, float *in, int64_t count, int repeats);
CY_MUST_CHECK cy_status cy_mpi_native_all_to_all(float *out, float *in, int64_t count, int repeats);
CY_MUST_CHECK cy_status cy_mpi_native_broadcast(float *out, float *in, int64_t count, int repeats);
CY_MUST_CHECK cy_status cy_mpi_native_barrier(float *out, float *in, int64_t count, int repeats);

// There and back between the first two ranks.
CY_MUST_CHECK cy_status cy_mpi_native_send(float *out, float *in, int64_t count, int repeats);

#endif
