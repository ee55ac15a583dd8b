#include "parallel/data/bucket_list.h"

#include "base/assert.h"
#include "base/memory.h"

#include <string.h>

static int64_t elements_of(const cy_reducer_spec *spec, size_t bytes)
{
    const int64_t multiple = (int64_t)64 * cy_group_size(spec->group);
    const int64_t wanted = (int64_t)(bytes / cy_dtype_size(spec->grad_dtype));
    const int64_t whole = wanted / multiple * multiple;
    return whole > multiple ? whole : multiple;
}

int64_t cy_bucket_elements(const cy_reducer_spec *spec)
{
    return elements_of(spec, spec->bucket_bytes);
}

int64_t cy_first_bucket_elements(const cy_reducer_spec *spec)
{
    const size_t bytes = spec->first_bucket_bytes;
    return elements_of(spec, bytes > 0 ? bytes : spec->bucket_bytes);
}

static cy_status copy_ranges(cy_bucket_list *list, const cy_flat_range *ranges, int count)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)count, sizeof(cy_flat_range)));
    memcpy(block, ranges, (size_t)count * sizeof(cy_flat_range));
    *list = (cy_bucket_list){.buckets = block, .count = count};
    return CY_OK;
}

// One bucket of `first` elements, then buckets of `elements`; the last has what is left.
static cy_status cut_buckets(cy_bucket_list *list, int64_t total, int64_t first, int64_t elements)
{
    void *block = NULL;
    const int64_t beyond = total > first ? total - first : 0;
    const int count = 1 + (int)((beyond + elements - 1) / elements);
    CY_TRY(cy_memory_alloc(&block, (size_t)count, sizeof(cy_flat_range)));
    *list = (cy_bucket_list){.buckets = block, .count = count};
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        const int64_t wanted = i == 0 ? first : elements;
        const int64_t left = total - at;
        list->buckets[i] = (cy_flat_range){.first = at, .count = left < wanted ? left : wanted};
        at += list->buckets[i].count;
    }
    return CY_OK;
}

cy_status cy_bucket_list_make(
    cy_bucket_list *list, const cy_reducer_spec *spec, const cy_flat_range *units, int unit_count)
{
    if (spec->naive) {
        CY_ASSERT(spec->zero_stage == 0 && spec->parameter_count > 0);
        return copy_ranges(list, spec->parameters, spec->parameter_count);
    }
    if (spec->zero_stage >= 2) return copy_ranges(list, units, unit_count);
    const cy_flat_range last = units[unit_count - 1];
    return cut_buckets(
        list, last.first + last.count, cy_first_bucket_elements(spec), cy_bucket_elements(spec));
}

void cy_bucket_list_free(cy_bucket_list *list)
{
    cy_memory_free(list->buckets);
    *list = (cy_bucket_list){0};
}

cy_flat_range cy_bucket_shard(cy_flat_range bucket, int rank, int size)
{
    CY_ASSERT(bucket.count % size == 0);
    const int64_t count = bucket.count / size;
    return (cy_flat_range){.first = bucket.first + rank * count, .count = count};
}

bool cy_ranges_meet(cy_flat_range a, cy_flat_range b)
{
    return a.first < b.first + b.count && b.first < a.first + a.count;
}
