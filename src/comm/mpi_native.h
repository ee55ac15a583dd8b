// comm/mpi_native.h: MPI's own all_reduce, to compare ours with. Only in builds with MPI, only
// inside a world of it.

#ifndef CY_COMM_MPI_NATIVE_H
#define CY_COMM_MPI_NATIVE_H

#include "base/status.h"

#include <stdint.h>

// Sums data [count] over all ranks, `repeats` times.
CY_MUST_CHECK cy_status cy_mpi_native_sum(float *data, int64_t count, int repeats);

#endif
