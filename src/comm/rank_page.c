// What ranks say of themselves: written by each, read by those who wait for it.
#define _POSIX_C_SOURCE 200809L
#include "comm/rank_page.h"

#include <stdio.h>
#include <string.h>

void cy_rank_page_init(cy_rank_page *page)
{
    memset(page, 0, sizeof(*page));
    atomic_store(&page->waiting_for, -1);
}

void cy_rank_page_says(
    cy_rank_page *page, const char *dimension, cy_operation_kind kind, uint64_t sequence)
{
    uint64_t letters = 0;
    memcpy(&letters, dimension, strnlen(dimension, sizeof(letters)));
    atomic_store_explicit(&page->last_dimension, letters, memory_order_relaxed);
    atomic_store_explicit(&page->last_call, sequence << 8 | (uint64_t)kind, memory_order_relaxed);
    // A count that is lost to another thread of the rank is no harm.
    const uint64_t beat = atomic_load_explicit(&page->beat, memory_order_relaxed);
    atomic_store_explicit(&page->beat, beat + 1, memory_order_relaxed);
}

int cy_rank_page_culprit(cy_rank_page *const *pages, int size, int rank)
{
    for (int steps = 0; steps < size; steps++) {
        const cy_rank_page *page = pages[rank];
        const int next = page == NULL ? -1 : atomic_load(&page->waiting_for);
        if (next < 0) return rank;
        rank = next;
    }
    return rank; // ranks that wait for each other in a ring: any of them is to blame
}

uint64_t cy_rank_page_sign(const cy_rank_page *page)
{
    if (page == NULL) return 0;
    const uint64_t beat = atomic_load_explicit(&page->beat, memory_order_relaxed);
    return atomic_load(&page->waiting_for) >= 0 ? beat : beat + atomic_load(&page->looks);
}

void cy_rank_page_describe(
    const cy_rank_page *page, int rank, const char *host, char *text, size_t bytes)
{
    if (page == NULL) {
        snprintf(text, bytes, "rank %d (%s)", rank, host);
        return;
    }
    const uint64_t letters = atomic_load_explicit(&page->last_dimension, memory_order_relaxed);
    const uint64_t call = atomic_load_explicit(&page->last_call, memory_order_relaxed);
    char dimension[sizeof(letters) + 1] = {0};
    memcpy(dimension, &letters, sizeof(letters));
    if (letters == 0) {
        snprintf(text, bytes, "rank %d (%s), which has not communicated yet", rank, host);
        return;
    }
    snprintf(text, bytes, "rank %d (%s), last seen in %s %llu of %s", rank, host,
        cy_operation_name((cy_operation_kind)(call & 0xff)), (unsigned long long)(call >> 8),
        dimension);
}
