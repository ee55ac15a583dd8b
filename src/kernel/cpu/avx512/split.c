// fp32 as the sum of three bf16, for products of fp32 on units that multiply bf16. Eight bits of
// the 24 go into each part: the first is x rounded, the second what is left of x rounded, the third
// what is left then, exactly where that is a normal number. After Henry, Tang and Heinecke,
// "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations",
// 2019 (arXiv:1904.06376).
//
// Subnormal parts count as zero, as they do for the units; a product with an element that is not
// finite, or rounds to what bf16 has no finite number for (above 3.3895e38), is a NaN.

#include "kernel/cpu/avx512/pack.h"
#include "kernel/cpu/avx512/squares.h"
#include "kernel/cpu/gemm/microkernel.h"

#define PARTS CY_SPLIT_PARTS
#define DEPTH CY_SPLIT_DEPTH

// Elements of one part in a step of 32 deep, in a row of left and in a panel of right.
#define LEFT_PART  DEPTH
#define RIGHT_PART (DEPTH * CY_BLOCK_COLS)

// The nearest bf16, ties away from zero, as an fp32 whose lower half is zero.
static inline __m512 round_to_bf16(__m512 x)
{
    const __m512i up = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
    return _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(-0x10000)));
}

static inline __attribute__((always_inline)) void split(__m512 part[PARTS], __m512 x)
{
    part[0] = round_to_bf16(x);
    const __m512 rest = _mm512_sub_ps(x, part[0]);
    part[1] = round_to_bf16(rest);
    part[2] = _mm512_sub_ps(rest, part[1]);
}

// 32 elements of a row of left, from the upper halves of two parts.
static inline __m512i join_row(__m512 first, __m512 second)
{
    const __m512i upper = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37,
        35, 33, 31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(
        _mm512_castps_si512(first), upper, _mm512_castps_si512(second));
}

static inline __attribute__((always_inline)) void store_row(
    uint16_t *to, __m512 first, __m512 second)
{
    __m512 a[PARTS], b[PARTS];
    split(a, first);
    split(b, second);
    for (int64_t i = 0; i < PARTS; i++)
        _mm512_storeu_si512(to + i * LEFT_PART, join_row(a[i], b[i]));
}

// Sixteen columns of right, two deep: a pair stands side by side.
static inline __attribute__((always_inline)) void store_pairs(uint16_t *to, __m512 even, __m512 odd)
{
    __m512 a[PARTS], b[PARTS];
    split(a, even);
    split(b, odd);
    const __m512i upper = _mm512_set1_epi32(-0x10000);
    for (int64_t i = 0; i < PARTS; i++) {
        const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(a[i]), 16);
        // low | (b & upper): of a subnormal part more than eight bits may be left.
        _mm512_storeu_si512(to + i * RIGHT_PART,
            _mm512_ternarylogic_epi32(low, _mm512_castps_si512(b[i]), upper, 0xf8));
    }
}

// Sixteen elements of a row; zero beyond the source.
static __m512 load_some(cy_view source, int64_t row, int64_t col)
{
    if (row >= source.rows || col >= source.cols) return _mm512_setzero_ps();
    return cy_load16(cy_view_at(source, row, col), source.dtype, cy_lanes16(source.cols - col));
}

// Thirty-two elements of a row, likewise.
static inline __attribute__((always_inline)) void load_row(
    __m512 x[2], cy_view source, int64_t row, int64_t col)
{
    if (source.dtype == CY_F32 && row < source.rows && col + 32 <= source.cols) {
        const float *at = (const float *)source.data + row * source.stride + col;
        x[0] = _mm512_loadu_ps(at);
        x[1] = _mm512_loadu_ps(at + 16);
    } else {
        x[0] = load_some(source, row, col);
        x[1] = load_some(source, row, col + 16);
    }
}

// Rows of left from columns of the source: two squares below each other are 32 deep.
static void pack_left_transposed(uint16_t *to, cy_view source, int64_t depth)
{
    for (int64_t k = 0; k < depth; k += DEPTH) {
        for (int64_t col = 0; col < source.cols; col += 16) {
            __m512i upper[16], lower[16];
            cy_load_square(upper, source, k, col);
            cy_load_square(lower, source, k + 16, col);
            if (source.dtype == CY_F32) {
                cy_prefetch_square(source, k + DEPTH, col);
                cy_prefetch_square(source, k + DEPTH + 16, col);
            }
            cy_transpose16(upper);
            cy_transpose16(lower);
            uint16_t *row = to + (col * depth + k) * PARTS;
            for (int64_t i = 0; i < 16 && col + i < source.cols; i++) {
                store_row(row + i * depth * PARTS, _mm512_castsi512_ps(upper[i]),
                    _mm512_castsi512_ps(lower[i]));
            }
        }
    }
}

void cy_pack_left_split_avx512(void *left, cy_view source, bool transposed)
{
    uint16_t *to = left;
    if (transposed) {
        pack_left_transposed(to, source, cy_round_up(source.rows, DEPTH));
        return;
    }
    for (int64_t i = 0; i < source.rows; i++) {
        for (int64_t k = 0; k < source.cols; k += DEPTH, to += DEPTH * PARTS) {
            __m512 x[2];
            load_row(x, source, i, k);
            store_row(to, x[0], x[1]);
        }
    }
}

// Half a panel, 16 columns, from rows [col, col + 16) of source [cols, depth].
static void pack_half_transposed(uint16_t *to, cy_view source, int64_t col, int64_t depth)
{
    for (int64_t k = 0; k < depth; k += 16) {
        __m512i r[16];
        cy_load_square(r, source, col, k);
        if (source.dtype == CY_F32) cy_prefetch_square(source, col + 16, k);
        cy_transpose16(r);
        // Of the 16 pairs of a step the second square holds the last eight.
        uint16_t *pair = to + k / DEPTH * RIGHT_PART * PARTS + k % DEPTH * CY_BLOCK_COLS;
        for (int64_t i = 0; i < 16; i += 2, pair += 2 * CY_BLOCK_COLS)
            store_pairs(pair, _mm512_castsi512_ps(r[i]), _mm512_castsi512_ps(r[i + 1]));
    }
}

// One step of 32 deep of one panel, its columns from `col` of the source on.
static void pack_step(uint16_t *to, cy_view source, int64_t k, int64_t col)
{
    for (int64_t i = k; i < k + DEPTH; i += 2, to += 2 * CY_BLOCK_COLS) {
        __m512 even[2], odd[2];
        load_row(even, source, i, col);
        load_row(odd, source, i + 1, col);
        store_pairs(to, even[0], odd[0]);
        store_pairs(to + CY_BLOCK_COLS, even[1], odd[1]);
    }
}

void cy_pack_right_split_avx512(void *right, cy_view source, bool transposed)
{
    const int64_t cols = transposed ? source.rows : source.cols;
    const int64_t depth = cy_round_up(transposed ? source.cols : source.rows, DEPTH);
    uint16_t *to = right;
    if (transposed) {
        for (int64_t col = 0; col < cols; col += CY_BLOCK_COLS) {
            uint16_t *panel = to + col * depth * PARTS;
            pack_half_transposed(panel, source, col, depth);
            pack_half_transposed(panel + CY_BLOCK_COLS, source, col + 16, depth);
        }
        return;
    }
    // Along the source as it lies, 32 rows of it at a time.
    for (int64_t k = 0; k < depth; k += DEPTH) {
        for (int64_t col = 0; col < cols; col += CY_BLOCK_COLS)
            pack_step(to + (col * depth + k * CY_BLOCK_COLS) * PARTS, source, k, col);
    }
}
