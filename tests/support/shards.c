#include "support/shards.h"

#include <stdlib.h>

void cy_test_tensors(cy_global_tensor *tensors, int scale)
{
    static const struct {
        const char *name;
        int dimensions;
        int64_t rows, cols;
    } parameters[5] = {
        {"model.embed_tokens.weight", 2, 11, 6},
        {"model.layers.0.mlp.up_proj.weight", 2, 8, 10},
        {"model.layers.0.mlp.down_proj.weight", 2, 10, 8},
        {"model.norm.weight", 1, 1, 7},
        {"lm_head.weight", 2, 13, 5},
    };
    for (int i = 0; i < CY_TEST_TENSORS; i++) {
        const bool vector = parameters[i % 5].dimensions == 1;
        tensors[i] = (cy_global_tensor){
            .name = parameters[i % 5].name,
            .kind = (cy_tensor_kind)(CY_TENSOR_WEIGHT + i / 5),
            .dtype = CY_F32,
            .dimensions = parameters[i % 5].dimensions,
            .rows = vector ? 1 : parameters[i % 5].rows * scale,
            .cols = parameters[i % 5].cols * scale,
        };
    }
}

float cy_test_value(int tensor, int64_t row, int64_t col, int run)
{
    const int64_t value = ((INT64_C(1009) * tensor + row) * 1013 + col) * 31 + INT64_C(7) * run;
    return (float)(value % 16000000);
}

static void split(int64_t *first, int64_t *count, int64_t total, int part, int parts)
{
    *first = total * part / parts;
    *count = total * (part + 1) / parts - *first;
}

// Even tensors are cut by rows, odd ones by columns; vectors are whole on every tp rank, and the
// first of them owns them.
static cy_rectangle rectangle_of(const cy_global_tensor *tensor, int index, int part, int parts)
{
    cy_rectangle r = {0, tensor->rows, 0, tensor->cols};
    if (tensor->dimensions == 1) return part == 0 ? r : (cy_rectangle){0};
    if (index % 5 % 2 == 0) {
        split(&r.row_first, &r.rows, tensor->rows, part, parts);
    } else {
        split(&r.col_first, &r.cols, tensor->cols, part, parts);
    }
    return r;
}

static int64_t memory_elements(const cy_tensor_shard *piece)
{
    if (piece->stride == piece->rectangle.cols) return piece->count;
    return piece->rectangle.rows * piece->stride;
}

void cy_test_shard_open(cy_test_shard *shard, const cy_global_tensor *tensors, cy_test_mesh mesh,
    int rank, int gap, bool fill, int run)
{
    const int tp = rank % mesh.tp, dp = rank / mesh.tp % mesh.dp, pp = rank / mesh.tp / mesh.dp;
    int64_t elements = 0;
    *shard = (cy_test_shard){0};
    for (int i = 0; i < CY_TEST_TENSORS; i++) {
        const cy_rectangle r = rectangle_of(&tensors[i], i, tp, mesh.tp);
        int64_t first = 0, count = 0;
        split(&first, &count, r.rows * r.cols, dp, mesh.dp);
        if (i % 5 % mesh.pp != pp || count == 0) continue;
        cy_tensor_shard *piece = &shard->pieces[shard->count++];
        *piece = cy_tensor_shard_of_range(i, r, first, count, NULL, CY_F32);
        if (mesh.dp == 1) piece->stride += gap;
        elements += memory_elements(piece);
        shard->bytes += count * (int64_t)sizeof(float);
    }
    shard->memory = malloc((size_t)(elements + 1) * sizeof(float));
    if (shard->memory == NULL) abort();
    shard->elements = elements;
    for (int64_t i = 0; i < elements; i++)
        shard->memory[i] = -1;
    float *at = shard->memory;
    for (int i = 0; i < shard->count; i++) {
        cy_tensor_shard *piece = &shard->pieces[i];
        const cy_rectangle *r = &piece->rectangle;
        piece->data = at;
        at += memory_elements(piece);
        for (int64_t e = piece->first; fill && e < piece->first + piece->count; e++) {
            *(float *)cy_tensor_shard_at(piece, e) = cy_test_value(
                piece->tensor, r->row_first + e / r->cols, r->col_first + e % r->cols, run);
        }
    }
}

void cy_test_shard_close(cy_test_shard *shard)
{
    free(shard->memory);
}

int64_t cy_test_shard_wrong(
    const cy_test_shard *shard, const cy_global_tensor *tensors, int gap, int run)
{
    int64_t wrong = 0;
    (void)tensors;
    for (int i = 0; i < shard->count; i++) {
        const cy_tensor_shard *piece = &shard->pieces[i];
        const cy_rectangle *r = &piece->rectangle;
        for (int64_t e = piece->first; e < piece->first + piece->count; e++) {
            const float wanted = cy_test_value(
                piece->tensor, r->row_first + e / r->cols, r->col_first + e % r->cols, run);
            const float *found = cy_tensor_shard_at(piece, e);
            wrong += !(*found == wanted);
            const bool row_end = e % r->cols == r->cols - 1;
            for (int g = 1; row_end && piece->stride > r->cols && g <= gap; g++) {
                wrong += !(found[g] == -1.0f);
            }
        }
    }
    return wrong;
}
