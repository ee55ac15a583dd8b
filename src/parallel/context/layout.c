#include "parallel/context/layout.h"

#include "base/assert.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t cy_context_length_local(const cy_context_layout *layout)
{
    CY_ASSERT(layout->length % layout->ranks == 0);
    return layout->length / layout->ranks;
}

int64_t cy_context_tokens_local(const cy_context_layout *layout)
{
    return layout->sequences * cy_context_length_local(layout);
}

int cy_context_ranges(const cy_context_layout *layout, int rank, cy_context_range *ranges)
{
    CY_ASSERT(0 <= rank && rank < layout->ranks);
    const bool two = layout->zigzag && layout->ranks > 1;
    const int64_t chunks = two ? 2 * layout->ranks : layout->ranks;
    CY_ASSERT(layout->length % chunks == 0);
    const int64_t count = layout->length / chunks;
    ranges[0] = (cy_context_range){.first = rank * count, .count = count};
    if (!two) return 1;
    ranges[1] = (cy_context_range){.first = (chunks - 1 - rank) * count, .count = count};
    return 2;
}

void cy_context_positions(const cy_context_layout *layout, int rank, int32_t *positions)
{
    cy_context_range ranges[CY_CONTEXT_RANGES];
    const int count = cy_context_ranges(layout, rank, ranges);
    for (int64_t sequence = 0; sequence < layout->sequences; sequence++) {
        for (int r = 0; r < count; r++) {
            for (int64_t i = 0; i < ranges[r].count; i++)
                *positions++ = (int32_t)(ranges[r].first + i);
        }
    }
}

// The last position that sees a key at `position`; it may be beyond the sequence.
static int64_t last_visible_query(const cy_context_layout *layout, int64_t position)
{
    return layout->window == 0 ? INT64_MAX : position + layout->window - 1;
}

// Whole ranges that no query (or key) of the other side meets are cut off at both ends: the kernel
// leaves out the rest by blocks.
typedef struct trimmed {
    int64_t first, count; // of the rank's positions
    int64_t low, high;    // the positions between them, inclusive
} trimmed;

static trimmed trim(const cy_context_range *ranges, int count, int64_t low, int64_t high)
{
    trimmed kept = {.low = INT64_MAX, .high = -1};
    int64_t before = 0;
    for (int r = 0; r < count; r++) {
        const int64_t end = ranges[r].first + ranges[r].count - 1;
        if (ranges[r].first <= high && end >= low) {
            if (kept.count == 0) kept.first = before;
            kept.count = before + ranges[r].count - kept.first;
            kept.low = least(kept.low, ranges[r].first);
            kept.high = end;
        }
        before += ranges[r].count;
    }
    return kept;
}

// Spans of a query rank against keys that lie in `k_ranges` of each sequence.
static int make_spans(const cy_context_layout *layout, int q_rank, const cy_context_range *k_ranges,
    int k_count, int64_t k_length, cy_attention_span *spans)
{
    cy_context_range q_ranges[CY_CONTEXT_RANGES];
    const int q_count = cy_context_ranges(layout, q_rank, q_ranges);
    const int64_t q_length = cy_context_length_local(layout);
    const int64_t reach =
        last_visible_query(layout, k_ranges[k_count - 1].first + k_ranges[k_count - 1].count - 1);
    const trimmed q = trim(q_ranges, q_count, k_ranges[0].first, reach);
    if (q.count == 0) return 0;
    const int64_t oldest = layout->window == 0 ? 0 : most(q.low - layout->window + 1, 0);
    const trimmed k = trim(k_ranges, k_count, oldest, q.high);
    if (k.count == 0) return 0;
    for (int64_t i = 0; i < layout->sequences; i++) {
        spans[i] = (cy_attention_span){
            .q_first = i * q_length + q.first,
            .q_count = q.count,
            .k_first = i * k_length + k.first,
            .k_count = k.count,
        };
    }
    return (int)layout->sequences;
}

int cy_context_spans(
    const cy_context_layout *layout, int q_rank, int k_rank, cy_attention_span *spans)
{
    cy_context_range ranges[CY_CONTEXT_RANGES];
    const int count = cy_context_ranges(layout, k_rank, ranges);
    return make_spans(layout, q_rank, ranges, count, cy_context_length_local(layout), spans);
}

int cy_context_spans_of_all(const cy_context_layout *layout, int q_rank, cy_attention_span *spans)
{
    const cy_context_range all = {.first = 0, .count = layout->length};
    return make_spans(layout, q_rank, &all, 1, layout->length, spans);
}

// Keys of a range that a query at `position` sees.
static int64_t seen(const cy_context_layout *layout, int64_t position, cy_context_range keys)
{
    const int64_t oldest = layout->window == 0 ? 0 : position - layout->window + 1;
    const int64_t first = most(keys.first, oldest);
    const int64_t end = least(keys.first + keys.count, position + 1);
    return end > first ? end - first : 0;
}

static double count_pairs(
    const cy_context_layout *layout, int q_rank, const cy_context_range *k_ranges, int k_count)
{
    cy_context_range q_ranges[CY_CONTEXT_RANGES];
    const int q_count = cy_context_ranges(layout, q_rank, q_ranges);
    double pairs = 0;
    for (int q = 0; q < q_count; q++) {
        for (int64_t i = 0; i < q_ranges[q].count; i++) {
            for (int k = 0; k < k_count; k++)
                pairs += (double)seen(layout, q_ranges[q].first + i, k_ranges[k]);
        }
    }
    return pairs;
}

double cy_context_pairs(const cy_context_layout *layout, int q_rank, int k_rank)
{
    cy_context_range ranges[CY_CONTEXT_RANGES];
    const int count = cy_context_ranges(layout, k_rank, ranges);
    return count_pairs(layout, q_rank, ranges, count);
}

double cy_context_pairs_of_all(const cy_context_layout *layout, int q_rank)
{
    const cy_context_range all = {.first = 0, .count = layout->length};
    return count_pairs(layout, q_rank, &all, 1);
}

double cy_context_imbalance(const cy_context_layout *layout)
{
    double worst = 0, sum = 0;
    for (int rank = 0; rank < layout->ranks; rank++) {
        const double pairs = cy_context_pairs_of_all(layout, rank);
        if (pairs > worst) worst = pairs;
        sum += pairs;
    }
    return worst * layout->ranks / sum;
}
