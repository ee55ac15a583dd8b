// Packs operands for the microkernels of AVX-512 and AMX: fp32, bf16, and fp32 that is split into
// three bf16.

#include "kernel/cpu/avx512/pack.h"

#include "base/status.h"
#include "kernel/cpu/gemm/microkernel.h"
#include "kernel/cpu/vector/vector.h"

// The first `count` of 32 words; 32 or more is all of them.
static inline __mmask32 lanes_mask32(int64_t count)
{
    return count >= 32 ? 0xffffffffu : (1u << count) - 1u;
}

// ---- squares of 16 x 16 double words in registers, which packing transposes

// r[i] lane j becomes r[j] lane i.
static inline void transpose16(__m512i r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    // Now quarter q of r[4 g + j] holds rows 4 g .. 4 g + 3 of column 4 q + j.
    for (int j = 0; j < 4; j++) {
        t[j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
        t[4 + j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
        t[8 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    }
    for (int j = 0; j < 4; j++) {
        r[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
        r[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd);
        r[4 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
        r[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xdd);
    }
}

// Sixteen rows of fp32, from `row` on, columns [col, col + 16): zero beyond the source.
static inline void load_square(__m512i r[16], cy_view source, int64_t row, int64_t col)
{
    if (source.dtype == CY_F32 && row + 16 <= source.rows && col + 16 <= source.cols) {
        const float *at = (const float *)source.data + row * source.stride + col;
        for (int i = 0; i < 16; i++)
            r[i] = _mm512_loadu_si512(at + i * source.stride);
        return;
    }
    const __mmask16 lanes = source.cols > col ? lanes_mask(source.cols - col) : 0;
    for (int i = 0; i < 16; i++) {
        r[i] = row + i < source.rows && lanes != 0
            ? _mm512_castps_si512(
                  load_masked(cy_view_at(source, row + i, col), source.dtype, lanes))
            : _mm512_setzero_si512();
    }
}

// Prefetches one line of each of 16 rows, for a later call.
static inline void prefetch_square(cy_view source, int64_t row, int64_t col)
{
    const float *at = (const float *)source.data + row * source.stride + col;
    for (int i = 0; i < 16; i++)
        _mm_prefetch((const char *)(at + i * source.stride), _MM_HINT_T0);
}

// ---- fp32 and bf16

// Thirty-two bf16, narrowed where the source is wider: zero beyond the source.
static inline __m512i load_row_bf16(cy_view source, int64_t row, int64_t col)
{
    if (row >= source.rows || col >= source.cols) return _mm512_setzero_si512();
    const int64_t left = source.cols - col;
    if (source.dtype == CY_BF16) {
        const uint16_t *half = (const uint16_t *)source.data + row * source.stride + col;
        return _mm512_maskz_loadu_epi16(lanes_mask32(left), half);
    }
    const void *at = cy_view_at(source, row, col);
    const __m256i low = narrow_bf16(load_masked(at, source.dtype, lanes_mask(left)));
    __m256i high = _mm256_setzero_si256();
    if (left > 16) {
        high = narrow_bf16(
            load_masked(cy_view_at(source, row, col + 16), source.dtype, lanes_mask(left - 16)));
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

// Rows by which a copy prefetches its source and its destination ahead of their use: rows of one
// head lie far apart in a matrix of all heads, and hardware prefetchers do not follow their first
// lines.
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
            const __mmask16 lanes = lanes_mask(to.cols - j);
            store_masked(cy_view_at(to, i, j), to.dtype,
                load_masked(cy_view_at(from, i, j), from.dtype, lanes), lanes);
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
            const __mmask16 lanes = lanes_mask(to.cols - j);
            const __m256bh half = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, x + j));
            _mm256_mask_storeu_epi16(y + j, lanes, (__m256i)half);
        }
    }
}

// to [cols, rows] = from [rows, cols] transposed, as fp32; `stride` of to. Reads along the rows of
// the source and prefetches the rows below.
void cy_transpose_avx512(float *to, int64_t stride, cy_view from)
{
    for (int64_t row = 0; row < from.rows; row += 16) {
        const __mmask16 lanes = lanes_mask(from.rows - row);
        for (int64_t col = 0; col < from.cols; col += 16) {
            const int64_t cols = from.cols - col < 16 ? from.cols - col : 16;
            __m512i r[16];
            load_square(r, from, row, col);
            if (from.dtype == CY_F32) prefetch_square(from, row + 16, col);
            transpose16(r);
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
    if (source.dtype == CY_F32 && left >= CY_MICROKERNEL_COLS) {
        cy_view panel = cy_view_of(to, CY_F32, source.rows, CY_MICROKERNEL_COLS);
        copy_rows(
            panel, cy_view_cols(source, col, CY_MICROKERNEL_COLS), CY_MICROKERNEL_COLS * 4, 4);
        return;
    }
    const __mmask16 first = lanes_mask(left), second = left > 16 ? lanes_mask(left - 16) : 0;
    for (int64_t k = 0; k < source.rows; k++) {
        const char *at = cy_view_at(source, k, col);
        _mm512_storeu_ps(to + k * 32, load_masked(at, source.dtype, first));
        _mm512_storeu_ps(to + k * 32 + 16, load_masked(at + half, source.dtype, second));
    }
}

// Half a panel, 16 columns, from rows [col, col + 16) of source [cols, depth].
static void pack_half_transposed_f32(float *to, cy_view source, int64_t col)
{
    for (int64_t k = 0; k < source.cols; k += 16) {
        __m512i r[16];
        load_square(r, source, col, k);
        if (source.dtype == CY_F32) prefetch_square(source, col + 16, k);
        transpose16(r);
        for (int64_t i = 0; i < 16 && k + i < source.cols; i++)
            _mm512_storeu_si512(to + (k + i) * 32, r[i]);
    }
}

void cy_pack_right_f32_avx512(void *right, cy_view source, bool transposed)
{
    const int64_t cols = transposed ? source.rows : source.cols;
    const int64_t depth = transposed ? source.cols : source.rows;
    float *to = right;
    for (int64_t col = 0; col < cols;
         col += CY_MICROKERNEL_COLS, to += depth * CY_MICROKERNEL_COLS) {
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

// Prefetches one line of each of 32 rows, for a later call: rows of a source may lie far apart, as
// those of a gradient of logits do, and hardware prefetchers do not follow 32 of them.
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
// rows side by side, then a transposition of pairs. Reads along the rows of the source and
// prefetches the rows below.
static void transpose_bf16(uint16_t *left, cy_view source, int64_t depth)
{
    for (int64_t k = 0; k < depth; k += 32) {
        const __mmask32 lanes = lanes_mask32(depth - k);
        for (int64_t col = 0; col < source.cols; col += 32) {
            const int64_t rows = source.cols - col < 32 ? source.cols - col : 32;
            __m512i r[32], low[16], high[16];
            load_square_bf16(r, source, k, col);
            if (source.dtype == CY_BF16) prefetch_square_bf16(source, k + 32, col);
            for (int64_t i = 0; i < 16; i++)
                interleave(&low[i], &high[i], r[2 * i], r[2 * i + 1]);
            transpose16(low);
            transpose16(high);
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
                to + i * depth + k, lanes_mask32(depth - k), load_row_bf16(source, i, k));
        }
    }
}

// One panel of 32 columns from source [cols, depth]: 32 columns x 32 deep at a time. Prefetches
// what the next panel reads.
static void pack_panel_transposed(uint16_t *to, cy_view source, int64_t col, int64_t depth)
{
    for (int64_t k = 0; k < depth; k += 32) {
        __m512i r[32];
        load_square_bf16(r, source, col, k);
        if (source.dtype == CY_BF16) prefetch_square_bf16(source, col + CY_MICROKERNEL_COLS, k);
        transpose16(r);
        transpose16(r + 16);
        uint16_t *pair = to + k * CY_MICROKERNEL_COLS;
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
        for (int64_t col = 0; col < cols; col += CY_MICROKERNEL_COLS) {
            pack_panel_transposed(to + col * depth, source, col, depth);
        }
        return;
    }
    // Sixteen rows at a time: this reads along the rows of the source, and writes long runs of each
    // panel. Panels lie a power of two apart, so short runs would evict each other from the cache.
    for (int64_t group = 0; group < depth; group += 16) {
        for (int64_t col = 0; col < cols; col += CY_MICROKERNEL_COLS) {
            if (source.dtype == CY_BF16) prefetch_rows_bf16(source, group + 16, col);
            for (int64_t k = group; k < group + 16 && k < depth; k += 2) {
                __m512i low, high;
                interleave(
                    &low, &high, load_row_bf16(source, k, col), load_row_bf16(source, k + 1, col));
                uint16_t *pair = to + col * depth + k * CY_MICROKERNEL_COLS;
                _mm512_storeu_si512(pair, low);
                _mm512_storeu_si512(pair + 32, high);
            }
        }
    }
}

// ---- fp32 in three parts
//
// fp32 as the sum of three bf16, for products of fp32 on units that multiply bf16. Eight bits of
// the 24 go into each part: the first is x rounded, the second what is left of x rounded, the third
// what is left then, exactly where that is a normal number. After Henry, Tang and Heinecke,
// "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations",
// 2019 (arXiv:1904.06376).
//
// Subnormal parts count as zero, as they do for the units; a product with an element that is not
// finite, or rounds to what bf16 has no finite number for (above 3.3895e38), is a NaN.

#define PARTS CY_SPLIT_PARTS
#define DEPTH CY_SPLIT_DEPTH

// Elements of one part in a step of 32 deep, in a row of left and in a panel of right.
#define LEFT_PART  DEPTH
#define RIGHT_PART (DEPTH * CY_MICROKERNEL_COLS)

// The nearest bf16, ties away from zero, as an fp32 whose lower half is zero.
static inline __m512 round_to_bf16(__m512 x)
{
    const __m512i up = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
    return _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(-0x10000)));
}

FORCE_INLINE void split(__m512 part[PARTS], __m512 x)
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

FORCE_INLINE void store_row(uint16_t *to, __m512 first, __m512 second)
{
    __m512 a[PARTS], b[PARTS];
    split(a, first);
    split(b, second);
    for (int64_t i = 0; i < PARTS; i++)
        _mm512_storeu_si512(to + i * LEFT_PART, join_row(a[i], b[i]));
}

// Sixteen columns of right, two deep: a pair stands side by side.
FORCE_INLINE void store_pairs(uint16_t *to, __m512 even, __m512 odd)
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
    return load_masked(cy_view_at(source, row, col), source.dtype, lanes_mask(source.cols - col));
}

// Thirty-two elements of a row, likewise.
FORCE_INLINE void load_row(__m512 x[2], cy_view source, int64_t row, int64_t col)
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
            load_square(upper, source, k, col);
            load_square(lower, source, k + 16, col);
            if (source.dtype == CY_F32) {
                prefetch_square(source, k + DEPTH, col);
                prefetch_square(source, k + DEPTH + 16, col);
            }
            transpose16(upper);
            transpose16(lower);
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
        load_square(r, source, col, k);
        if (source.dtype == CY_F32) prefetch_square(source, col + 16, k);
        transpose16(r);
        // Of the 16 pairs of a step the second square holds the last eight.
        uint16_t *pair = to + k / DEPTH * RIGHT_PART * PARTS + k % DEPTH * CY_MICROKERNEL_COLS;
        for (int64_t i = 0; i < 16; i += 2, pair += 2 * CY_MICROKERNEL_COLS)
            store_pairs(pair, _mm512_castsi512_ps(r[i]), _mm512_castsi512_ps(r[i + 1]));
    }
}

// One step of 32 deep of one panel, its columns from `col` of the source on.
static void pack_step(uint16_t *to, cy_view source, int64_t k, int64_t col)
{
    for (int64_t i = k; i < k + DEPTH; i += 2, to += 2 * CY_MICROKERNEL_COLS) {
        __m512 even[2], odd[2];
        load_row(even, source, i, col);
        load_row(odd, source, i + 1, col);
        store_pairs(to, even[0], odd[0]);
        store_pairs(to + CY_MICROKERNEL_COLS, even[1], odd[1]);
    }
}

void cy_pack_right_split_avx512(void *right, cy_view source, bool transposed)
{
    const int64_t cols = transposed ? source.rows : source.cols;
    const int64_t depth = cy_round_up(transposed ? source.cols : source.rows, DEPTH);
    uint16_t *to = right;
    if (transposed) {
        for (int64_t col = 0; col < cols; col += CY_MICROKERNEL_COLS) {
            uint16_t *panel = to + col * depth * PARTS;
            pack_half_transposed(panel, source, col, depth);
            pack_half_transposed(panel + CY_MICROKERNEL_COLS, source, col + 16, depth);
        }
        return;
    }
    // Reads along the rows of the source, 32 rows at a time.
    for (int64_t k = 0; k < depth; k += DEPTH) {
        for (int64_t col = 0; col < cols; col += CY_MICROKERNEL_COLS)
            pack_step(to + (col * depth + k * CY_MICROKERNEL_COLS) * PARTS, source, k, col);
    }
}
