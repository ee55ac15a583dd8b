// support/count_work.h: what a function takes, in basic blocks that the processor enters: the same
// each time, on a busy machine as on an idle one.
//
// Counted are the sources that tests/CMakeLists.txt compiles once more for the test with
// -fsanitize-coverage=trace-pc, by which the compiler calls a function of this header in each
// block. One file of a test program includes it.

#ifndef CY_TESTS_COUNT_WORK_H
#define CY_TESTS_COUNT_WORK_H

#include "support/support.h"

#include <stdatomic.h>
#include <stdint.h>

static _Atomic int64_t cy_test_blocks;

void __sanitizer_cov_trace_pc(void);

void __sanitizer_cov_trace_pc(void)
{
    atomic_fetch_add_explicit(&cy_test_blocks, 1, memory_order_relaxed);
}

static int64_t cy_test_work_of(void (*work)(int count), int count)
{
    cy_test_blocks = 0;
    work(count);
    return cy_test_blocks;
}

// What twice as much takes more, from 2 N to 4 N, is at most 2.4 times what it takes more from N to
// 2 N. Where all of it grows with the square it is 4 times; where as N log N, less than 2.4 times.
static void cy_test_check_linear(void (*work)(int count), int first)
{
    const int64_t one = cy_test_work_of(work, first);
    const int64_t two = cy_test_work_of(work, 2 * first);
    const int64_t four = cy_test_work_of(work, 4 * first);
    if (one < first || (four - two) * 10 > (two - one) * 24) {
        fail_msg("%lld blocks for %d, %lld for %d, %lld for %d", (long long)one, first,
            (long long)two, 2 * first, (long long)four, 4 * first);
    }
}

#endif
