#include "checkpoint/compare.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

#define PART_ELEMENTS ((int64_t)1 << 19)

double cy_tensor_difference_relative(const cy_tensor_difference *difference)
{
    if (difference->equal) return 0.0;
    return difference->distance / difference->norm;
}

static cy_status read_part(cy_checkpoint *checkpoint, const cy_global_tensor *tensor, int64_t first,
    int64_t count, double *values)
{
    cy_checkpoint_traffic traffic = {0};
    const cy_rectangle whole = {.rows = tensor->rows, .cols = tensor->cols};
    const cy_tensor_shard piece = cy_tensor_shard_of_range(0, whole, first, count, values, CY_F64);
    return cy_checkpoint_load(checkpoint, tensor, &piece, 1, &traffic);
}

static void add_part(cy_tensor_difference *sums, const double *a, const double *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const double distance = a[i] - b[i];
        sums->norm += a[i] * a[i];
        sums->distance += distance * distance;
    }
    if (memcmp(a, b, (size_t)count * sizeof(*a)) != 0) sums->equal = false;
}

cy_status cy_checkpoint_compare(cy_tensor_difference *difference, cy_checkpoint *one,
    cy_checkpoint *other, const cy_global_tensor *tensor)
{
    void *memory = NULL;
    const int64_t count = tensor->rows * tensor->cols;
    const int64_t most = count < PART_ELEMENTS ? count : PART_ELEMENTS;
    CY_TRY(cy_memory_alloc(&memory, (size_t)(2 * most), sizeof(double)));
    double *a = memory, *b = a + most;
    cy_tensor_difference sums = {.equal = true};
    cy_status status = CY_OK;
    for (int64_t first = 0; status == CY_OK && first < count; first += most) {
        const int64_t some = count - first < most ? count - first : most;
        status = read_part(one, tensor, first, some, a);
        if (status == CY_OK) status = read_part(other, tensor, first, some, b);
        if (status == CY_OK) add_part(&sums, a, b, some);
    }
    cy_memory_free(memory);
    sums.norm = sqrt(sums.norm);
    sums.distance = sqrt(sums.distance);
    if (status == CY_OK) *difference = sums;
    return status;
}
