// Calls MPI's own blocking collectives, for benchmarks.

#include "comm/mpi/native.h"

#include <mpi.h>

static cy_status checked(int code, const char *call)
{
    if (code == MPI_SUCCESS) return CY_OK;
    return CY_FAIL(CY_ERR_PEER, "%s returns %d", call, code);
}

static int ranks(void)
{
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

cy_status cy_mpi_native_all_reduce(float *out, float *in, int64_t count, int repeats)
{
    (void)out;
    int code = MPI_SUCCESS;
    for (int i = 0; i < repeats && code == MPI_SUCCESS; i++)
        code = MPI_Allreduce(MPI_IN_PLACE, in, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return checked(code, "MPI_Allreduce");
}

cy_status cy_mpi_native_reduce_scatter(float *out, float *in, int64_t count, int repeats)
{
    const int part = (int)count / ranks();
    int code = MPI_SUCCESS;
    for (int i = 0; i < repeats && code == MPI_SUCCESS; i++)
        code = MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return checked(code, "MPI_Reduce_scatter_block");
}

cy_status cy_mpi_native_all_gather(float *out, float *in, int64_t count, int repeats)
{
    const int part = (int)count / ranks();
    int code = MPI_SUCCESS;
    for (int i = 0; i < repeats && code == MPI_SUCCESS; i++)
        code = MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
    return checked(code, "MPI_Allgather");
}

cy_status cy_mpi_native_all_to_all(float *out, float *in, int64_t count, int repeats)
{
    const int part = (int)count / ranks();
    int code = MPI_SUCCESS;
    for (int i = 0; i < repeats && code == MPI_SUCCESS; i++)
        code = MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
    return checked(code, "MPI_Alltoall");
}

cy_status cy_mpi_native_broadcast(float *out, float *in, int64_t count, int repeats)
{
    (void)out;
    int code = MPI_SUCCESS;
    for (int i = 0; i < repeats && code == MPI_SUCCESS; i++)
        code = MPI_Bcast(in, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    return checked(code, "MPI_Bcast");
}

cy_status cy_mpi_native_barrier(float *out, float *in, int64_t count, int repeats)
{
    (void)out;
    (void)in;
    (void)count;
    int code = MPI_SUCCESS;
    for (int i = 0; i < repeats && code == MPI_SUCCESS; i++)
        code = MPI_Barrier(MPI_COMM_WORLD);
    return checked(code, "MPI_Barrier");
}

cy_status cy_mpi_native_send(float *out, float *in, int64_t count, int repeats)
{
    (void)out;
    int rank = 0;
    int code = MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 2 * repeats && rank < 2 && code == MPI_SUCCESS; i++) {
        code = rank == i % 2
            ? MPI_Send(in, (int)count, MPI_FLOAT, 1 - rank, 0, MPI_COMM_WORLD)
            : MPI_Recv(in, (int)count, MPI_FLOAT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return checked(code, "MPI_Send or MPI_Recv");
}
