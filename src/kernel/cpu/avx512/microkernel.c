// Multiplies blocks with AVX-512, in fp32 and in bf16. Compiles the row-by-row part of attention
// for AVX-512.

#include "kernel/cpu/gemm/microkernel.h"

#include "base/status.h"
#include "kernel/cpu/attention/rows.h"
#include "kernel/cpu/avx512/pack.h"
#include "kernel/cpu/gemm/dot.h"

// Six rows by 64 columns are 24 accumulators, 4 vectors of right and one broadcast: 29 of the 32
// registers, and 10 loads for 24 fused multiply-adds, so the two arithmetic ports are the limit.
#define MICRO_ROWS INT64_C(6)

// Words of depth of one pass over c at most. Sums are read and written once a pass, so passes are
// few. Two panels of right then come from L2, four lines in the twelve cycles of a step, which is
// within its bandwidth; 128 rows of left stay in L2 too.
#define MICRO_DEPTH 528

FORCE_INLINE __m512 multiply_add(__m512 sum, __m512 a, __m512 b, bool pairs)
{
    if (pairs) return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
    return _mm512_fmadd_ps(a, b, sum);
}

// One fp32 or one pair of bf16 of left, in all lanes.
static inline __m512 broadcast(const char *at)
{
    float word;
    memcpy(&word, at, sizeof(word));
    return _mm512_set1_ps(word);
}

// c [rows, 16 vectors] over `words` steps of four bytes of depth; right is one panel, or two that
// lie panel_bytes apart. rows and vectors are constants wherever this is inlined.
FORCE_INLINE void micro(float *c, int64_t c_stride, const char *left, int64_t left_bytes,
    const char *right, int64_t panel_bytes, int64_t words, int64_t cols, bool accumulate,
    const int rows, const int64_t vectors, const bool pairs)
{
    __m512 sum[MICRO_ROWS][4];
    __mmask16 kept[4];
    for (int64_t j = 0; j < vectors; j++) {
        kept[j] = cols > 16 * j ? lanes_mask(cols - 16 * j) : 0;
        for (int i = 0; i < rows; i++) {
            sum[i][j] = accumulate ? _mm512_maskz_loadu_ps(kept[j], c + i * c_stride + 16 * j)
                                   : _mm512_setzero_ps();
        }
    }
    const char *upper = left + 3 * left_bytes;
    for (int64_t k = 0; k < words; k++) {
        __m512 b[4];
        for (int64_t j = 0; j < vectors; j++) {
            b[j] = _mm512_loadu_ps(right + (j / 2) * panel_bytes + 64 * (j % 2));
        }
        for (int i = 0; i < rows; i++) {
            const __m512 a =
                broadcast(i < 3 ? left + i * left_bytes : upper + (i - 3) * left_bytes);
            for (int64_t j = 0; j < vectors; j++)
                sum[i][j] = multiply_add(sum[i][j], a, b[j], pairs);
        }
        left += 4;
        upper += 4;
        right += 128;
    }
    for (int i = 0; i < rows; i++) {
        for (int64_t j = 0; j < vectors; j++) {
            _mm512_mask_storeu_ps(c + i * c_stride + 16 * j, kept[j], sum[i][j]);
        }
    }
}

#define MICRO_CASE(count)                                                                          \
    case count:                                                                                    \
        micro(c, c_stride, left, left_bytes, right, panel_bytes, words, cols, accumulate, count,   \
            vectors, pairs);                                                                       \
        break

FORCE_INLINE void micro_rows(float *c, int64_t c_stride, const char *left, int64_t left_bytes,
    const char *right, int64_t panel_bytes, int64_t words, int64_t cols, bool accumulate,
    int64_t rows, const int64_t vectors, const bool pairs)
{
    switch (rows) {
        MICRO_CASE(1);
        MICRO_CASE(2);
        MICRO_CASE(3);
        MICRO_CASE(4);
        MICRO_CASE(5);
    default:
        micro(c, c_stride, left, left_bytes, right, panel_bytes, words, cols, accumulate,
            MICRO_ROWS, vectors, pairs);
    }
}

// Prefetches the sums of the next rows of the panel. They may be in memory, a few lines in each of
// six distant rows, which hardware prefetchers do not follow.
FORCE_INLINE void prefetch_next(const float *c, int64_t c_stride, int64_t rows)
{
    for (int64_t i = MICRO_ROWS; i < 2 * MICRO_ROWS && i < rows; i++) {
        for (int64_t j = 0; j < 2 * CY_MICROKERNEL_COLS; j += 16)
            _mm_prefetch((const char *)(c + i * c_stride + j), _MM_HINT_T0);
    }
}

// Up to MICRO_ROWS rows by one panel, or by two.
FORCE_INLINE void micro_panels(float *c, int64_t c_stride, const char *left, int64_t left_bytes,
    const char *right, int64_t panel_bytes, int64_t words, int64_t cols, bool accumulate,
    int64_t rows, const bool pairs)
{
    prefetch_next(c, c_stride, rows);
    if (cols > CY_MICROKERNEL_COLS) {
        micro_rows(c, c_stride, left, left_bytes, right, panel_bytes, words, cols, accumulate, rows,
            4, pairs);
    } else {
        micro_rows(c, c_stride, left, left_bytes, right, panel_bytes, words, cols, accumulate, rows,
            2, pairs);
    }
}

FORCE_INLINE void multiply(float *c, int64_t c_stride, const char *left, int64_t left_bytes,
    const char *right, int64_t rows, int64_t cols, int64_t words, bool accumulate, const bool pairs)
{
    CY_DEBUG_ASSERT(words > 0);
    const int64_t panel_bytes = words * 4 * CY_MICROKERNEL_COLS;
    const int64_t passes = (words + MICRO_DEPTH - 1) / MICRO_DEPTH;
    const int64_t depth = (words + passes - 1) / passes;
    for (int64_t k = 0; k < words; k += depth) {
        const int64_t steps = words - k < depth ? words - k : depth;
        const bool add = accumulate || k > 0;
        for (int64_t col = 0; col < cols; col += 2 * CY_MICROKERNEL_COLS) {
            const char *panel =
                right + col / CY_MICROKERNEL_COLS * panel_bytes + k * 4 * CY_MICROKERNEL_COLS;
            for (int64_t row = 0; row < rows; row += MICRO_ROWS) {
                micro_panels(c + row * c_stride + col, c_stride, left + row * left_bytes + k * 4,
                    left_bytes, panel, panel_bytes, steps, cols - col, add, rows - row, pairs);
            }
        }
    }
}

static void multiply_f32(float *c, int64_t c_stride, const void *left, int64_t left_stride,
    const void *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate)
{
    multiply(c, c_stride, left, left_stride * 4, right, rows, cols, depth, accumulate, false);
}

static void multiply_bf16(float *c, int64_t c_stride, const void *left, int64_t left_stride,
    const void *right, int64_t rows, int64_t cols, int64_t depth, bool accumulate)
{
    CY_DEBUG_ASSERT(depth % 2 == 0);
    multiply(c, c_stride, left, left_stride * 2, right, rows, cols, depth / 2, accumulate, true);
}

static void pack_left_bf16(void *left, cy_view source, bool transposed)
{
    cy_pack_left_bf16_avx512(left, source, transposed, 2);
}

static void pack_right_bf16(void *right, cy_view source, bool transposed)
{
    cy_pack_right_bf16_avx512(right, source, transposed, 2);
}

void cy_dot_avx512(float *c, const float *a, int64_t rows, cy_view b, const void *next)
{
    dot_rows(c, a, rows, b, next);
}

const cy_microkernel *cy_microkernel_avx512(void)
{
    static const cy_microkernel ops = {
        .isa = "avx512",
        .dtype = CY_F32,
        .packed_bytes = 4,
        .depth_step = 1,
        .row_block = 128,
        .enter = cy_microkernel_no_tiles,
        .leave = cy_microkernel_no_tiles,
        .pack_left = cy_pack_left_f32_avx512,
        .pack_right = cy_pack_right_f32_avx512,
        .multiply = multiply_f32,
        .convert = cy_convert_avx512,
        .transpose = cy_transpose_avx512,
        .dot = cy_dot_avx512,
    };
    return &ops;
}

const cy_microkernel *cy_microkernel_avx512_bf16(void)
{
    static const cy_microkernel ops = {
        .isa = "avx512_bf16",
        .dtype = CY_BF16,
        .packed_bytes = 2,
        .depth_step = 2,
        .row_block = 128,
        .enter = cy_microkernel_no_tiles,
        .leave = cy_microkernel_no_tiles,
        .pack_left = pack_left_bf16,
        .pack_right = pack_right_bf16,
        .multiply = multiply_bf16,
        .convert = cy_convert_avx512_bf16,
        .transpose = cy_transpose_avx512,
        .dot = cy_dot_avx512,
    };
    return &ops;
}

const cy_attention_rows *cy_attention_rows_avx512(void)
{
    return &attention_rows;
}
