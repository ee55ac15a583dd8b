#include "base/assert.h"
#include "kernel/ref/element.h"
#include "kernel/ref/ref.h"

void cy_ref_rope_table(cy_queue *queue, cy_view table, const double *inv_freq, double scale)
{
    if (queue->dry) return;
    const int64_t half = table.cols / 2;
    for (int64_t p = 0; p < table.rows; p++) {
        for (int64_t i = 0; i < half; i++) {
            const double angle = (double)p * inv_freq[i];
            cy_ref_store(queue, table, p, i, scale * cos(angle));
            cy_ref_store(queue, table, p, half + i, scale * sin(angle));
        }
    }
}

void cy_ref_rope(
    cy_queue *queue, cy_view x, cy_view table, const int32_t *positions, int heads, bool inverse)
{
    if (queue->dry) return;
    const int64_t half = table.cols / 2;
    for (int64_t t = 0; t < x.rows; t++) {
        const int64_t p = positions[t];
        CY_DEBUG_ASSERT(p >= 0 && p < table.rows);
        for (int head = 0; head < heads; head++) {
            for (int64_t i = 0; i < half; i++) {
                const double cosine = cy_ref_load(table, p, i);
                const double turn = cy_ref_load(table, p, half + i);
                const double sine = inverse ? -turn : turn;
                const int64_t col = head * table.cols + i;
                const double a = cy_ref_load(x, t, col), b = cy_ref_load(x, t, col + half);
                cy_ref_store(queue, x, t, col, a * cosine - b * sine);
                cy_ref_store(queue, x, t, col + half, b * cosine + a * sine);
            }
        }
    }
}
