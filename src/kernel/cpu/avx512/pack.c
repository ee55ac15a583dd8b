#include "kernel/cpu/avx512/pack.h"

#include "base/assert.h"
#include "kernel/cpu/avx512/squares.h"
#include "kernel/cpu/gemm/microkernel.h"

// Thirty-two bf16, narrowed where the source is wider: zero beyond the source.
static inline __m512i load_row_bf16(cy_view source, int64_t row, int64_t col)
{
    if (row >= source.rows || col >= source.cols) return _mm512_setzero_si512();
    const int64_t left = source.cols - col;
    if (source.dtype == CY_BF16) {
        const uint16_t *half = (const uint16_t *)source.data + row * source.stride + col;
        return _mm512_maskz_loadu_epi16(cy_lanes32(left), half);
    }
    const void *at = cy_view_at(source, row, col);
    const __m256i low = cy_narrow_bf16(cy_load16(at, source.dtype, cy_lanes16(left)));
    __m256i high = _mm256_setzero_si256();
    if (left > 16) {
        high = cy_narrow_bf16(
            cy_load16(cy_view_at(source, row, col + 16), source.dtype, cy_lanes16(left - 16)));
    }
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Pairs (a, b) of columns 0..15 and of columns 16..31 of two rows.
static inline void interleave(__m512i *low, __m512i *high, __m512i a, __m512i b)
{
    const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9,
        40, 8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    *low = _mm512_permutex2var_epi16(a, first, b);
    *high = _mm512_permutex2var_epi16(a, second, b);
}

// Rows ahead of which a copy asks for its source and its destination: rows of one head lie far
// apart in a matrix of all heads, and no prefetcher of the processor's follows their first lines.
#define AHEAD 8

static void copy_rows(cy_view to, cy_view from, int64_t row_bytes, int64_t element)
{
    for (int64_t i = 0; i < to.rows; i++) {
        const char *x = (const char *)from.data + i * from.stride * element;
        char *y = (char *)to.data + i * to.stride * element;
        for (int64_t at = 0; at < row_bytes; at += 64) {
            _mm_prefetch(x + AHEAD * from.stride * element + at, _MM_HINT_T0);
            _mm_prefetch(y + AHEAD * to.stride * element + at, _MM_HINT_T0);
            _mm512_storeu_si512(y + at, _mm512_loadu_si512(x + at));
        }
    }
}

// Whether rows are whole cache lines of one dtype.
static bool same_lines(cy_view to, cy_view from)
{
    return to.dtype == from.dtype && to.cols * (int64_t)cy_dtype_size(to.dtype) % 64 == 0;
}

void cy_convert_avx512(cy_view to, cy_view from)
{
    if (same_lines(to, from)) {
        const int64_t element = (int64_t)cy_dtype_size(to.dtype);
        copy_rows(to, from, to.cols * element, element);
        return;
    }
    for (int64_t i = 0; i < to.rows; i++) {
        for (int64_t j = 0; j < to.cols; j += 16) {
            const __mmask16 lanes = cy_lanes16(to.cols - j);
            cy_store16(cy_view_at(to, i, j), to.dtype, lanes,
                cy_load16(cy_view_at(from, i, j), from.dtype, lanes));
        }
    }
}

void cy_convert_avx512_bf16(cy_view to, cy_view from)
{
    if (to.dtype != CY_BF16 || from.dtype != CY_F32) {
        cy_convert_avx512(to, from);
        return;
    }
    for (int64_t i = 0; i < to.rows; i++) {
        const float *x = (const float *)from.data + i * from.stride;
        uint16_t *y = (uint16_t *)to.data + i * to.stride;
        int64_t j = 0;
        for (; j + 32 <= to.cols; j += 32) {
            _mm_prefetch((const char *)(y + AHEAD * to.stride + j), _MM_HINT_T0);
            const __m512bh half =
                _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + j + 16), _mm512_loadu_ps(x + j));
            _mm512_storeu_si512(y + j, (__m512i)half);
        }
        for (; j < to.cols; j += 16) {
            const __mmask16 lanes = cy_lanes16(to.cols - j);
            const __m256bh half = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, x + j));
            _mm256_mask_storeu_epi16(y + j, lanes, (__m256i)half);
        }
    }
}

// to [cols, rows] = from [rows, cols] transposed, as fp32; `stride` of to. Along the source's rows
// first, as they lie; the rows below are asked for meanwhile.
void cy_transpose_avx512(float *to, int64_t stride, cy_view from)
{
    for (int64_t row = 0; row < from.rows; row += 16) {
        const __mmask16 lanes = cy_lanes16(from.rows - row);
        for (int64_t col = 0; col < from.cols; col += 16) {
            const int64_t cols = from.cols - col < 16 ? from.cols - col : 16;
            __m512i r[16];
            cy_load_square(r, from, row, col);
            if (from.dtype == CY_F32) cy_prefetch_square(from, row + 16, col);
            cy_transpose16(r);
            for (int64_t j = 0; j < cols; j++) {
                _mm512_mask_storeu_epi32(to + (col + j) * stride + row, lanes, r[j]);
            }
        }
    }
}

void cy_pack_left_f32_avx512(void *left, cy_view source, bool transposed)
{
    if (transposed) {
        cy_transpose_avx512(left, source.rows, source);
    } else {
        cy_convert_avx512(cy_view_of(left, CY_F32, source.rows, source.cols), source);
    }
}

// One panel from source [depth, cols], its columns from `col` on: zero beyond them.
static void pack_panel_f32(float *to, cy_view source, int64_t col)
{
    const int64_t left = source.cols - col, half = 16 * (int64_t)cy_dtype_size(source.dtype);
    if (source.dtype == CY_F32 && left >= CY_BLOCK_COLS) {
        cy_view panel = cy_view_of(to, CY_F32, source.rows, CY_BLOCK_COLS);
        copy_rows(panel, cy_view_cols(source, col, CY_BLOCK_COLS), CY_BLOCK_COLS * 4, 4);
        return;
    }
    const __mmask16 first = cy_lanes16(left), second = left > 16 ? cy_lanes16(left - 16) : 0;
    for (int64_t k = 0; k < source.rows; k++) {
        const char *at = cy_view_at(source, k, col);
        _mm512_storeu_ps(to + k * 32, cy_load16(at, source.dtype, first));
        _mm512_storeu_ps(to + k * 32 + 16, cy_load16(at + half, source.dtype, second));
    }
}

// Half a panel, 16 columns, from rows [col, col + 16) of source [cols, depth].
static void pack_half_transposed_f32(float *to, cy_view source, int64_t col)
{
    for (int64_t k = 0; k < source.cols; k += 16) {
        __m512i r[16];
        cy_load_square(r, source, col, k);
        if (source.dtype == CY_F32) cy_prefetch_square(source, col + 16, k);
        cy_transpose16(r);
        for (int64_t i = 0; i < 16 && k + i < source.cols; i++)
            _mm512_storeu_si512(to + (k + i) * 32, r[i]);
    }
}

void cy_pack_right_f32_avx512(void *right, cy_view source, bool transposed)
{
    const int64_t cols = transposed ? source.rows : source.cols;
    const int64_t depth = transposed ? source.cols : source.rows;
    float *to = right;
    for (int64_t col = 0; col < cols; col += CY_BLOCK_COLS, to += depth * CY_BLOCK_COLS) {
        if (!transposed) {
            pack_panel_f32(to, source, col);
        } else {
            pack_half_transposed_f32(to, source, col);
            pack_half_transposed_f32(to + 16, source, col + 16);
        }
    }
}

// 32 rows of 32 from `row` and `col` on; zero beyond the source.
static inline void load_square_bf16(__m512i r[32], cy_view source, int64_t row, int64_t col)
{
    if (source.dtype == CY_BF16 && row + 32 <= source.rows && col + 32 <= source.cols) {
        const uint16_t *at = (const uint16_t *)source.data + row * source.stride + col;
        for (int i = 0; i < 32; i++)
            r[i] = _mm512_loadu_si512(at + i * source.stride);
    } else {
        for (int i = 0; i < 32; i++)
            r[i] = load_row_bf16(source, row + i, col);
    }
}

// Asks for 32 lines of as many rows, for a later call: rows of a source may lie far apart, as those
// of a gradient of logits do, and no prefetcher of the processor's follows 32 of them.
static inline void prefetch_square_bf16(cy_view source, int64_t row, int64_t col)
{
    const uint16_t *at = (const uint16_t *)source.data + row * source.stride + col;
    for (int i = 0; i < 32; i++)
        _mm_prefetch((const char *)(at + i * source.stride), _MM_HINT_T0);
}

// Likewise 16 rows of the next group that a panel is packed from.
static inline void prefetch_rows_bf16(cy_view source, int64_t row, int64_t col)
{
    const uint16_t *at = (const uint16_t *)source.data + row * source.stride + col;
    for (int i = 0; i < 16; i++)
        _mm_prefetch((const char *)(at + i * source.stride), _MM_HINT_T0);
}

// left [source.cols, depth] from source [source.rows, source.cols], 32 x 32 at a time: pairs of
// rows side by side, then a transposition of pairs. Along the source's rows first, as they lie; the
// rows below are asked for meanwhile.
static void transpose_bf16(uint16_t *left, cy_view source, int64_t depth)
{
    for (int64_t k = 0; k < depth; k += 32) {
        const __mmask32 lanes = cy_lanes32(depth - k);
        for (int64_t col = 0; col < source.cols; col += 32) {
            const int64_t rows = source.cols - col < 32 ? source.cols - col : 32;
            __m512i r[32], low[16], high[16];
            load_square_bf16(r, source, k, col);
            if (source.dtype == CY_BF16) prefetch_square_bf16(source, k + 32, col);
            for (int64_t i = 0; i < 16; i++)
                interleave(&low[i], &high[i], r[2 * i], r[2 * i + 1]);
            cy_transpose16(low);
            cy_transpose16(high);
            uint16_t *to = left + col * depth + k;
            for (int64_t i = 0; i < rows; i++) {
                _mm512_mask_storeu_epi16(to + i * depth, lanes, i < 16 ? low[i] : high[i - 16]);
            }
        }
    }
}

void cy_pack_left_bf16_avx512(void *left, cy_view source, bool transposed, int64_t step)
{
    uint16_t *to = left;
    if (transposed) {
        transpose_bf16(to, source, cy_round_up(source.rows, step));
        return;
    }
    const int64_t depth = cy_round_up(source.cols, step);
    if (source.dtype == CY_BF16 && depth == source.cols && depth % 32 == 0) {
        copy_rows(cy_view_of(left, CY_BF16, source.rows, depth), source, depth * 2, 2);
        return;
    }
    for (int64_t i = 0; i < source.rows; i++) {
        for (int64_t k = 0; k < depth; k += 32) {
            _mm512_mask_storeu_epi16(
                to + i * depth + k, cy_lanes32(depth - k), load_row_bf16(source, i, k));
        }
    }
}

// One panel of 32 columns from source [cols, depth]: 32 columns x 32 deep at a time. What the next
// panel reads is asked for meanwhile.
static void pack_panel_transposed(uint16_t *to, cy_view source, int64_t col, int64_t depth)
{
    for (int64_t k = 0; k < depth; k += 32) {
        __m512i r[32];
        load_square_bf16(r, source, col, k);
        if (source.dtype == CY_BF16) prefetch_square_bf16(source, col + CY_BLOCK_COLS, k);
        cy_transpose16(r);
        cy_transpose16(r + 16);
        uint16_t *pair = to + k * CY_BLOCK_COLS;
        for (int64_t i = 0; i < 16 && k + 2 * i < depth; i++) {
            _mm512_storeu_si512(pair + i * 64, r[i]);
            _mm512_storeu_si512(pair + i * 64 + 32, r[16 + i]);
        }
    }
}

void cy_pack_right_bf16_avx512(void *right, cy_view source, bool transposed, int64_t step)
{
    const int64_t cols = transposed ? source.rows : source.cols;
    const int64_t depth = cy_round_up(transposed ? source.cols : source.rows, step);
    uint16_t *to = right;
    if (transposed) {
        for (int64_t col = 0; col < cols; col += CY_BLOCK_COLS) {
            pack_panel_transposed(to + col * depth, source, col, depth);
        }
        return;
    }
    // Sixteen rows at a time: along the source as it lies, and yet whole runs of each panel, which
    // are a power of two apart and would otherwise chase each other out of the cache.
    for (int64_t group = 0; group < depth; group += 16) {
        for (int64_t col = 0; col < cols; col += CY_BLOCK_COLS) {
            if (source.dtype == CY_BF16) prefetch_rows_bf16(source, group + 16, col);
            for (int64_t k = group; k < group + 16 && k < depth; k += 2) {
                __m512i low, high;
                interleave(
                    &low, &high, load_row_bf16(source, k, col), load_row_bf16(source, k + 1, col));
                uint16_t *pair = to + col * depth + k * CY_BLOCK_COLS;
                _mm512_storeu_si512(pair, low);
                _mm512_storeu_si512(pair + 32, high);
            }
        }
    }
}
